package agentcore

import (
	"context"
	"errors"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// circuits lets the gate ask the breakers.
type circuits struct{ set *breaker.Set }

// Allow asks the breakers of the choice; an open one is a CIRCUIT_OPEN with its time.
func (c circuits) Allow(choice job.Choice) (func(job.ErrorClass, time.Duration, *time.Time), func(), error) {
	ticket, err := c.set.Allow(choice)
	var open *breaker.OpenError
	if errors.As(err, &open) {
		return nil, nil, &permit.Rejection{Reason: job.CircuitOpen, RetryAfter: max(time.Until(open.RetryAt), time.Millisecond), Message: open.Error()}
	}
	if err != nil {
		return nil, nil, err
	}
	return func(class job.ErrorClass, took time.Duration, retryAt *time.Time) {
		ticket.Settle(breaker.Result{Class: class, Took: took, RetryAt: retryAt})
	}, ticket.Discard, nil
}

// State says how the breakers of the choice stand.
func (c circuits) State(choice job.Choice) string { return c.set.State(choice) }

// tellCircuits tells the scheduler of every change of a breaker, with how all
// of them stand then, so that the next core can go on from there.
func (c *Core) tellCircuits(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case change := <-c.circuits.Changes():
			n := ipc.Circuits{Now: time.Now().UTC().Round(0), Changed: ipc.Circuit{
				Worker: change.Worker, Model: change.Model, State: string(change.To), OpenUntil: change.OpenUntil, Cause: change.Cause,
			}}
			for _, s := range c.circuits.Snapshot() {
				n.Circuits = append(n.Circuits, ipc.Circuit{
					Worker: s.Worker, Model: s.Model, State: string(s.State), OpenUntil: s.OpenUntil,
					Requests: s.Requests, Failures: s.Failures, Slow: s.Slow, Cause: s.Cause,
				})
			}
			if err := c.peer.Notify(context.Background(), ipc.NotifyCircuits, n); err != nil {
				c.cfg.Log.Debug().Err(err).Msg("change of a breaker not sent")
			}
		}
	}
}

// escalate tells the scheduler of an escalation that is enforced here already.
func (c *Core) escalate(x ipc.Escalation) {
	if err := c.peer.Notify(context.Background(), ipc.NotifyEscalation, x); err != nil {
		c.cfg.Log.Warn().Err(err).Msg("escalation not sent")
	}
}

// restoreCircuits takes over what an earlier core knew of the breakers, told at a time by the scheduler's clock.
func (c *Core) restoreCircuits(list []ipc.Circuit, told time.Time) error {
	states := make([]breaker.State, len(list))
	for i, s := range list {
		s = s.By(told, time.Now())
		states[i] = breaker.State{
			Key: breaker.Key{Worker: s.Worker, Model: s.Model}, State: breaker.Phase(s.State), OpenUntil: s.OpenUntil,
			Requests: s.Requests, Failures: s.Failures, Slow: s.Slow, Cause: s.Cause,
		}
	}
	return c.circuits.Restore(states)
}
