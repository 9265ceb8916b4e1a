package workertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
			if want := Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// replay feeds a recorded run to a session and returns what it made of it.
func replay(t *testing.T, s worker.Session, base string) []byte {
	t.Helper()
	var out bytes.Buffer
	var verdict, result *worker.Result
	step := func(in worker.Input) {
		for _, a := range s.Step(Now, in) {
			switch a := a.(type) {
			case worker.Emit:
				out.WriteString(eventJSON(t, a.Event))
			case worker.Finish:
				if _, ended := in.(worker.Ended); ended {
					result = &a.Result
				} else if verdict == nil {
					verdict = &a.Result
					out.WriteString("--- here the run is decided\n")
				}
			default:
				out.WriteString(fmt.Sprintf("%T %+v\n", a, a))
			}
		}
	}
	write := func(title string, r any) {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("--- " + title + "\n" + string(data) + "\n")
	}
	exit := recordedExit(t, base)
	for l := range bytes.Lines([]byte(exit.Stderr)) {
		step(worker.ErrorOutput{Line: bytes.TrimSuffix(l, []byte("\n"))})
	}
	for l := range bytes.Lines(Read(t, base+".jsonl")) {
		step(worker.Output{Line: bytes.TrimSuffix(l, []byte("\n"))})
	}
	if exit.Stopped && verdict == nil {
		step(worker.Ended{Exit: exit})
		write("result of a run that was stopped", result)
	}
	exit.Stopped = false
	step(worker.Ended{Exit: exit})
	if verdict != nil { // of the result, only the cost counts
		if result.CostUSD != nil {
			verdict.CostUSD = result.CostUSD
		}
		write("verdict", verdict)
		return out.Bytes()
	}
	write("result", result)
	return out.Bytes()
}

// recordedExit returns how the recorded program ended.
func recordedExit(t *testing.T, base string) worker.Exit {
	t.Helper()
	meta := struct {
		Exit   any     `json:"exit"`
		Signal *string `json:"signal"`
	}{Exit: 1.0} // recordings without a meta file are of failures
	if data := Read(t, base+".meta.json"); data != nil {
		if err := json.Unmarshal(data, &meta); err != nil {
			t.Fatal(err)
		}
	}
	exit := worker.Exit{Code: -1, Stderr: string(Read(t, base+".stderr")), Stopped: meta.Signal != nil}
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

// Read returns a file's content, nil if there is none.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}
