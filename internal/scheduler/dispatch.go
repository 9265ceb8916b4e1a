package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// dispatch does what the machine says, until ctx has ended, or the batch is done, and
// then until nothing is in flight any more. It returns why it ended.
//
//	events posted by others, changed lanes ──► Machine.Step ──► Ready
//	        ▲                                                     │
//	        ├──── HeadsRead, Claimed ◄── reader: reads, claims ◄──┤
//	        └──── Done ◄── one goroutine a Work: commit, call, tell
//
// It never waits for a disk or a core itself. Ending is in order: nothing more begins;
// runs that can stop at the boundary of a step, unless Hurry is called; stopCores is called
// and coresEnded awaited; what is still in flight ends with the cores.
func (s *Scheduler) dispatch(ctx context.Context, stopCores context.CancelCauseFunc, coresEnded <-chan struct{}) error {
	changed := s.cfg.Store.Watch(context.WithoutCancel(ctx))
	timer, reread := time.NewTimer(0), time.Now().Add(idle)
	defer timer.Stop()
	defer s.works.Wait()
	asks := make(chan schedule.Ready, maxAsks)
	defer close(asks)
	s.works.Go(func() { s.reader.answer(asks, s.failure) })
	s.Isolations.announce()
	var (
		cause             error // why it ends; nil: it does not
		ended             = ctx.Done()
		stopped           bool // stopCores was called
		leave             <-chan time.Time
		hurried, coresEnd <-chan struct{} // nil until they matter
	)
	for {
		s.Isolations.expire() // told before anything runs by it
		ready := s.loop.step(s.foldersKnown()...)
		s.carryOut(ctx, ready, asks)
		if s.unresolved = ready.Resolve; len(s.foldersKnown()) > 0 {
			s.loop.poke()
		}
		if ready.Err != nil {
			s.failure(ready.Err)
		}
		if cause == nil {
			done, err := s.batchDone(ctx)
			if err != nil {
				s.failure(err)
			}
			if done {
				s.failure(errDone)
			}
		}
		inFlight, leaving := 0, 0
		s.loop.ask(func(m *schedule.Machine) { inFlight, leaving = m.InFlight(), m.Leaving() })
		switch {
		case cause == nil:
		case !stopped && leaving == 0:
			stopped, leave, hurried, coresEnd = true, nil, nil, coresEnded
			stopCores(cause)
		case stopped && coresEnd == nil && inFlight == 0:
			return cause
		}
		wait := max(time.Until(reread), 0)
		if !ready.Wake.IsZero() {
			wait = min(wait, max(time.Until(ready.Wake), 0))
		}
		timer.Reset(wait)
		select {
		case <-ended:
			ended, cause = nil, context.Cause(ctx)
			leave, hurried = time.After(checkpointTime), s.hurried
			s.end()
		case <-leave:
			stopped, leave, hurried, coresEnd = true, nil, nil, coresEnded
			stopCores(cause)
		case <-hurried:
			stopped, leave, hurried, coresEnd = true, nil, nil, coresEnded
			stopCores(cause)
		case <-coresEnd:
			coresEnd = nil
			s.loop.post(schedule.CoreGone{Cause: cause})
		case <-changed:
			s.loop.post(schedule.Changed{})
		case <-s.loop.wake:
		case <-timer.C:
			if !time.Now().Before(reread) {
				reread = time.Now().Add(idle)
				s.loop.post(schedule.Forget{}) // another process may have changed the store
			}
		}
	}
}

// end notes that the scheduler is about to end: nothing more begins.
func (s *Scheduler) end() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.fleet.ending.Store(true)
	s.loop.end()
}

// idle is how long the dispatcher relies on what it knows of the store; it hears of
// everything that this process does itself.
const idle = time.Minute

// checkpointTime is how long a run that was asked to stop at a step's boundary may
// take to get there when the scheduler ends.
const checkpointTime = 30 * time.Second

// maxAsks is how many reads and claims may wait for the store. The machine asks for one
// read of each scope at a time, and claims at most its slots.
const maxAsks = 64

// carryOut has done what the machine asks for.
func (s *Scheduler) carryOut(ctx context.Context, ready schedule.Ready, asks chan<- schedule.Ready) {
	for _, t := range ready.Tell {
		s.applier.tell(ctx, t)
	}
	for _, w := range ready.Work {
		s.works.Go(func() { s.loop.post(s.applier.do(ctx, w)) })
	}
	if len(ready.Reads)+len(ready.Claims) > 0 {
		asks <- ready
	}
	for _, id := range ready.Drained {
		s.fleet.drained(id)
	}
}

// foldersKnown returns the real paths of the workspaces that the machine has asked for and
// that are known by now.
func (s *Scheduler) foldersKnown() (events []schedule.Event) {
	for _, path := range s.unresolved {
		if real, known := s.folders.Peek(path); known {
			events = append(events, schedule.FolderKnown{Path: path, Real: real})
		}
	}
	return events
}

// scopes returns where to claim from: Config.Batch, if there is one, and what is
// shared.
func (s *Scheduler) scopes() []job.BatchID {
	if s.cfg.Batch == "" {
		return []job.BatchID{""}
	}
	return []job.BatchID{s.cfg.Batch, ""}
}

// batchDone reports whether the batches have no job left to run or running.
func (s *Scheduler) batchDone(ctx context.Context) (bool, error) {
	if s.cfg.Batch == "" || s.loop.inFlight() > 0 || !s.Followers.resting() {
		return false, nil
	}
	batches := s.Batches()
	for _, batch := range batches {
		_, left, err := s.cfg.Store.List(ctx, queue.Filter{Batch: batch, States: []job.EntryState{job.Queued, job.Dispatched}, Limit: 1})
		if err != nil && !errors.Is(err, context.Canceled) {
			return false, fmt.Errorf("count unfinished jobs: %w", err)
		}
		if left > 0 || err != nil {
			return false, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.submitting > 0 || len(s.batches) != len(batches) {
		return false, nil // more has just come
	}
	s.stopping = true
	return true, nil
}

// Drain lets what runs end, begins nothing, and returns when nothing runs; when ctx
// ends before that, work goes on as before. Jobs are taken all the while.
func (s *Scheduler) Drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.loop.mu.Lock()
		defer s.loop.mu.Unlock()
		s.loop.stepped.Broadcast()
	})
	defer stop()
	s.loop.post(schedule.Draining)
	s.loop.mu.Lock()
	for s.loop.machine.InFlight() > 0 && ctx.Err() == nil {
		s.loop.stepped.Wait()
	}
	s.loop.mu.Unlock()
	err := context.Cause(ctx)
	if err != nil {
		s.loop.post(schedule.Starting)
	}
	return err
}
