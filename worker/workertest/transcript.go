package workertest

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// recording is a transcript that was read.
type recording struct {
	name  string
	lines [][]byte
	want  Want
}

// transcripts reads those that c names, sorted by name.
func (c Config) transcripts(t testing.TB) []recording {
	t.Helper()
	if c.Transcripts == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(c.Transcripts, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	missing := maps.Clone(c.Want)
	var all []recording
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		want, ok := c.Want[name]
		if !ok {
			t.Errorf("transcript %s has no entry in Want", name)
			continue
		}
		delete(missing, name)
		output, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := os.ReadFile(filepath.Join(c.Transcripts, name+".stderr"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		want.Exit.Stderr = string(stderr)
		all = append(all, recording{name, splitLines(output), want})
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("Want has an entry for %s, of which there is no transcript", name)
	}
	return all
}

// splitLines returns the lines of output as the Runner would tell them.
func splitLines(output []byte) [][]byte {
	var lines [][]byte
	for line := range bytes.Lines(output) {
		lines = append(lines, bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")))
	}
	return lines
}

func (c Config) testTranscripts(t *testing.T) {
	next := c.sessions(t)
	for _, r := range c.transcripts(t) {
		t.Run(r.name, func(t *testing.T) {
			s := next()
			var usage job.Usage
			var session string
			for _, e := range tell(t, s, r.lines) {
				if e.Usage != nil {
					usage = usage.Add(*e.Usage)
				}
				if e.Kind == job.EventSession {
					session = e.Session
				}
			}
			got := end(t, s, r.want.Exit)
			if got.Class != r.want.Class && !r.want.Exit.Stopped {
				t.Errorf("class %q with message %q, want class %q", got.Class, got.Message, r.want.Class)
			}
			if !strings.Contains(got.Answer, r.want.Answer) {
				t.Errorf("answer %q, want %q in it", got.Answer, r.want.Answer)
			}
			if session != r.want.Session {
				t.Errorf("session %q, want %q", session, r.want.Session)
			}
			if usage.Tokens() != r.want.Tokens {
				t.Errorf("%d tokens, want %d", usage.Tokens(), r.want.Tokens)
			}
			if got.Class != job.NoError {
				check(t, r.name, got, worker.Exit{Code: 1})
			}
		})
	}
}
