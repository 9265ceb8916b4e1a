package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// streaming joins the worker of a stage that streams to the log of its pipeline:
//
//	log ◄─► pipeline.Feed ─ stdin ──► stream_write ──► core ──► worker
//	              ▲                                                │
//	              └── inlet ◄──────── stream_lines ◄──── core ◄────┘
//
// The worker is the job's attempt. Nothing of this is durable: the log is, and the
// next attempt goes on at its cursor.
type streaming struct {
	log     *pipeline.Log
	names   ipc.Stream
	from    string // how the stage stood when the attempt began
	inlet   *inlet
	running sync.WaitGroup
	ending  atomic.Bool // the worker was told that no event follows

	ctx    context.Context // of the feed
	cancel context.CancelCauseFunc

	// err is how the feed has ended; nil: the worker has acknowledged the end. It is
	// written by the feed's goroutine, and read when running is done.
	err error
}

// stageOf returns the log and the stage of a job that streams; nil if it does not.
func (s *Scheduler) stageOf(ctx context.Context, e *queue.Entry) (*pipeline.Log, ipc.Stream, error) {
	if !e.Spec.Flow.Joined || e.Spec.Flow.Node != "" {
		return nil, ipc.Stream{}, nil
	}
	w, err := s.flows.workflow(ctx, s.cfg.Store, e.Batch)
	if err != nil {
		return nil, ipc.Stream{}, err
	}
	for i := range w.Pipelines {
		p := &w.Pipelines[i]
		n := slices.IndexFunc(p.Stages, func(stage job.Stage) bool { return stage.Streams && stage.Job == e.Spec.Name })
		if n < 0 {
			continue
		}
		logs, err := s.logsOf(ctx, e.Batch, w)
		if err != nil {
			return nil, ipc.Stream{}, err
		}
		return logs[i], ipc.Stream{Pipeline: p.ID, Stage: p.Stages[n].ID}, nil
	}
	return nil, ipc.Stream{}, nil
}

// openStream prepares the flight of a stage that streams. It returns what becomes
// of the job if there is nothing to run: the stage is over, and only its worker's
// own end was not recorded.
func (s *Scheduler) openStream(ctx context.Context, f *flight, log zerolog.Logger) queue.Op {
	l, names, err := s.stageOf(ctx, &f.entry)
	if l == nil && err == nil {
		return nil
	}
	var stood pipeline.Status
	if err == nil {
		stood, err = stageStatus(ctx, l, names.Stage)
	}
	switch {
	case err != nil:
		log.Error().Err(err).Msg("open the stream of a stage")
		return s.release(f, flowRetry, f.entry.Choice, job.Waiting{Reason: job.WaitPipeline, Text: "it cannot be read"})
	case s.isCancelled(f) || f.entry.CancelRequested:
		return nil
	case stood.Failed != "":
		return queue.Finish{
			ID: f.entry.ID, Fence: f.entry.Fence, Now: now(), Exit: job.ExitFailed, DeadLetter: "its stage has failed: " + stood.Failed,
			Outcome: job.Outcome{State: job.RunFailed, Class: job.Unknown, Message: stood.Failed},
		}
	case stood.Ended:
		return queue.Finish{
			ID: f.entry.ID, Fence: f.entry.Fence, Now: now(), Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted},
		}
	}
	st := &streaming{log: l, names: names, from: place(&stood), inlet: newInlet(), err: errNotTheEvents}
	// Not ctx: the worker goes on while the scheduler ends, until it is stopped.
	st.ctx, st.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	f.stream = st
	return nil
}

func stageStatus(ctx context.Context, l *pipeline.Log, id job.Name) (pipeline.Status, error) {
	all, err := l.Status(ctx)
	if err != nil {
		return pipeline.Status{}, err
	}
	i := slices.IndexFunc(all, func(st pipeline.Status) bool { return st.Stage == id })
	if i < 0 {
		return pipeline.Status{}, fmt.Errorf("the log of the pipeline has no stage %s", id)
	}
	return all[i], nil
}

// place says how far a stage has come.
func place(st *pipeline.Status) string {
	return fmt.Sprint(st.Acked, st.Beyond, st.Published, st.Dead, st.Partial)
}

// name returns what the core is told of the stream; nil without one.
func (st *streaming) name() *ipc.Stream {
	if st == nil {
		return nil
	}
	return &st.names
}

// stop ends the feed: its worker is stopped, or gone, by no fault of an event.
func (st *streaming) stop(cause error) {
	if st != nil {
		st.cancel(cause)
	}
}

// startStream feeds the worker of a run that was submitted.
func (s *Scheduler) startStream(ctx context.Context, f *flight) {
	st := f.stream
	if st == nil {
		return
	}
	feed := &pipeline.Feed{Log: st.log, Stage: st.names.Stage, Now: now, Attempts: f.entry.Spec.Limits.MaxAttempts, Job: f.entry.Spec.Name}
	over := make(chan struct{})
	st.running.Go(func() {
		defer close(over)
		st.err = feed.Run(st.ctx, newOutlet(st, f), st.inlet)
		var died *pipeline.DiedError
		if st.err == nil || errors.As(st.err, &died) || st.ctx.Err() != nil {
			return // the worker has ended, or is about to
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
		defer cancel()
		s.stopFlight(call, f, true, "the stream has its worker start anew: "+st.err.Error())
	})
	st.running.Go(func() {
		for changed := st.log.Changed(); ; {
			s.flows.look(f.entry.Batch)
			select {
			case <-changed:
				changed = st.log.Changed()
			case <-over:
				s.flows.look(f.entry.Batch)
				return
			}
		}
	})
}

// streamLines gives the feed what its worker has printed.
func (s *Scheduler) streamLines(ctx context.Context, c *supervisor.Core, r ipc.StreamLines) (ipc.StreamResult, error) {
	s.mu.Lock()
	f := s.live[r.Job]
	var st *streaming
	if f != nil && f.attempt == r.Attempt && f.core == c {
		st = f.stream
	}
	s.mu.Unlock()
	if st == nil {
		return ipc.StreamResult{}, fmt.Errorf("attempt %d of job %s does not stream", r.Attempt, r.Job)
	}
	ctx, cancel := context.WithTimeout(ctx, roomTime)
	defer cancel()
	taken, err := st.inlet.put(ctx, r.Data)
	return ipc.StreamResult{Full: !taken}, err
}
