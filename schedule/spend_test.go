package schedule

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestSpendings keeps what counts within each window, by tenant, and forgets
// what is older than the longest.
func TestSpendings(t *testing.T) {
	windows := []ipc.CostWindow{
		{Tenant: "ann", Window: job.Duration(time.Hour), MaxUSD: 5},
		{Window: job.Duration(24 * time.Hour), MaxUSD: 20},
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sum := func(list []ipc.Spending) (usd float64) {
		for _, s := range list {
			usd += s.USD
		}
		return usd
	}
	var b spendings
	b.add(began, "ann", 1) // nothing is kept yet: there is no window
	b.bound(windows)
	b.add(began, "ann", 1)
	b.add(began.Add(time.Minute), "ann", 0.5) // shares a part with the one before
	b.add(began.Add(2*time.Minute), "bob", 4)
	b.add(began.Add(3*time.Minute), "bob", -7) // no money comes back
	for _, tt := range []struct {
		after     time.Duration
		ann, both float64
	}{
		{10 * time.Minute, 1.5, 5.5},
		{59 * time.Minute, 1.5, 5.5},
		{61 * time.Minute, 0, 5.5},
		{25 * time.Hour, 0, 0},
	} {
		got := b.fill(began.Add(tt.after), windows)
		if sum(got[0].Spent) != tt.ann || sum(got[1].Spent) != tt.both {
			t.Errorf("after %s: ann %+v, all %+v; want %g and %g", tt.after, got[0].Spent, got[1].Spent, tt.ann, tt.both)
		}
		for _, s := range got[1].Spent {
			if s.AgoMS < 0 || s.AgoMS > tt.after.Milliseconds() {
				t.Errorf("after %s: spent %d ms ago", tt.after, s.AgoMS)
			}
		}
	}
	for i := range 10_000 {
		b.add(began.Add(time.Duration(i)*time.Minute), "ann", 0.01)
	}
	if len(b.parts) > 2*partsOfWindow+2 {
		t.Errorf("%d parts are kept of a window of %d", len(b.parts), partsOfWindow)
	}
	if windows[0].Spent != nil {
		t.Error("fill wrote into the configuration")
	}
}
