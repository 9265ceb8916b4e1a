package worker

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
)

// BenchmarkRecord is what an event costs on its way from the session, without and
// with twenty known secrets.
func BenchmarkRecord(b *testing.B) {
	var values []redact.Value
	for i := range 20 {
		values = append(values, redact.Value{Name: "K", Text: fmt.Sprintf("%064x", i*7919+13)})
	}
	for name, r := range map[string]Redactor{"plain": unredacted{}, "redacted": redact.New(values...)} {
		b.Run(name, func(b *testing.B) {
			rec := newRecorder(Run{Redact: r, Sink: func(job.Event) {}}, func(error) {}, zerolog.Nop())
			e := job.Event{Kind: job.EventText, Text: "ok  	github.com/agentsched/agentsched/job	0.012s: all tests passed"}
			b.ReportAllocs()
			for b.Loop() {
				rec.record(e)
			}
		})
	}
}
