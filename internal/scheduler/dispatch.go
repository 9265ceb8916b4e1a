package scheduler

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// dispatch claims what can run and drives it, until ctx ends or the batch is
// done.
func (s *Scheduler) dispatch(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, err := s.claim(ctx)
		if err != nil {
			return err
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// idle is how long the dispatcher sleeps at most; it is woken for everything
// that this process does itself.
const idle = time.Minute

// claim claims as much as there is room for and starts to drive it. It returns
// how long the dispatcher may sleep.
func (s *Scheduler) claim(ctx context.Context) (time.Duration, error) {
	core, room := s.capacity()
	if core == nil || room == 0 {
		return idle, nil
	}
	adm := s.admission()
	claims, err := s.cfg.Store.Claim(ctx, queue.ClaimSpec{
		Holder: s.cfg.Holder, Batch: s.cfg.Batch, Max: room, Now: now(), Lease: s.cfg.Lease, Admit: adm.admit,
	})
	if err != nil {
		return 0, fmt.Errorf("claim jobs: %w", err)
	}
	for _, id := range claims.Expired {
		s.publishEntry(ctx, id)
	}
	for _, e := range claims.Entries {
		f := newFlight(e)
		f.core = core
		s.mu.Lock()
		s.live[e.ID] = f
		s.mu.Unlock()
		s.drives.Go(func() { s.drive(ctx, f) })
	}
	if len(claims.Entries) == 0 && s.cfg.Batch != "" {
		if done, err := s.batchDone(ctx); done || err != nil {
			return 0, err
		}
	}
	if claims.NextAt.IsZero() {
		return idle, nil
	}
	return min(max(time.Until(claims.NextAt), 0), idle), nil
}

// batchDone returns errDone if the batch has no job left to run or running.
func (s *Scheduler) batchDone(ctx context.Context) (bool, error) {
	_, left, err := s.cfg.Store.List(ctx, queue.Filter{Batch: s.cfg.Batch, States: []job.EntryState{job.Queued, job.Dispatched}, Limit: 1})
	if err != nil {
		return false, fmt.Errorf("count unfinished jobs: %w", err)
	}
	if left == 0 {
		return true, errDone
	}
	return false, nil
}

// capacity returns the core, nil if none is up or the end is near, and how many
// more jobs may be claimed.
func (s *Scheduler) capacity() (*supervisor.Core, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, 0
	}
	return s.core, max(s.cfg.Slots-len(s.live), 0)
}

// admission decides which candidates of one claim there is room for: slots of
// their kind, and a workspace that no live job holds. It is only a way to
// avoid useless requests: the core enforces both.
type admission struct {
	perKind map[job.WorkerKind]int // still free; absent: no bound
	taken   []string               // real paths of workspaces in use
}

func (s *Scheduler) admission() *admission {
	a := &admission{perKind: map[job.WorkerKind]int{}}
	for kind, n := range s.cfg.PerKind {
		if n > 0 {
			a.perKind[kind] = n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.live {
		a.take(f.choice.Worker, f.entry.Spec.Workspace)
	}
	return a
}

func (a *admission) take(kind job.WorkerKind, w job.Workspace) {
	if n, bounded := a.perKind[kind]; bounded {
		a.perKind[kind] = n - 1
	}
	if w.Isolation == job.Direct {
		a.taken = append(a.taken, realPath(w.Path))
	}
}

func (a *admission) admit(e *queue.Entry) bool {
	kind := e.Spec.Choices()[e.Choice].Worker
	if n, bounded := a.perKind[kind]; bounded && n <= 0 {
		return false
	}
	w := e.Spec.Workspace
	if w.Isolation == job.Direct {
		path := realPath(w.Path)
		for _, t := range a.taken {
			if overlap(t, path) {
				return false
			}
		}
	}
	a.take(kind, w)
	return true
}

// realPath resolves symlinks; a path that cannot be resolved stands for itself
// and fails later, with a message.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// overlap reports whether one path is the other, or lies below it.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, withSlash(b)) || strings.HasPrefix(b, withSlash(a))
}

func withSlash(path string) string { return strings.TrimSuffix(path, "/") + "/" }
