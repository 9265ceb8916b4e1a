package breaker

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Ticket is one allowed attempt. Exactly one of Settle and Discard ends it;
// later calls of either do nothing. It is safe for concurrent use.
type Ticket struct {
	set        *Set
	modelNamed bool
	// passes are of the kind and, if there is one, of the model; none once the
	// ticket has ended. Guarded by set.mu.
	passes []pass
}

// Result is how an attempt ended.
type Result struct {
	Class job.ErrorClass
	Took  time.Duration
	// RetryAt is when the provider wants to be asked again; looked at if Class
	// is job.RateLimit.
	RetryAt *time.Time
}

// Settle tells the breakers how the attempt ended.
func (t *Ticket) Settle(r Result) {
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	now := time.Now()
	for _, p := range t.passes {
		p.b.settle(now, p, effectOf(r.Class, p.b.key, t.modelNamed), r)
	}
	t.passes = nil
}

// Discard tells the breakers that the attempt says nothing about them: its
// permit expired unused, or it was cancelled or lost.
func (t *Ticket) Discard() {
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	t.discard(time.Now())
}

// discard is Discard with the set's lock held.
func (t *Ticket) discard(now time.Time) {
	for _, p := range t.passes {
		p.b.settle(now, p, excluded, Result{})
	}
	t.passes = nil
}
