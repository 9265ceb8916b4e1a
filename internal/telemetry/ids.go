package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"

	"github.com/agentsched/agentsched/job"
)

// traceID returns the id of the trace that a job belongs to: its own if that is
// one (32 hexadecimal digits, not all of them 0), else one that follows from it,
// or from the job's id.
func traceID(own string, id job.ID) trace.TraceID {
	var t trace.TraceID
	if len(own) == 2*len(t) {
		if n, err := hex.Decode(t[:], []byte(own)); err == nil && n == len(t) && t.IsValid() {
			return t
		}
	}
	text := "trace " + own
	if own == "" {
		text = "job " + string(id)
	}
	sum := sha256.Sum256([]byte(text))
	copy(t[:], sum[:])
	return t
}

// idKey is under what a context carries the ids of the span that is started next.
type idKey struct{}

func withIDs(ctx context.Context, t trace.TraceID, s trace.SpanID) context.Context {
	return context.WithValue(ctx, idKey{}, trace.NewSpanContext(trace.SpanContextConfig{TraceID: t, SpanID: s, TraceFlags: trace.FlagsSampled}))
}

// ids gives spans the ids that their contexts carry.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if sc, ok := ctx.Value(idKey{}).(trace.SpanContext); ok {
		return sc.TraceID(), sc.SpanID()
	}
	var t trace.TraceID
	var s trace.SpanID
	rand.Read(t[:]) //nolint:errcheck // it never returns an error
	rand.Read(s[:]) //nolint:errcheck // nor here
	return t, s
}

// NewSpanID implements sdktrace.IDGenerator.
func (g ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, s := g.NewIDs(ctx)
	return s
}
