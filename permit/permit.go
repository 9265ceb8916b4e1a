package permit

import (
	"context"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Permit allows one attempt of one job to run.
type Permit struct {
	ID        job.PermitID
	Job       job.ID
	Attempt   int
	Choice    job.Choice
	ExpiresAt time.Time // unused until then, it is void
	Grant

	gate    *Gate
	key     attemptKey
	ctx     context.Context
	cancel  context.CancelCauseFunc
	release func() // of Request.Reserve; nil if there was none
	expiry  *time.Timer
	used    time.Time // zero while unused; written under gate.mu before the run starts

	once sync.Once
}

// Grant is the budget that a permit comes with.
type Grant struct {
	Deadline time.Time // the run is stopped then
	Why      string    // what sets Deadline: "the job's timeout of 30m0s"
	Tokens   int64     // at most so many; 0 means no limit
	CostUSD  float64   // at most so much; 0 means no limit
}

// Context is the attempt's own: it ends when the permit expires unused, is
// revoked or is settled, with the cause of that.
func (p *Permit) Context() context.Context { return p.ctx }

// Revoke ends the permit. Unused, it gives back what it held; in use, it
// cancels the run with cause, and the run settles it when its last process is
// gone. Revoking twice changes nothing: the first cause stands.
func (p *Permit) Revoke(cause error) {
	p.cancel(cause)
	p.gate.mu.Lock()
	_, unused := p.gate.unused[p.ID]
	delete(p.gate.unused, p.ID)
	p.gate.mu.Unlock()
	if unused {
		p.settle(cause, nil)
	}
}

// Settle ends the use of the permit: what it held is given back and what the
// attempt consumed is written into the gate's own record. An attempt that was
// lost (see job.Attempt.Lost) does not count. Settling twice changes nothing.
func (p *Permit) Settle(spent job.Usage, lost bool) {
	p.settle(context.Canceled, func(l *ledger) {
		l.end(p.Job, spent, time.Since(p.used), lost)
	})
}

func (p *Permit) settle(cause error, record func(*ledger)) {
	p.once.Do(func() {
		p.cancel(cause)
		if p.release != nil {
			p.release()
		}
		g := p.gate
		g.mu.Lock()
		defer g.mu.Unlock()
		if p.expiry != nil {
			p.expiry.Stop()
		}
		delete(g.unused, p.ID)
		delete(g.live, p.key)
		if g.perKind[p.Choice.Worker]--; g.perKind[p.Choice.Worker] == 0 {
			delete(g.perKind, p.Choice.Worker)
		}
		if record != nil {
			record(&g.record)
		}
	})
}
