package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// LookEvery returns the time between two calls of Lapse: see Lease.Every.
func (g *Gate) LookEvery() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease.Every()
}

// Renew makes all permits valid until now + Limits.Validity, and lets the gate give out
// permits again. A permit that has lapsed stays revoked. now is a time of Lease's clock.
func (g *Gate) Renew(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.Validity = max(g.limits.Validity, 0)
	g.lease.Renew(now)
}

// Lapse revokes with cause all permits that were not renewed in time, and returns how many.
// Until the next Renew the gate then gives out none. Without Limits.Validity, before the
// first Renew, and after Close, no permit lapses. Lease.Over says when permits lapse.
//
// A permit in use whose job says job.FinishOnPartition is not revoked: its run goes on.
func (g *Gate) Lapse(now time.Duration, cause error) int {
	return g.lapse(cause, func() bool { return g.lease.Over(now) })
}

// Void makes the permits lapse whatever the time, as Lapse does. It is for a caller that
// learns that others have ended what ran under them.
func (g *Gate) Void(cause error) int {
	return g.lapse(cause, func() bool {
		g.lease.End()
		return g.lease.Ended()
	})
}

// Lapsed says whether the permits have lapsed and were not renewed since.
func (g *Gate) Lapsed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease.Ended()
}

// lapse revokes the permits if they are over now and were not before. over is called with
// g.mu held.
func (g *Gate) lapse(cause error, over func() bool) int {
	permits := g.lapsing(over)
	for _, p := range permits {
		p.Revoke(cause)
	}
	return len(permits)
}

func (g *Gate) lapsing(over func() bool) (permits []*Permit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return nil
	}
	if was := g.lease.Ended(); !over() || was {
		return nil
	}
	for _, p := range g.live {
		// One that is still being made is refused by arm.
		if !p.ExpiresAt.IsZero() && (p.used.IsZero() || p.onPartition != job.FinishOnPartition) {
			permits = append(permits, p)
		}
	}
	return permits
}

// lapsedLocked returns the rejection after the permits have lapsed, or nil. Called
// with g.mu held.
func (g *Gate) lapsedLocked() error {
	if !g.lease.Ended() {
		return nil
	}
	return limited(job.WaitPermit, slotRetry, "the permits of this core have lapsed: none was renewed within %s", g.limits.Validity)
}
