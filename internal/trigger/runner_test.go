package trigger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errStop = errors.New("the test stops it")

// queue takes firings, or answers as told.
type queue struct {
	mu     sync.Mutex
	got    []Firing
	answer func(f Firing) error // nil: takes all
	came   chan Firing          // if not nil, gets what was taken
}

func (q *queue) submit(_ context.Context, f Firing) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.answer != nil {
		if err := q.answer(f); err != nil {
			return err
		}
	}
	q.got = append(q.got, f)
	if q.came != nil {
		q.came <- f
	}
	return nil
}

func (q *queue) ids() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []string
	for _, f := range q.got {
		list = append(list, f.ID)
	}
	return list
}

func (q *queue) set(answer func(f Firing) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer = answer
}

// started runs a runner; stop ends it and waits.
func started(t *testing.T, cfg Config) (r *Runner, stop func()) {
	t.Helper()
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel(errStop)
			if err := <-done; !errors.Is(err, errStop) {
				t.Errorf("ended with %v", err)
			}
		})
	}
	return r, stop
}

func config(t *testing.T, q *queue, triggers map[Name]Settings) Config {
	t.Helper()
	return Config{
		Triggers: triggers, Submit: q.submit, State: statedir.Files(t.TempDir()),
		Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	}
}

// until sleeps to a moment of the bubble's clock, which begins at midnight of
// 1 January 2000 UTC, and lets everything happen.
func until(t *testing.T, text string) {
	t.Helper()
	time.Sleep(time.Until(moment(t, text)))
	synctest.Wait()
}

func TestFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		r, stop := started(t, config(t, q, map[Name]Settings{
			"nine":  {Cron: "0 9 * * *", Zone: "Europe/Berlin", Job: "/j.yaml"},
			"often": {Every: job.Duration(5 * time.Hour), Job: "/j.yaml"},
			"off":   {Every: job.Duration(time.Hour), Job: "/j.yaml", Enabled: new(bool)},
		}))
		defer stop()
		until(t, "2000-01-01T07:59:59Z")
		list := r.Status()
		want := []api.Trigger{
			{Name: "nine", Source: "cron", Enabled: true, Next: moment(t, "2000-01-01T08:00:00Z")},
			{Name: "off", Source: "every"},
			{Name: "often", Source: "every", Enabled: true, Next: moment(t, "2000-01-01T10:00:00Z"), Last: moment(t, "2000-01-01T05:00:00Z"), Fired: 1},
		}
		if !slices.Equal(list, want) {
			t.Errorf("status %+v, want %+v", list, want)
		}
		until(t, "2000-01-02T08:00:00Z")
		wantIDs := []string{
			"often@2000-01-01T05:00:00Z", "nine@2000-01-01T08:00:00Z", "often@2000-01-01T10:00:00Z", "often@2000-01-01T15:00:00Z",
			"often@2000-01-01T20:00:00Z", "often@2000-01-02T01:00:00Z", "often@2000-01-02T06:00:00Z", "nine@2000-01-02T08:00:00Z",
		}
		if got := q.ids(); !slices.Equal(got, wantIDs) {
			t.Errorf("fired %q, want %q", got, wantIDs)
		}
		if f := q.got[1]; f.Kind != job.ByCron || f.Trigger != "nine" || !f.At.Equal(moment(t, "2000-01-01T08:00:00Z")) || f.Settings.Job != "/j.yaml" {
			t.Errorf("firing %+v", f)
		}
	})
}

// TestRetries: what could not be submitted is tried again, in order, until it
// is, over a restart too; what was active is skipped.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		tries := 0
		q.answer = func(Firing) error { tries++; return errors.New("the disk is full") }
		cfg := config(t, q, map[Name]Settings{"hourly": {Cron: "@hourly", Zone: "UTC", Misfire: Skip, Job: "/j.yaml"}})
		r, stop := started(t, cfg)
		until(t, "2000-01-01T01:30:00Z")
		if s := r.Status()[0]; !strings.Contains(s.LastError, "the disk is full") || s.Fired != 0 {
			t.Errorf("status %+v", s)
		}
		if tries < 8 || tries > 16 { // 1 s doubling up to 5 min
			t.Errorf("%d tries in half an hour", tries)
		}
		stop()
		// It was due while the scheduler ran: whatever the policy, it is not lost.
		time.Sleep(3 * time.Hour)
		q.set(nil)
		r, stop = started(t, cfg)
		synctest.Wait()
		if got, want := q.ids(), []string{"hourly@2000-01-01T01:00:00Z"}; !slices.Equal(got, want) {
			t.Errorf("fired %q, want %q", got, want)
		}
		q.set(func(Firing) error { return fmt.Errorf("job review: %w", ErrActive) })
		until(t, "2000-01-01T05:30:00Z")
		if s := r.Status()[0]; s.LastError != "" || s.Fired != 1 || s.Skipped < 2 || len(q.ids()) != 1 {
			t.Errorf("status %+v, fired %q", s, q.ids())
		}
		stop()
	})
}

// TestCrashAfterSubmit: a crash before the success is written down makes one
// duplicate, which has the same id.
func TestCrashAfterSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		cfg := config(t, q, map[Name]Settings{"a": {Every: job.Duration(time.Hour), Misfire: Skip, Job: "/j.yaml"}})
		var kept []byte
		q.answer = func(Firing) (err error) {
			kept, err = os.ReadFile(cfg.State.Where(statedir.TriggersFile))
			return err
		}
		_, stop := started(t, cfg)
		until(t, "2000-01-01T01:00:00Z")
		stop()
		write(t, cfg.State.Where(statedir.TriggersFile), string(kept), 0o600) // as if it had been killed then
		for range 2 {
			_, stop = started(t, cfg)
			until(t, "2000-01-01T01:30:00Z")
			stop()
		}
		if got, want := q.ids(), []string{"a@2000-01-01T01:00:00Z", "a@2000-01-01T01:00:00Z"}; !slices.Equal(got, want) {
			t.Errorf("fired %q, want %q", got, want)
		}
	})
}

// TestMisfire: what passes while nobody runs, by policy.
func TestMisfire(t *testing.T) {
	for policy, want := range map[Misfire][]string{
		Skip:    {"04:00"},
		Once:    {"03:00", "04:00"},
		CatchUp: {"02:00", "03:00", "04:00"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queue{}
				s := Settings{Cron: "@hourly", Zone: "UTC", Misfire: policy, Job: "/j.yaml"}
				if policy == CatchUp {
					s.MisfireMax = 2
				}
				cfg := config(t, q, map[Name]Settings{"a": s})
				_, stop := started(t, cfg)
				until(t, "2000-01-01T00:30:00Z") // nothing has fired yet, and it counts all the same
				stop()
				until(t, "2000-01-01T03:30:00Z")
				_, stop = started(t, cfg)
				until(t, "2000-01-01T04:30:00Z")
				stop()
				var got []string
				for _, f := range q.got {
					got = append(got, f.At.Format("15:04"))
				}
				if !slices.Equal(got, want) {
					t.Errorf("fired %q, want %q", got, want)
				}
			})
		})
	}
}

// TestClockJumps: the wall clock moves and the timers do not.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var offset time.Duration
		jump := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); offset += d }
		q := &queue{}
		cfg := config(t, q, map[Name]Settings{"a": {Cron: "@hourly", Zone: "UTC", Job: "/j.yaml"}})
		cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(offset) }
		_, stop := started(t, cfg)
		defer stop()
		step := func(about string, by time.Duration, then time.Duration, want ...string) {
			t.Helper()
			before := len(q.ids())
			jump(by)
			time.Sleep(then)
			synctest.Wait()
			if got := q.ids()[before:]; !slices.Equal(got, want) {
				t.Errorf("%s: fired %q, want %q", about, got, want)
			}
		}
		step("nothing yet", 0, 30*time.Minute)
		step("ahead over three of them", 3*time.Hour, nap, "a@2000-01-01T03:00:00Z")
		step("back over two of them", -2*time.Hour, 2*time.Hour) // it is 03:30:30 again
		step("and on", 0, time.Hour, "a@2000-01-01T04:00:00Z")
		step("far ahead", 365*24*time.Hour, nap, "a@2000-12-31T04:00:00Z")
		step("and back", -365*24*time.Hour, nap)
		step("it is not lost for a year", 0, time.Hour, "a@2000-01-01T05:00:00Z")
	})
}

// TestReload: what stays the same goes on, what is another begins anew.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		every := func(d time.Duration) Settings { return Settings{Every: job.Duration(d), Job: "/j.yaml"} }
		cfg := config(t, q, map[Name]Settings{"same": every(time.Hour), "changed": every(time.Hour), "gone": every(time.Hour)})
		r, stop := started(t, cfg)
		defer stop()
		until(t, "2000-01-01T00:45:00Z")
		if err := r.Reload(map[Name]Settings{"same": every(time.Hour), "changed": every(30 * time.Minute), "new": every(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		until(t, "2000-01-01T01:50:00Z")
		want := []string{"same@2000-01-01T01:00:00Z", "changed@2000-01-01T01:15:00Z", "changed@2000-01-01T01:45:00Z", "new@2000-01-01T01:45:00Z"}
		got := q.ids()
		slices.Sort(got[2:])
		if !slices.Equal(got, want) {
			t.Errorf("fired %q, want %q", got, want)
		}
		if err := r.Reload(map[Name]Settings{"bad": {}}); err == nil || !strings.Contains(err.Error(), "trigger bad") {
			t.Errorf("error %v", err)
		}
		if list := r.Status(); len(list) != 3 || list[0].Name != "changed" || list[0].Fired != 2 {
			t.Errorf("status %+v", list)
		}
		data, err := os.ReadFile(cfg.State.Where(statedir.TriggersFile))
		if err != nil || strings.Contains(string(data), "gone") {
			t.Errorf("%s, %v: wants nothing of what is gone", data, err)
		}
	})
}
