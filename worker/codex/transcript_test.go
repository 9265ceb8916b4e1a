package codex

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
//	< a line of standard output
//	2 a line of standard error
//	! {"message": {…}}, or an answer, an interrupt
//	ended {"code": 0, …}
//	> a line that the session wrote

var update = flag.Bool("update", false, "write the golden files")

// others are inputs that come from others.
type others struct {
	Message   *worker.Message   `json:"message,omitempty"`
	Answer    *worker.Answer    `json:"answer,omitempty"`
	Interrupt *worker.Interrupt `json:"interrupt,omitempty"`
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
		text, ok := what.(string)
		if !ok {
			text = string(frame(what))
		}
		fmt.Fprintf(&r.out, "%d %s %s\n", now.UnixMilli()-r.began.UnixMilli(), mark, r.clean(strings.TrimSpace(text)))
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
	case worker.Cancel:
		note("cancel", "")
	case worker.Ended:
		in.Stderr = "" // it is in the lines
		note("ended", in.Exit)
	}
	actions := r.Session.Step(now, in)
	for _, a := range actions {
		if w, ok := a.(worker.Write); ok {
			for l := range bytes.Lines(w.Data) {
				note(">", string(l))
			}
		}
	}
	return actions
}

// entry is a line of a transcript.
type entry struct {
	after time.Duration
	mark  string
	what  string
	in    worker.Input // nil for what the session wrote
}

// readTranscript returns the start and the lines of a transcript.
func readTranscript(t testing.TB, transcript []byte) (began time.Time, entries []entry) {
	t.Helper()
	var stderr bytes.Buffer
	first, rest, _ := strings.Cut(string(transcript), "\n")
	ms, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(rest) {
		at, rest, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		mark, what, _ := strings.Cut(rest, " ")
		after, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		e := entry{time.Duration(after) * time.Millisecond, mark, what, nil}
		switch mark {
		case "started":
			e.in = worker.Started{}
		case "<":
			e.in = worker.Output{Line: []byte(what)}
		case "2":
			e.in = worker.ErrorOutput{Line: []byte(what)}
			stderr.WriteString(what + "\n")
		case "cancel":
			e.in = worker.Cancel{}
		case "ended":
			end := worker.Ended{}
			if err := json.Unmarshal([]byte(what), &end.Exit); err != nil {
				t.Fatal(err)
			}
			end.Stderr = stderr.String()
			e.in = end
		case "!":
			var o others
			if err := json.Unmarshal([]byte(what), &o); err != nil {
				t.Fatal(err)
			}
			switch {
			case o.Message != nil:
				e.in = *o.Message
			case o.Answer != nil:
				e.in = *o.Answer
			case o.Interrupt != nil:
				e.in = *o.Interrupt
			}
		}
		entries = append(entries, e)
	}
	return time.UnixMilli(ms), entries
}

// playTranscript tells a session the transcript, checks what it writes, and returns what it does.
func playTranscript(t *testing.T, s worker.Session, transcript []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var written []string
	began, entries := readTranscript(t, transcript)
	for _, e := range entries {
		if e.mark == ">" {
			if len(written) == 0 || written[0] != e.what {
				t.Errorf("the session wrote %q, recorded is %s", written, e.what)
				return out.Bytes()
			}
			written = written[1:]
			continue
		}
		if len(written) > 0 {
			t.Errorf("the session also wrote %q", written)
		}
		if e.mark != "<" && e.mark != "2" {
			fmt.Fprintln(&out, strings.TrimSpace("-- "+e.mark+" "+e.what))
		}
		for _, a := range s.Step(began.Add(e.after), e.in) {
			kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "worker."))
			switch a := a.(type) {
			case worker.Write:
				for l := range bytes.Lines(a.Data) {
					written = append(written, string(bytes.TrimSpace(l)))
					fmt.Fprintf(&out, "> %s", l)
				}
			case worker.Emit:
				_, rest, _ := strings.Cut(string(frame(a.Event)), `"time":"0001-01-01T00:00:00Z",`)
				fmt.Fprint(&out, "{", rest)
			default:
				fmt.Fprintf(&out, "%s %s", kind, frame(a))
			}
		}
	}
	return out.Bytes()
}

// TestTranscripts plays recorded conversations with the real program.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".transcript")
		t.Run(name, func(t *testing.T) {
			tk := conversationOf(t, name).task(name)
			s := newSession(tk, grantOf(tk), func(string) bool { return true })
			got := playTranscript(t, s, workertest.Read(t, file))
			golden := strings.TrimSuffix(file, ".transcript") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := workertest.Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
