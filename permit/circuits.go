package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Circuits are the circuit breakers that have a say. Its methods are called
// without any lock of the gate.
type Circuits interface {
	// Allow asks whether c may run. An error refuses the request; a *Rejection
	// (CIRCUIT_OPEN, with its time) is passed on. Otherwise exactly one of
	// settle and discard is called, once: settle when the run has ended, with
	// its class, how long it took and when the provider wants to be asked
	// again; discard if there was no run or its end says nothing.
	Allow(c job.Choice) (settle func(class job.ErrorClass, took time.Duration, retryAt *time.Time), discard func(), err error)
	// State describes the breakers of c in a word or a few, e.g. "half-open".
	State(c job.Choice) string
}

// Defence is the staged defence of the host. It is asked first, without any
// lock of the gate.
type Defence interface {
	// Admit returns why r is shed, isolated or throttled, or nil.
	Admit(r Request) *Rejection
}

// SetCircuits makes the gate ask c from now on; nil asks nobody.
func (g *Gate) SetCircuits(c Circuits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.circuits = c
}

// SetDefence makes the gate ask d from now on; nil asks nobody.
func (g *Gate) SetDefence(d Defence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.defence = d
}

// ticket is what the circuits gave out for a permit. The zero ticket is of no
// circuit. It ends once: its owner sees to that.
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
