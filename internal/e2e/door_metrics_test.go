package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/agentsched/agentsched/job"
)

// scrape returns the metrics as a Prometheus server reads them.
func (b *bench) scrape() map[string]*dto.MetricFamily {
	b.t.Helper()
	a := b.socketDoor().ask(http.MethodGet, "/metrics", "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	if err != nil || a.status != http.StatusOK {
		b.fatalf("/metrics: %d, %v\n%s", a.status, err, a.body)
	}
	return all
}

// sumOf adds up the metrics of a family that have these labels, each a name followed
// by its value.
func sumOf(all map[string]*dto.MetricFamily, name string, labels ...string) (sum float64) {
	for _, m := range all["agentsched_"+name].GetMetric() {
		has := func(name, value string) bool {
			return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name && l.GetValue() == value })
		}
		fits := true
		for i := 0; i+1 < len(labels); i += 2 {
			fits = fits && has(labels[i], labels[i+1])
		}
		if fits {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// figure is a metric, its labels, and what it has to be.
type figure struct {
	name   string
	labels []string
	want   float64
}

func (b *bench) figures(when string, list ...figure) {
	b.t.Helper()
	all := b.scrape()
	for _, f := range list {
		if got := sumOf(all, f.name, f.labels...); got != f.want {
			b.t.Errorf("%s: %s%v is %v, want %v", when, f.name, f.labels, got, f.want)
		}
	}
}

// TestDoorMetrics: the metrics are exact for what ran, and outlive a core.
func TestDoorMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["retry"] = obj{"base": "10ms", "max": "20ms"}
	b.kind("spends", `echo '{"type":"usage","input_tokens":100,"output_tokens":50,"cost_usd":0.25}'`+"\n"+result("spent"))
	r := b.serve()
	tries := b.folder("tries")
	b.submit(b.jobsOf("alpha", "alpha.yaml",
		shell("one", nil, "true", nil), shell("two", nil, "true", nil), shell("fails", nil, "exit 3", obj{"max_attempts": 1}),
		shell("again", nil, "echo . >> "+tries+"; test $(wc -l < "+tries+") -gt 1", nil)))
	b.submit(b.jobsOf("beta", "beta.yaml", on("spends-1", "spends", nil), on("spends-2", "spends", nil), tomorrow()))
	r.ends(6)
	if _, errs, code := b.command("cancel", "tomorrow"); code != 0 {
		b.fatalf("cancel: exit code %d\n%s", code, errs)
	}
	r.end("tomorrow", job.RunCancelled)
	counted := []figure{
		{"jobs_submitted_total", []string{"tenant", "alpha"}, 4},
		{"jobs_submitted_total", []string{"tenant", "beta"}, 3},
		{"jobs_ended_total", []string{"tenant", "alpha", "worker", "shell", "outcome", "succeeded"}, 3},
		{"jobs_ended_total", []string{"tenant", "alpha", "worker", "shell", "outcome", "failed"}, 1},
		{"jobs_ended_total", []string{"tenant", "beta", "worker", "spends", "outcome", "succeeded"}, 2},
		{"jobs_ended_total", []string{"outcome", "cancelled"}, 1},
		{"attempts_started_total", []string{"worker", "shell"}, 5},
		{"attempts_started_total", []string{"worker", "spends"}, 2},
		{"attempts_ended_total", []string{"worker", "shell", "result", "failed"}, 2},
		{"attempts_ended_total", []string{"result", "completed"}, 5},
		{"tokens_total", []string{"tenant", "beta", "worker", "spends", "direction", "input"}, 200},
		{"tokens_total", []string{"tenant", "beta", "worker", "spends", "direction", "output"}, 100},
		{"cost_usd_total", []string{"tenant", "beta"}, 0.5},
		{"permits_total", []string{"result", "granted"}, 7},
		{"dispatch_latency_seconds", nil, 7},
		{"running_jobs", nil, 0},
		{"escalations_total", nil, 0},
	}
	b.eventually("the last answers are counted", func() bool { return sumOf(b.scrape(), "jobs_ended_total") == 7 })
	b.figures("after the jobs", append(counted, figure{"cores_up_total", nil, 1}, figure{"cores_down_total", nil, 0}, figure{"core_restarts_total", nil, 0}, figure{"core_up", nil, 1})...)

	r.killCore()
	r.awaitCore(2)
	b.eventually("the core is up again", func() bool { all := b.scrape(); return sumOf(all, "core_up") == 1 && sumOf(all, "cores_up_total") == 2 })
	b.figures("after another core", append(counted, figure{"cores_up_total", nil, 2}, figure{"cores_down_total", nil, 1}, figure{"core_restarts_total", []string{"core", "1"}, 1})...)
	b.submit(b.jobsOf("alpha", "more.yaml", shell("more", nil, "true", nil)))
	r.end("more", job.RunCompleted)
	b.eventually("it is counted", func() bool {
		return sumOf(b.scrape(), "jobs_ended_total", "tenant", "alpha", "worker", "shell", "outcome", "succeeded") == 4
	})
	b.eventually("the dead letter is seen", func() bool { return sumOf(b.scrape(), "dead_letters") == 1 })
	r.stop()
	b.soundState()
}

// collector takes traces by OTLP.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	raw   bytes.Buffer // the bodies of all requests
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		var request coltrace.ExportTraceServiceRequest
		text, err := io.ReadAll(body)
		if err == nil {
			err = proto.Unmarshal(text, &request)
		}
		if err != nil {
			t.Errorf("the collector is sent: %v", err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(text)
		for _, rs := range request.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// traces returns the spans by the ids of their traces.
func (c *collector) traces() map[string][]*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]*otlp.Span{}
	for _, s := range c.spans {
		id := hex.EncodeToString(s.TraceId)
		all[id] = append(all[id], s)
	}
	return all
}

// TestDoorTraces: each job that has ended is a trace, whose id is in its events and
// in the log, and is that of the request if this had one.
func TestDoorTraces(t *testing.T) {
	t.Parallel()
	const given = "0af7651916cd43dd8448eb211c80319c"
	b := newBench(t)
	c := newCollector(t)
	b.config["telemetry"] = obj{"otlp": obj{"endpoint": c.URL}}
	b.config["log"] = obj{"level": "debug"}
	b.config["retry"] = obj{"base": "10ms", "max": "20ms"}
	r := b.serve()
	tries := b.folder("tries")
	b.submit(b.jobs(shell("plain", nil, "true", nil), shell("again", nil, "echo . >> "+tries+"; test $(wc -l < "+tries+") -gt 1", nil), shell("fails", nil, "exit 3", obj{"max_attempts": 1})))
	a := b.socketDoor().ask(http.MethodPost, "/v1/jobs", asJSON(t, obj{"source": "s", "jobs": []job.Spec{tool("asked", "true")}}), "traceparent", "00-"+given+"-b7ad6b7169203331-01")
	if a.status != http.StatusCreated {
		b.fatalf("submit: %d %s", a.status, a.body)
	}
	attempts := map[string]int{"plain": 1, "again": 2, "fails": 1, "asked": 1}
	r.ends(len(attempts))
	r.stop() // sends what is left
	all := c.traces()
	if len(all) != len(attempts) {
		t.Errorf("%d traces, want %d", len(all), len(attempts))
	}
	log := readAll(t, b.folder("s", "scheduler.log"))
	for name, n := range attempts {
		j := b.show(name)
		id := j.Job.Spec.Trace
		if name == "asked" && id != given {
			t.Errorf("the trace of the request is %s, that of its job %q", given, id)
		}
		count, root := map[string]int{}, ""
		for _, s := range all[id] {
			if count[s.Name]++; s.Name == "job" {
				root = hex.EncodeToString(s.SpanId)
				if len(s.ParentSpanId) > 0 {
					t.Errorf("%s: the job's span has a parent", name)
				}
			}
		}
		for _, s := range all[id] {
			if s.Name != "job" && hex.EncodeToString(s.ParentSpanId) != root {
				t.Errorf("%s: span %s is not a child of the job's", name, s.Name)
			}
			if s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s: span %s ends before it begins", name, s.Name)
			}
		}
		if got, want := fmt.Sprint(count), fmt.Sprint(map[string]int{"job": 1, "submit": 1, "queue": n, "permit": n, "worker": n, "result": 1}); got != want {
			t.Errorf("%s, trace %s: spans %s, want %s", name, id, got, want)
		}
		events := b.storedEvents(name)
		for _, e := range events {
			if e.Trace != id {
				t.Errorf("%s: an event has the trace %q, want %s", name, e.Trace, id)
			}
		}
		if len(events) == 0 || !strings.Contains(log, `"trace_id":"`+id+`"`) {
			t.Errorf("%s: %d events, and the log has no line of trace %s", name, len(events), id)
		}
	}
	b.soundState()
}
