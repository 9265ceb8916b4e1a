package workertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Golden plays recorded runs of the real program to fresh sessions: what the
// session makes of each CASE.jsonl below testdata (its events, then its verdict
// or its result) must be what CASE.golden holds. CASE.stderr, if it is there,
// is the program's standard error, and CASE.meta.json says how it ended
// ({"exit": code, "signal": name or null}); without one, with exit code 1. There
// must be at least atLeast recordings. With update, the golden files are
// written instead: look at them before you commit them.
func Golden(t *testing.T, atLeast int, update bool, start func(t *testing.T) worker.Session) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < atLeast {
		t.Fatalf("%d recordings, %v; want at least %d", len(files), err, atLeast)
	}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".jsonl")
		t.Run(filepath.Base(base), func(t *testing.T) {
			got := replay(t, start(t), base)
			golden := base + ".golden"
			if update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := optional(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// replay feeds a recorded run to a session and returns what it made of it.
func replay(t *testing.T, s worker.Session, base string) []byte {
	t.Helper()
	var out bytes.Buffer
	var verdict *worker.Result
	judge, judges := s.(worker.Judge)
	tell := func(text []byte, line func([]byte) []job.Event) {
		for l := range bytes.Lines(text) {
			for _, e := range line(bytes.TrimSuffix(l, []byte("\n"))) {
				out.WriteString(eventJSON(t, e))
			}
			if !judges || verdict != nil {
				continue
			}
			if r, decided := judge.Verdict(); decided {
				verdict = &r
				out.WriteString("--- here the run is decided\n")
			}
		}
	}
	exit := recordedExit(t, base)
	if r, ok := s.(worker.ErrorReader); ok {
		tell([]byte(exit.Stderr), r.ErrorLine)
	}
	tell(optional(t, base+".jsonl"), s.Event)
	write := func(title string, r any) {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("--- " + title + "\n" + string(data) + "\n")
	}
	if verdict != nil { // its result is not asked
		write("verdict", verdict)
		return out.Bytes()
	}
	if exit.Stopped {
		write("result of a run that was stopped", s.Result(exit))
	}
	exit.Stopped = false
	write("result", s.Result(exit))
	return out.Bytes()
}

// recordedExit returns how the recorded program ended.
func recordedExit(t *testing.T, base string) worker.Exit {
	t.Helper()
	meta := struct {
		Exit   any     `json:"exit"`
		Signal *string `json:"signal"`
	}{Exit: 1.0} // recordings without a meta file are of failures
	if data := optional(t, base+".meta.json"); data != nil {
		if err := json.Unmarshal(data, &meta); err != nil {
			t.Fatal(err)
		}
	}
	exit := worker.Exit{Code: -1, Stderr: string(optional(t, base+".stderr")), Stopped: meta.Signal != nil}
	switch code, ok := meta.Exit.(float64); {
	case !ok:
		exit.Signal, exit.Stopped = "killed", true // the recording was cut off
	case code < 0:
		exit.Signal = "killed"
	default:
		exit.Code = int(code)
	}
	return exit
}

// eventJSON is an event without what the runner fills in.
func eventJSON(t *testing.T, e job.Event) string {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), `"time":"0001-01-01T00:00:00Z",`)
	return "{" + rest + "\n"
}

// optional returns a file's content, nil if there is none.
func optional(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}
