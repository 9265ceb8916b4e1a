package schedule

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	b.add(began.Add(50*time.Second), "ann", 0.5) // shares a part with the one before
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
	if most := int(b.keep/b.width) + 2; len(b.parts) > most {
		t.Errorf("%d parts are kept, want at most %d", len(b.parts), most)
	}
	if windows[0].Spent != nil {
		t.Error("fill wrote into the configuration")
	}
}

// TestSpendingsAreNotForgotten: a window counts what was spent within it, and what was
// spent before it only as long as a part is wide, also a short window beside a long one.
func TestSpendingsAreNotForgotten(t *testing.T) {
	windows := []ipc.CostWindow{{Window: job.Duration(time.Minute)}, {Tenant: "ann", Window: job.Duration(time.Hour)}, {Window: job.Duration(24 * time.Hour)}}
	rapid.Check(t, func(t *rapid.T) {
		var b spendings
		b.bound(windows[:rapid.IntRange(1, len(windows)).Draw(t, "windows")])
		used := slices.DeleteFunc(slices.Clone(windows), func(w ipc.CostWindow) bool { return w.Window.Std() > b.keep })
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var all []Spending
		for range rapid.IntRange(1, 200).Draw(t, "spendings") {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(b.keep/20)).Draw(t, "pause")))
			sp := Spending{at, job.Tenant(rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "tenant")), float64(rapid.IntRange(1, 100).Draw(t, "usd"))}
			all = append(all, sp)
			b.add(sp.At, sp.Tenant, sp.USD)
		}
		within := func(w ipc.CostWindow, d time.Duration) (usd float64) {
			for _, sp := range all {
				if at.Sub(sp.At) < d && (w.Tenant == "" || w.Tenant == sp.Tenant) {
					usd += sp.USD
				}
			}
			return usd
		}
		for _, w := range b.fill(at, used) {
			var got float64
			for _, sp := range w.Spent {
				got += sp.USD
			}
			if least, most := within(w, w.Window.Std()), within(w, w.Window.Std()+b.width); got < least || got > most {
				t.Errorf("window %s of %q counts %g, want %g to %g", w.Window.Std(), w.Tenant, got, least, most)
			}
		}
	})
}
