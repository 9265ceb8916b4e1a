package trigger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
)

func TestBreakerJudges(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	b := Breaker{Failures: 3, CoolDown: job.Duration(time.Minute), MaxCoolDown: job.Duration(5 * time.Minute)}
	// outcomes reads "f" failed, "s" succeeded, "." not ended; the oldest first, a minute apart.
	outcomes := func(text string) (list []Outcome) {
		for n, c := range text {
			o := Outcome{Firing: fmt.Sprint(n), Ended: at.Add(time.Duration(n) * time.Minute), Failed: c == 'f'}
			if c == '.' {
				o.Ended = time.Time{}
			}
			list = append([]Outcome{o}, list...)
		}
		return list
	}
	for text, want := range map[string]struct {
		failures     int
		open, trying bool
		last         string
		until        time.Duration // after at
	}{
		"":        {},
		"ff":      {failures: 2, last: "1"},
		"sfff":    {failures: 3, open: true, last: "3", until: 3*time.Minute + time.Minute},
		"ffff":    {failures: 4, open: true, last: "3", until: 3*time.Minute + 2*time.Minute},
		"fffff":   {failures: 5, open: true, last: "4", until: 4*time.Minute + 4*time.Minute},
		"ffffff":  {failures: 6, open: true, last: "5", until: 5*time.Minute + 5*time.Minute},
		"fff.":    {failures: 3, open: true, trying: true, last: "2", until: 2*time.Minute + time.Minute},
		"ff.f":    {failures: 3, open: true, trying: true, last: "3", until: 3*time.Minute + time.Minute},
		"fffs":    {},
		"fffsf":   {failures: 1, last: "4"},
		"fffsff.": {failures: 2, trying: true, last: "5"},
	} {
		v := b.Judge(outcomes(text))
		if v.Failures != want.failures || v.Open != want.open || v.Trying != want.trying || v.Last.Firing != want.last || v.Open && !v.Until.Equal(at.Add(want.until)) {
			t.Errorf("%q: %+v, want %+v", text, v, want)
		}
	}
	b.Failures = 0
	if v := b.Judge(outcomes("ffffffff")); v.Open {
		t.Errorf("a breaker that never opens: %+v", v)
	}
}

// fates is what becomes of the jobs that a trigger submits, and what is isolated.
type fates struct {
	queue
	runner   atomic.Pointer[Runner]
	outcomes map[string]Outcome
	told     []Isolation
	lifted   bool // by an operator
}

func (f *fates) outcome(_ context.Context, firing string) (Outcome, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, known := f.outcomes[firing]
	return o, known, nil
}

func (f *fates) isolate(i Isolation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told, f.lifted = append(f.told, i), false
}

func (f *fates) isolated(Name) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.told); n > 0 && !f.lifted && time.Now().Before(f.told[n-1].Until) {
		return "isolated until " + f.told[n-1].Until.Format(time.TimeOnly)
	}
	return ""
}

// ends lets the jobs of every firing end as soon as they are submitted, with failed, or
// leaves them alone.
func (f *fates) ends(failed, end bool) {
	f.set(func(x Firing) error {
		o := Outcome{Firing: x.ID, Failed: failed, Why: "job a: it broke"}
		if end {
			o.Ended = time.Now()
		}
		f.outcomes[x.ID] = o
		go f.runner.Load().Judge()
		return nil
	})
}

func (f *fates) isolations() []Isolation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

// ended returns when the jobs of the n-th firing ended.
func (f *fates) ended(n int) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outcomes[f.got[n].ID].Ended
}

func (f *fates) times() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.got {
		list = append(list, x.At.Format("15:04"))
	}
	return list
}

// TestATriggerThatKeepsFailing is isolated, tried once, isolated for longer, over a
// restart too, and fires as ever when a try succeeds.
func TestATriggerThatKeepsFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fates{outcomes: map[string]Outcome{}}
		s := Settings{Cron: "*/10 * * * *", Zone: "UTC", Misfire: Skip, Job: "/j.yaml", Breaker: &Breaker{Failures: 2, CoolDown: job.Duration(time.Hour), MaxCoolDown: job.Duration(3 * time.Hour)}}
		cfg := config(t, &f.queue, map[Name]Settings{"a": s})
		cfg.Outcome, cfg.Isolate, cfg.Isolated = f.outcome, f.isolate, f.isolated
		f.ends(true, true)
		r, stop := started(t, cfg)
		f.runner.Store(r)

		until(t, "2000-01-01T00:25:00Z")
		if len(f.isolations()) != 1 || f.isolations()[0].Trigger != "a" || f.isolations()[0].Message != "the jobs of 2 firings in a row failed, at last job a: it broke" || !f.isolations()[0].Until.Equal(moment(t, "2000-01-01T01:20:00Z")) {
			t.Fatalf("isolated %+v", f.isolations())
		}
		until(t, "2000-01-01T01:15:00Z")
		if st := r.Status()[0]; st.Failures != 2 || !strings.HasPrefix(st.Isolated, "isolated until 01:20") || !strings.Contains(st.LastError, "isolated until 01:20") || len(f.times()) != 2 {
			t.Errorf("status %+v, fired %q", st, f.times())
		}
		// A restart changes nothing, and what was isolated is not again.
		stop()
		r, stop = started(t, cfg)
		f.runner.Store(r)
		synctest.Wait()
		if len(f.isolations()) != 1 {
			t.Errorf("isolated again by a restart: %+v", f.isolations())
		}
		// The time that was due is held, not lost: it is the try.
		until(t, "2000-01-01T01:26:00Z")
		if got := f.times(); !slices.Equal(got, []string{"00:10", "00:20", "00:30"}) {
			t.Errorf("fired %q", got)
		}
		if len(f.isolations()) != 2 || f.isolations()[1].Until.Sub(f.ended(2)) != 2*time.Hour {
			t.Fatalf("a try that failed: %+v", f.isolations())
		}
		// An operator resumes it: the next one is the try, and no other before it has ended.
		f.ends(false, false)
		f.mu.Lock()
		f.lifted = true
		f.mu.Unlock()
		until(t, "2000-01-01T01:36:00Z")
		if len(f.times()) != 4 || len(f.isolations()) != 2 {
			t.Fatalf("after it was resumed: fired %q, isolated %+v", f.times(), f.isolations())
		}
		until(t, "2000-01-01T02:45:00Z")
		if st := r.Status()[0]; len(f.times()) != 4 || !strings.Contains(st.LastError, "its last 3 firings failed, and the jobs of the one that is tried have not ended") {
			t.Errorf("beside a try: fired %q, %+v", f.times(), st)
		}
		f.ends(false, true)
		f.mu.Lock()
		id := f.got[3].ID
		f.outcomes[id] = Outcome{Firing: id, Ended: time.Now()}
		f.mu.Unlock()
		r.Judge()
		until(t, "2000-01-01T03:15:00Z")
		if st := r.Status()[0]; st.Failures != 0 || st.LastError != "" || st.Isolated != "" || len(f.times()) < 6 {
			t.Errorf("after a try that succeeded: fired %q, %+v", f.times(), st)
		}
		stop()
	})
}

// TestFailuresCountAtOnce: a time that comes between the failure that is one too many and
// the isolation is held as one after it is.
func TestFailuresCountAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fates{outcomes: map[string]Outcome{}}
		s := Settings{Cron: "*/10 * * * *", Zone: "UTC", Misfire: Skip, Job: "/j.yaml", Breaker: &Breaker{Failures: 2, CoolDown: job.Duration(time.Hour), MaxCoolDown: job.Duration(3 * time.Hour)}}
		cfg := config(t, &f.queue, map[Name]Settings{"a": s})
		cfg.Outcome, cfg.Isolated = f.outcome, f.isolated
		cfg.Isolate = func(i Isolation) {
			time.Sleep(15 * time.Minute) // over the next time
			f.isolate(i)
		}
		f.ends(true, true)
		r, stop := started(t, cfg)
		defer stop()
		f.runner.Store(r)
		until(t, "2000-01-01T01:15:00Z")
		if st := r.Status()[0]; len(f.times()) != 2 || len(f.isolations()) != 1 || !strings.Contains(st.LastError, "isolated until 01:20") {
			t.Errorf("fired %q, isolated %+v, %+v", f.times(), f.isolations(), st)
		}
		until(t, "2000-01-01T01:26:00Z")
		if got := f.times(); !slices.Equal(got, []string{"00:10", "00:20", "00:30"}) {
			t.Errorf("fired %q, want the try behind the others", got)
		}
	})
}

func TestBreakerSettings(t *testing.T) {
	for _, c := range []struct {
		b    Breaker
		want string
	}{
		{DefaultBreaker(), ""},
		{Breaker{Failures: 0, CoolDown: job.Duration(time.Second), MaxCoolDown: job.Duration(time.Second)}, ""},
		{Breaker{Failures: 5, CoolDown: job.Duration(12 * time.Hour), MaxCoolDown: job.Duration(6 * time.Hour)}, "breaker.max_cool_down: is 6h0m0s, want at least cool_down (12h0m0s)"},
		{Breaker{Failures: 31, CoolDown: job.Duration(time.Hour), MaxCoolDown: job.Duration(time.Hour)}, "breaker.failures"},
	} {
		err := Settings{Every: job.Duration(time.Minute), Job: "/j.yaml", Breaker: &c.b}.Validate()
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%+v: got %v, want %q", c.b, err, c.want)
		}
	}
}
