package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
)

// Config is what a Telemetry works with.
type Config struct {
	Log     zerolog.Logger
	Version string // of the program
	// Store is surveyed at a scrape, and read at the end of a traced job. nil: neither.
	Store queue.Reader
	// Status tells how the scheduler fares; nil leaves out what it would tell.
	Status func() scheduler.Status
	// Redact takes secrets out of a text; nil leaves texts as they are.
	Redact func(string) string
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	OTLP OTLP
}

// OTLP is where traces go, by OTLP over HTTP.
type OTLP struct {
	// Endpoint is an address such as "http://localhost:4318": one without a path
	// stands for its /v1/traces. "" makes no traces.
	Endpoint string
	Headers  map[string]string // e.g. Authorization
}

// Telemetry is a scheduler.Observer. Make one with New, and end it with Shutdown.
type Telemetry struct {
	registry *prometheus.Registry
	handler  http.Handler
	counters *counters
	tracer   *tracer // nil: no traces
}

var _ scheduler.Observer = (*Telemetry)(nil)

// New returns a running Telemetry. The error names the setting that is wrong; a
// collector that cannot be reached is none.
func New(cfg Config) (*Telemetry, error) {
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	names := newNames(cfg.Redact)
	t := &Telemetry{registry: prometheus.NewRegistry(), counters: newCounters(names)}
	all := append(t.counters.collectors(),
		newSurvey(cfg, names), newStatus(cfg, names), buildInfo(cfg.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if cfg.OTLP.Endpoint != "" {
		if err := cfg.OTLP.check(); err != nil {
			return nil, err
		}
		t.tracer = newTracer(cfg)
		all = append(all, t.tracer.dropped, t.tracer.failed)
	}
	for _, c := range all {
		if err := t.registry.Register(c); err != nil {
			return nil, errors.Join(err, t.Shutdown(context.Background()))
		}
	}
	t.handler = promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return t, nil
}

func (o OTLP) check() error {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("telemetry.otlp.endpoint: %q, want an address such as http://localhost:4318", o.Endpoint)
	}
	return nil
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "agentsched_build_info", Help: "1; the version of the program is the label.", ConstLabels: prometheus.Labels{"version": version},
	})
	g.Set(1)
	return g
}

// Observe implements scheduler.Observer.
func (t *Telemetry) Observe(m scheduler.Moment) {
	t.counters.observe(m)
	if t.tracer != nil {
		t.tracer.observe(m)
	}
}

// Escalated counts an escalation that was not told before (not its Again).
func (t *Telemetry) Escalated(e isolation.Escalation) {
	if !e.Again {
		t.counters.escalated(e.Cause)
	}
}

// ServeHTTP answers a scrape.
func (t *Telemetry) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.handler.ServeHTTP(w, r) }

// Gatherer returns what a scrape is answered from.
func (t *Telemetry) Gatherer() prometheus.Gatherer { return t.registry }

// Shutdown sends what traces there still are, until ctx ends, and stops. It may be
// called twice. No moment may be observed after it; one that is goes into no trace.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.tracer == nil {
		return nil
	}
	return t.tracer.shutdown(ctx)
}
