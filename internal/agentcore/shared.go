package agentcore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// shared asks the scheduler for what cores have in common: permit.Shared.
type shared struct {
	core *Core
	last atomic.Int64 // id of a reservation

	telling sync.WaitGroup

	mu     sync.Mutex
	ledger string                       // who keeps the reservations, as of the last answer
	open   map[int64]*sharedReservation // that were granted
}

func newShared(c *Core) *shared { return &shared{core: c, open: map[int64]*sharedReservation{}} }

// shareTime is how long the scheduler may take for an answer. It holds those back that wait for room for less than that.
const shareTime = 30 * time.Second

// call asks until there is an answer, ctx ends or the core does: while there is no scheduler, or it stands still, everything
// of this core may wait until its permits lapse.
func (s *shared) call(ctx context.Context, method string, params, result any) error {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		once, cancel := context.WithTimeout(ctx, shareTime)
		defer cancel()
		err := s.core.peer.Call(once, method, params, result)
		if errors.Is(err, ipc.ErrClosed) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(pause, ctx))
}

// Admit implements permit.Shared. An unused permit's tokens come back without anybody waiting for it.
func (s *shared) Admit(ctx context.Context, r permit.Request) (back func(), err error) {
	ask, cancel := context.WithTimeoutCause(ctx, shareTime, fmt.Errorf("the scheduler did not answer within %s", shareTime))
	defer cancel()
	var got ipc.SharePermitResult
	of := ipc.SharePermit{Job: r.Job, Attempt: r.Attempt, Worker: r.Choice.Worker, Model: r.Model}
	if err := s.call(ask, ipc.MethodSharePermit, of, &got); err != nil {
		return nil, fmt.Errorf("ask for the rates and cost windows that hosts share: %w", err)
	}
	if no := got.Rejection; no != nil {
		return nil, &permit.Rejection{Reason: no.Reason, RetryAfter: time.Duration(no.RetryAfterMS) * time.Millisecond, Message: no.Message, Waiting: no.Waiting}
	}
	return func() { s.tell(ipc.MethodReturnPermit, of) }, nil
}

// tell says something that nobody waits for.
func (s *shared) tell(method string, params any) {
	s.telling.Go(func() {
		ctx, cancel := context.WithTimeout(s.core.life, 2*shareTime)
		defer cancel()
		if err := s.call(ctx, method, params, nil); err != nil {
			s.core.cfg.Log.Debug().Err(err).Str("method", method).Msg("the scheduler was not told; it finds out when the run has ended")
		}
	})
}

// Reserve implements permit.Shared.
func (s *shared) Reserve(ctx context.Context, p *permit.Permit, d permit.Demand) (permit.SharedReservation, error) {
	q := ipc.Reserve{Job: p.Job, Attempt: p.Attempt, ID: s.last.Add(1), Demand: ipc.Demand{
		Model: d.Model, Input: d.Input, Estimate: d.Estimate, Output: d.Output, Beside: d.Beside, Least: d.Least, Price: d.Price, Token: d.Token,
	}}
	for {
		var got ipc.ReserveResult
		if err := s.call(ctx, ipc.MethodReserve, q, &got); err != nil {
			s.tell(ipc.MethodRelease, ipc.Release{Job: q.Job, Attempt: q.Attempt, ID: q.ID})
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, err
		}
		s.remember(ctx, got.Ledger)
		switch {
		case got.Stop != nil:
			return nil, &permit.Stop{Limit: permit.Limit(got.Stop.Limit), RetryAfter: time.Duration(got.Stop.RetryAfterMS) * time.Millisecond, Message: got.Stop.Message}
		case got.Refused != "":
			return nil, fmt.Errorf("%w: %s", permit.ErrUnknown, got.Refused)
		case !got.Pending:
			r := &sharedReservation{s, q}
			r.asked.Demand.Output = min(max(got.Output, 0), d.Output)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.open[q.ID] = r
			return r, nil
		}
		select {
		case <-time.After(time.Duration(got.WaitMS) * time.Millisecond):
		case <-ctx.Done(): // the next call finds out
		}
	}
}

// remember tells a scheduler that has just taken over what an earlier one has allowed.
func (s *shared) remember(ctx context.Context, ledger string) {
	s.mu.Lock()
	var open []*sharedReservation
	if s.ledger != "" && s.ledger != ledger {
		open = slices.Collect(maps.Values(s.open))
	}
	s.ledger = ledger
	s.mu.Unlock()
	for _, r := range open {
		again := r.asked
		again.Running = true
		var got ipc.ReserveResult
		if err := s.call(ctx, ipc.MethodReserve, again, &got); err != nil {
			return
		}
	}
}

// sharedReservation is a request to a model that was allowed, with Demand.Output tokens of output.
type sharedReservation struct {
	of    *shared
	asked ipc.Reserve
}

func (r *sharedReservation) Output() int64 { return r.asked.Demand.Output }

// End implements permit.SharedReservation.
func (r *sharedReservation) End(spent job.Usage) {
	r.of.mu.Lock()
	delete(r.of.open, r.asked.ID)
	r.of.mu.Unlock()
	r.of.tell(ipc.MethodRelease, ipc.Release{Job: r.asked.Job, Attempt: r.asked.Attempt, ID: r.asked.ID, Spent: spent})
}
