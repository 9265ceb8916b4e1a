package agentcore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Bounds of what a job keeps in steps; a further one is refused.
const (
	maxSteps     = 10_000
	maxStepBytes = 64 << 20 // of all results together
)

// stepTime is how long the scheduler may take to store a step, or to list some.
const stepTime = 30 * time.Second

// stepping is the part of an execution that is about durable steps and
// checkpoints: it brings the worker's steps to the scheduler, which stores them,
// and earlier attempts' back.
type stepping struct {
	peer    *ipc.Peer
	job     job.ID
	attempt int
	emit    func(job.Event)

	inputs *inbox // of the worker's session, which is asked for checkpoints

	mu    sync.Mutex // guards what follows
	count int        // steps that are stored
	bytes int        // of their results
	able  bool       // the worker runs and can stop at boundaries
}

func newStepping(peer *ipc.Peer, id job.ID, attempt int, inputs *inbox, emit func(job.Event)) *stepping {
	return &stepping{peer: peer, job: id, attempt: attempt, emit: emit, inputs: inputs}
}

// call asks the scheduler.
func (s *stepping) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTime, fmt.Errorf("no answer within %s", stepTime))
	defer cancel()
	return s.peer.Call(ctx, method, params, result)
}

// load returns the steps that are stored for the job, ordered by id.
func (s *stepping) load(ctx context.Context) ([]worker.Step, error) {
	var steps []worker.Step
	for after := ""; ; {
		var page ipc.ListStepsResult
		if err := s.call(ctx, ipc.MethodListSteps, ipc.ListSteps{Job: s.job, Attempt: s.attempt, After: after}, &page); err != nil {
			return nil, fmt.Errorf("get the steps of earlier attempts: %w", err)
		}
		for _, p := range page.Steps {
			steps = append(steps, worker.Step(p))
			s.add(len(p.Result))
			after = p.ID
		}
		if !page.More || len(page.Steps) == 0 {
			return steps, nil
		}
	}
}

// begin tells that a worker begins, with the steps that it was given.
func (s *stepping) begin(a worker.Adapter, given []worker.Step) {
	if _, ok := a.(worker.Stepping); ok {
		for _, g := range given {
			s.emit(job.Event{Kind: job.EventStep, Step: g.ID, Inputs: g.Inputs, Kept: job.KeptBefore})
		}
	}
	_, able := a.(worker.Checkpointing)
	s.setAble(able)
}

// end tells that the session has ended: what follows has no boundaries.
func (s *stepping) end() { s.setAble(false) }

func (s *stepping) setAble(able bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.able = able
}

func (s *stepping) add(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.bytes += bytes
}

// full returns why no further step of this size is kept; nil if there is room.
func (s *stepping) full(bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.count >= maxSteps:
		return &worker.StepRefusedError{Message: fmt.Sprintf("the job has %d steps, which is the maximum", s.count)}
	case s.bytes+bytes > maxStepBytes:
		return &worker.StepRefusedError{Message: fmt.Sprintf("the results of the job's steps have %d bytes, at most %d are allowed", s.bytes, maxStepBytes)}
	}
	return nil
}

// store is the run's worker.Run.StoreStep.
func (s *stepping) store(ctx context.Context, step worker.Step) (worker.KeptStep, error) {
	if err := s.full(len(step.Result)); err != nil {
		return worker.KeptStep{}, err
	}
	var r ipc.StoreStepResult
	if err := s.call(ctx, ipc.MethodStoreStep, ipc.StoreStep{Job: s.job, Attempt: s.attempt, Step: ipc.Step(step)}, &r); err != nil {
		return worker.KeptStep{}, err
	}
	if r.Refused != "" {
		return worker.KeptStep{}, &worker.StepRefusedError{Message: r.Refused}
	}
	if !r.FromStore {
		s.add(len(r.Step.Result))
	}
	return worker.KeptStep{Step: worker.Step(r.Step), FromStore: r.FromStore}, nil
}

// checkpoint asks the worker to stop at its next boundary; false if there is none
// that can.
func (s *stepping) checkpoint(reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.able {
		return false
	}
	return s.inputs.put(worker.Checkpoint{Reason: reason})
}

func (c *Core) checkpointJob(_ context.Context, r ipc.CheckpointJob) (ipc.CheckpointResult, error) {
	s, _, err := c.ready()
	if err != nil {
		return ipc.CheckpointResult{}, err
	}
	c.mu.Lock()
	e := c.live[job.RunTag(s.instance, r.Job, r.Attempt)]
	c.mu.Unlock()
	return ipc.CheckpointResult{Asked: e != nil && e.steps.checkpoint(r.Reason)}, nil
}
