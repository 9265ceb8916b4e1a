package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
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
			if next == idle {
				s.lanes.forget(s.scopes()) // another process may have changed the store
			}
		}
	}
}

// idle is how long the dispatcher sleeps at most; it is woken for everything
// that this process does itself.
const idle = time.Minute

// claim claims as much as there is room for and starts to drive it. It returns
// how long the dispatcher may sleep.
func (s *Scheduler) claim(ctx context.Context) (time.Duration, error) {
	wait := idle
	claimed := false
	defer s.lanes.endRound()
	// Each scope is looked at once, since something may have expired there; then
	// whichever the policy wants.
	unseen, fruitless := s.scopes(), 0
	for room := s.room(); room > 0 && fruitless < maxFruitless; room = s.room() {
		at := now()
		scope, ok := s.lanes.next(at)
		if !ok {
			if len(unseen) == 0 {
				break
			}
			scope = unseen[0]
		}
		unseen = slices.DeleteFunc(unseen, func(b job.BatchID) bool { return b == scope })
		adm := s.admission()
		claims, err := s.claimFrom(ctx, queue.ClaimSpec{
			Batch: scope, Max: room, Now: at, Admit: adm.admit, Chooser: s.lanes.in(scope, at),
		})
		if err != nil {
			return 0, fmt.Errorf("claim jobs: %w", err)
		}
		s.lanes.skip(claims.Skipped)
		s.launch(ctx, claims.Entries, adm)
		switch {
		case len(claims.Entries) > 0:
			claimed, fruitless = true, 0
		case len(claims.Skipped) == 0: // else the policy knows of less than before
			fruitless++
		}
		if !claims.NextAt.IsZero() {
			wait = min(wait, max(time.Until(claims.NextAt), 0))
		}
	}
	if at := s.lanes.wake(now()); !at.IsZero() {
		wait = min(wait, max(time.Until(at), 0))
	}
	if !claimed {
		if done, err := s.batchDone(ctx); done || err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// claimFrom is how the scheduler claims, and the only way. A claim may let jobs
// expire, also one that asks for none: that is told, and whatever may have its turn
// by it, in this scope or another, is looked at.
func (s *Scheduler) claimFrom(ctx context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	spec.Holder, spec.Lease = s.cfg.Holder, s.cfg.Lease
	claims, err := s.cfg.Store.Claim(ctx, spec)
	for _, id := range claims.Expired {
		if e, read := s.publishEntry(ctx, id); read {
			s.lanes.touch(&e, s.scopes())
		} else {
			s.lanes.forget(s.scopes())
		}
	}
	if err != nil {
		s.lanes.forget(s.scopes()) // what the Chooser was told is void
	}
	if err != nil || len(claims.Expired) > 0 {
		s.poke()
	}
	return claims, err
}

// maxFruitless is how many claims in a row that neither gave something nor passed
// over something end a round: one of each scope, and one more of each if the first
// brought other heads to light.
const maxFruitless = 4

// launch gives each claimed job to the core that has least to do, and drives it.
func (s *Scheduler) launch(ctx context.Context, entries []queue.Entry, adm *admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range adm.busy {
		if _, known := s.blocked[id]; !known {
			s.blocked[id] = now()
		}
	}
	for _, e := range entries {
		delete(s.parked, e.ID)
		f := newFlight(e)
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
	return true, errDone
}

// room returns how many more jobs may be claimed.
func (s *Scheduler) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room, _ := s.roomLocked()
	return room
}

// roomLocked returns how many more jobs may be claimed, and if none may, why: no
// core takes work, everything is isolated, the end is near, or all slots are taken.
func (s *Scheduler) roomLocked() (int, job.Waiting) {
	switch {
	case s.stopping:
		return 0, job.Waiting{Reason: job.WaitScheduler, Text: "the one that runs is about to end"}
	case s.draining:
		return 0, job.Waiting{Reason: job.WaitScheduler, Text: "the one that runs begins nothing until it is replaced"}
	case s.pick() == nil:
		return 0, job.Waiting{Reason: job.WaitCore, Text: "none takes work"}
	}
	if i, blocked := s.cfg.Isolations.Blocked(isolation.Run{}, time.Now()); blocked && i.Scope == isolation.Global {
		return 0, isolated(i)
	}
	slots, why := s.cfg.Settings.MaxConcurrent, job.WaitSlot
	for _, m := range s.cores {
		if n := m.metrics.Concurrency; n > 0 && n < slots {
			slots, why = n, job.WaitLoad
		}
	}
	return max(slots-len(s.live), 0), job.Waiting{Reason: why, Text: slotsTaken(len(s.live), slots, "")}
}

// admission decides which candidates of one claim there is room for: slots of
// their kind, tenant and workspace, and a folder that no live job holds. It is
// only a way to avoid useless requests: the core enforces all of it.
type admission struct {
	limits   ipc.Limits
	perKind  map[job.WorkerKind]int // still free; absent: no bound
	tenants  map[job.Tenant]int     // taken
	folders  map[string]int         // real paths of workspaces: taken
	taken    []string               // real paths of workspaces that a live job works in directly
	alone    []string               // those of jobs of type MAINTENANCE that live, which nobody else works in
	reserved []string               // those of such jobs that wait for the ones that live
	realPath func(string) (path string, known bool)
	busy     []job.ID          // refused for their workspace
	parked   func(job.ID) bool // refused by an isolation when they were asked for last
	blocking func(*queue.Entry) (isolation.Isolation, bool)
}

func (s *Scheduler) admission() *admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admissionLocked()
}

func (s *Scheduler) admissionLocked() *admission {
	a := &admission{
		limits: s.cfg.Settings.Limits, perKind: map[job.WorkerKind]int{}, tenants: map[job.Tenant]int{}, folders: map[string]int{},
		parked: s.isParked, realPath: s.folders.Peek, blocking: s.Blocking,
	}
	for kind, w := range s.cfg.Settings.Workers {
		if w.MaxConcurrent > 0 {
			a.perKind[kind] = w.MaxConcurrent
		}
	}
	for _, f := range s.live {
		a.take(f.choice.Worker, &f.entry.Spec)
	}
	return a
}

func (a *admission) take(kind job.WorkerKind, s *job.Spec) {
	w := s.Workspace
	if n, bounded := a.perKind[kind]; bounded {
		a.perKind[kind] = n - 1
	}
	a.tenants[s.Tenant]++
	if w.Path == "" {
		return
	}
	path, _ := a.realPath(w.Path)
	a.folders[path]++
	if w.Isolation == job.Direct {
		a.taken = append(a.taken, path)
	}
	if s.Type == job.Maintenance {
		a.alone = append(a.alone, path)
	}
}

func (a *admission) admit(e *queue.Entry) bool {
	w, refused := a.refuses(e)
	if refused {
		if w.Reason == job.WaitFolder {
			if path, known := a.realPath(e.Spec.Workspace.Path); known {
				a.busy = append(a.busy, e.ID)
				if e.Spec.Type == job.Maintenance {
					a.reserved = append(a.reserved, path) // else it would wait for ever beside a stream of jobs
				}
			}
		}
		return false
	}
	a.take(e.Spec.Choices()[e.Choice].Worker, &e.Spec)
	return true
}

// refuses returns what a candidate would wait for; false: there is room for it.
func (a *admission) refuses(e *queue.Entry) (job.Waiting, bool) {
	kind, tenant, w := e.Spec.Choices()[e.Choice].Worker, e.Spec.Tenant, e.Spec.Workspace
	if a.parked(e.ID) {
		if i, blocked := a.blocking(e); blocked {
			return isolated(i), true
		}
	}
	if n, bounded := a.perKind[kind]; bounded && n <= 0 {
		return job.Waiting{Reason: job.WaitSlot, Text: "all slots of worker " + string(kind) + " are taken"}, true
	}
	if limit := bound(a.limits.PerTenant, tenant, a.limits.EachTenant); full(limit, a.tenants[tenant]) {
		return job.Waiting{Reason: job.WaitSlot, Text: slotsTaken(a.tenants[tenant], limit, " of tenant "+string(tenant))}, true
	}
	if w.Path == "" {
		return job.Waiting{}, false
	}
	return a.refusesFolder(&e.Spec)
}

// refusesFolder looks at the workspace alone.
func (a *admission) refusesFolder(s *job.Spec) (job.Waiting, bool) {
	w := s.Workspace
	path, known := a.realPath(w.Path)
	if !known { // soon, without anybody waiting for a file system here
		return job.Waiting{Reason: job.WaitFolder, Text: w.Path + " is being looked up"}, true
	}
	if limit := bound(a.limits.PerWorkspace, path, a.limits.EachWorkspace); full(limit, a.folders[path]) {
		return job.Waiting{Reason: job.WaitFolder, Text: slotsTaken(a.folders[path], limit, " of "+path)}, true
	}
	if w.Isolation == job.Direct {
		if i := slices.IndexFunc(a.taken, func(t string) bool { return overlap(t, path) }); i >= 0 {
			return job.Waiting{Reason: job.WaitFolder, Text: "another job works in " + a.taken[i]}, true
		}
	}
	held := a.alone
	if !s.Flow.Joined { // what others of its batch may wait for must not wait for it
		held = slices.Concat(a.alone, a.reserved)
	}
	if i := slices.IndexFunc(held, func(t string) bool { return overlap(t, path) }); i >= 0 {
		return job.Waiting{Reason: job.WaitFolder, Text: "maintenance of " + held[i] + " goes first"}, true
	}
	if s.Type == job.Maintenance {
		for folder, n := range a.folders {
			if n > 0 && overlap(folder, path) {
				return job.Waiting{Reason: job.WaitFolder, Text: "jobs work from " + folder}, true
			}
		}
	}
	return job.Waiting{}, false
}

// bound returns a limit by name, or else that of each; 0 is none.
func bound[K comparable](named map[K]int, name K, each int) int {
	if limit, ok := named[name]; ok {
		return limit
	}
	return each
}

// full reports whether a bound, 0 is none, is reached.
func full(limit, taken int) bool { return limit > 0 && taken >= limit }

// slotsTaken says in words that slots are.
func slotsTaken(n, of int, whose string) string {
	return fmt.Sprintf("%d of %d slots%s are taken", n, of, whose)
}

// overlap reports whether one path is the other, or lies below it.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, withSlash(b)) || strings.HasPrefix(b, withSlash(a))
}

func withSlash(path string) string { return strings.TrimSuffix(path, "/") + "/" }
