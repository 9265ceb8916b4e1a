package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// view is what there is to know about the jobs of a pipeline, beside its book.
type view struct {
	nodes   map[job.Name]queue.Entry // the stages' own jobs
	parts   map[job.Name]queue.Entry // of units that are not done with
	answers map[job.Name]string      // of the parts among them that succeeded, or whose answer was no good
	// recorded is what comes next of the log of the run that is replayed; lost says
	// that it is not there any more.
	recorded []Event
	lost     bool
}

// decide says all that follows from what is there: moves, and the change that
// makes them durable. It changes the book. Asked again with nothing new, it
// answers nothing.
//
// Answers are settled from the last stage to the first, so that room is made
// before it is needed; what is given and what has ended follows from the first
// to the last.
func decide(b *book, v view, c *change) []Move {
	d := decider{b, v, c, nil}
	for _, s := range slices.Backward(b.stages) {
		d.follow(s)
		d.dismiss(s)
		d.settle(s)
	}
	d.copy()
	for _, s := range b.stages {
		d.seed(s)
		d.give(s)
		d.end(s)
	}
	return d.moves
}

type decider struct {
	b     *book
	v     view
	c     *change
	moves []Move
}

func (d *decider) move(kind MoveKind, s *stage, m Move) {
	m.Kind, m.Stage = kind, s.ID
	d.moves = append(d.moves, m)
	d.c.touch(s)
}

// runs reports whether the parts of a stage may be run: its job is there, and
// what it waits for has ended.
func (d *decider) runs(s *stage) bool {
	node, there := d.v.nodes[s.Job]
	return there && !s.Streams && !s.Over() && node.State == job.Queued && node.Held == job.HeldForParts
}

// follow notes that the stage's job has ended: nothing is done for it any more.
func (d *decider) follow(s *stage) {
	node, there := d.v.nodes[s.Job]
	if s.Over() || !there || !node.State.Terminal() {
		return
	}
	if node.State == job.Completed && node.ExitKind == job.ExitFailed {
		s.Failed = cmp.Or(node.DeadLetter, "its job failed")
	} else {
		s.Failed = fmt.Sprintf("its job ended (%s) before the stream did", cmp.Or(string(node.ExitKind), string(node.State)))
	}
	s.abandon()
	d.move(Failed, s, Move{Why: s.Failed})
}

// abandon makes the answers of all that is at work unwanted.
func (s *stage) abandon() {
	for _, u := range s.Units {
		s.Stale = append(s.Stale, u.Part)
	}
	s.Units = nil
}

// dismiss cancels parts whose answers are not wanted, and forgets those that have
// ended.
func (d *decider) dismiss(s *stage) {
	s.Stale = slices.DeleteFunc(s.Stale, func(part int) bool {
		name := job.PartName(s.Job, part)
		e, there := d.v.parts[name]
		if !there || e.State.Terminal() {
			d.c.touch(s)
			return true
		}
		if !e.CancelRequested {
			d.c.ops = append(d.c.ops, queue.Cancel{ID: e.ID, Now: d.c.at})
			d.move(Stopped, s, Move{Part: name, ID: e.ID})
		}
		return false
	})
}

// settle deals with the units whose parts have ended.
func (d *decider) settle(s *stage) {
	for _, u := range slices.Clone(s.Units) {
		name := job.PartName(s.Job, u.Part)
		e, there := d.v.parts[name]
		switch {
		case s.Over():
			return
		case !there: // salvaged from a broken file: its events are given again
			s.drop(u)
			d.move(Split, s, Move{Part: name, Events: u.Events, Why: "its job is gone"})
		case !e.State.Terminal():
		case e.State == job.Completed && e.ExitKind == job.ExitSucceeded:
			d.answer(s, u, e)
		case e.State == job.Completed && e.ExitKind == job.ExitFailed:
			d.fail(s, u, e, cmp.Or(e.ErrorClass, job.Unknown), cmp.Or(unauthorized(&s.Stage, d.v.answers[e.Spec.Name]), e.DeadLetter, "the part failed"))
		default:
			d.fail(s, u, e, job.CancelledClass, fmt.Sprintf("the part was %s", cmp.Or(string(e.ExitKind), string(e.State))))
		}
	}
}

func (s *stage) drop(u Unit) {
	s.Units = slices.DeleteFunc(s.Units, func(other Unit) bool { return other.Part == u.Part })
}

// answer acknowledges a unit and publishes its events, if there is room for them
// and the stage may.
func (d *decider) answer(s *stage, u Unit, e queue.Entry) {
	a, err := ReadAnswer(d.v.answers[e.Spec.Name])
	if err == nil {
		err = checkOutputs(&s.Stage, a.Events)
	}
	if err == nil {
		err = checkState(&s.Stage, a.State)
	}
	if err != nil {
		d.fail(s, u, e, job.InvalidOutput, err.Error())
		return
	}
	if len(u.Events) == 0 || !s.answered(u.Events[0]) {
		if d.b.full(a.Events) != nil {
			return // it waits, with its slot in the stage: that one's publishers wait in turn
		}
	}
	s.drop(u)
	s.EndAcked = s.EndAcked || u.End
	n := d.b.ack(d.c, s, u.Events, a.Events, a.State)
	d.move(Acked, s, Move{Part: e.Spec.Name, Events: u.Events, Published: n})
}

// fail deals with a unit whose part has spent its attempts.
func (d *decider) fail(s *stage, u Unit, e queue.Entry, class job.ErrorClass, why string) {
	m := Move{Part: e.Spec.Name, Events: u.Events, Why: why}
	switch {
	case class == job.Auth || class == job.Config || u.End:
		// Not the event's fault: each other would fail in the same way.
		d.failStage(s, class, why)
	case len(u.Events) > 1:
		s.drop(u)
		s.Alone = append(s.Alone, u.Events...)
		if e.DeadLetter != "" && e.DroppedAt == nil && e.RequeuedAs == "" {
			d.c.ops = append(d.c.ops, queue.Drop{ID: e.ID, Now: d.c.at})
		}
		d.move(Split, s, m)
	default:
		s.drop(u)
		d.b.bury(d.c, s, DeadLetter{
			Stage: s.ID, Event: Event{Seq: u.Events[0]}, Class: class, Message: why,
			Job: e.Spec.Name, Attempts: e.Attempts, At: d.c.at,
		})
		d.move(Buried, s, m)
	}
}

// failStage ends a stage for good. What it was not given stays in the log.
func (d *decider) failStage(s *stage, class job.ErrorClass, why string) {
	s.Failed = why
	s.abandon()
	d.c.ops = append(d.c.ops, queue.Conclude{
		ID: d.v.nodes[s.Job].ID, Exit: job.ExitFailed, DeadLetter: why, Class: class, Now: d.c.at,
	})
	d.move(Failed, s, Move{Why: why})
}

// seed publishes the events of the first stage once it runs.
func (d *decider) seed(s *stage) {
	node, there := d.v.nodes[s.Job]
	starts := d.runs(s) || there && s.Streams && !s.Over() && (node.State == job.Dispatched || node.State == job.Queued && node.Held == "")
	if s.at > 0 || d.b.last > 0 || d.b.line.Replays != nil || !starts {
		return
	}
	if err := d.b.seed(d.c, nodeInput(node)); err != nil {
		d.failStage(s, job.Config, err.Error())
		return
	}
	d.move(Seeded, s, Move{Published: int(d.b.last)})
}

// nodeInput is the input of a stage's own job.
func nodeInput(node queue.Entry) json.RawMessage {
	if r := node.Resolved; r != nil && len(r.Input) > 0 {
		return r.Input
	}
	return node.Spec.Flow.Input
}

// give finds work for the stage as far as its bounds allow.
func (d *decider) give(s *stage) {
	for d.runs(s) && len(s.Units)+len(s.Stale) < s.MaxParallel {
		busy := map[int64]bool{}
		for _, u := range s.Units {
			for _, seq := range u.Events {
				busy[seq] = true
			}
		}
		unit := d.b.next(s, s.Batch, busy)
		if unit == nil {
			return
		}
		d.hand(s, Unit{Events: unit})
	}
}

func (d *decider) hand(s *stage, u Unit) {
	s.Given++
	u.Part = s.Given
	s.Units = append(s.Units, u)
	d.move(Gave, s, Move{Part: job.PartName(s.Job, u.Part), Events: u.Events, unit: u})
}

// end ends a stage that has done all there will ever be for it.
func (d *decider) end(s *stage) {
	if !d.runs(s) || !d.b.drained(s) || s.backlog() > 0 || len(s.Units)+len(s.Stale) > 0 {
		return
	}
	if keeps(s.state) && !s.EndAcked {
		d.hand(s, Unit{End: true})
		return
	}
	if len(s.inputs) > 0 && len(s.dead) == len(s.inputs) {
		d.failStage(s, job.Unknown, fmt.Sprintf("none of its %d events could be handled, see its dead letters", len(s.inputs)))
		return
	}
	s.Ended = true
	d.c.ops = append(d.c.ops, queue.Conclude{
		ID: d.v.nodes[s.Job].ID, Exit: job.ExitSucceeded, Now: d.c.at,
		Result: marshal(Summary{len(s.inputs), s.Published, len(s.dead)}),
	})
	d.move(Ended, s, Move{})
}

// Summary is the result of a one-shot stage's own job.
type Summary struct {
	Events      int   `json:"events"`    // that it was given
	Published   int64 `json:"published"` // by it
	DeadLetters int   `json:"dead_letters"`
}

func keeps(state json.RawMessage) bool { return len(state) > 0 && string(state) != "null" }

// unauthorized returns what an answer that was no good may not publish, or "".
func unauthorized(s *job.Stage, answer string) string {
	if answer == "" {
		return ""
	}
	a, err := ReadAnswer(answer)
	if err != nil {
		return ""
	}
	var refused *PublishError
	if errors.As(checkOutputs(s, a.Events), &refused) {
		return refused.Error()
	}
	return ""
}
