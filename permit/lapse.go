package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// lapse says until when the permits of a gate are valid. Its times are those of
// Gate.Renew. Guarded by Gate.mu.
type lapse struct {
	until  time.Duration // 0: they were never renewed, and do not lapse before they are
	looked time.Duration // when Gate.Lapse was called last
	lapsed bool          // no permit is valid before the next renewal
}

// Parts of Limits.Validity, as divisors.
const (
	looksPerValidity = 16 // how often to look within it
	missedLooks      = 4  // a look that is later than this part was missed: this process, or the host, stood still
	graceAfterMissed = 2  // how long permits stay valid after that, at least
)

// LookEvery returns how often Lapse is to be called: 16 times within
// Limits.Validity, and at least once a second, which is so without one, too.
func (g *Gate) LookEvery() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.limits.Validity; v > 0 {
		return max(min(v/looksPerValidity, time.Second), time.Millisecond)
	}
	return time.Second
}

// Renew makes all permits valid for Limits.Validity from now on. Those that have
// lapsed stay revoked; the gate gives out permits again.
//
// now is the time since a moment that is the same for all calls of Renew and
// Lapse, by a clock that goes on while the host sleeps (CLOCK_BOOTTIME of
// clock_gettime(2)).
func (g *Gate) Renew(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.limits.Validity; v > 0 {
		g.lapse.until, g.lapse.lapsed = now+v, false
	}
}

// Lapse revokes with cause the permits, used and unused, that were not renewed in
// time, and returns how many. Until the next Renew the gate then gives out none.
// Without Limits.Validity, and after Close, no permit lapses.
//
// Who looks late cannot tell whether nobody has renewed or nobody could: after a
// gap of a quarter of Limits.Validity between two calls (the host slept, or this
// process was stopped), permits stay valid for at least half of it, so that
// whoever stood still as well has time to renew them.
func (g *Gate) Lapse(now time.Duration, cause error) int {
	permits := g.lapsing(now)
	for _, p := range permits {
		p.Revoke(cause)
	}
	return len(permits)
}

// lapsing returns the permits that are not valid any more, each once.
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

// lapsedLocked returns why no permit is given out since all have lapsed, or nil. Called
// with g.mu held.
func (g *Gate) lapsedLocked() error {
	if !g.lapse.lapsed {
		return nil
	}
	return limited(job.WaitPermit, slotRetry, "the permits of this core have lapsed: none was renewed within %s", g.limits.Validity)
}
