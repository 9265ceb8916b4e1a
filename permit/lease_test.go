package permit_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/permit"
)

// holder looks at a lease when it is due, in virtual time.
type holder struct {
	permit.Lease
	next time.Duration
	over time.Duration // when it was first seen to be over; 0: it is not
}

func (h *holder) look(now time.Duration) {
	if now < h.next {
		return
	}
	if h.Over(now) && h.over == 0 {
		h.over = now
	}
	h.next = now + h.NextLook()
}

// TestTwoHolders: one that has a margin sees the end of a lease that much after the other, whenever both run, also after
// the host has slept, less a sleep that is too short to be noticed. When the other stands still, it sees the end in time all the same.
func TestTwoHolders(t *testing.T) {
	const step = 10 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(what string, least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, what)) * time.Second
		}
		validity, margin := seconds("validity", 2, 100), seconds("margin", 1, 60)
		core, fuse := holder{Lease: permit.Lease{Validity: validity}}, holder{Lease: permit.Lease{Validity: validity, Margin: margin}}
		late := rapid.IntRange(0, 50).Draw(t, "by which the fuse's looks come later, in steps")
		now := time.Hour
		core.Over(now)
		fuse.Over(now)
		core.Renew(now)
		fuse.Renew(now)
		renewed, woke, unnoticed := now, time.Duration(0), time.Duration(0)
		core.next, fuse.next = now, now+time.Duration(late)*step
		alone := rapid.Bool().Draw(t, "the core stands still")
		asleep := rapid.IntRange(0, int((validity+margin)/step)).Draw(t, "when the host sleeps, in steps")
		for i := 0; fuse.over == 0; i++ {
			if i == asleep {
				if slept := seconds("sleep", 0, 1000); slept > 0 {
					now += slept
					if woke = now; slept <= validity/4 {
						unnoticed = slept
					}
				}
			}
			now += step
			if !alone {
				core.look(now)
			}
			fuse.look(now)
			if now > time.Hour+10*time.Hour {
				t.Fatal("the lease of the fuse never ends")
			}
		}
		if least := renewed + validity + margin; fuse.over < least {
			t.Fatalf("over at %s, want no less than %s", fuse.over, least)
		}
		slack := fuse.Every() + 2*step
		if most := max(renewed+validity, woke+fuse.Every()+validity/2) + margin + slack; fuse.over > most {
			t.Fatalf("over at %s, want %s at most", fuse.over, most)
		}
		// Each judges after its own first look since the host woke.
		if !alone && (core.over == 0 || fuse.over-core.over < margin-unnoticed-slack) {
			t.Fatalf("over at %s, %s after the other, want a margin of %s", fuse.over, fuse.over-core.over, margin-unnoticed)
		}
	})
}

// TestLeaseEnds: one that was ended is over until it is renewed, and one without a validity never is.
func TestLeaseEnds(t *testing.T) {
	l := permit.Lease{Validity: time.Minute}
	if l.End(); l.Ended() || l.Over(time.Hour) {
		t.Error("a lease that was never renewed is over")
	}
	l.Renew(time.Hour)
	if l.Over(time.Hour) {
		t.Error("a lease is over that was just renewed")
	}
	if l.End(); !l.Ended() || !l.Over(time.Hour) {
		t.Error("a lease goes on that was ended")
	}
	l.Renew(time.Hour)
	if l.Ended() || l.Over(time.Hour+time.Second) {
		t.Error("a renewal does not begin it again")
	}
	l.End()
	if l.Validity = 0; l.Over(3 * time.Hour) {
		t.Error("a lease without a validity is over")
	}
}
