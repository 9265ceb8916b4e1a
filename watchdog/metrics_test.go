package watchdog

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

// The names are the wire's: a change of one breaks whoever reads them.
func TestSnapshotNames(t *testing.T) {
	m := NewMetrics(10 * time.Minute)
	m.RunStarted("codex")
	text, err := json.Marshal(m.Snapshot(midnight))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"worker_inflight_count", "worker_queue_lag_ms", "worker_timeout_rate", "worker_cancel_latency_ms", "workspace_lock_wait_ms",
		"heartbeat_latency_ms", "core_rss_bytes", "core_cpu_ratio", "core_goroutines", "core_open_files", "event_drop_count",
		"time", "window_ms", "workers",
	} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("besides there is %v", got)
	}
}

func TestMetrics(t *testing.T) {
	m := NewMetrics(10 * time.Minute)
	if s := m.Snapshot(midnight); s.RSS != nil || s.CPU != nil || s.OpenFiles != nil || s.Goroutines != nil || s.Kinds != nil {
		t.Errorf("something is known before anything was measured: %+v", s)
	}
	for range 4 {
		m.RunStarted("codex")
	}
	m.RunStarted("claude")
	m.RunEnded(midnight, "codex", job.Timeout)
	m.RunEnded(midnight, "codex", job.Crash)
	m.RunEnded(midnight, "codex", job.VerifyFailed)
	m.RunEnded(midnight, "codex", job.CancelledClass)
	m.RunEnded(midnight, "claude", "")
	for _, ms := range []int{3, 1, 2} {
		m.LockWait(midnight, time.Duration(ms)*time.Millisecond)
	}
	m.QueueLag(midnight, time.Second)
	m.CancelLatency(midnight, -time.Second)
	m.EventsDropped(2)
	m.EventsDropped(3)
	m.Core(midnight, CoreUse{RSSBytes: 1, CPU: time.Second, OpenFiles: -1, Goroutines: 9})
	m.Core(midnight.Add(10*time.Second), CoreUse{RSSBytes: 5, CPU: 6 * time.Second, OpenFiles: 7, Goroutines: 9})

	s := m.Snapshot(midnight.Add(time.Minute))
	if s.Inflight != 0 || s.EventsDropped != 5 || s.WindowMS != 600_000 {
		t.Errorf("%+v", s)
	}
	if want := (Rate{0.25, 1, 4}); s.Timeouts != want {
		t.Errorf("timeouts %+v, want %+v: the cancelled run does not count", s.Timeouts, want)
	}
	if got, want := s.Kinds["codex"].Sick, rate(2, 3); got != want {
		t.Errorf("codex is sick in %+v, want %+v", got, want)
	}
	if want := (Latency{3, 2, 3, 3}); s.LockWait != want {
		t.Errorf("lock wait %+v, want %+v", s.LockWait, want)
	}
	if want := (Latency{1, 1000, 1000, 1000}); s.QueueLag != want {
		t.Errorf("queue lag %+v, want %+v", s.QueueLag, want)
	}
	if want := (Latency{Count: 1}); s.CancelLatency != want {
		t.Errorf("a latency below zero counts %+v, want %+v", s.CancelLatency, want)
	}
	if s.RSS == nil || *s.RSS != 5 || s.OpenFiles == nil || *s.OpenFiles != 7 || s.CPU == nil || *s.CPU != 0.5 {
		t.Errorf("the core uses %v, %v, %v; want 5 bytes, 7 files, half a CPU", s.RSS, s.OpenFiles, s.CPU)
	}

	m.Core(midnight.Add(20*time.Second), CoreUse{RSSBytes: 5, CPU: time.Second, OpenFiles: 7, Goroutines: 9})
	m.Heartbeat(midnight, 20*time.Millisecond)
	m.Heartbeat(midnight, 21*time.Millisecond)
	s = m.Snapshot(midnight.Add(time.Minute))
	if s.CPU == nil || *s.CPU != 0.5 {
		t.Errorf("CPU time that went back makes the ratio %v, want it kept at 0.5", s.CPU)
	}
	if want := (Latency{2, 21, 21, 21}); s.Heartbeat != want {
		t.Errorf("heartbeat %+v, want %+v: 20 and 21 are in one bucket", s.Heartbeat, want)
	}

	late := m.Snapshot(midnight.Add(11 * time.Minute))
	if late.Timeouts.Of != 0 || late.LockWait.Count != 0 || len(late.Kinds) != 0 || late.EventsDropped != 5 {
		t.Errorf("after the window there is still %+v", late)
	}
	m.RunEnded(midnight, "shell", "")
	if s := m.Snapshot(midnight.Add(11 * time.Minute)); s.Inflight != 0 {
		t.Errorf("a run that never started leaves %d in flight", s.Inflight)
	}
}

// A window holds what a list of all values would tell, as exactly as it
// promises: what is surely inside counts, what is surely outside does not, and
// a percentile is at most an eighth too high.
func TestWindowAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 12 * time.Second
		l := latencies{newRing[histogram](window)}
		type sample struct {
			at time.Time
			ms int64
		}
		var all []sample
		now := midnight
		for range rapid.IntRange(1, 80).Draw(t, "samples") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "wait")) * time.Millisecond)
			ms := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 100_000), rapid.Just(int64(1)<<40)).Draw(t, "ms")
			l.add(now, time.Duration(ms)*time.Millisecond)
			all = append(all, sample{now, min(ms, maxMillis)})
		}
		now = now.Add(time.Duration(rapid.IntRange(0, 9000).Draw(t, "then")) * time.Millisecond)
		// The slot of a sample began up to a twelfth of the window before it; the
		// first began with the first sample.
		origin := all[0].at
		var values []int64
		for _, s := range all {
			if s.at.Sub(origin)/(window/slotCount) > now.Sub(origin)/(window/slotCount)-slotCount {
				values = append(values, s.ms)
			} else if now.Sub(s.at) < window-window/slotCount {
				t.Fatalf("the oracle leaves out a sample of %s ago", now.Sub(s.at))
			}
		}
		slices.Sort(values)
		got := l.over(now)
		if len(values) == 0 {
			if got != (Latency{}) {
				t.Fatalf("%+v of nothing", got)
			}
			return
		}
		exact := func(percent int) int64 { return values[(len(values)*percent+99)/100-1] }
		if got.Count != int64(len(values)) || got.Max != values[len(values)-1] {
			t.Fatalf("%+v of %v", got, values)
		}
		for _, q := range []struct{ got, want int64 }{{got.P50, exact(50)}, {got.P95, exact(95)}} {
			if q.got < q.want || q.got > q.want+q.want/8 || q.want < 16 && q.got != q.want {
				t.Fatalf("percentile %d, want %d of %v", q.got, q.want, values)
			}
		}
	})
}

func TestBuckets(t *testing.T) {
	for i := 1; i < bucketCount; i++ {
		if low := bucketTop(i-1) + 1; bucketOf(low) != i || bucketOf(bucketTop(i)) != i {
			t.Fatalf("bucket %d from %d to %d: they are found in %d and %d", i, low, bucketTop(i), bucketOf(low), bucketOf(bucketTop(i)))
		}
	}
	if bucketTop(bucketCount-1) != maxMillis {
		t.Errorf("the last bucket ends at %d, want %d", bucketTop(bucketCount-1), maxMillis)
	}
}

func TestWindowWhenTimeGoesBack(t *testing.T) {
	l := latencies{newRing[histogram](12 * time.Second)}
	l.add(midnight.Add(time.Hour), time.Millisecond)
	l.add(midnight.Add(time.Hour-time.Second), time.Millisecond)
	if got := l.over(midnight.Add(time.Hour)); got.Count != 2 {
		t.Errorf("a step back of a second: %+v, want both", got)
	}
	l.add(midnight, time.Millisecond)
	l.add(midnight.Add(time.Second), time.Millisecond)
	if got := l.over(midnight.Add(time.Second)); got.Count != 2 {
		t.Errorf("a clock that was set back by an hour: %+v, want the two since", got)
	}
	if got := l.over(midnight.Add(13 * time.Second)); got.Count != 0 {
		t.Errorf("after the window: %+v", got)
	}
}

// The deciders read no clock and do no I/O: their files cannot.
func TestDecidersReadNothing(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"time.Now", "time.Since", "time.Until", "time.After(", "time.NewT", "\"os\"", "\"net", "\"syscall\"", "math/rand", "\tgo "} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s contains %q", f.Name(), word)
			}
		}
	}
}
