package telemetry_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/telemetry"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
	"github.com/agentsched/agentsched/watchdog"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fatal is what a test and a property of rapid have in common.
type fatal interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func start(t fatal, cfg telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	cfg.Version = "v1"
	tel, err := telemetry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// scrape returns the metrics as a Prometheus server reads them.
func scrape(tel *telemetry.Telemetry) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		w := httptest.NewRecorder()
		tel.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		parsed, err := parser.TextToMetricFamilies(w.Body)
		return slices.Collect(maps.Values(parsed)), err
	})
}

// gather returns the series of the project by name and labels, of histograms the count
// and the sum.
func gather(t fatal, tel *telemetry.Telemetry) map[string]float64 {
	t.Helper()
	families, err := scrape(tel).Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "agentsched_") {
			continue
		}
		for _, m := range f.Metric {
			key := f.GetName() + labels(m)
			switch {
			case m.Histogram != nil:
				series[key+" count"], series[key+" sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
			case m.Counter != nil:
				series[key] = m.Counter.GetValue()
			default:
				series[key] = m.Gauge.GetValue()
			}
		}
	}
	return series
}

func labels(m *dto.Metric) string {
	var list []string
	for _, l := range m.Label {
		list = append(list, l.GetName()+"="+l.GetValue())
	}
	slices.Sort(list)
	return "{" + strings.Join(list, ",") + "}"
}

func entry(tenant job.Tenant, worker job.WorkerKind) *queue.Entry {
	return &queue.Entry{ID: job.NewID(), CreatedAt: epoch, Spec: job.Spec{Name: "n", Tenant: tenant, Worker: worker, Fallback: []job.Choice{{Worker: "backup", Model: "m2"}}}}
}

// TestCounters counts random moments and compares with a naive count.
func TestCounters(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tel := start(r, telemetry.Config{})
		before := gather(r, tel)
		want := map[string]float64{}
		for range rapid.IntRange(0, 60).Draw(r, "moments") {
			tel.Observe(moment(r, want))
		}
		got := gather(r, tel)
		for key, n := range got {
			if math.Abs(n-before[key]-want[key]) > 1e-9 {
				r.Fatalf("%s is %v, want %v", key, n, before[key]+want[key])
			}
			delete(want, key)
		}
		for key, n := range want {
			if n != 0 {
				r.Fatalf("%s is missing, want %v", key, n)
			}
		}
	})
}

// moment draws a moment and adds to want what it counts.
func moment(r *rapid.T, want map[string]float64) scheduler.Moment {
	add := func(n float64, name string, labels ...string) {
		slices.Sort(labels)
		want["agentsched_"+name+"{"+strings.Join(labels, ",")+"}"] += n
	}
	tenant := rapid.SampledFrom([]job.Tenant{"a", "b"}).Draw(r, "tenant")
	e := entry(tenant, rapid.SampledFrom([]job.WorkerKind{"codex", "claude"}).Draw(r, "worker"))
	e.Choice = rapid.IntRange(0, 1).Draw(r, "choice")
	choice := e.Spec.Choices()[e.Choice]
	ofTenant, worker, model := "tenant="+string(tenant), "worker="+string(choice.Worker), "model="+choice.Model
	m := scheduler.Moment{At: epoch, Entry: e, Choice: choice, Attempt: 1, Took: time.Duration(rapid.IntRange(0, 5000).Draw(r, "took")) * time.Millisecond}
	switch m.Kind = rapid.SampledFrom([]scheduler.MomentKind{
		scheduler.MomentSubmitted, scheduler.MomentPermit, scheduler.MomentBegun, scheduler.MomentEvents,
		scheduler.MomentAttemptEnded, scheduler.MomentEnded, scheduler.MomentCoreUp, scheduler.MomentCoreDown,
	}).Draw(r, "kind"); m.Kind {
	case scheduler.MomentSubmitted:
		add(1, "jobs_submitted_total", ofTenant)
	case scheduler.MomentPermit:
		m.Reason = rapid.SampledFrom([]job.Reason{"", job.CircuitOpen, "NEW_REASON"}).Draw(r, "reason")
		result, reason := "result=refused", string(m.Reason)
		switch m.Reason {
		case "":
			result = "result=granted"
		case "NEW_REASON":
			reason = "other"
		}
		add(1, "permits_total", result, "reason="+reason)
		want["agentsched_permit_latency_seconds{"+result+"} count"]++
		want["agentsched_permit_latency_seconds{"+result+"} sum"] += m.Took.Seconds()
	case scheduler.MomentBegun:
		e.Spec.Class = rapid.SampledFrom([]job.Class{"", job.Interactive}).Draw(r, "class")
		class := "standard"
		if e.Spec.Class != "" {
			class = "interactive"
		}
		add(1, "attempts_started_total", worker, model)
		want["agentsched_dispatch_latency_seconds{class="+class+"} count"]++
		want["agentsched_dispatch_latency_seconds{class="+class+"} sum"] += m.Took.Seconds()
	case scheduler.MomentEvents:
		for range rapid.IntRange(0, 3).Draw(r, "events") {
			ev := job.Event{Kind: job.EventText, Dropped: rapid.IntRange(0, 2).Draw(r, "dropped")}
			add(float64(ev.Dropped), "events_dropped_total")
			if rapid.Bool().Draw(r, "has usage") {
				n := int64(rapid.IntRange(0, 1000).Draw(r, "tokens"))
				ev.Kind, ev.Usage = job.EventUsage, &job.Usage{InputTokens: 3 * n, CachedTokens: n, CacheWriteTokens: 2, OutputTokens: n, ReasoningTokens: 1, CostUSD: float64(n) / 100}
				all := []string{ofTenant, worker, model}
				add(float64(3*n), "tokens_total", append(all, "direction=input")...)
				add(float64(n), "tokens_total", append(all[:3:3], "direction=output")...)
				for part, k := range map[string]int64{"cache_read": n, "cache_write": 2, "reasoning": 1} {
					add(float64(k), "tokens_part_total", ofTenant, worker, model, "part="+part)
				}
				add(ev.Usage.CostUSD, "cost_usd_total", ofTenant, worker, model)
			}
			add(1, "events_total", "kind="+string(ev.Kind))
			m.Events = append(m.Events, ev)
		}
	case scheduler.MomentAttemptEnded:
		m.Outcome = &job.Outcome{State: job.RunFailed, Class: rapid.SampledFrom([]job.ErrorClass{job.Timeout, "MINE"}).Draw(r, "class")}
		class := string(m.Outcome.Class)
		if class == "MINE" {
			class = "other"
		}
		add(1, "attempts_ended_total", worker, model, "result=failed", "error_class="+class)
		if rapid.Bool().Draw(r, "preempted") {
			m.Outcome.PreemptedBy = e.Spec.Tenant
			add(1, "preemptions_total", ofTenant, strings.Replace(ofTenant, "tenant=", "preempted_by=", 1))
		}
	case scheduler.MomentEnded:
		e.ErrorClass = job.Auth
		e.State, e.ExitKind = job.Completed, rapid.SampledFrom([]job.ExitKind{job.ExitFailed, job.ExitSucceeded, job.ExitCancelled}).Draw(r, "exit")
		how, class := string(e.ExitKind), ""
		if e.ExitKind == job.ExitFailed {
			class = "AUTH"
		}
		if rapid.IntRange(0, 3).Draw(r, "expired") == 0 {
			e.State, e.ExitKind, how, class = job.Expired, "", "expired", ""
		}
		add(1, "jobs_ended_total", ofTenant, worker, "outcome="+how, "error_class="+class)
	case scheduler.MomentCoreUp:
		add(1, "cores_up_total")
	case scheduler.MomentCoreDown:
		add(1, "cores_down_total")
	}
	return m
}

func TestEscalated(t *testing.T) {
	tel := start(t, telemetry.Config{})
	tel.Escalated(isolation.Escalation{Cause: isolation.CauseGhost})
	tel.Escalated(isolation.Escalation{Cause: isolation.CauseGhost, Again: true})
	tel.Escalated(isolation.Escalation{Cause: isolation.CauseDisk})
	got := gather(t, tel)
	for key, want := range map[string]float64{
		"agentsched_ghosts_total{}": 1, "agentsched_escalations_total{cause=ghost_process}": 1,
		"agentsched_escalations_total{cause=disk_nearly_full}": 1, "agentsched_escalations_total{cause=clock_jump}": 0,
	} {
		if n, ok := got[key]; !ok || n != want {
			t.Errorf("%s is %v (%v), want %v", key, n, ok, want)
		}
	}
}

// TestNamesAreBounded: users who make up names do not make up series without end.
func TestNamesAreBounded(t *testing.T) {
	tel := start(t, telemetry.Config{Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret", "…") }})
	const users = 500
	for i := range users {
		e := entry(job.Tenant(fmt.Sprint("s3cret", i)), "codex")
		tel.Observe(scheduler.Moment{Kind: scheduler.MomentSubmitted, Entry: e})
		tel.Observe(scheduler.Moment{Kind: scheduler.MomentBegun, Entry: e, Choice: job.Choice{Worker: "codex", Model: fmt.Sprint("s3cret-m", i)}})
	}
	series := map[string]int{}
	sum := 0.0
	for key, n := range gather(t, tel) {
		name, _, _ := strings.Cut(key, "{")
		series[name]++
		if name == "agentsched_jobs_submitted_total" {
			sum += n
		}
		if strings.Contains(key, "s3cret") {
			t.Fatalf("a secret in %s", key)
		}
	}
	if n := series["agentsched_jobs_submitted_total"]; n != 201 || sum != users {
		t.Errorf("%d series of tenants that sum to %v, want 201 and %d", n, sum, users)
	}
	if n := series["agentsched_attempts_started_total"]; n != 201 {
		t.Errorf("%d series of models, want 201", n)
	}
}

// surveyed counts how often a census is taken.
type surveyed struct {
	*sqlite.Store
	taken atomic.Int64
	fail  atomic.Bool
}

func (s *surveyed) Census(ctx context.Context) (queue.Census, error) {
	s.taken.Add(1)
	if s.fail.Load() {
		return queue.Census{}, errors.New("no disk")
	}
	return s.Store.Census(ctx)
}

func openStore(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestQueue scrapes a real queue: its figures are at most five seconds old, and not
// taken more often, and the last ones stand where they cannot be taken.
func TestQueue(t *testing.T) {
	store := &surveyed{Store: openStore(t)}
	now := epoch.Add(time.Minute)
	tel := start(t, telemetry.Config{Store: store, Now: func() time.Time { return now }})
	submit := func(e *queue.Entry) {
		t.Helper()
		e.RunnableAt = epoch
		if err := store.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID()}, []queue.Entry{*e}); err != nil {
			t.Fatal(err)
		}
	}
	submit(entry("a", "codex"))
	held := entry("b", "codex")
	held.Held = job.HeldForNeeds
	submit(held)
	check := func(want map[string]float64, taken int64) {
		t.Helper()
		got := gather(t, tel)
		for key, n := range want {
			if got["agentsched_"+key] != n {
				t.Errorf("%s is %v, want %v", key, got["agentsched_"+key], n)
			}
		}
		if n := store.taken.Load(); n != taken {
			t.Errorf("%d censuses, want %d", n, taken)
		}
	}
	first := map[string]float64{
		"queue_jobs{state=queued,tenant=a}": 1, "queue_jobs{state=held,tenant=b}": 1, "queue_jobs{state=queued,tenant=b}": 0,
		"queue_oldest_age_seconds{tenant=a}": 60, "queue_oldest_age_seconds{tenant=b}": 0, "dead_letters{}": 0, "queue_census_age_seconds{}": 0,
	}
	check(first, 1)
	submit(entry("a", "codex"))
	now = now.Add(4 * time.Second)
	first["queue_oldest_age_seconds{tenant=a}"], first["queue_census_age_seconds{}"] = 64, 4
	check(first, 1)
	now = now.Add(time.Second)
	check(map[string]float64{"queue_jobs{state=queued,tenant=a}": 2, "queue_census_age_seconds{}": 0}, 2)
	store.fail.Store(true)
	now = now.Add(6 * time.Second)
	check(map[string]float64{"queue_jobs{state=queued,tenant=a}": 2, "queue_census_age_seconds{}": 6}, 3)
	check(map[string]float64{"queue_census_errors_total{}": 1}, 3)
}

// whole returns a telemetry that has something to say of everything.
func whole(t *testing.T, cfg telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	store := openStore(t)
	if err := store.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{*entry("a", "codex")}); err != nil {
		t.Fatal(err)
	}
	measured := watchdog.NewMetrics(time.Minute)
	measured.RunStarted("codex")
	measured.RunStarted("codex")
	measured.RunEnded(epoch, "codex", job.Timeout)
	measured.QueueLag(epoch, 7*time.Millisecond)
	measured.Core(epoch, watchdog.CoreUse{RSSBytes: 5, CPU: time.Second, OpenFiles: 6, Goroutines: 8})
	measured.Core(epoch.Add(time.Second), watchdog.CoreUse{RSSBytes: 5, CPU: 1500 * time.Millisecond, OpenFiles: 6, Goroutines: 8})
	measured.EventsDropped(3)
	snapshot, err := json.Marshal(measured.Snapshot(epoch.Add(time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Store = store
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return epoch.Add(time.Minute) }
	}
	cfg.Status = func() scheduler.Status {
		return scheduler.Status{
			Running: 2, Ready: map[job.Class]queue.ClassReady{job.Batch: {Depth: 4, Oldest: epoch}},
			Circuits:   []ipc.Circuit{{Worker: "codex", Model: "m", State: "open"}, {Worker: "claude", State: "half-open"}, {Worker: "shell", State: "closed"}},
			Isolations: []isolation.Isolation{{Scope: isolation.WorkspaceScope("/private/folder"), Cause: isolation.CauseDisk}, {Scope: isolation.WorkspaceScope("/other"), Cause: isolation.CauseDisk}},
			Cores: []scheduler.CoreStatus{
				{Status: supervisor.Status{Index: 1, State: supervisor.Up, Restarts: 3, Heartbeat: 2 * time.Millisecond}, Inflight: 1, Stage: "throttle", Concurrency: 2, Metrics: snapshot},
				{Status: supervisor.Status{Index: 2, State: supervisor.Isolated}},
				{Status: supervisor.Status{Index: 65, Node: "a", Place: 1, State: supervisor.Up}, Inflight: 3},
				{Status: supervisor.Status{Index: 66, Node: "a", Place: 2, State: supervisor.Up}, Inflight: 1},
			},
		}
	}
	cfg.Nodes = func() []node.Status {
		return []node.Status{
			{Name: "a", Came: true, Connected: true, Losses: 2, RoundTrip: 5 * time.Millisecond, Inventory: node.Inventory{Slots: 8}},
			{Name: "b", Closed: true},
		}
	}
	tel := start(t, cfg)
	usage := &job.Usage{InputTokens: 9, CachedTokens: 1, CacheWriteTokens: 1, OutputTokens: 2, ReasoningTokens: 1, CostUSD: 0.5}
	e := entry("a", "codex")
	choice := job.Choice{Worker: "codex", Model: "m"}
	for _, m := range []scheduler.Moment{
		{Kind: scheduler.MomentSubmitted}, {Kind: scheduler.MomentPermit, Took: time.Millisecond}, {Kind: scheduler.MomentPermit, Reason: job.RateLimited},
		{Kind: scheduler.MomentBegun, Took: time.Second}, {Kind: scheduler.MomentEvents, Events: []job.Event{{Kind: job.EventUsage, Usage: usage}}},
		{Kind: scheduler.MomentAttemptEnded, Outcome: &job.Outcome{State: job.RunCompleted, PreemptedBy: "big"}}, {Kind: scheduler.MomentCoreUp},
	} {
		m.Entry, m.Choice, m.At, m.Attempt = e, choice, epoch, 1
		tel.Observe(m)
	}
	ended := *e
	ended.State, ended.ExitKind = job.Completed, job.ExitSucceeded
	tel.Observe(scheduler.Moment{Kind: scheduler.MomentEnded, Entry: &ended, At: epoch})
	return tel
}

// A thousand nodes have labels of their own; the rest shares one, and its cores have none.
func TestManyNodes(t *testing.T) {
	const total = 1002
	cfg := telemetry.Config{
		Nodes: func() (list []node.Status) {
			for i := range total {
				list = append(list, node.Status{Name: fmt.Sprintf("n%04d", i), Came: true, Connected: true, Inventory: node.Inventory{Slots: 2}})
			}
			return list
		},
		Status: func() (st scheduler.Status) {
			for i := range total {
				st.Cores = append(st.Cores, scheduler.CoreStatus{Status: supervisor.Status{Index: 65 + i, Node: fmt.Sprintf("n%04d", i), Place: 1, State: supervisor.Up}})
			}
			return st
		},
	}
	got, series := gather(t, start(t, cfg)), map[string]int{}
	for key := range got {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "agentsched_"), "{")
		series[name]++
	}
	if series["node_slots"] != 1001 || series["core_up"] != 1000 || got["agentsched_node_slots{node=other}"] != 4 || got["agentsched_node_connected{node=n0999}"] != 1 {
		t.Errorf("%d series of nodes, %d of cores; the rest has %v slots", series["node_slots"], series["core_up"], got["agentsched_node_slots{node=other}"])
	}
}

func TestStatus(t *testing.T) {
	got := gather(t, whole(t, telemetry.Config{}))
	for key, want := range map[string]float64{
		"running_jobs{}": 2, "stopping{}": 0, "ready_jobs{class=batch}": 4, "ready_oldest_age_seconds{class=batch}": 60, "ready_jobs{class=standard}": 0,
		"circuit_state{model=m,worker=codex}": 2, "circuit_state{model=,worker=claude}": 1, "circuit_state{model=,worker=shell}": 0,
		"isolations{cause=disk_nearly_full,scope=workspace}": 2,
		"core_up{core=1}": 1, "core_up{core=2}": 0, "core_restarts_total{core=1}": 3, "core_stage{core=1}": 2, "core_stage{core=2}": -1,
		"core_up{core=a/1}": 1, "core_inflight_jobs{core=a/1}": 3, "node_connected{node=a}": 1, "node_connected{node=b}": 0, "node_cordoned{node=a}": 0, "node_cordoned{node=b}": 1,
		"node_running_jobs{node=a}": 4, "node_slots{node=a}": 8, "node_round_trip_seconds{node=a}": 0.005, "node_lost_total{node=a}": 2,
		"core_inflight_jobs{core=1}": 1, "core_concurrency_limit{core=1}": 2, "core_heartbeat_seconds{core=1}": 0.002,
		"worker_inflight_count{core=1,worker=all}": 1, "worker_inflight_count{core=1,worker=codex}": 1, "worker_timeout_rate{core=1,worker=all}": 1,
		"worker_sick_rate{core=1,worker=codex}": 1, "worker_queue_lag_ms{core=1,stat=p95}": 7, "worker_queue_lag_ms{core=1,stat=count}": 1,
		"workspace_lock_wait_ms{core=1,stat=max}": 0, "core_rss_bytes{core=1}": 5, "core_cpu_ratio{core=1}": 0.5, "core_goroutines{core=1}": 8,
		"core_open_files{core=1}": 6, "event_drop_count{core=1}": 3, "build_info{version=v1}": 1,
	} {
		if n, ok := got["agentsched_"+key]; !ok || math.Abs(n-want) > 1e-9 {
			t.Errorf("%s is %v (%v), want %v", key, n, ok, want)
		}
	}
	for key := range got {
		if strings.Contains(key, "folder") {
			t.Errorf("a path in %s", key)
		}
	}
}

// TestWatchdogNames: each figure of the watchdog's snapshot is exported under its name.
func TestWatchdogNames(t *testing.T) {
	text, err := json.Marshal(watchdog.Snapshot{Kinds: map[job.WorkerKind]watchdog.KindSnapshot{"codex": {}}})
	if err != nil {
		t.Fatal(err)
	}
	var fields, kinds map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	var workers map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(fields["workers"], &workers), json.Unmarshal(workers["codex"], &kinds)); err != nil {
		t.Fatal(err)
	}
	for name := range kinds {
		fields[name] = nil
	}
	got := families(t, whole(t, telemetry.Config{}))
	for name := range fields {
		if name == "time" || name == "window_ms" || name == "workers" {
			continue
		}
		if !slices.Contains(got, "agentsched_"+name) {
			t.Errorf("%s is not exported", name)
		}
	}
}

// families returns the names of the project's metrics.
func families(t *testing.T, tel *telemetry.Telemetry) (list []string) {
	t.Helper()
	all, err := scrape(tel).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "agentsched_") {
			list = append(list, f.GetName())
		}
	}
	return list
}

// TestScrape reads what a Prometheus server would, and holds it against the rules of
// Prometheus; the watchdog's own names break some of them, and are kept.
func TestScrape(t *testing.T) {
	tel := whole(t, telemetry.Config{Log: zerolog.Nop()})
	w := httptest.NewRecorder()
	tel.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(families(t, tel), "go_goroutines", "process_start_time_seconds") {
		if parsed[name] == nil {
			t.Errorf("%s is not in the answer", name)
		}
	}
	problems, err := testutil.GatherAndLint(scrape(tel))
	if err != nil {
		t.Fatal(err)
	}
	watchdogs := []string{"worker_inflight_count", "worker_queue_lag_ms", "worker_cancel_latency_ms", "workspace_lock_wait_ms", "heartbeat_latency_ms", "event_drop_count"}
	for _, p := range problems {
		if !slices.Contains(watchdogs, strings.TrimPrefix(p.Metric, "agentsched_")) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestScrapeOfOddNames: whatever users call things, the answer can be read, gzipped too.
func TestScrapeOfOddNames(t *testing.T) {
	tel := start(t, telemetry.Config{})
	const tenant = "a \"b\" \\ \n \xff {c=\"d\"}"
	tel.Observe(scheduler.Moment{Kind: scheduler.MomentSubmitted, Entry: entry(tenant, "codex")})
	if n := gather(t, tel)["agentsched_jobs_submitted_total{tenant="+strings.ToValidUTF8(tenant, "\uFFFD")+"}"]; n != 1 {
		t.Errorf("%v jobs of the tenant, want 1", n)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept-Encoding", "deflate, gzip")
	tel.ServeHTTP(w, r)
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || !strings.Contains(string(text), "# TYPE agentsched_jobs_submitted_total counter\n") {
		t.Errorf("%v, gzipped:\n%s", err, text)
	}
}

func TestNothingKnown(t *testing.T) {
	got := gather(t, start(t, telemetry.Config{}))
	if _, ok := got["agentsched_build_info{version=v1}"]; !ok || len(got) == 0 {
		t.Errorf("series %v", got)
	}
}
