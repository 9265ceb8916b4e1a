package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// ReplayPipeline submits a new run of the pipeline that name names, in a shared
// batch, by enqueue: Store.Enqueue, or Scheduler.Submit of a running one. Its
// stages are given recorded events of the earlier run, which stays as it is. The
// other jobs of that batch are not run again.
func ReplayPipeline(ctx context.Context, store queue.Store, enqueue func(context.Context, queue.Batch, []queue.Entry) error, name string, r api.Replay, at time.Time) (api.Replayed, error) {
	old, n, err := findPipeline(ctx, store, name)
	if err != nil {
		return api.Replayed{}, err
	}
	line := old.Workflow.Pipelines[n]
	log, err := pipeline.Open(ctx, store, old.ID, &line)
	if err != nil {
		return api.Replayed{}, fmt.Errorf("open pipeline %s: %w", line.ID, err)
	}
	selection := pipeline.Selection(r)
	replays, events, err := selection.Replay(ctx, log)
	if err != nil {
		return api.Replayed{}, fmt.Errorf("replay pipeline %s of run %s: %w", line.ID, old.ID, err)
	}
	entries, _, err := store.List(ctx, queue.Filter{Batch: old.ID, Limit: 1 << 30})
	if err != nil {
		return api.Replayed{}, fmt.Errorf("read the jobs of run %s: %w", old.ID, err)
	}
	line.Replays = replays
	b := queue.Batch{
		ID: job.NewBatchID(), Source: fmt.Sprintf("submitted: replay of %s/%s", old.ID, line.ID), CreatedAt: at,
		Workflow: job.Workflow{Pipelines: []job.Pipeline{line}, Agents: old.Workflow.Agents},
	}
	jobs, err := stageEntries(&line, entries, at)
	if err != nil {
		return api.Replayed{}, err
	}
	for i := range jobs {
		jobs[i].Batch = b.ID
	}
	if err := enqueue(ctx, b, jobs); err != nil {
		return api.Replayed{}, err
	}
	return api.Replayed{Batch: b.ID, Pipeline: line.ID, Replays: *replays, Events: events}, nil
}

// stageEntries returns new jobs for the stages of a replay, which say what those of
// the earlier run said.
func stageEntries(line *job.Pipeline, old []queue.Entry, at time.Time) ([]queue.Entry, error) {
	first := slices.IndexFunc(line.Stages, func(s job.Stage) bool { return s.ID == line.Replays.Stage })
	var jobs []queue.Entry
	for i := range line.Stages[first:] {
		stage := &line.Stages[first+i]
		n := slices.IndexFunc(old, func(e queue.Entry) bool { return e.Spec.Name == stage.Job })
		if n < 0 {
			return nil, fmt.Errorf("run %s has no job %s any more, which stage %s needs to run again", line.Replays.Batch, stage.Job, stage.ID)
		}
		again := Again{Letter: old[n], Fresh: true}
		e := again.entry(at)
		e.RequeuedFrom, e.Spec.Trace, e.Spec.Flow.Joined = "", NewTrace(), true
		if !stage.Streams {
			e.Held, e.Waiting = job.HeldForParts, job.Waiting{Reason: job.WaitParts}.String()
		}
		jobs = append(jobs, e)
	}
	return jobs, nil
}
