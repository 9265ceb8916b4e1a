package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/telemetry"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// collector takes traces as a real one does.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*otlp.Span
	headers []http.Header
	paths   []string
	service string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		raw, err := io.ReadAll(body)
		var request coltrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(raw, &request)
		}
		if err != nil {
			t.Error(err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.headers, c.paths = append(c.headers, r.Header), append(c.paths, r.URL.Path)
		for _, rs := range request.ResourceSpans {
			c.service = attribute(rs.Resource.Attributes, "service.name")
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func attribute(list []*common.KeyValue, key string) string {
	for _, kv := range list {
		if kv.Key != key {
			continue
		}
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			return v.StringValue
		case *common.AnyValue_IntValue:
			return fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			return fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_BoolValue:
			return fmt.Sprint(v.BoolValue)
		}
	}
	return ""
}

func shutdown(t *testing.T, tel *telemetry.Telemetry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := tel.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// traced submits a job and returns it claimed.
func traced(t *testing.T, store *sqlite.Store, e *queue.Entry) queue.Entry {
	t.Helper()
	e.RunnableAt = epoch
	if err := store.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID()}, []queue.Entry{*e}); err != nil {
		t.Fatal(err)
	}
	return claim(t, store, at(1))
}

func claim(t *testing.T, store *sqlite.Store, now time.Time) queue.Entry {
	t.Helper()
	c, err := store.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: now, Lease: time.Hour})
	if err != nil || len(c.Entries) != 1 {
		t.Fatalf("claimed %d, %v", len(c.Entries), err)
	}
	return c.Entries[0]
}

func apply(t *testing.T, store *sqlite.Store, ops ...queue.Op) {
	t.Helper()
	if err := store.Apply(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
}

func begin(e queue.Entry, n int, now time.Time) []queue.Op {
	return []queue.Op{
		queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: n, State: job.Pending, Started: now, Choice: job.Choice{Worker: "codex", Model: "m"}}},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: n, To: job.Running, Session: "s"},
	}
}

// TestTraceOverRestart lets one process see the first attempt, which fails, and
// another the second and the end: the tree is whole, with the times of the store.
func TestTraceOverRestart(t *testing.T) {
	c, store := newCollector(t), openStore(t)
	cfg := telemetry.Config{Store: store, OTLP: telemetry.OTLP{Endpoint: c.URL, Headers: map[string]string{"Authorization": "Bearer t0ken"}}}
	first := start(t, cfg)
	e := entry("a", "codex")
	e.Spec.Trace = "0123456789abcdef0123456789abcdef"
	got := traced(t, store, e)
	code := 2
	choice := job.Choice{Worker: "codex", Model: "m"}
	for _, m := range []scheduler.Moment{
		{Kind: scheduler.MomentSubmitted, At: at(0)},
		{Kind: scheduler.MomentPermit, At: at(2), Took: time.Second, Reason: job.RateLimited},
		{Kind: scheduler.MomentPermit, At: at(3)}, {Kind: scheduler.MomentBegun, At: at(3)},
	} {
		m.Entry, m.Attempt, m.Choice = &got, 1, choice
		first.Observe(m)
	}
	apply(t, store, begin(got, 1, at(3))...)
	failed := job.Outcome{State: job.RunFailed, Class: job.Server, StartedAt: at(3), EndedAt: at(10), Usage: job.Usage{InputTokens: 5, OutputTokens: 1}}
	apply(t, store, queue.Finish{ID: got.ID, Fence: got.Fence, Attempt: 1, Now: at(10), Outcome: failed, Retry: queue.Retry{RunnableAt: at(10)}})
	shutdown(t, first)
	c.mu.Lock()
	if len(c.spans) != 0 {
		t.Errorf("%d spans before the end of the job", len(c.spans))
	}
	c.mu.Unlock()

	second := start(t, cfg)
	got = claim(t, store, at(12))
	apply(t, store, begin(got, 2, at(14))...)
	second.Observe(scheduler.Moment{Kind: scheduler.MomentPermit, Entry: &got, Attempt: 2, Choice: choice, At: at(14), Took: time.Second})
	second.Observe(scheduler.Moment{Kind: scheduler.MomentEvents, Entry: &got, Attempt: 2, Choice: choice, Events: []job.Event{
		{Attempt: 2, Kind: job.EventCommand, Command: "/usr/bin/git push https://user:s3cret@host", Time: at(15)},
		{Attempt: 2, Kind: job.EventCommand, Command: "/usr/bin/git push https://user:s3cret@host", ExitCode: &code, Time: at(16)},
		{Attempt: 2, Kind: job.EventCommand, Command: "TOKEN=s3cret make", ExitCode: new(int), Time: at(17)},
	}})
	succeeded := job.Outcome{State: job.RunCompleted, StartedAt: at(14), EndedAt: at(20), Usage: job.Usage{InputTokens: 7, CachedTokens: 3, OutputTokens: 2, CostUSD: 0.5, CostKnown: true}}
	apply(t, store, queue.Finish{ID: got.ID, Fence: got.Fence, Attempt: 2, Now: at(21), Exit: job.ExitSucceeded, Outcome: succeeded})
	ended, err := store.Get(t.Context(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	second.Observe(scheduler.Moment{Kind: scheduler.MomentEnded, Entry: &ended, Attempt: 2, At: at(21)})
	shutdown(t, second)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service != "agentsched" || c.paths[0] != "/v1/traces" || c.headers[0].Get("Authorization") != "Bearer t0ken" {
		t.Errorf("service %q, path %v, headers %v", c.service, c.paths, c.headers)
	}
	var root *otlp.Span
	var tree []string
	ids := map[string]bool{}
	for _, s := range c.spans {
		if len(s.ParentSpanId) == 0 {
			root = s
		}
		ids[string(s.SpanId)] = true
		begin, end := time.Unix(0, int64(s.StartTimeUnixNano)), time.Unix(0, int64(s.EndTimeUnixNano))
		tree = append(tree, fmt.Sprintf("%s%s %v-%v", s.Name, attribute(s.Attributes, "agentsched.attempt"), begin.Sub(epoch).Seconds(), end.Sub(epoch).Seconds()))
		if hex.EncodeToString(s.TraceId) != e.Spec.Trace {
			t.Errorf("trace %x, want %s", s.TraceId, e.Spec.Trace)
		}
	}
	want := []string{"job 0-21", "permit2 13-14", "queue1 0-3", "queue2 10-14", "result 20-21", "submit 0-0", "worker1 3-10", "worker2 14-20"}
	if slices.Sort(tree); !slices.Equal(tree, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(tree, "\n"), strings.Join(want, "\n"))
	}
	if root == nil || len(ids) != len(c.spans) {
		t.Fatalf("root %v, %d ids of %d spans", root, len(ids), len(c.spans))
	}
	attrs := func(s *otlp.Span, want map[string]string) {
		t.Helper()
		for key, value := range want {
			if got := attribute(s.Attributes, key); got != value {
				t.Errorf("%s of %s is %q, want %q", key, s.Name, got, value)
			}
		}
	}
	attrs(root, map[string]string{"agentsched.job.id": string(e.ID), "agentsched.tenant": "a", "agentsched.outcome": "succeeded", "agentsched.attempts": "2", "gen_ai.usage.input_tokens": "12"})
	for _, s := range c.spans {
		if s != root && !bytes.Equal(s.ParentSpanId, root.SpanId) {
			t.Errorf("%s is under %x, want %x", s.Name, s.ParentSpanId, root.SpanId)
		}
		failed := s.Name == "worker" && attribute(s.Attributes, "agentsched.attempt") == "1"
		if is := s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR; is != failed {
			t.Errorf("%s has status %v", s.Name, s.Status)
		}
		switch {
		case failed:
			attrs(s, map[string]string{"error.type": "SERVER", "gen_ai.request.model": "m", "gen_ai.operation.name": "invoke_agent"})
		case s.Name == "worker":
			attrs(s, map[string]string{"gen_ai.usage.cache_read.input_tokens": "3", "agentsched.cost_usd": "0.5", "gen_ai.conversation.id": "s"})
			var events []string
			for _, ev := range s.Events {
				events = append(events, fmt.Sprint(attribute(ev.Attributes, "process.executable.name"), " ", attribute(ev.Attributes, "process.exit.code"), " ", time.Unix(0, int64(ev.TimeUnixNano)).Sub(epoch)))
			}
			if want := []string{"git 2 16s", "? 0 17s"}; !slices.Equal(events, want) {
				t.Errorf("events %q, want %q", events, want)
			}
		case s.Name == "permit":
			attrs(s, map[string]string{"agentsched.permit.result": "granted"})
		}
		if strings.Contains(s.String(), "s3cret") {
			t.Errorf("a secret in %s", s)
		}
	}
}

// TestTraceIDs: a job without a trace of its own has one that follows from it, and
// each process gives the same ids.
func TestTraceIDs(t *testing.T) {
	seen := map[string]int{}
	e, other := entry("a", "codex"), entry("a", "codex")
	e.State, e.CompletedAt, other.State = job.Cancelled, new(time.Time), job.Expired
	*e.CompletedAt = at(5)
	e.Spec.Trace, other.Spec.Trace = "a user's own", "00000000000000000000000000000000"
	twin := *e
	twin.ID = job.NewID()
	for range 2 {
		c := newCollector(t)
		tel := start(t, telemetry.Config{OTLP: telemetry.OTLP{Endpoint: c.URL + "/custom"}})
		for _, x := range []*queue.Entry{e, other, &twin} {
			tel.Observe(scheduler.Moment{Kind: scheduler.MomentEnded, Entry: x, At: at(5)})
		}
		shutdown(t, tel)
		for _, s := range c.spans {
			if len(s.ParentSpanId) == 0 {
				seen[hex.EncodeToString(s.TraceId)+" "+hex.EncodeToString(s.SpanId)]++
			}
		}
		if c.paths[0] != "/custom" {
			t.Errorf("path %s", c.paths[0])
		}
	}
	traces := map[string]bool{}
	for id, n := range seen {
		trace, _, _ := strings.Cut(id, " ")
		if traces[trace] = true; n != 2 || trace == strings.Repeat("0", 32) {
			t.Errorf("root %s was seen %d times, want 2", id, n)
		}
	}
	if len(seen) != 3 || len(traces) != 2 {
		t.Errorf("%d roots in %d traces, want 3 in 2", len(seen), len(traces))
	}
}

// TestTraceRedacts plants a secret in everything that a user or a worker names.
func TestTraceRedacts(t *testing.T) {
	c := newCollector(t)
	tel := start(t, telemetry.Config{OTLP: telemetry.OTLP{Endpoint: c.URL}, Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret", "…") }})
	e := entry("s3cret-t", "s3cret-w")
	e.Spec.Name, e.Spec.Agent, e.Spec.Model, e.ErrorClass, e.State, e.ExitKind = "s3cret-n", "s3cret-a", "s3cret-m", "s3cret-c", job.Completed, job.ExitFailed
	e.Spec.Instructions, e.DeadLetter, e.Spec.Class = "s3cret", "s3cret", "s3cret-k"
	e.Spec.Context = job.Context{CorrelationID: "s3cret-7", UserID: "s3cret-u", SessionID: "s3cret-s"}
	tel.Observe(scheduler.Moment{Kind: scheduler.MomentPermit, Entry: e, Choice: job.Choice{Worker: "s3cret", Model: "s3cret"}, Reason: "s3cret"})
	tel.Observe(scheduler.Moment{Kind: scheduler.MomentEnded, Entry: e, At: at(5)})
	shutdown(t, tel)
	if len(c.spans) != 4 {
		t.Errorf("%d spans, want 4", len(c.spans))
	}
	ids := 0
	for _, s := range c.spans {
		for _, id := range []string{"agentsched.correlation_id", "user.id", "session.id"} {
			if strings.Contains(s.String(), id) {
				ids++
			}
		}
	}
	if ids != 3 {
		t.Errorf("%d ids of the job's context are told, want 3, of the root", ids)
	}
	for _, s := range c.spans {
		if strings.Contains(s.String(), "s3cret") {
			t.Errorf("a secret in %s", s)
		}
	}
	for key := range gather(t, tel) {
		if strings.Contains(key, "s3cret") {
			t.Errorf("a secret in %s", key)
		}
	}
}

// logLines counts lines, from many goroutines.
type logLines struct {
	mu   sync.Mutex
	text []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(p))
	return len(p), nil
}

// TestCollectorIsSick: whatever the collector does, moments are taken at once, the
// end comes in time and the log has one line.
func TestCollectorIsSick(t *testing.T) {
	hold := make(chan struct{})
	refuses, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer hangs.Close()
	defer close(hold)
	fails := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "s3cret failure", http.StatusInternalServerError)
	}))
	defer fails.Close()
	for name, endpoint := range map[string]string{"refuses": "http://" + refuses.Addr().String(), "hangs": hangs.URL, "fails": fails.URL} {
		t.Run(name, func(t *testing.T) {
			lines := &logLines{}
			tel := start(t, telemetry.Config{
				Log: zerolog.New(lines), OTLP: telemetry.OTLP{Endpoint: endpoint},
				Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret", "…") },
			})
			const jobs = 20_000
			for range jobs {
				e := entry("a", "codex")
				e.State = job.Cancelled
				tel.Observe(scheduler.Moment{Kind: scheduler.MomentEnded, Entry: e, At: at(1)})
			}
			if n := gather(t, tel)["agentsched_jobs_ended_total{error_class=,outcome=cancelled,tenant=a,worker=codex}"]; n != jobs {
				t.Errorf("%v jobs counted, want %d", n, jobs)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			tel.Shutdown(ctx) //nolint:errcheck // whether it could send in time is not what matters here
			tel.Shutdown(ctx) //nolint:errcheck // nor here
			if ctx.Err() == nil && name == "hangs" {
				t.Error("the traces were sent to a collector that takes none")
			}
			tel.Observe(scheduler.Moment{Kind: scheduler.MomentEnded, Entry: entry("a", "codex"), At: at(1)})
			lines.mu.Lock()
			defer lines.mu.Unlock()
			if len(lines.text) > 1 || strings.Contains(strings.Join(lines.text, ""), "s3cret") {
				t.Errorf("log %s", lines.text)
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	for _, bad := range []string{"localhost:4318", "grpc://localhost", "http://", "://"} {
		if _, err := telemetry.New(telemetry.Config{OTLP: telemetry.OTLP{Endpoint: bad}}); err == nil || !strings.Contains(err.Error(), "telemetry.otlp.endpoint") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
