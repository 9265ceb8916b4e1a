package workertest

import (
	"bytes"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Fuzz feeds an adapter's sessions with output made up from the transcripts:
// it must not panic, its events must be sound, and a program that failed or was
// silent must not succeed.
func Fuzz(f *testing.F, c Config) {
	for _, r := range c.transcripts(f) {
		f.Add(bytes.Join(r.lines, []byte("\n")))
	}
	f.Add([]byte("{}\n\n{\"type\":"))
	task := c.task(f, "fuzz")
	f.Fuzz(func(t *testing.T, output []byte) {
		for _, e := range []worker.Exit{{}, {Code: 1}, {Code: -1, Signal: "killed"}} {
			s := c.start(t, task)
			s.Command()
			tell(t, s, splitLines(output))
			r := s.Result(e)
			if e.Code != 0 {
				check(t, "fuzzed", r, e)
			}
			if len(bytes.TrimSpace(output)) == 0 && r.Class == job.NoError && !c.PlainOutput {
				t.Error("a program that printed nothing succeeded")
			}
		}
	})
}
