package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// stepScript is a script whose lines "step ID RESULT" are durable steps. It is
// told "stored ID RESULT" or "refused ID", and "checkpoint REASON".
type stepScript struct {
	script
	padding int // bytes that follow each answer
}

func (s *stepScript) Step(now time.Time, in worker.Input) []worker.Action {
	say := func(line string) []worker.Action { return []worker.Action{worker.Write{Data: []byte(line + "\n")}} }
	switch in := in.(type) {
	case worker.Output:
		if rest, ok := strings.CutPrefix(string(in.Line), "step "); ok {
			id, result, durable := strings.Cut(rest, " ")
			if !durable {
				return worker.Events(job.Event{Kind: job.EventStep, Step: id, Inputs: "in"})
			}
			return []worker.Action{worker.Store{Step: worker.Step{ID: id, Inputs: "in", Result: json.RawMessage(result)}}}
		}
	case worker.Stored:
		line := fmt.Sprintf("stored %s %s", in.ID, in.Result)
		if in.Err != nil {
			line = "refused " + in.ID
		}
		return say(line + strings.Repeat(" ", s.padding))
	case worker.Checkpoint:
		return say("checkpoint " + in.Reason)
	}
	return s.script.Step(now, in)
}

// listens is a script that is told things while it runs.
func listens(text string) *stepScript {
	s := &stepScript{script: script{text: text}}
	s.command = func(c *worker.Command) { c.KeepStdin = true }
	return s
}

// shelf keeps steps in memory.
type shelf map[string]worker.Step

func (s shelf) store(_ context.Context, step worker.Step) (worker.KeptStep, error) {
	if first, ok := s[step.ID]; ok {
		return worker.KeptStep{Step: first, FromStore: true}, nil
	}
	s[step.ID] = step
	return worker.KeptStep{Step: step}, nil
}

func TestRunStoresSteps(t *testing.T) {
	s := listens(`step() { echo "step $1"; read answer; echo "text $answer"; }
		step 'a {"n": 1}'; step 'b 2'; step 'c oops'; step "$(printf 'd "%0300000d"' 0)"; step ' 7'; echo "step turn"`)
	kept := shelf{"b": {ID: "b", Inputs: "in", Result: json.RawMessage(`1`)}}
	o, events := run(t, t.Context(), s, func(r *worker.Run) { r.StoreStep = kept.store })
	if o.State != job.RunCompleted || o.Usage.Steps != 6 {
		t.Errorf("outcome %+v", o)
	}
	var got []string
	for _, e := range events {
		if e.Result != nil {
			t.Errorf("event %+v carries a result", e)
		}
		if e.Kind == job.EventStep {
			got = append(got, fmt.Sprintf("%s %s %s", e.Step, e.Inputs, e.Kept))
		} else {
			got = append(got, string(e.Kind)+" "+e.Text)
		}
	}
	want := []string{
		"a in fresh", `text stored a {"n":1}`, "b in store", "text stored b 1", "c in refused", "text refused c",
		"d in refused", "text refused d", " in refused", "text refused", "turn in ",
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("events\n%q, want\n%q", got, want)
	}
	if len(kept) != 2 || string(kept["a"].Result) != `{"n":1}` || kept["a"].Inputs != "in" {
		t.Errorf("kept %v", kept)
	}
}

// A program that never reads what it is told holds nothing up.
func TestRunDoesNotWaitForAReader(t *testing.T) {
	s := listens(`i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo "step $i $i"; done`)
	s.padding = 4 << 10
	kept := shelf{}
	o, _ := run(t, t.Context(), s, func(r *worker.Run) { r.StoreStep = kept.store })
	if o.State != job.RunCompleted || len(kept) != 100 {
		t.Errorf("%d steps, outcome %+v", len(kept), o)
	}
}

func TestRunStopsWhileAStepIsStored(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	o, events := run(t, ctx, listens(`echo "step a 1"; read answer; read stop; exit 1`), func(r *worker.Run) {
		r.StoreStep = func(ctx context.Context, _ worker.Step) (worker.KeptStep, error) {
			cancel(why)
			<-ctx.Done()
			return worker.KeptStep{}, context.Cause(ctx)
		}
	})
	if o.State != job.RunCancelled || o.Message != "enough" {
		t.Errorf("outcome %+v", o)
	}
	if len(events) == 0 || events[0].Kept != job.KeptRefused || events[0].Text != "enough" {
		t.Errorf("events %+v", events)
	}
}

func TestRunWithoutAStoreRefusesSteps(t *testing.T) {
	o, events := run(t, t.Context(), listens(`echo "step a 1"; read answer; echo "text $answer"`), nil)
	if o.State != job.RunCompleted || len(events) != 2 || events[0].Kept != job.KeptRefused || events[1].Text != "refused a" {
		t.Errorf("outcome %+v, events %+v", o, events)
	}
	// A session that stores nothing reports turns.
	_, events = run(t, t.Context(), &script{text: `echo "step a"`}, nil)
	if len(events) != 1 || events[0].Kept != "" {
		t.Errorf("events %+v", events)
	}
}

func TestRunCheckpoints(t *testing.T) {
	wanted := make(chan worker.Input)
	ask := func(r *worker.Run) {
		r.Inputs = wanted
		sink := r.Sink
		r.Sink = func(e job.Event) {
			if sink(e); e.Text == "ready" {
				go func() { wanted <- worker.Checkpoint{Reason: "make room"} }()
			}
		}
	}
	s := listens(`echo "text ready"; read answer; echo "text $answer"; exit $CODE`)
	s.result = worker.Result{Checkpointed: true, Message: "make room"}
	o, events := run(t, t.Context(), s, ask)
	if o.State != job.Checkpointed || o.Class != job.NoError || o.Message != "make room" || o.Succeeded() {
		t.Errorf("outcome %+v", o)
	}
	if last := events[len(events)-1]; last.Text != "checkpoint make room" {
		t.Errorf("the program was told %q", last.Text)
	}
	t.Run("but ends badly", func(t *testing.T) {
		s := listens(`echo "text ready"; read answer; exit 3`)
		s.result = worker.Result{Checkpointed: true}
		if o, _ := run(t, t.Context(), s, ask); o.State != job.RunFailed || o.Class != job.Crash {
			t.Errorf("outcome %+v", o)
		}
	})
	t.Run("but is stopped", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := listens(`echo "text ready"; read answer; echo "text told"; read stop; exit 1`)
		s.result = worker.Result{Checkpointed: true}
		o, _ := run(t, ctx, s, func(r *worker.Run) {
			ask(r)
			sink := r.Sink
			r.Sink = func(e job.Event) {
				if sink(e); e.Text == "told" {
					cancel()
				}
			}
		})
		if o.State != job.RunCancelled {
			t.Errorf("outcome %+v", o)
		}
	})
}

// TestRunCheckpointsEarly: a turn that does not stop when it is asked to is ended, and the
// run goes on in another attempt, however the program ends.
func TestRunCheckpointsEarly(t *testing.T) {
	inputs := make(chan worker.Input)
	s := &interrupted{listens(`echo "text ready"; read stop; exit 3`)}
	o, _ := run(t, t.Context(), s, func(r *worker.Run) {
		r.Inputs = inputs
		sink := r.Sink
		r.Sink = func(e job.Event) {
			if sink(e); e.Text == "ready" {
				go func() { inputs <- worker.Interrupt{Reason: "ann"} }()
			}
		}
	})
	if o.State != job.Checkpointed || o.Class != job.NoError || o.Message != "interrupted" || o.ExitCode != 3 {
		t.Errorf("outcome %+v", o)
	}
}

// interrupted is a script that is at a checkpoint as soon as it is interrupted.
type interrupted struct{ *stepScript }

func (s *interrupted) Step(now time.Time, in worker.Input) []worker.Action {
	switch in.(type) {
	case worker.Interrupt:
		return []worker.Action{worker.Finish{Result: worker.Result{Checkpointed: true, Message: "interrupted"}}}
	case worker.Cancel:
		return []worker.Action{worker.Write{Data: []byte("stop\n")}}
	}
	return s.stepScript.Step(now, in)
}
