package scheduler

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/durable"
)

// answers are who knows what a core asks: about the durable steps, the streams, the
// workspaces and the jobs of its runs, and about what they share with others.
type answers struct {
	steps   *steps
	streams *streams
	parcels *parcels
	patches *patches
	ledger  *ledger
	talks   *Conversations
	kids    *Children
}

// core answers a core.
func (a answers) core(ctx context.Context, c *supervisor.Core, method string, params json.RawMessage) (any, error) {
	switch method {
	case ipc.MethodStoreStep:
		return answer(ctx, c, params, a.steps.store)
	case ipc.MethodListSteps:
		return answer(ctx, c, params, a.steps.list)
	case ipc.MethodStreamLines:
		return answer(ctx, c, params, a.streams.lines)
	case ipc.MethodReadParcel:
		return answer(ctx, c, params, a.parcels.read)
	case ipc.MethodSharePermit:
		return answer(ctx, c, params, a.ledger.admit)
	case ipc.MethodReturnPermit:
		return answer(ctx, c, params, a.ledger.back)
	case ipc.MethodReserve:
		return answer(ctx, c, params, a.ledger.reserve)
	case ipc.MethodRelease:
		return answer(ctx, c, params, a.ledger.release)
	case ipc.MethodAskPerson:
		return answer(ctx, c, params, a.talks.ask)
	case ipc.MethodReportTalk:
		return answer(ctx, c, params, a.talks.report)
	case ipc.MethodSubmitChild:
		return answer(ctx, c, params, a.kids.submit)
	case ipc.MethodListChildren:
		return answer(ctx, c, params, a.kids.list)
	case ipc.MethodReadChild:
		return answer(ctx, c, params, a.kids.read)
	case ipc.MethodCancelChild:
		return answer(ctx, c, params, a.kids.withdraw)
	case ipc.MethodNotes:
		return answer(ctx, c, params, a.kids.notes)
	case ipc.MethodReadPatch:
		return answer(ctx, c, params, a.patches.read)
	}
	return nil, ipc.MethodNotFound(method)
}

func answer[Q, A any](ctx context.Context, c *supervisor.Core, params json.RawMessage, ask func(context.Context, *supervisor.Core, Q) (A, error)) (any, error) {
	var q Q
	if err := ipc.DecodeParams(params, &q); err != nil {
		return nil, err
	}
	return ask(ctx, c, q)
}

// steps are the durable steps of runs. What is stored of them is all that there is.
type steps struct {
	keep queue.Store
	feed *Feed
	log  zerolog.Logger
	// flying returns the entry of a run, with its fence, if the core has that run.
	flying func(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error)
}

// store stores a step under its claim's fence: whoever was given up for dead
// can store nothing.
func (s *steps) store(ctx context.Context, c *supervisor.Core, r ipc.StoreStep) (ipc.StoreStepResult, error) {
	e, err := s.flying(c, r.Job, r.Attempt)
	if err != nil {
		return ipc.StoreStepResult{Refused: err.Error()}, nil
	}
	kept, fresh, err := durable.Keep(ctx, s.keep, durable.Space(e.ID),
		durable.Stored{ID: r.Step.ID, Inputs: r.Step.Inputs, Result: r.Step.Result, Attempt: r.Attempt, At: now()},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: r.Attempt})
	var collision *durable.CollisionError
	switch {
	case errors.As(err, &collision), errors.Is(err, queue.ErrFenced):
		return ipc.StoreStepResult{Refused: err.Error()}, nil // the run tells of it by an event
	case err != nil:
		return ipc.StoreStepResult{}, err
	case fresh:
		s.feed.signal(&e, api.StepCompleted, kept.ID, "")
	}
	return ipc.StoreStepResult{Step: ipc.Step{ID: kept.ID, Inputs: kept.Inputs, Result: kept.Result}, FromStore: !fresh}, nil
}

func (s *steps) list(ctx context.Context, c *supervisor.Core, r ipc.ListSteps) (ipc.ListStepsResult, error) {
	out := ipc.ListStepsResult{Steps: []ipc.Step{}}
	e, err := s.flying(c, r.Job, r.Attempt)
	if err != nil {
		return out, err
	}
	page, more, err := durable.Page(ctx, s.keep, durable.Space(e.ID), r.After, ipc.MaxStepsPage)
	if err != nil {
		return out, err
	}
	for _, p := range page {
		out.Steps = append(out.Steps, ipc.Step{ID: p.ID, Inputs: p.Inputs, Result: p.Result})
	}
	out.More = more
	return out, nil
}

// any reports whether steps of a job are stored.
func (s *steps) any(ctx context.Context, id job.ID) bool {
	has, err := durable.Any(ctx, s.keep, durable.Space(id))
	if err != nil {
		s.log.Error().Err(err).Str("job", string(id)).Msg("steps cannot be read: the attempt does them again")
	}
	return has
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
