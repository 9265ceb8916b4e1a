package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// complainEvery is how often at most it is logged that traces cannot be sent.
const complainEvery = time.Minute

// quiet is an exporter that counts what cannot be sent, and seldom complains.
type quiet struct {
	sdktrace.SpanExporter
	log    zerolog.Logger
	redact func(string) string
	now    func() time.Time
	failed prometheus.Counter
	ended  context.Context // nobody waits for what is still being sent
	down   chan struct{}   // closed when the last was sent, or given up

	mu   sync.Mutex // guards what follows
	last time.Time  // when it complained
	lost int        // spans, since then
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error: nobody could
// do more about one.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ended, cancel)()
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	q.failed.Add(float64(len(spans)))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += len(spans)
	if now := q.now(); q.last.IsZero() || now.Sub(q.last) >= complainEvery {
		q.log.Warn().Str("error", q.redact(err.Error())).Int("spans", q.lost).Msg("traces cannot be sent to the collector; they are dropped")
		q.last, q.lost = now, 0
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter. It is called once.
func (q *quiet) Shutdown(ctx context.Context) error {
	defer close(q.down)
	return q.SpanExporter.Shutdown(ctx)
}
