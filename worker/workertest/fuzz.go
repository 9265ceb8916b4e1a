package workertest

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
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
			r := end(t, s, e)
			if e.Code != 0 {
				check(t, "fuzzed", r, e)
			}
			if len(bytes.TrimSpace(output)) == 0 && r.Class == job.NoError && !c.PlainOutput {
				t.Error("a program that printed nothing succeeded")
			}
		}
	})
}

// FuzzEvents feeds start's sessions with output made up from the recordings in
// testdata (see Golden), and with standard errors made up from stderrs: no event
// may be too large or without a form in JSON, and no failure a success.
// also is called with both, if it is not nil.
func FuzzEvents(f *testing.F, start func(t *testing.T) worker.Session, also func(output []byte, stderr string), stderrs ...string) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for _, stderr := range stderrs {
			f.Add(Read(f, file), stderr, 1)
		}
	}
	f.Fuzz(func(t *testing.T, output []byte, stderr string, code int) {
		s := Play(start(t))
		var events []job.Event
		for l := range bytes.Lines(output) {
			events = append(events, s.Event(bytes.TrimSuffix(l, []byte("\n")))...)
		}
		for l := range strings.Lines(stderr) {
			events = append(events, s.ErrorLine([]byte(l))...)
		}
		for _, e := range events {
			if _, err := json.Marshal(e); err != nil || len(e.Text) > job.MaxEventText || e.Usage != nil && e.Usage.CostUSD < 0 {
				t.Fatalf("%d bytes of text, usage %+v, %v", len(e.Text), e.Usage, err)
			}
		}
		if r, decided := s.Verdict(); decided && (r.Class == job.NoError || r.Message == "") {
			t.Fatalf("verdict %+v", r)
		}
		if r := s.Result(worker.Exit{Code: code, Stderr: stderr}); r.Class == job.NoError && code != 0 {
			t.Fatalf("success with exit code %d", code)
		}
		if also != nil {
			also(output, stderr)
		}
	})
}
