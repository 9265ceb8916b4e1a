package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// dispatch starts what the machine says, until ctx ends or the batch is done.
//
//	events left by others, changed lanes ──► Machine.Step ──► reads, claims ──► the store
//	                                              ▲                                │
//	                                              └──────── their answers ─────────┘
func (s *Scheduler) dispatch(ctx context.Context) error {
	changed := s.cfg.Store.Watch(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	s.Isolations.announce()
	for {
		s.Isolations.expire() // told before anything runs by it
		events := s.turns.taken()
		// What is looked at only now was signalled before an event that was taken told of it.
		select {
		case <-changed:
			events = append([]schedule.Event{schedule.Changed{}}, events...)
		default:
		}
		ready, err := s.advanceTurns(ctx, events)
		if err != nil {
			return err
		}
		if done, err := s.batchDone(ctx); done || err != nil {
			return err
		}
		wait := idle
		if !ready.Wake.IsZero() {
			wait = min(wait, max(time.Until(ready.Wake), 0))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			s.post(schedule.Changed{})
		case <-s.wake:
		case <-timer.C:
			if wait == idle {
				s.post(schedule.Forget{}) // another process may have changed the store
			}
		}
	}
}

// idle is how long the dispatcher sleeps at most; it is woken for everything
// that this process does itself.
const idle = time.Minute

// advanceTurns feeds events to the machine, does what it asks for and feeds it the
// answers, until it asks for nothing more that can be answered now.
func (s *Scheduler) advanceTurns(ctx context.Context, events []schedule.Event) (schedule.Ready, error) {
	for {
		ready := s.turns.step(events...)
		events = nil
		s.launch(ctx, ready.Start)
		for _, spec := range ready.Reads {
			e, err := s.readHeads(ctx, spec)
			if err != nil {
				return ready, err
			}
			events = append(events, e)
		}
		for _, c := range ready.Claims {
			e, err := s.claim(ctx, c)
			if err != nil {
				return ready, err
			}
			events = append(events, e)
		}
		for _, path := range ready.Resolve {
			if real, known := s.folders.Peek(path); known {
				events = append(events, schedule.FolderKnown{Path: path, Real: real})
			}
		}
		if len(events) == 0 {
			return ready, nil
		}
	}
}

// readHeads reads what the machine wants to know of the store.
func (s *Scheduler) readHeads(ctx context.Context, spec queue.HeadsSpec) (schedule.HeadsRead, error) {
	spec.Now = now()
	heads, err := s.cfg.Store.Heads(ctx, spec)
	for _, id := range heads.Expired {
		s.Feed.publishEntry(ctx, id)
	}
	if err != nil {
		return schedule.HeadsRead{}, fmt.Errorf("read what is queued: %w", err)
	}
	e := schedule.HeadsRead{Batch: spec.Batch, Heads: heads, Folders: map[string]string{}}
	for _, list := range [][]queue.LaneHeads{heads.Lanes, heads.Pages} {
		for i := range list {
			for n := range list[i].Heads {
				path := list[i].Heads[n].Workspace.Path
				if real, known := s.folders.Peek(path); path != "" && known {
					e.Folders[path] = real
				}
			}
		}
	}
	return e, nil
}

// claim claims what the machine has chosen.
func (s *Scheduler) claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	claims, err := s.claimFrom(ctx, queue.ClaimSpec{Batch: c.Batch, IDs: c.IDs, Now: now()})
	if err != nil {
		return schedule.Claimed{}, fmt.Errorf("claim jobs: %w", err)
	}
	return schedule.Claimed{Asked: c.IDs, Entries: claims.Entries}, nil
}

// claimFrom is how the scheduler claims, and the only way. A claim may let jobs
// expire, also one that asks for none: that is told.
func (s *Scheduler) claimFrom(ctx context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	spec.Holder, spec.Lease = s.cfg.Holder, s.cfg.Lease
	claims, err := s.cfg.Store.Claim(ctx, spec)
	for _, id := range claims.Expired {
		s.Feed.publishEntry(ctx, id)
	}
	return claims, err
}

// launch gives each claimed job to the core that has least to do, and drives it.
func (s *Scheduler) launch(ctx context.Context, list []schedule.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		e := list[i].Entry
		f := newFlight(e)
		f.lockWait = list[i].Waited
		if since, waited := s.blocked[e.ID]; waited {
			f.lockWait = now().Sub(since)
			delete(s.blocked, e.ID)
		}
		f.cancelled = s.late[e.ID]
		delete(s.late, e.ID)
		s.board(f, s.pick())
		s.drives.Go(func() { s.drive(ctx, f) })
	}
}

// scopes returns where to claim from: Config.Batch, if there is one, and what is
// shared.
func (s *Scheduler) scopes() []job.BatchID {
	if s.cfg.Batch == "" {
		return []job.BatchID{""}
	}
	return []job.BatchID{s.cfg.Batch, ""}
}

func (s *Scheduler) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// batchDone returns errDone if the batches have no job left to run or running.
func (s *Scheduler) batchDone(ctx context.Context) (bool, error) {
	if s.cfg.Batch == "" || s.inFlight() > 0 || !s.flows.resting() {
		return false, nil
	}
	batches := s.Batches()
	for _, batch := range batches {
		_, left, err := s.cfg.Store.List(ctx, queue.Filter{Batch: batch, States: []job.EntryState{job.Queued, job.Dispatched}, Limit: 1})
		if err != nil {
			return false, fmt.Errorf("count unfinished jobs: %w", err)
		}
		if left > 0 {
			return false, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.submitting > 0 || len(s.batches) != len(batches) {
		return false, nil // more has just come
	}
	s.stopping = true
	s.post(schedule.Stopping)
	return true, errDone
}
