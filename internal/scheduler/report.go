package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// reportEvery is how often the cores hear how the queue stands.
const reportEvery = time.Second

// reportLoop tells the cores how the queue stands, ends isolations whose
// cool-down has passed, asks runs that stand in the way to stop, and notices when
// the wall clock was set.
func (s *Scheduler) reportLoop(ctx context.Context) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	var telling sync.WaitGroup
	defer telling.Wait()
	var ahead time.Duration // as lookAtClock found it
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var err error
		if ahead, err = s.lookAtClock(ctx, ahead); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error().Err(err).Msg("put right what the clock put off")
		}
		if !s.Isolations.expire() {
			s.Isolations.tellCores() // those that have not heard of the latest yet
		}
		if err := s.stuck(); err != nil {
			s.failure(err)
			return nil
		}
		s.loop.post(schedule.Preempt{})
		if err := s.stopUsers(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error().Err(err).Msg("look for grants that are used up")
		}
		if err := s.reportQueue(ctx, &telling); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error().Err(err).Msg("report the queue to the cores")
		}
		if n%tellEvery == 0 && s.Feed.isHeard() {
			if err := s.Explain.tell(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Log.Error().Err(err).Msg("tell what jobs wait for")
			}
		}
	}
}

// stuck returns ErrFatal if a batch waits for an operator alone: nothing runs
// and nothing may until somebody has looked.
func (s *Scheduler) stuck() error {
	if s.cfg.Batch == "" {
		return nil
	}
	if s.loop.inFlight() > 0 {
		return nil
	}
	for _, i := range s.cfg.Isolations.List(time.Now()) {
		if i.Scope == isolation.Global && i.Until.IsZero() && i.Cause != isolation.CausePaused {
			return &fatalError{i}
		}
	}
	return nil
}

// fatalError is ErrFatal with what it is about.
type fatalError struct{ isolation.Isolation }

func (e *fatalError) Error() string { return ErrFatal.Error() + ": " + e.Message }

func (e *fatalError) Unwrap() error { return ErrFatal }

// reportQueue counts what could run now and does not, and has telling tell every
// core, each as fast as it hears: one that has not answered the last report is left
// out.
func (s *Scheduler) reportQueue(ctx context.Context, telling *sync.WaitGroup) error {
	at := now()
	ready := map[job.Class]queue.ClassReady{}
	var errs []error
	for _, batch := range s.scopes() {
		claims, err := s.reader.claim(ctx, queue.ClaimSpec{Batch: batch, Now: at, Count: true})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for class, part := range claims.Ready {
			sum := ready[class]
			sum.Depth += part.Depth
			if sum.Oldest.IsZero() || part.Oldest.Before(sum.Oldest) {
				sum.Oldest = part.Oldest
			}
			ready[class] = sum
		}
	}
	s.mu.Lock()
	s.ready = ready
	s.mu.Unlock()
	q := ipc.QueueMetrics{ByClass: map[job.Class]ipc.ClassQueue{}}
	for class, part := range ready {
		c := ipc.ClassQueue{Depth: part.Depth, OldestMS: max(at.Sub(part.Oldest), 0).Milliseconds()}
		q.ByClass[class] = c
		q.Depth += c.Depth
		q.OldestMS = max(q.OldestMS, c.OldestMS)
	}
	s.fleet.ledger.keep(s.loop.runs())
	for m := range s.fleet.toReport() {
		telling.Go(func() { s.fleet.report(ctx, m, q) })
	}
	return errors.Join(errs...)
}

// stopUsers has the runs of owners stopped at a step's boundary that have used up what they
// were granted: nothing more of theirs is claimed, and these would go on for long.
func (s *Scheduler) stopUsers(ctx context.Context) error {
	runs := s.loop.runs()
	if len(runs) == 0 {
		return nil
	}
	grants, err := s.cfg.Store.Grants(ctx)
	if err != nil {
		return fmt.Errorf("look for budgets that are used up: %w", err)
	}
	var over schedule.UsedUp
	for _, g := range grants {
		mine := func(r *schedule.Run) bool {
			return r.Entry.Spec.Tenant == g.Tenant && (g.Agent == "" || r.Entry.Spec.Agent == g.Agent)
		}
		if g.Tokens == 0 && g.CostUSD == 0 && g.Wall == 0 || !slices.ContainsFunc(runs, mine) {
			continue
		}
		f := queue.AccountFilter{Tenant: g.Tenant, Agent: g.Agent}
		if g.Window > 0 {
			f.Since = now().Add(-g.Window.Std())
		}
		used, err := s.cfg.Store.Accounts(ctx, f)
		if err != nil {
			return fmt.Errorf("look for budgets that are used up: %w", err)
		}
		if len(used) > 0 && g.UsedUp(&used[0]) {
			over = append(over, g.Owner)
		}
	}
	if len(over) > 0 {
		s.loop.post(over)
	}
	return nil
}
