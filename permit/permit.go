package permit

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/job"
)

// Permit allows one attempt of one job to run. Its exported fields are set before
// Gate.Request returns it and never change.
type Permit struct {
	ID        job.PermitID
	Job       job.ID
	Tenant    job.Tenant    // never empty
	Workspace string        // as in Request.Workspace
	Folder    job.Workspace // as in Request.Folder
	Attempt   int
	Choice    job.Choice
	ExpiresAt time.Time // when it expires if it is not used; zero while it is being made
	// CircuitState is what Circuits.State said when the choice was allowed; empty
	// without circuits.
	CircuitState string
	Grant

	gate    *Gate
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ticket  ticket          // of the circuits; this and the next three are set before Request returns
	unshare func()          // gives back what Shared.Admit took; nil if nothing did
	release func()          // of Request.Reserve; nil if there was none
	tokens  []*rate.Limiter // the buckets from which a token was taken

	// granted is the time from which Deadline was computed. The attempt's wall time is
	// counted from it, so that a run that is stopped at its deadline has used exactly what
	// it was granted.
	granted time.Time

	onPartition job.OnPartition // of the job: whether it lapses while it is in use

	// The rest is guarded by gate.mu. It says in which state the permit is:
	//
	//	             in gate.live  in gate.unused  used    ended
	//	being made   yes           no              zero    false
	//	unused       yes           yes             zero    false
	//	in use       yes           no              set     false
	//	ended        no            no              either  true
	//
	// Between unused and ended it is for a moment in live alone: that is withdraw.
	expiry  *time.Timer // of an unused permit; calls Revoke(ErrExpired)
	used    time.Time   // zero while unused
	charged job.Usage   // by Charge, so far
	holds   holds       // of what was granted, by requests to models
	ceded   amount      // what others spend of what was granted; see Cede
	lent    bool        // it holds no slot; see Lend
	earlier bool        // given out before the gate was throttled; see Gate.throttled
	ended   bool

	once sync.Once
}

// Grant is the budget of an attempt: what is left of its job's limits. Gate.budget has
// the formulas.
type Grant struct {
	Deadline time.Time // the caller stops the run then, as TIMEOUT
	Why      string    // what sets Deadline, for the user: "the job's timeout of 30m0s"
	Tokens   int64     // Charge stops the run when it has used more; 0 means no limit
	CostUSD  float64   // the same in US dollars; 0 means no limit
}

// Result is how a run ended. The zero value is a success that used nothing.
type Result struct {
	Usage   job.Usage // the whole run's; what Charge was told is a part of it
	Class   job.ErrorClass
	RetryAt *time.Time // when the provider wants to be asked again; nil if it did not say
	// Asked is how long the run waited for people, which is no time of the job's.
	Asked time.Duration
	// Lost says that the end tells nothing about the job or its worker (see
	// job.Attempt.Lost): the attempt does not count, and the circuits do not hear of it.
	// Its usage and its time count all the same.
	Lost bool
	// Uncounted says that the gate's record must not count the attempt: the caller counts
	// it in Request.Counted, if it counts. The circuits hear of it.
	Uncounted bool
}

// Context is the attempt's context. It ends when the permit expires unused, is
// revoked, lapses or is settled, with the cause of that.
func (p *Permit) Context() context.Context { return p.ctx }

// Revoke cancels the permit's context with cause. An unused permit ends with it and
// gives back all that it held, its tokens of the rates too. A permit in use holds what it
// has until the run settles it, when its last process is gone. Revoking twice changes
// nothing: the first cause stands.
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

// SettleWith ends the permit after its run. It gives back what the permit held, charges
// what the run used and Charge was not told yet, and tells the circuits how the run
// ended, unless it was lost. Settling twice changes nothing.
func (p *Permit) SettleWith(r Result) {
	told := &r
	if r.Lost {
		told = nil
	}
	p.end(context.Canceled, &r, told)
}

// Settle is SettleWith for a run whose end is unknown: the circuits count it
// neither as a success nor as a failure.
func (p *Permit) Settle(spent job.Usage, lost bool) {
	p.end(context.Canceled, &Result{Usage: spent, Lost: lost}, nil)
}

// end gives back everything, once. result is nil if there was no run; told is
// what the circuits hear, nil for nothing. What the permit holds outside of the gate
// is released first: a request that gets the free slot finds the workspace free too.
func (p *Permit) end(cause error, result, told *Result) {
	p.once.Do(func() {
		p.cancel(cause)
		used := p.withdraw()
		if used.IsZero() {
			result, told = nil, nil
			if p.unshare != nil {
				p.unshare()
			}
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
		if !p.lent {
			g.slots.giveBack(p)
		}
		if result == nil {
			giveBack(now, p.tokens)
			return
		}
		g.charge(now, p, uncharged(sane(result.Usage), p.charged))
		g.record.end(p.Job, max(now.Sub(p.granted)-max(result.Asked, 0), 0))
		if result.Lost || result.Uncounted {
			g.record.uncount(p.Job, p.Attempt)
		}
	})
}

// withdraw makes sure that the permit is not used from now on, and returns
// when it was used, zero if never.
func (p *Permit) withdraw() (used time.Time) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	delete(p.gate.unused, p.ID)
	if p.expiry != nil {
		p.expiry.Stop()
	}
	return p.used
}
