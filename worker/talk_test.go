package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// talker is a script that asks by "ask ID" and ends its input by "bye". It is told
// "tick" when its timer is over, "answer DECISION" and "message TEXT".
type talker struct{ script }

func talks(text string) *talker {
	s := &talker{script{text: text}}
	s.command = func(c *worker.Command) { c.KeepStdin = true }
	return s
}

func (s *talker) Step(now time.Time, in worker.Input) []worker.Action {
	say := func(line string) worker.Action { return worker.Write{Data: []byte(line + "\n")} }
	switch in := in.(type) {
	case worker.Started:
		return []worker.Action{
			worker.SetTimer{Name: "never", After: time.Millisecond}, worker.SetTimer{Name: "never"},
			worker.SetTimer{Name: "tick", After: time.Hour}, worker.SetTimer{Name: "tick", After: time.Millisecond},
		}
	case worker.Timer:
		return []worker.Action{say(in.Name)}
	case worker.Answer:
		return []worker.Action{say(strings.TrimSpace("answer " + string(in.Decision)))}
	case worker.Message:
		return []worker.Action{say("message " + in.Text), worker.Settle{Message: in.ID, State: worker.MessageDelivered}}
	case worker.Output:
		if id, ok := strings.CutPrefix(string(in.Line), "ask "); ok {
			return []worker.Action{worker.Ask{Question: worker.Question{ID: id}}, say("asked")}
		}
		if string(in.Line) == "bye" {
			return []worker.Action{worker.CloseInput{}, say("too late")}
		}
	}
	return s.script.Step(now, in)
}

const talk = `read a; echo "text $a"; echo "ask q"; read a; echo "text $a"; read a; echo "text $a"; echo "text ready"`

func texts(events []job.Event) string {
	var all []string
	for _, e := range events {
		all = append(all, e.Text)
	}
	return strings.Join(all, ", ")
}

// TestRunConverses: questions, messages and timers reach the session, and its answers
// the program.
func TestRunConverses(t *testing.T) {
	inputs := make(chan worker.Input)
	var settled []worker.Action
	o, events := run(t, t.Context(), talks(talk+`; read a; echo "text $a"; echo bye; cat; echo "text end of input"`), func(r *worker.Run) {
		r.Inputs = inputs
		r.Tell = func(a worker.Action) {
			if ask, ok := a.(worker.Ask); ok {
				go func() { inputs <- worker.Answer{Question: ask.Question.ID, Decision: worker.Allow} }()
				return
			}
			settled = append(settled, a)
		}
		sink := r.Sink
		r.Sink = func(e job.Event) {
			if sink(e); e.Text == "ready" {
				go func() { inputs <- worker.Message{ID: "m", Text: "hello"} }()
			}
		}
	})
	if o.State != job.RunCompleted {
		t.Errorf("outcome %+v", o)
	}
	if got, want := texts(events), "tick, asked, answer allow, ready, message hello, end of input"; got != want {
		t.Errorf("the program was told %q, want %q", got, want)
	}
	if want := (worker.Settle{Message: "m", State: worker.MessageDelivered}); len(settled) != 1 || settled[0] != want {
		t.Errorf("told %+v, want %+v", settled, want)
	}
}

// TestRunAnswersForNobody: where nobody can be asked, a question is answered at once.
func TestRunAnswersForNobody(t *testing.T) {
	o, events := run(t, t.Context(), talks(talk), nil)
	if o.State != job.RunCompleted {
		t.Errorf("outcome %+v", o)
	}
	if got, want := texts(events), "tick, asked, answer, ready"; got != want {
		t.Errorf("the program was told %q, want %q", got, want)
	}
}

// filer is a session whose program leaves its files to it: it prints "read PATH" and
// "write PATH", and is told what came of it.
type filer struct{ script }

func (f *filer) Step(now time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		verb, path, _ := strings.Cut(string(in.Line), " ")
		switch verb {
		case "read":
			return []worker.Action{worker.ReadFile{ID: verb, Path: path}}
		case "write":
			return []worker.Action{worker.WriteFile{ID: verb, Path: path, Data: []byte("hello")}}
		}
	case worker.FileDone:
		return []worker.Action{worker.Write{Data: fmt.Appendf(nil, "%s %s %v %v\n", in.ID, in.Data, in.Created, in.Err)}}
	}
	return f.script.Step(now, in)
}

// TestRunReadsAndWritesFiles: files of the workspace reach a program by its session.
func TestRunReadsAndWritesFiles(t *testing.T) {
	dir := t.TempDir()
	s := &filer{script{text: `for ask in "write new" "read new" "read ../new"; do echo "$ask"; read -r a; echo "text $a"; done`}}
	s.command = func(c *worker.Command) { c.KeepStdin, c.Dir = true, dir }
	o, events := run(t, t.Context(), s, nil)
	if o.State != job.RunCompleted {
		t.Errorf("outcome %+v", o)
	}
	if got, want := texts(events), `write  true <nil>, read hello false <nil>, read  false read "../new": it is not in the workspace`; got != want {
		t.Errorf("the program was told %q, want %q", got, want)
	}
}

// mute is a session that does not say how its run ended.
type mute struct{ script }

func (m *mute) Step(now time.Time, in worker.Input) []worker.Action {
	if _, ended := in.(worker.Ended); ended {
		return nil
	}
	return m.script.Step(now, in)
}

func TestRunWithoutAResult(t *testing.T) {
	o, _ := run(t, t.Context(), &mute{script{text: "exit 0"}}, nil)
	if o.State != job.RunFailed || o.Class != job.Crash || !strings.Contains(o.Message, "reported no result") {
		t.Errorf("outcome %+v", o)
	}
}

// TestRunStopsWhileAnEventWaits: whoever takes the events may not take one more, e.g.
// since the scheduler hangs. The processes are ended all the same.
func TestRunStopsWhileAnEventWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits, release, started := make(chan struct{}), make(chan struct{}), make(chan *proc.Tree, 1)
	inputs := make(chan worker.Input)
	var ended sync.WaitGroup
	ended.Go(func() {
		o, _ := run(t, ctx, talks(`echo "session s"; read stop; sleep 300`), func(r *worker.Run) {
			r.Inputs = inputs
			r.Watch = func(tree *proc.Tree) func() { started <- tree; return func() {} }
			r.Sink = func(e job.Event) {
				if e.Kind == job.EventSession {
					close(waits)
					<-release
				}
			}
		})
		if o.State != job.RunCancelled {
			t.Errorf("outcome %+v", o)
		}
	})
	tree := <-started
	<-waits
	inputs <- worker.Message{ID: "m", Text: "waits, too"}
	cancel()
	<-tree.Exited()
	close(release)
	ended.Wait()
}
