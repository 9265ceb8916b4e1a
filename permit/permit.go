package permit

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/job"
)

// Permit allows one attempt of one job to run.
type Permit struct {
	ID        job.PermitID
	Job       job.ID
	Tenant    job.Tenant
	Workspace string        // empty if the run has none
	Folder    job.Workspace // as Request.Folder
	Attempt   int
	Choice    job.Choice
	ExpiresAt time.Time // unused until then, it is void
	// CircuitState is what the circuits said of themselves when they allowed
	// the choice; empty without circuits.
	CircuitState string
	Grant

	gate    *Gate
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ticket  ticket          // of the circuits; written before anybody else has the permit
	release func()          // of Request.Reserve; nil if there was none; likewise
	tokens  []*rate.Limiter // where a token of a rate was taken; likewise

	// granted is when its deadline was reckoned: a run that is stopped then has
	// had all of its budget of time.
	granted time.Time

	// Guarded by gate.mu.
	expiry  *time.Timer
	used    time.Time // zero while unused
	charged job.Usage // by Charge, so far
	earlier bool      // granted before the gate was throttled
	ended   bool

	once sync.Once
}

// Grant is the budget that a permit comes with.
type Grant struct {
	Deadline time.Time // the run is stopped then
	Why      string    // what sets Deadline: "the job's timeout of 30m0s"
	Tokens   int64     // at most so many; 0 means no limit
	CostUSD  float64   // at most so much; 0 means no limit
}

// Result is how a run ended.
type Result struct {
	Usage   job.Usage // all of the run's, what was charged included
	Class   job.ErrorClass
	RetryAt *time.Time // when the provider wants to be asked again, if it said so
	Lost    bool       // see job.Attempt.Lost: the attempt does not count
	// Uncounted leaves it to the asker to count the attempt, which is told of all
	// the same: it alone knows whose fault its end was.
	Uncounted bool
}

// Context is the attempt's own: it ends when the permit expires unused, is
// revoked or is settled, with the cause of that.
func (p *Permit) Context() context.Context { return p.ctx }

// Revoke ends the permit. Unused, it gives back what it held, its tokens of
// the rates included; in use, it cancels the run with cause, and the run
// settles it when its last process is gone. Revoking twice changes nothing:
// the first cause stands.
func (p *Permit) Revoke(cause error) {
	p.cancel(cause)
	p.gate.mu.Lock()
	_, unused := p.gate.unused[p.ID]
	delete(p.gate.unused, p.ID)
	p.gate.mu.Unlock()
	if unused {
		p.end(cause, nil, nil)
	}
}

// SettleWith ends the use of the permit: what it held is given back, what the
// attempt consumed and Charge was not told yet is charged, and the circuits
// hear how it ended, unless it was lost. Settling twice changes nothing.
func (p *Permit) SettleWith(r Result) {
	told := &r
	if r.Lost {
		told = nil
	}
	p.end(context.Canceled, &r, told)
}

// Settle is SettleWith for a run of which nobody says how it ended: the
// circuits count it neither as a success nor as a failure.
func (p *Permit) Settle(spent job.Usage, lost bool) {
	p.end(context.Canceled, &Result{Usage: spent, Lost: lost}, nil)
}

// end gives back everything, once. result is nil if there was no run; told is
// what the circuits hear, nil if nothing. Whatever the permit holds outside of
// the gate goes first: the slot is only free when all the rest is.
func (p *Permit) end(cause error, result, told *Result) {
	p.once.Do(func() {
		p.cancel(cause)
		used := p.withdraw()
		if used.IsZero() {
			result, told = nil, nil
		}
		if p.release != nil {
			p.release()
		}
		took := time.Since(used)
		p.ticket.end(took, told)

		g := p.gate
		g.mu.Lock()
		defer g.mu.Unlock()
		now := time.Now()
		p.ended = true
		delete(g.live, p.Job)
		g.slots.giveBack(p)
		if result == nil {
			giveBack(now, p.tokens)
			return
		}
		g.charge(now, p, uncharged(sane(result.Usage), p.charged))
		g.record.end(p.Job, now.Sub(p.granted), result.Lost || result.Uncounted)
	})
}

// withdraw makes sure that the permit is not used from now on, and returns
// when it was.
func (p *Permit) withdraw() (used time.Time) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	delete(p.gate.unused, p.ID)
	if p.expiry != nil {
		p.expiry.Stop()
	}
	return p.used
}
