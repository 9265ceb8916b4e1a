package permit

import "time"

// Lease is something that holds for a time after each renewal. Its holder looks at it
// regularly and so notices that it stood still itself. The zero value never ends.
//
// All times are counted from one origin by a clock that goes on while the host sleeps
// (CLOCK_BOOTTIME of clock_gettime(2)).
type Lease struct {
	Validity time.Duration // how long it holds after a renewal; 0: it never ends
	// Margin is how much later than that it ends. It is for a holder that acts only if
	// another one, which looks at the same lease without a margin, did not.
	Margin time.Duration

	begun   bool          // it was renewed; before that it does not end
	renewed time.Duration // last
	resumed time.Duration // the end of the last stop
	looked  time.Duration // the last call of Over
	over    bool
}

// Parts of Validity, as divisors. A gap of four looks is a stop: a look that is late by its
// own period is not. The grace is twice the gap that is noticed, so that several looks, and
// several heartbeats, fall into it.
const (
	looksPerValidity = 16 // calls of Over within the validity
	missedLooks      = 4  // a longer gap between two calls means that the host or this process stood still
	graceAfterMissed = 2  // the lease holds for this part after such a gap, at least
)

// Every returns the time between two calls of Over:
//
//	max(min(Validity / 16, 1 s), 1 ms), and 1 s without a validity
func (l *Lease) Every() time.Duration {
	if l.Validity > 0 {
		return max(min(l.Validity/looksPerValidity, time.Second), time.Millisecond)
	}
	return time.Second
}

// NextLook returns how long after a call of Over the next one is due, for a holder that
// must not be late: at the end of the lease, if that comes before Every has passed.
func (l *Lease) NextLook() time.Duration {
	next := l.Every()
	if l.Validity > 0 && l.begun && !l.over {
		next = max(min(next, l.end()-l.looked), time.Millisecond)
	}
	return next
}

// end returns when a lease ends that was renewed.
func (l *Lease) end() time.Duration {
	return max(l.renewed+l.Validity, l.resumed+l.Validity/graceAfterMissed) + l.Margin
}

// Renew makes the lease hold until at + Validity, also if it was over. One that comes after
// a later one changes nothing else.
func (l *Lease) Renew(at time.Duration) {
	if l.Validity > 0 {
		l.begun, l.renewed, l.over = true, max(l.renewed, at), false
	}
}

// End ends the lease now. It is over until the next Renew.
func (l *Lease) End() { l.over = l.Validity > 0 && l.begun }

// Ended says whether the lease was over at the last call of Over, or of End.
func (l *Lease) Ended() bool { return l.over }

// Over looks at the lease, and says whether it is over. It stays so until Renew.
//
// A late call cannot tell that nobody renewed from that nobody could. If more than a
// quarter of Validity lies between two calls, the host slept or this process was stopped.
// The lease then holds for at least another half of it, so that whoever renews it, and
// stood still too, has time to. So it ends at the first call at or after
//
//	max(last renewal + Validity, end of the last stop + Validity/2) + Margin
func (l *Lease) Over(now time.Duration) bool {
	gap := now - l.looked
	l.looked = now
	switch {
	case l.Validity <= 0 || !l.begun:
		l.resumed, l.over = now, false // whether it stood still before it began is not known
		return false
	case l.over:
		return true
	}
	if gap > l.Validity/missedLooks {
		l.resumed = now
	}
	l.over = now >= l.end()
	return l.over
}
