package permit

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Circuits are the circuit breakers. The gate calls its methods without a lock.
type Circuits interface {
	// Allow asks whether c may run. An error refuses the request; a *Rejection
	// (CIRCUIT_OPEN, with its time) is returned by Gate.Request as it is. Otherwise the
	// gate calls exactly one of settle and discard, once: settle when the run has ended,
	// with its class, how long it took since Use, and when the provider wants to be asked
	// again (nil if it did not say); discard if there was no run or its end tells nothing.
	Allow(c job.Choice) (settle func(class job.ErrorClass, took time.Duration, retryAt *time.Time), discard func(), err error)
	// State describes the breakers of c for people, e.g. "codex closed, codex:gpt-5 half-open".
	State(c job.Choice) string
}

// Defence is the staged defence of the host. The gate asks it first, without a lock.
type Defence interface {
	// Admit returns why r is refused, or nil. It must not change r's limits or counts.
	Admit(r Request) *Rejection
}

// Shared keeps the limits that gates of several hosts have in common: rates, and what requests to models may reserve of
// cost windows. A gate that has one keeps neither itself; its own cost windows only stop runs whose requests it does not
// see. The gate calls it without a lock.
type Shared interface {
	// Admit asks for a permit: for a token of each rate that counts r, and whether its cost windows have room. The error
	// refuses the request; a *Rejection is returned by Gate.Request as it is. back is called if the permit was not used.
	Admit(ctx context.Context, r Request) (back func(), err error)
	// Reserve waits until a request to a model may begin, as Permit.Reserve does, which calls it when the job's own budget
	// has room. Its errors are those of Permit.Reserve.
	Reserve(ctx context.Context, p *Permit, d Demand) (SharedReservation, error)
}

// SharedReservation is what a request to a model may use of what is shared.
type SharedReservation interface {
	Output() int64       // tokens of output, at most those that were asked for
	End(spent job.Usage) // gives back what was not used; called once
}

// SetShared sets what keeps the shared limits, from the next request on; nil: nothing is shared.
func (g *Gate) SetShared(s Shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shared = s
	g.advance() // who waits for a window of this gate's own waits elsewhere from now on
}

// SetCircuits sets the circuits of later requests; nil means none. A permit keeps the
// circuits that allowed it.
func (g *Gate) SetCircuits(c Circuits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.circuits = c
}

// SetDefence sets the defence of later requests; nil means none.
func (g *Gate) SetDefence(d Defence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.defence = d
}

// ticket is what Circuits.Allow returned for a permit. The zero ticket, without circuits,
// does nothing. Permit.end calls end once.
type ticket struct {
	settle  func(job.ErrorClass, time.Duration, *time.Time)
	discard func()
	state   string
}

// ask returns the circuits' ticket for c.
func ask(circuits Circuits, c job.Choice) (ticket, error) {
	if circuits == nil {
		return ticket{}, nil
	}
	settle, discard, err := circuits.Allow(c)
	if err != nil {
		return ticket{}, err
	}
	return ticket{settle, discard, circuits.State(c)}, nil
}

// end settles the ticket, or discards it if result is nil.
func (t ticket) end(took time.Duration, result *Result) {
	switch {
	case t.settle == nil:
	case result == nil:
		t.discard()
	default:
		t.settle(result.Class, took, result.RetryAt)
	}
}
