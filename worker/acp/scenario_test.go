package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

var updateFiles = flag.Bool("update", false, "write what sessions do into the scenarios")

// TestScenarios plays testdata/scenarios/*.txt. A line that begins with a sign is an input,
// and the lines below it, which begin with two spaces, are what the session does about it:
//
//	= FIELD VALUE        of the task, before all inputs: may, session, fork, model, system, output, tools, confined
//	< {…}                a line of the agent
//	! message ID TEXT    again ID TEXT    answer ID DECISION TEXT    value ID JSON
//	! interrupt    cancel    timer NAME    done ID DATA    created ID    failed ID    missing ID    end CODE
//
// With -update the latter are written: read them before you commit them.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want := workertest.Read(t, file)
			got := playScenario(t, want)
			if *updateFiles {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want = workertest.Read(t, file); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func playScenario(t *testing.T, text []byte) []byte {
	t.Helper()
	task := &worker.Task{
		Instructions: "do it", Dir: "/ws", Environ: []string{"PATH=/bin", "HAVE_KEY=k"},
		Settings: job.WorkerSettings{Adapter: "acp", Command: []string{"/bin/sh"}},
	}
	var out bytes.Buffer
	var s worker.Session
	for l := range bytes.Lines(text) {
		line := strings.TrimSuffix(string(l), "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		if field, ok := strings.CutPrefix(line, "= "); ok {
			setField(t, task, field)
			continue
		}
		in := parseInput(t, line)
		if in == nil {
			continue
		}
		if s == nil {
			var err error
			if s, err = (Adapter{}).Start(task); err != nil {
				t.Fatal(err)
			}
			s.Step(workertest.Now, worker.Started{})
		}
		for _, a := range s.Step(workertest.Now, in) {
			out.WriteString("  " + show(t, a) + "\n")
		}
	}
	return out.Bytes()
}

func setField(t *testing.T, task *worker.Task, field string) {
	name, value, _ := strings.Cut(field, " ")
	switch name {
	case "may":
		for c := range strings.FieldsSeq(value) {
			task.Capabilities = append(task.Capabilities, job.Capability(c))
		}
	case "session":
		task.Session = value
	case "fork":
		task.Fork = true
	case "confined":
		task.Confined = true
	case "model":
		task.Model = value
	case "system":
		task.SystemPrompt = value
	case "tools":
		task.Tools = &worker.ToolServer{Name: "scheduler", URL: value, Key: "run-key"}
	case "output":
		task.Output = json.RawMessage(value)
	default:
		t.Fatalf("no such field: %s", field)
	}
}

// parseInput returns the input of a line; nil for a comment or an empty one.
func parseInput(t *testing.T, line string) worker.Input {
	t.Helper()
	switch {
	case strings.HasPrefix(line, "< "):
		return worker.Output{Line: []byte(line[2:])}
	case !strings.HasPrefix(line, "! "):
		return nil
	}
	word := func() (w string) {
		w, line, _ = strings.Cut(line, " ")
		return w
	}
	word()
	switch verb := word(); verb {
	case "message":
		return worker.Message{ID: word(), Text: line}
	case "again":
		return worker.Message{ID: word(), Text: line, Again: true}
	case "answer":
		a := worker.Answer{Question: word(), Decision: worker.Decision(word()), Text: line}
		if a.Decision == "unanswered" {
			a.Decision = worker.Unanswered
		}
		return a
	case "value":
		return worker.Answer{Question: word(), Decision: worker.Allow, Value: json.RawMessage(line)}
	case "interrupt":
		return worker.Interrupt{Reason: "ann interrupted it"}
	case "cancel":
		return worker.Cancel{}
	case "timer":
		return worker.Timer{Name: word()}
	case "done":
		id := word()
		data, err := strconv.Unquote(line)
		if err != nil {
			t.Fatal(err)
		}
		return worker.FileDone{ID: id, Data: []byte(data)}
	case "created":
		return worker.FileDone{ID: word(), Created: true}
	case "failed":
		return worker.FileDone{ID: word(), Err: errors.New("it belongs to git")}
	case "missing":
		return worker.FileDone{ID: word(), Err: fmt.Errorf("read: %w", fs.ErrNotExist)}
	case "end":
		code, err := strconv.Atoi(word())
		if err != nil {
			t.Fatal(err)
		}
		return worker.Ended{Exit: worker.Exit{Code: code}}
	default:
		t.Fatalf("no such input: %s", verb)
		return nil
	}
}

// show returns an action as a scenario has it.
func show(t *testing.T, a worker.Action) string {
	t.Helper()
	in := func(name string, v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return name + " " + string(data)
	}
	switch a := a.(type) {
	case worker.Write:
		return "> " + strings.TrimSuffix(string(a.Data), "\n")
	case worker.Emit:
		data, err := json.Marshal(a.Event)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), `"time":"0001-01-01T00:00:00Z",`)
		return "event {" + rest
	case worker.Ask:
		return in("ask", a.Question)
	case worker.Finish:
		return in("finish", a.Result)
	case worker.ReadFile:
		return "read " + a.ID + " " + a.Path
	case worker.WriteFile:
		return fmt.Sprintf("write %s %s %q", a.ID, a.Path, a.Data)
	case worker.SetTimer:
		return fmt.Sprintf("timer %s %s", a.Name, a.After)
	default:
		return fmt.Sprintf("%T %+v", a, a)
	}
}
