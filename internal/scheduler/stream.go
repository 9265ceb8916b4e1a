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
	"github.com/agentsched/agentsched/schedule"
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

// streams are the streams of the runs in flight, by their jobs.
type streams struct {
	open  *openBatches
	look  func(job.BatchID) // finds what follows in a batch
	loop  *loop
	fleet *fleet
	log   zerolog.Logger

	mu sync.Mutex // guards of
	of map[job.ID]*streaming
}

// prepare prepares the run of a stage that streams, and reports whether it is one. The op
// says what becomes of the job if there is nothing to run: the stage is over, and only its
// worker's own end was not recorded.
func (s *streams) prepare(ctx context.Context, r *schedule.Run) (bool, queue.Op) {
	e := &r.Entry
	l, names, err := s.open.stageOf(ctx, e)
	if l == nil && err == nil {
		return false, nil
	}
	var stood pipeline.Status
	if err == nil {
		stood, err = stageStatus(ctx, l, names.Stage)
	}
	at := now()
	switch {
	case err != nil:
		log := logOf(s.log, r)
		log.Error().Err(err).Msg("open the stream of a stage")
		waiting := job.Waiting{Reason: job.WaitPipeline, Text: "it cannot be read"}
		return false, queue.Release{ID: e.ID, Fence: e.Fence, Now: at, RunnableAt: at.Add(flowRetry), Choice: e.Choice, Waiting: waiting.String()}
	case stood.Failed != "":
		return false, queue.Finish{
			ID: e.ID, Fence: e.Fence, Now: at, Exit: job.ExitFailed, DeadLetter: "its stage has failed: " + stood.Failed,
			Outcome: job.Outcome{State: job.RunFailed, Class: job.Unknown, Message: stood.Failed},
		}
	case stood.Ended:
		return false, queue.Finish{ID: e.ID, Fence: e.Fence, Now: at, Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted}}
	}
	st := &streaming{log: l, names: names, from: place(&stood), inlet: newInlet(), err: errNotTheEvents}
	// Not ctx: the worker goes on while the scheduler ends, until it is stopped.
	st.ctx, st.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[e.ID] = st
	return true, nil
}

// get returns the stream of a run; nil if it does not stream.
func (s *streams) get(r *schedule.Run) *streaming {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[r.Entry.ID]
}

// lacks reports whether a run is the worker of a stage that streams, and has no stream here: an earlier scheduler had it.
func (s *streams) lacks(ctx context.Context, e *queue.Entry) (bool, error) {
	s.mu.Lock()
	_, has := s.of[e.ID]
	s.mu.Unlock()
	if has {
		return false, nil
	}
	l, _, err := s.open.stageOf(ctx, e)
	return l != nil, err
}

// drop forgets the stream of a job whose claim has ended.
func (s *streams) drop(id job.ID) {
	s.mu.Lock()
	st := s.of[id]
	delete(s.of, id)
	s.mu.Unlock()
	st.stop(errNotTheEvents)
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

// start feeds the worker of a run that was submitted.
func (s *streams) start(r *schedule.Run) {
	st := s.get(r)
	if st == nil {
		return
	}
	e := &r.Entry
	feed := &pipeline.Feed{Log: st.log, Stage: st.names.Stage, Now: now, Attempts: e.Spec.Limits.MaxAttempts, Job: e.Spec.Name}
	over := make(chan struct{})
	st.running.Go(func() {
		defer close(over)
		st.err = feed.Run(st.ctx, newOutlet(st, r, s.fleet), st.inlet)
		var died *pipeline.DiedError
		if st.err == nil || errors.As(st.err, &died) || st.ctx.Err() != nil {
			return // the worker has ended, or is about to
		}
		s.loop.post(schedule.Stop{Job: e.ID, How: schedule.Interrupt, Reason: "the stream has its worker start anew: " + st.err.Error()})
	})
	st.running.Go(func() {
		for changed := st.log.Changed(); ; {
			s.look(e.Batch)
			select {
			case <-changed:
				changed = st.log.Changed()
			case <-over:
				s.look(e.Batch)
				return
			}
		}
	})
}

// lines gives the feed what its worker has printed.
func (s *streams) lines(ctx context.Context, c *supervisor.Core, r ipc.StreamLines) (ipc.StreamResult, error) {
	var st *streaming
	if run, err := s.fleet.runOn(c, r.Job, r.Attempt); err == nil {
		st = s.get(run)
	}
	if st == nil {
		return ipc.StreamResult{}, fmt.Errorf("attempt %d of job %s does not stream", r.Attempt, r.Job)
	}
	ctx, cancel := context.WithTimeout(ctx, roomTime)
	defer cancel()
	taken, err := st.inlet.put(ctx, r.Data)
	return ipc.StreamResult{Full: !taken}, err
}
