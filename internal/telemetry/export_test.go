package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

type refusing struct{ sdktrace.SpanExporter }

func (refusing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("no collector")
}

// TestQuiet: a collector that stays away is complained of once a minute, with all
// that was lost in between.
func TestQuiet(t *testing.T) {
	var log strings.Builder
	now := time.Unix(0, 0)
	q := &quiet{
		SpanExporter: refusing{}, log: zerolog.New(&log), redact: strings.ToUpper, now: func() time.Time { return now },
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}), ended: t.Context(),
	}
	for range 13 { // one each ten seconds
		if err := q.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 5)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Second)
	}
	if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), "NO COLLECTOR") || !strings.Contains(log.String(), `"spans":30`) {
		t.Errorf("%d lines:\n%s", n, &log)
	}
	if n := testutil.ToFloat64(q.failed); n != 65 {
		t.Errorf("%v spans failed, want 65", n)
	}
}

func TestFirstWord(t *testing.T) {
	for text, want := range map[string]string{
		"go test ./...": "go", "/usr/bin/git push": "git", "  make": "make", "A=b make": unknownCommand, "$(cat key)": unknownCommand,
		"": unknownCommand, "\"my program\" x": unknownCommand, "npm\trun": unknownCommand, "./gradlew test": "gradlew",
	} {
		if got := firstWord(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
