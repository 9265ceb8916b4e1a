package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// openBatches are the workflows and the opened pipelines of batches that are not over.
// Each is read once. Followers ask for them, and so do flights of stages that stream.
type openBatches struct {
	store queue.Store
	kinds kinds

	mu     sync.Mutex // guards what follows; held while the store is read
	logs   map[job.BatchID][]*pipeline.Log
	common map[job.BatchID]*job.Workflow // which never change
}

func newOpenBatches(store queue.Store, k kinds) *openBatches {
	return &openBatches{store: store, kinds: k, logs: map[job.BatchID][]*pipeline.Log{}, common: map[job.BatchID]*job.Workflow{}}
}

// note keeps what the jobs of a batch that was just submitted have in common.
func (o *openBatches) note(b *queue.Batch, entries []queue.Entry) {
	if len(entries) == 0 || !entries[0].Spec.Flow.Joined {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.common[b.ID] = &b.Workflow
}

// workflow returns what the jobs of a batch have in common. Of batches that were
// not submitted to this scheduler it is read once, for all that are open.
func (o *openBatches) workflow(ctx context.Context, id job.BatchID) (*job.Workflow, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.common[id]; w != nil {
		return w, nil
	}
	batches, err := o.store.Batches(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("read what the jobs of workflow %s have in common: %w", id, err)
	}
	for i := range batches {
		if b := &batches[i]; o.common[b.ID] == nil && (b.ClosedAt == nil || b.ID == id) {
			o.common[b.ID] = &b.Workflow
		}
	}
	if o.common[id] == nil {
		o.common[id] = &job.Workflow{}
	}
	return o.common[id], nil
}

// logsOf returns the logs of a batch's pipelines, opened once.
func (o *openBatches) logsOf(ctx context.Context, id job.BatchID, w *job.Workflow) ([]*pipeline.Log, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if logs, open := o.logs[id]; open || len(w.Pipelines) == 0 {
		return logs, nil
	}
	logs, err := openLogs(ctx, o.store, id, w)
	if err == nil {
		for _, l := range logs {
			l.Schema = o.answerSchema
		}
		o.logs[id] = logs
	}
	return logs, err
}

// answerSchema lets a wrong answer of a stage be tried again with the reason.
func (o *openBatches) answerSchema(spec *job.Spec, stage *job.Stage) json.RawMessage {
	if o.kinds.traits(spec.Worker).ClosedSchemas {
		return nil // the data of events is left open
	}
	return pipeline.AnswerSchema(stage)
}

// stageOf returns the log and the stage of a job that streams; nil if it does not.
func (o *openBatches) stageOf(ctx context.Context, e *queue.Entry) (*pipeline.Log, ipc.Stream, error) {
	if !e.Spec.Flow.Joined || e.Spec.Flow.Node != "" {
		return nil, ipc.Stream{}, nil
	}
	w, err := o.workflow(ctx, e.Batch)
	if err != nil {
		return nil, ipc.Stream{}, err
	}
	for i := range w.Pipelines {
		p := &w.Pipelines[i]
		n := slices.IndexFunc(p.Stages, func(stage job.Stage) bool { return stage.Streams && stage.Job == e.Spec.Name })
		if n < 0 {
			continue
		}
		logs, err := o.logsOf(ctx, e.Batch, w)
		if err != nil {
			return nil, ipc.Stream{}, err
		}
		return logs[i], ipc.Stream{Pipeline: p.ID, Stage: p.Stages[n].ID}, nil
	}
	return nil, ipc.Stream{}, nil
}

// close forgets a batch that is over.
func (o *openBatches) close(id job.BatchID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.logs, id)
	delete(o.common, id)
}
