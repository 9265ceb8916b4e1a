package scheduler

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

// answerCore answers what a core asks about the durable steps and the streams of its
// runs.
func (s *Scheduler) answerCore(ctx context.Context, c *supervisor.Core, method string, params json.RawMessage) (any, error) {
	switch method {
	case ipc.MethodStoreStep:
		var r ipc.StoreStep
		if err := ipc.DecodeParams(params, &r); err != nil {
			return nil, err
		}
		return s.storeStep(ctx, c, r)
	case ipc.MethodListSteps:
		var r ipc.ListSteps
		if err := ipc.DecodeParams(params, &r); err != nil {
			return nil, err
		}
		return s.listSteps(ctx, c, r)
	case ipc.MethodStreamLines:
		var r ipc.StreamLines
		if err := ipc.DecodeParams(params, &r); err != nil {
			return nil, err
		}
		return s.streamLines(ctx, c, r)
	}
	return nil, ipc.MethodNotFound(method)
}

// flying returns the entry of a run, with its fence, if the core has that run.
func (s *Scheduler) flying(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error) {
	r, err := s.fleet.runOn(c, id, attempt)
	if err != nil {
		return queue.Entry{}, err
	}
	e := r.Entry
	e.Attempts = r.Attempt
	return e, nil
}

// storeStep stores a step under its claim's fence: whoever was given up for dead
// can store nothing.
func (s *Scheduler) storeStep(ctx context.Context, c *supervisor.Core, r ipc.StoreStep) (ipc.StoreStepResult, error) {
	e, err := s.flying(c, r.Job, r.Attempt)
	if err != nil {
		return ipc.StoreStepResult{Refused: err.Error()}, nil
	}
	kept, fresh, err := durable.Keep(ctx, s.cfg.Store, durable.Space(e.ID),
		durable.Stored{ID: r.Step.ID, Inputs: r.Step.Inputs, Result: r.Step.Result, Attempt: r.Attempt, At: now()},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: r.Attempt})
	var collision *durable.CollisionError
	switch {
	case errors.As(err, &collision), errors.Is(err, queue.ErrFenced):
		return ipc.StoreStepResult{Refused: err.Error()}, nil // the run tells of it by an event
	case err != nil:
		return ipc.StoreStepResult{}, err
	case fresh:
		s.Feed.signal(&e, api.StepCompleted, kept.ID, "")
	}
	return ipc.StoreStepResult{Step: ipc.Step{ID: kept.ID, Inputs: kept.Inputs, Result: kept.Result}, FromStore: !fresh}, nil
}

func (s *Scheduler) listSteps(ctx context.Context, c *supervisor.Core, r ipc.ListSteps) (ipc.ListStepsResult, error) {
	out := ipc.ListStepsResult{Steps: []ipc.Step{}}
	e, err := s.flying(c, r.Job, r.Attempt)
	if err != nil {
		return out, err
	}
	steps, more, err := durable.Page(ctx, s.cfg.Store, durable.Space(e.ID), r.After, ipc.MaxStepsPage)
	if err != nil {
		return out, err
	}
	for _, p := range steps {
		out.Steps = append(out.Steps, ipc.Step{ID: p.ID, Inputs: p.Inputs, Result: p.Result})
	}
	out.More = more
	return out, nil
}

// hasSteps reports whether steps of a job are stored.
func (s *Scheduler) hasSteps(ctx context.Context, id job.ID) bool {
	any, err := durable.Any(ctx, s.cfg.Store, durable.Space(id))
	if err != nil {
		s.cfg.Log.Error().Err(err).Str("job", string(id)).Msg("steps cannot be read: the attempt does them again")
	}
	return any
}

// anew returns what else is to be applied with op: when work is done again since
// it was not good enough, its steps would only give the same again.
func anew(op queue.Op) []queue.Op {
	switch op := op.(type) {
	case queue.Finish:
		// One that was cut short keeps the feedback that it began with, and its steps.
		if op.Exit == "" && op.Retry.Feedback != "" && !op.Lost {
			return []queue.Op{durable.Forget(durable.Space(op.ID))}
		}
	case queue.Decide:
		if op.Retry != nil {
			return []queue.Op{durable.Forget(durable.Space(op.ID))}
		}
	}
	return nil
}
