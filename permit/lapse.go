package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// lapse says until when the permits of a gate are valid. Its times are measured by the
// clock of Gate.Renew. Guarded by Gate.mu.
type lapse struct {
	until  time.Duration // 0: never renewed; permits do not lapse before the first renewal
	looked time.Duration // the last call of Gate.Lapse
	lapsed bool          // no permit is given out before the next renewal
}

// Parts of Limits.Validity, as divisors. A gap of four looks is a stop: a look that is late
// by its own period is not. The grace is twice the gap that is noticed, so that several
// looks, and several heartbeats, fall into it.
const (
	looksPerValidity = 16 // calls of Lapse within the validity
	missedLooks      = 4  // a longer gap between two calls means that the host or this process stood still
	graceAfterMissed = 2  // permits stay valid for this part after such a gap, at least
)

// LookEvery returns the time between two calls of Lapse:
//
//	max(min(Validity / 16, 1 s), 1 ms), and 1 s without a validity
func (g *Gate) LookEvery() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.limits.Validity; v > 0 {
		return max(min(v/looksPerValidity, time.Second), time.Millisecond)
	}
	return time.Second
}

// Renew makes all permits valid until now + Limits.Validity, and lets the gate give out
// permits again. A permit that has lapsed stays revoked.
//
// now is the time since an origin that is the same for all calls of Renew and
// Lapse, by a clock that goes on while the host sleeps (CLOCK_BOOTTIME of
// clock_gettime(2)).
func (g *Gate) Renew(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.limits.Validity; v > 0 {
		g.lapse.until, g.lapse.lapsed = now+v, false
	}
}

// Lapse revokes with cause all permits, in use and unused, if they were not renewed in
// time, and returns how many. Until the next Renew the gate then gives out none.
// Without Limits.Validity, before the first Renew, and after Close, no permit lapses.
//
// A late call cannot tell a scheduler that did not renew from one that could not. If more
// than a quarter of Limits.Validity lies between two calls, the host slept or this
// process was stopped. Permits then stay valid for at least another half of it, so that a
// scheduler that stood still too has time to renew them. So the permits lapse at the first
// call at or after
//
//	max(last renewal + Validity, end of the last stop + Validity/2)
func (g *Gate) Lapse(now time.Duration, cause error) int {
	permits := g.lapsing(now)
	for _, p := range permits {
		p.Revoke(cause)
	}
	return len(permits)
}

// lapsing returns the permits that are not valid any more, each once: it sets lapsed.
func (g *Gate) lapsing(now time.Duration) (permits []*Permit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, validity := &g.lapse, g.limits.Validity
	if validity <= 0 || l.until == 0 || l.lapsed || g.closed != nil {
		l.looked = now
		return nil
	}
	if now-l.looked > validity/missedLooks {
		l.until = max(l.until, now+validity/graceAfterMissed)
	}
	l.looked = now
	if now < l.until {
		return nil
	}
	l.lapsed = true
	for _, p := range g.live {
		if !p.ExpiresAt.IsZero() { // else it is still being made, and arm refuses it
			permits = append(permits, p)
		}
	}
	return permits
}

// lapsedLocked returns the rejection after the permits have lapsed, or nil. Called
// with g.mu held.
func (g *Gate) lapsedLocked() error {
	if !g.lapse.lapsed {
		return nil
	}
	return limited(job.WaitPermit, slotRetry, "the permits of this core have lapsed: none was renewed within %s", g.limits.Validity)
}
