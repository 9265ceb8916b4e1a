package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// replayPath names a job or a batch.
type replayPath struct {
	Ref string `path:"ref" doc:"a job by its id, its name or 8 or more characters of its id's end or beginning, or a batch by its id or such a part of it"`
}

func (x entries) replay(ctx context.Context, in *replayPath) (out api.ReplayReport, err error) {
	out.Steps = []api.Step{}
	e, err := x.find(ctx, in.Ref)
	if errors.Is(err, queue.ErrNotFound) && len(in.Ref) >= 8 {
		b, batchErr := findBatch(ctx, x.store, in.Ref)
		if errors.Is(batchErr, queue.ErrNotFound) {
			return out, err
		}
		if err = batchErr; err == nil {
			out.Workflow, err = replayOf(ctx, x.store, b.ID)
		}
		return out, err
	}
	if err != nil {
		return out, err
	}
	if out.Steps, err = StepsOf(ctx, x.store, &e); err != nil {
		return out, err
	}
	if e.Spec.Flow.Joined {
		if out.Workflow, err = replayOf(ctx, x.store, e.Batch); err != nil {
			return out, err
		}
		if i := slices.IndexFunc(out.Workflow.Jobs, func(j api.ReplayJob) bool { return j.ID == e.ID }); i >= 0 {
			out.Job = &out.Workflow.Jobs[i]
			return out, nil
		}
	}
	j := replayJobOf(&e, nil)
	out.Job = &j
	return out, nil
}

func replayJobOf(e *queue.Entry, interruptions []time.Time) api.ReplayJob {
	j := api.ReplayJob{ID: e.ID, Name: e.Spec.Name, State: stateWord(e), Attempts: e.Attempts, CompletedAt: e.CompletedAt}
	if e.Resolved != nil {
		j.Inputs = e.Resolved.Hash
	}
	if e.State == job.Completed && e.CompletedAt != nil {
		j.Kept = job.KeptFresh
		if slices.ContainsFunc(interruptions, func(at time.Time) bool { return at.After(*e.CompletedAt) }) {
			j.Kept = job.KeptBefore
		}
	}
	return j
}

// replayOf reads a batch's jobs, and when the batch was interrupted.
func replayOf(ctx context.Context, store queue.Reader, b job.BatchID) (*api.ReplayWorkflow, error) {
	entries, _, err := store.List(ctx, queue.Filter{Batch: b, Limit: 1 << 30})
	if err != nil {
		return nil, err
	}
	w := &api.ReplayWorkflow{Batch: b, Interruptions: []time.Time{}, Jobs: []api.ReplayJob{}}
	for i := range entries {
		attempts, err := store.Attempts(ctx, entries[i].ID)
		if err != nil {
			return nil, err
		}
		for _, a := range attempts {
			if a.Lost && a.Ended != nil {
				w.Interruptions = append(w.Interruptions, *a.Ended)
			}
		}
	}
	slices.SortFunc(w.Interruptions, time.Time.Compare)
	w.Interruptions = slices.CompactFunc(w.Interruptions, time.Time.Equal)
	for i := range entries {
		w.Jobs = append(w.Jobs, replayJobOf(&entries[i], w.Interruptions))
	}
	return w, nil
}
