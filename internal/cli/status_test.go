package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

const statusText = `scheduler: pid 41, up 1h2m3s, about to end; jobs given to cores: 3; permits lapse 1m0s after a heartbeat

CORE  PID  STATE     SINCE  RUNS  RSS       CPU   HEARTBEAT  RESTARTS  NOTE
1     42   up        10s    3     23.4 MiB  150%  1.23ms     0         stage throttle; at most 2 runs at once; queue_oldest_ms 61000 ≥ 60000
2     -    isolated  5s     0     -         -     -          6         isolated until 12:00:30, or ` + "`scheduler resume core:2`" + `; exit code 2

ISOLATED               CAUSE            SINCE                UNTIL                                          WHY
global                 ghost_process    2026-03-13 12:00:00  ` + "`scheduler resume global`" + `                      process 7 is left red
worker:codex           worker_crashes   11:59:00             12:04:00                                       5 crashes of codex
workspace:/a b/it's x  latest_wins      11:59:00             ` + "`scheduler resume 'workspace:/a b/it'\\''s x'`" + `  too many
core:2                 core_crash_loop  11:59:55             12:00:30                                       exit code 2

CIRCUIT      STATE      UNTIL     FAILED   SLOW  CAUSE
claude       open       12:01:00  5 of 10  1     5 of 10 attempts failed
codex:gpt-5  half-open  -         0 of 0   0     the probe runs

READY        JOBS  OLDEST
interactive  0     -
standard     2     1m1s
batch        7     1h0m0s

METRIC (over 1m0s)                      CORE 1
worker_inflight_count                   3
worker_queue_lag_ms                     p50 3, p95 15, max 15 (of 2)
worker_timeout_rate                     0.5 (1 of 2)
worker_cancel_latency_ms                -
workspace_lock_wait_ms                  -
heartbeat_latency_ms                    -
core_rss_bytes                          1024
core_cpu_ratio                          0.333
core_goroutines                         9
core_open_files                         -
event_drop_count                        4
worker_inflight_count{worker="claude"}  1
worker_timeout_rate{worker="claude"}    0 (0 of 0)
worker_sick_rate{worker="claude"}       0 (0 of 0)
worker_inflight_count{worker="codex"}   2
worker_timeout_rate{worker="codex"}     0.5 (1 of 2)
worker_sick_rate{worker="codex"}        0.5 (1 of 2)
`

func TestPrintStatus(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.Local)
	m := watchdog.NewMetrics(time.Minute)
	for _, kind := range []job.WorkerKind{"codex", "codex", "codex", "codex", "claude"} {
		m.RunStarted(kind)
	}
	m.RunEnded(now, "codex", job.Timeout)
	m.RunEnded(now, "codex", job.NoError)
	m.QueueLag(now, 3*time.Millisecond)
	m.QueueLag(now, 15*time.Millisecond)
	m.EventsDropped(4)
	m.Core(now.Add(-3*time.Second), watchdog.CoreUse{})
	m.Core(now, watchdog.CoreUse{RSSBytes: 1024, CPU: time.Second, Goroutines: 9, OpenFiles: -1})
	metrics, err := json.Marshal(m.Snapshot(now))
	if err != nil {
		t.Fatal(err)
	}
	st := api.Status{
		PID: 41, Started: now.Add(-time.Hour - 2*time.Minute - 3*time.Second), Running: 3, Stopping: true, PermitValidity: job.Duration(time.Minute),
		Cores: []api.Core{{
			Index: 1, PID: 42, State: "up", Since: now.Add(-10 * time.Second), RSSBytes: 24536678, CPURatio: 1.5, Heartbeat: 1234 * time.Microsecond,
			Inflight: 3, Stage: "throttle", Concurrency: 2, Evidence: "queue_oldest_ms 61000 ≥ 60000", Metrics: metrics,
		}, {
			Index: 2, State: "isolated", Since: now.Add(-5 * time.Second), Restarts: 6, IsolatedUntil: now.Add(30 * time.Second), Cause: "exit code 2\nmore",
		}},
		Isolations: []api.Isolation{
			{Scope: "global", Cause: string(isolation.CauseGhost), Since: now.Add(-24 * time.Hour), Message: "process 7 is left \x1b[2Jred\nmore"},
			{Scope: "worker:codex", Cause: string(isolation.CauseWorkerCrashes), Since: now.Add(-time.Minute), Until: now.Add(4 * time.Minute), Message: "5 crashes of codex"},
			{Scope: "workspace:/a b/it's x", Cause: string(isolation.CauseLatestWins), Since: now.Add(-time.Minute), Message: "too many"},
		},
		Circuits: []api.Circuit{
			{Worker: "claude", State: "open", OpenUntil: now.Add(time.Minute), Requests: 10, Failures: 5, Slow: 1, Cause: "5 of 10 attempts failed"},
			{Worker: "codex", State: "closed"},
			{Worker: "codex", Model: "gpt-5", State: "half-open", Cause: "the probe runs"},
		},
		Ready: map[job.Class]api.ClassReady{
			job.Standard: {Depth: 2, Oldest: now.Add(-61 * time.Second)}, job.Batch: {Depth: 7, Oldest: now.Add(-time.Hour)},
		},
	}
	var out strings.Builder
	if err := printStatus(&out, &st, now); err != nil {
		t.Fatal(err)
	}
	if out.String() != statusText {
		t.Errorf("got\n%s\nwant\n%s", &out, statusText)
	}
}

// TestPrintQuietStatus: what there is not is said in a line, and metrics that
// are no object do no harm to the rest.
func TestPrintQuietStatus(t *testing.T) {
	now := time.Now()
	var out strings.Builder
	err := printStatus(&out, &api.Status{PID: 1, Cores: []api.Core{{Metrics: json.RawMessage(`7`)}}}, now)
	if err == nil || !strings.Contains(err.Error(), "metrics") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"nothing is isolated", "no circuit is open", "standard     0     -"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, &out)
		}
	}
}

func TestReadScope(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"global": "global", "worker:codex": "worker:codex", "core:12": "core:12",
		"workspace:.": "workspace:" + dir, "workspace:link": "workspace:" + dir, "workspace:" + dir + "/": "workspace:" + dir,
		"workspace:/gone/../there": "workspace:/there",
	} {
		if got, err := readScope(text); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "everything", "worker:", "workspace:", "core:0", "core:-1", "core:x", "core:"} {
		if got, err := readScope(text); err == nil {
			t.Errorf("%q: %q, want an error", text, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1010: "0.986 KiB", 1023: "0.999 KiB", 1 << 10: "1 KiB", 24_536_678: "23.4 MiB", 1010 << 20: "0.986 GiB", 5000 << 30: "4.88 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d bytes are %q; want %q", n, got, want)
		}
	}
}
