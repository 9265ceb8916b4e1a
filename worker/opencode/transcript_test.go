package opencode

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// A transcript is one conversation with the real program: what its session was told, and what that wrote. The first line
// holds the milliseconds since 1970 of the start, each other one those since then, a mark and what happened:
//
//	started, cancel
//	< a line of the relay
//	2 a line of standard error
//	! {"message": {…}}, or an answer, an interrupt, a timer
//	ended {"code": 0, …}
//	> a line that the session wrote

var update = flag.Bool("update", false, "write the golden files")

// others are inputs that come from others.
type others struct {
	Message   *worker.Message   `json:"message,omitempty"`
	Answer    *worker.Answer    `json:"answer,omitempty"`
	Interrupt *worker.Interrupt `json:"interrupt,omitempty"`
	Timer     *worker.Timer     `json:"timer,omitempty"`
}

// recorder writes the transcript of a session.
type recorder struct {
	worker.Session
	began time.Time
	clean func(string) string // takes what differs from host to host out
	out   bytes.Buffer
}

func (r *recorder) Step(now time.Time, in worker.Input) []worker.Action {
	if r.began.IsZero() {
		r.began = now
		fmt.Fprintln(&r.out, now.UnixMilli())
	}
	note := func(mark string, what any) {
		line, ok := what.(string)
		if !ok {
			line = string(bytes.TrimSpace(encode(what)))
		}
		fmt.Fprintf(&r.out, "%d %s %s\n", now.UnixMilli()-r.began.UnixMilli(), mark, r.clean(strings.TrimSpace(line)))
	}
	switch in := in.(type) {
	case worker.Started:
		note("started", "")
	case worker.Output:
		note("<", string(in.Line))
	case worker.ErrorOutput:
		note("2", string(in.Line))
	case worker.Message:
		note("!", others{Message: &in})
	case worker.Answer:
		note("!", others{Answer: &in})
	case worker.Interrupt:
		note("!", others{Interrupt: &in})
	case worker.Timer:
		note("!", others{Timer: &in})
	case worker.Cancel:
		note("cancel", "")
	case worker.Ended:
		in.Stderr = "" // it is in the lines
		note("ended", in.Exit)
	}
	actions := r.Session.Step(now, in)
	for _, a := range actions {
		if w, ok := a.(worker.Write); ok {
			note(">", string(w.Data))
		}
	}
	return actions
}

// playTranscript tells a session the transcript, checks what it writes, and returns what it does.
func playTranscript(t *testing.T, s worker.Session, transcript []byte) []byte {
	t.Helper()
	var out, stderr bytes.Buffer
	var written []string
	lines := strings.Split(strings.TrimSuffix(string(transcript), "\n"), "\n")
	ms, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	began := time.UnixMilli(ms)
	for _, l := range lines[1:] {
		at, rest, _ := strings.Cut(l, " ")
		mark, what, _ := strings.Cut(rest, " ")
		after, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		var in worker.Input
		switch mark {
		case "started":
			in = worker.Started{}
		case "<":
			in = worker.Output{Line: []byte(what)}
		case "2":
			in = worker.ErrorOutput{Line: []byte(what)}
			stderr.WriteString(what + "\n")
		case "cancel":
			in = worker.Cancel{}
		case "ended":
			e := worker.Ended{}
			if err := json.Unmarshal([]byte(what), &e.Exit); err != nil {
				t.Fatal(err)
			}
			e.Stderr = stderr.String()
			in = e
		case "!":
			var o others
			if err := json.Unmarshal([]byte(what), &o); err != nil {
				t.Fatal(err)
			}
			switch {
			case o.Message != nil:
				in = *o.Message
			case o.Answer != nil:
				in = *o.Answer
			case o.Interrupt != nil:
				in = *o.Interrupt
			case o.Timer != nil:
				in = *o.Timer
			}
		case ">":
			if len(written) == 0 || written[0] != what {
				t.Errorf("the session wrote %q, recorded is %s", written, what)
				return out.Bytes()
			}
			written = written[1:]
			continue
		}
		if len(written) > 0 {
			t.Errorf("the session also wrote %q", written)
		}
		if mark != "<" && mark != "2" {
			fmt.Fprintln(&out, "--", mark, what)
		}
		for _, a := range s.Step(began.Add(time.Duration(after)*time.Millisecond), in) {
			kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "worker."))
			switch a := a.(type) {
			case worker.Write:
				l := string(bytes.TrimSpace(a.Data))
				written = append(written, l)
				fmt.Fprintln(&out, ">", l)
			case worker.Emit:
				data := encode(a.Event)
				_, rest, _ := strings.Cut(string(data), `"time":"0001-01-01T00:00:00Z",`)
				fmt.Fprint(&out, "{", rest)
			default:
				fmt.Fprintf(&out, "%s %s", kind, encode(a))
			}
		}
	}
	return out.Bytes()
}

// TestTranscripts plays recorded conversations with the real program.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".transcript")
		t.Run(name, func(t *testing.T) {
			tk := conversationTask(name)
			h := home{data: t.TempDir(), model: "fake/m"}
			if tk.Session != "" {
				if err := os.Mkdir(filepath.Join(h.data, program.Name), 0o700); err != nil {
					t.Fatal(err)
				}
				workertest.Write(t, filepath.Join(h.data, program.Name, "opencode.db"), tk.Session)
			}
			got := playTranscript(t, newSession(tk, h), workertest.Read(t, file))
			golden := strings.TrimSuffix(file, ".transcript") + ".golden"
			if *update {
				workertest.Write(t, golden, string(got))
			}
			if want := workertest.Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
