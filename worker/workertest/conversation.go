package workertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// A transcript of a conversation is what a session was told by the real program and by others, and what it wrote. The first
// line holds the milliseconds since 1970 of the start, each other one those since then, a mark and what happened:
//
//	started, cancel
//	< a line of standard output
//	2 a line of standard error
//	! {"message": {…}}, or an answer, an interrupt, a timer
//	ended {"code": 0, …}
//	> a line that the session wrote

// others are inputs that come from others.
type others struct {
	Message   *worker.Message   `json:"message,omitempty"`
	Answer    *worker.Answer    `json:"answer,omitempty"`
	Interrupt *worker.Interrupt `json:"interrupt,omitempty"`
	Timer     *worker.Timer     `json:"timer,omitempty"`
}

// Recorder is a session that writes down its conversation.
type Recorder struct {
	worker.Session
	Clean func(string) string // takes what differs from host to host out
	began time.Time
	out   bytes.Buffer
}

// Transcript returns what was said so far.
func (r *Recorder) Transcript() []byte { return r.out.Bytes() }

// Step is that of the session.
func (r *Recorder) Step(now time.Time, in worker.Input) []worker.Action {
	if r.began.IsZero() {
		r.began = now
		fmt.Fprintln(&r.out, now.UnixMilli())
	}
	note := func(mark string, what any) {
		text, ok := what.(string)
		if !ok {
			text = string(line(what))
		}
		fmt.Fprintf(&r.out, "%d %s %s\n", now.UnixMilli()-r.began.UnixMilli(), mark, r.Clean(strings.TrimSpace(text)))
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
			for l := range bytes.Lines(w.Data) {
				note(">", string(l))
			}
		}
	}
	return actions
}

// Said is a line of a transcript.
type Said struct {
	After time.Duration
	Mark  string
	What  string
	Input worker.Input // nil for what the session wrote
}

// ReadTranscript returns the start and the lines of a transcript.
func ReadTranscript(t testing.TB, transcript []byte) (began time.Time, entries []Said) {
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
		e := Said{time.Duration(after) * time.Millisecond, mark, what, nil}
		switch mark {
		case "started":
			e.Input = worker.Started{}
		case "<":
			e.Input = worker.Output{Line: []byte(what)}
		case "2":
			e.Input = worker.ErrorOutput{Line: []byte(what)}
			stderr.WriteString(what + "\n")
		case "cancel":
			e.Input = worker.Cancel{}
		case "ended":
			end := worker.Ended{}
			if err := json.Unmarshal([]byte(what), &end.Exit); err != nil {
				t.Fatal(err)
			}
			end.Stderr = stderr.String()
			e.Input = end
		case "!":
			var o others
			if err := json.Unmarshal([]byte(what), &o); err != nil {
				t.Fatal(err)
			}
			switch {
			case o.Message != nil:
				e.Input = *o.Message
			case o.Answer != nil:
				e.Input = *o.Answer
			case o.Interrupt != nil:
				e.Input = *o.Interrupt
			case o.Timer != nil:
				e.Input = *o.Timer
			}
		}
		entries = append(entries, e)
	}
	return time.UnixMilli(ms), entries
}

// PlayTranscript tells a session the transcript, checks what it writes, and returns what it does.
func PlayTranscript(t testing.TB, s worker.Session, transcript []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var written []string
	began, entries := ReadTranscript(t, transcript)
	for _, e := range entries {
		if e.Mark == ">" {
			if len(written) == 0 || written[0] != e.What {
				t.Errorf("the session wrote %q, recorded is %s", written, e.What)
				return out.Bytes()
			}
			written = written[1:]
			continue
		}
		if len(written) > 0 {
			t.Errorf("the session also wrote %q", written)
		}
		if e.Mark != "<" && e.Mark != "2" {
			fmt.Fprintln(&out, strings.TrimSpace("-- "+e.Mark+" "+e.What))
		}
		for _, a := range s.Step(began.Add(e.After), e.Input) {
			kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "worker."))
			switch a := a.(type) {
			case worker.Write:
				for l := range bytes.Lines(a.Data) {
					written = append(written, string(bytes.TrimSpace(l)))
					fmt.Fprintf(&out, "> %s", l)
				}
			case worker.Emit:
				_, rest, _ := strings.Cut(string(line(a.Event)), `"time":"0001-01-01T00:00:00Z",`)
				fmt.Fprint(&out, "{", rest)
			default:
				fmt.Fprintf(&out, "%s %s", kind, line(a))
			}
		}
	}
	return out.Bytes()
}

// Converse has the Runner run a session. on is told each event, and each action that is for people (the other is its zero
// value), one after the other, and returns what the session is told then.
func Converse(t testing.TB, s worker.Session, run worker.Run, on func(job.Event, worker.Action) []worker.Input) job.Outcome {
	t.Helper()
	host, err := proc.NewHost(proc.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	inputs, over := make(chan worker.Input), make(chan struct{})
	var mu sync.Mutex
	var telling sync.WaitGroup
	heard := func(e job.Event, a worker.Action) {
		mu.Lock()
		defer mu.Unlock()
		if more := on(e, a); len(more) > 0 {
			telling.Go(func() {
				for _, in := range more {
					select {
					case inputs <- in:
					case <-over: // too late
					}
				}
			})
		}
	}
	run.Inputs = inputs
	run.Tell = func(a worker.Action) { heard(job.Event{}, a) }
	run.Sink = func(e job.Event) { heard(e, nil) }
	runner := worker.Runner{Host: host, Stages: proc.Stages{Interrupt: 5 * time.Second, Terminate: 5 * time.Second, Kill: time.Minute}, Log: zerolog.Nop()}
	outcome, err := runner.Run(t.Context(), s, run)
	close(over)
	telling.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// line returns v as one line of JSON.
func line(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}
