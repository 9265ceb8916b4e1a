package telemetry

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
)

// Config is what a Telemetry works with.
type Config struct {
	Log     zerolog.Logger
	Version string // of the program
	// Store is surveyed at a scrape, and read at the end of a traced job. nil: neither.
	Store queue.Reader
	// Status returns the scheduler's status; nil leaves its metrics out.
	Status func() scheduler.Status
	// Nodes returns how the nodes fare; nil leaves their metrics out.
	Nodes func() []node.Status
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
	collectors []collector
	counters   *counters
	tracer     *tracer // nil makes no traces
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
	t := &Telemetry{counters: newCounters(names)}
	build := newMetric(gaugeKind, "build_info", "1; the version of the program is the label.", "version")
	t.collectors = []collector{t.counters, newSurvey(cfg, names), newStatus(cfg, names), newNodes(cfg, names), process{}, constant{build, 1, []string{cfg.Version}}}
	if cfg.OTLP.Endpoint != "" {
		if err := cfg.OTLP.check(); err != nil {
			return nil, err
		}
		t.tracer = newTracer(cfg)
		t.collectors = append(t.collectors, t.tracer.dropped, t.tracer.failed)
	}
	return t, nil
}

func (o OTLP) check() error {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("telemetry.otlp.endpoint: %q, want an address such as http://localhost:4318", o.Endpoint)
	}
	return nil
}

// Observe implements scheduler.Observer.
func (t *Telemetry) Observe(m scheduler.Moment) {
	t.counters.observe(m)
	if t.tracer != nil {
		t.tracer.observe(m)
	}
}

// Escalated counts an escalation, except reminders (Again).
func (t *Telemetry) Escalated(e isolation.Escalation) {
	if !e.Again {
		t.counters.escalated(e.Cause)
	}
}

// Shutdown sends what traces there still are, until ctx ends, and stops. It may be
// called twice. No moment may be observed after it; one that is goes into no trace.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.tracer == nil {
		return nil
	}
	return t.tracer.shutdown(ctx)
}
