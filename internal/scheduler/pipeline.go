package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// stageJobs returns the jobs that stand for the parts of a pipeline's stages: they
// are held, and end with their stage.
func stageJobs(w *job.Workflow) map[job.Name]bool {
	jobs := map[job.Name]bool{}
	for i := range w.Pipelines {
		for j := range w.Pipelines[i].Stages {
			if s := &w.Pipelines[i].Stages[j]; !s.Streams {
				jobs[s.Job] = true
			}
		}
	}
	return jobs
}

// batchJobs are the jobs of one batch, as a pipeline asks for them.
type batchJobs struct {
	followers *Followers
	batch     job.BatchID
}

// Job implements pipeline.Jobs. One that has ended comes without its words.
func (b batchJobs) Job(ctx context.Context, name job.Name) (queue.Entry, error) {
	known, err := b.followers.refresh(ctx, b.batch)
	if err != nil {
		return queue.Entry{}, err
	}
	e := known.byName[name]
	if e == nil {
		return queue.Entry{}, queue.ErrNotFound
	}
	return *e, nil
}

// Answer implements pipeline.Jobs.
func (b batchJobs) Answer(ctx context.Context, e *queue.Entry) (string, error) {
	attempts, err := b.followers.store.Attempts(ctx, e.ID)
	if err != nil || len(attempts) == 0 {
		return "", err
	}
	o := attempts[len(attempts)-1].Outcome
	if o == nil {
		return "", nil
	}
	return b.followers.wholeAnswer(ctx, o)
}

// openLogs opens the logs of a batch's pipelines, in their order.
func openLogs(ctx context.Context, store queue.Store, id job.BatchID, w *job.Workflow) ([]*pipeline.Log, error) {
	var logs []*pipeline.Log
	for i := range w.Pipelines {
		l, err := pipeline.Open(ctx, store, id, &w.Pipelines[i])
		if err != nil {
			return nil, fmt.Errorf("open pipeline %s: %w", w.Pipelines[i].ID, err)
		}
		logs = append(logs, l)
	}
	return logs, nil
}

// stream takes the pipelines of a batch further. It reports whether something was
// done.
func (f *Followers) stream(ctx context.Context, id job.BatchID, w *job.Workflow) (done bool, err error) {
	logs, err := f.open.logsOf(ctx, id, w)
	if err != nil {
		return false, err
	}
	jobs := batchJobs{f, id}
	for _, l := range logs {
		moves, err := l.Advance(ctx, jobs, now())
		for _, m := range moves {
			done = true
			f.tellStage(ctx, jobs, w, m)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// tellStage does and tells what follows from a move of a pipeline, which is
// durable.
func (f *Followers) tellStage(ctx context.Context, jobs batchJobs, w *job.Workflow, m pipeline.Move) {
	f.log.Debug().Str("stage", string(m.Stage)).Str("move", string(m.Kind)).Str("part", string(m.Part)).Ints64("events", m.Events).Str("why", m.Why).Msg("pipeline")
	name := m.Part
	switch m.Kind {
	case pipeline.Stopped:
		f.jobs.stopJob(m.ID, "its answer is not wanted any more")
	case pipeline.Buried:
		f.feed.Tell(fmt.Sprintf("stage %s: event %v went to the dead letters: %s", m.Stage, m.Events, m.Why))
	case pipeline.Ended, pipeline.Failed:
		name = stageJob(w, m.Stage)
	case pipeline.Gave:
	default:
		return
	}
	ctx = context.WithoutCancel(ctx)
	e, err := jobs.Job(ctx, name)
	if err == nil {
		e, err = f.store.Get(ctx, e.ID)
	}
	if err != nil {
		if !errors.Is(err, queue.ErrNotFound) { // else it was about no job
			f.log.Warn().Err(err).Str("name", string(name)).Msg("read a job to tell of it")
			f.dispatch()
		}
		return
	}
	f.feed.publishChange(ctx, &e)
	f.dispatch()
}

// stageJob returns the job of a stage.
func stageJob(w *job.Workflow, stage job.Name) job.Name {
	for i := range w.Pipelines {
		for j := range w.Pipelines[i].Stages {
			if w.Pipelines[i].Stages[j].ID == stage {
				return w.Pipelines[i].Stages[j].Job
			}
		}
	}
	return ""
}

// Pipeline is how a pipeline stands.
type Pipeline struct {
	ID      job.Name        `json:"id"`
	Batch   job.BatchID     `json:"batch"`
	Created time.Time       `json:"created_at"`
	Replays *job.Replay     `json:"replays,omitempty"`
	Stages  []PipelineStage `json:"stages"`
	// Letters are the events that a stage could not handle, and that no replay has
	// mended.
	Letters []pipeline.DeadLetter `json:"dead_letters,omitempty"`
}

// PipelineStage is how a stage stands, and which types of events it takes and gives.
type PipelineStage struct {
	pipeline.Status
	Subscribes []job.EventType `json:"subscribes,omitempty"`
	Publishes  []job.EventType `json:"publishes,omitempty"`
}

// Pipelines returns all pipelines that there are, the newest first; with a name
// only those of that id, or of a batch whose id begins with it.
func Pipelines(ctx context.Context, store queue.Store, name string) ([]Pipeline, error) {
	batches, err := store.Batches(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list pipelines: %w", err)
	}
	var list []Pipeline
	for i := range batches {
		b := &batches[i]
		if len(b.Workflow.Pipelines) == 0 {
			continue
		}
		logs, err := openLogs(ctx, store, b.ID, &b.Workflow)
		if err != nil {
			return nil, err
		}
		for j, l := range logs {
			p := Pipeline{ID: b.Workflow.Pipelines[j].ID, Batch: b.ID, Created: b.CreatedAt, Replays: b.Workflow.Pipelines[j].Replays}
			if name != "" && string(p.ID) != name && !strings.HasPrefix(string(b.ID), name) && !(len(name) >= 8 && strings.HasSuffix(string(b.ID), name)) {
				continue
			}
			status, err := l.Status(ctx)
			if err != nil {
				return nil, fmt.Errorf("read pipeline %s: %w", p.ID, err)
			}
			stages := b.Workflow.Pipelines[j].Stages // in the same order
			for k := range stages {
				p.Stages = append(p.Stages, PipelineStage{status[k], stages[k].Subscribes, stages[k].Publishes})
				letters, err := l.DeadLetters(ctx, b.Workflow.Pipelines[j].Stages[k].ID)
				if err != nil {
					return nil, fmt.Errorf("read pipeline %s: %w", p.ID, err)
				}
				for _, d := range letters {
					if d.MendedAt == nil {
						p.Letters = append(p.Letters, d)
					}
				}
			}
			list = append(list, p)
		}
	}
	return list, nil
}

// PipelineEvents returns events of the newest pipeline that name names, with a
// larger number than after, at most limit. The error wraps queue.ErrNotFound if
// there is none.
func PipelineEvents(ctx context.Context, store queue.Store, name string, after int64, limit int) ([]pipeline.Event, error) {
	b, n, err := findPipeline(ctx, store, name)
	if err != nil {
		return nil, err
	}
	logs, err := openLogs(ctx, store, b.ID, &b.Workflow)
	if err != nil {
		return nil, err
	}
	return logs[n].Events(ctx, after, limit)
}

// findPipeline returns the newest batch with a pipeline of that id, or the one
// whose id begins with name, and the pipeline's index in it.
func findPipeline(ctx context.Context, store queue.Reader, name string) (*queue.Batch, int, error) {
	batches, err := store.Batches(ctx, "")
	if err != nil {
		return nil, 0, fmt.Errorf("look for pipeline %s: %w", name, err)
	}
	for i := range batches {
		for j := range batches[i].Workflow.Pipelines {
			if string(batches[i].Workflow.Pipelines[j].ID) == name || len(name) >= 8 && (strings.HasPrefix(string(batches[i].ID), name) || strings.HasSuffix(string(batches[i].ID), name)) {
				return &batches[i], j, nil
			}
		}
	}
	return nil, 0, fmt.Errorf("pipeline %s: %w", name, queue.ErrNotFound)
}

// ReplayStage has a stage of the newest pipeline that name names do its events
// again. It returns the first that is given again; see pipeline.Log.Replay.
func (f *Followers) ReplayStage(ctx context.Context, name string, r api.Rewind) (first int64, err error) {
	b, n, err := findPipeline(ctx, f.store, name)
	if err != nil {
		return 0, err
	}
	logs, err := f.open.logsOf(ctx, b.ID, &b.Workflow)
	if err != nil {
		return 0, err
	}
	first, err = logs[n].Replay(ctx, r.Stage, r.From, r.Again, now())
	f.look(b.ID)
	return first, err
}
