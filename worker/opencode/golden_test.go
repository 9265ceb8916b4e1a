package opencode

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

var update = flag.Bool("update", false, "write the golden files")

var testNow = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// TestTranscripts plays recorded runs of the real program: the events and the
// result of each must be those of its golden file.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 8 {
		t.Fatalf("transcripts: %d, %v", len(files), err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".jsonl")
		t.Run(filepath.Base(base), func(t *testing.T) {
			got := play(t, base)
			golden := base + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// play feeds a recorded run to a session and returns what it made of it.
func play(t *testing.T, base string) []byte {
	t.Helper()
	lines := readFile(t, base+".jsonl")
	meta := struct {
		Exit   any     `json:"exit"`
		Signal *string `json:"signal"`
	}{Exit: 1.0} // recordings without a meta file are of failures
	if data := readFile(t, base+".meta.json"); data != nil {
		if err := json.Unmarshal(data, &meta); err != nil {
			t.Fatal(err)
		}
	}
	exit := worker.Exit{Code: -1, Stderr: string(readFile(t, base+".stderr")), Stopped: meta.Signal != nil}
	if code, ok := meta.Exit.(float64); !ok {
		exit.Signal, exit.Stopped = "killed", true // the recording was cut off
	} else if code < 0 {
		exit.Signal = "killed"
	} else {
		exit.Code = int(code)
	}
	s := testSession(t)
	var out bytes.Buffer
	var verdict *worker.Result
	tell := func(text []byte, line func([]byte) []job.Event) {
		for l := range bytes.Lines(text) {
			for _, e := range line(bytes.TrimSuffix(l, []byte("\n"))) {
				out.WriteString(eventJSON(t, e))
			}
			if r, decided := s.Verdict(); decided && verdict == nil {
				verdict = &r
				out.WriteString("--- here the run is decided\n")
			}
		}
	}
	tell([]byte(exit.Stderr), s.ErrorLine)
	tell(lines, s.Event)
	if verdict != nil { // its result is not asked
		data, err := json.MarshalIndent(verdict, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("--- verdict\n" + string(data) + "\n")
		return out.Bytes()
	}
	for _, stopped := range []bool{exit.Stopped, false} {
		exit.Stopped = stopped
		data, err := json.MarshalIndent(s.Result(exit), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		name := "result"
		if stopped {
			name = "result of a run that was stopped"
		}
		out.WriteString("--- " + name + "\n" + string(data) + "\n")
		if !stopped {
			break
		}
	}
	return out.Bytes()
}

func testSession(t *testing.T) *session {
	t.Helper()
	return newSession(&worker.Task{Dir: "/workspace"}, home{data: t.TempDir()}, func() time.Time { return testNow })
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

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return data
}
