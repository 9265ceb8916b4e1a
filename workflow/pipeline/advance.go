package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// MoveKind says what a Move did.
type MoveKind string

const (
	Seeded  MoveKind = "seeded"  // the first stage's events were published
	Copied  MoveKind = "copied"  // events of the run that is replayed were published
	Gave    MoveKind = "gave"    // a part was spawned with these events
	Acked   MoveKind = "acked"   // a part's answer was taken: its events are acknowledged, what it said is published
	Split   MoveKind = "split"   // a part failed with several events: each is given alone next
	Buried  MoveKind = "buried"  // a part failed with one event, which went to the dead letters
	Stopped MoveKind = "stopped" // a part's answer is not wanted any more: whoever runs it must stop it
	Ended   MoveKind = "ended"   // the stage has done all
	Failed  MoveKind = "failed"  // the stage will do nothing more
)

// Move is one thing that Advance did. All of it is durable.
type Move struct {
	Kind      MoveKind
	Stage     job.Name
	Part      job.Name // name of the part's job, "" if it is about none
	ID        job.ID   // of that, with Stopped
	Events    []int64  // sequence numbers of the part's events
	Published int      // how many events it added to the log
	Why       string

	unit Unit // with Gave
}

// Jobs finds the jobs of the pipeline's batch.
type Jobs interface {
	// Job returns the job of that name as it is now, or queue.ErrNotFound.
	Job(ctx context.Context, name job.Name) (queue.Entry, error)
	// Answer returns what a job answered that succeeded, whole.
	Answer(ctx context.Context, e *queue.Entry) (string, error)
}

// Advance does all that follows from how the jobs stand: it takes the answers of
// parts that have ended, spawns parts for events that wait, concludes the jobs of
// stages that are done. It may be asked at any time, after any crash, and must be
// after the end of each part, after the start of each stage and after each change
// of the log by a Feed; with nothing to do it does nothing.
//
// A stage that does not stream runs while its own job is HeldForParts. Its parts
// are jobs of the same specification, with an Input in their Resolved.
func (l *Log) Advance(ctx context.Context, jobs Jobs, now time.Time) ([]Move, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Move
	for lost := 0; ; {
		moves, err := l.advance(ctx, jobs, now)
		switch {
		case err == nil && len(moves) == 0:
			return all, nil
		case errors.Is(err, queue.ErrIllegalTransition) && lost < 3:
			lost++ // a job has ended since it was looked at
		case err != nil:
			return all, fmt.Errorf("advance pipeline %q: %w", l.line.ID, err)
		}
		all = append(all, moves...)
	}
}

// advance does one write. The mutex is held.
func (l *Log) advance(ctx context.Context, jobs Jobs, now time.Time) ([]Move, error) {
	b, err := l.fresh(ctx)
	if err != nil {
		return nil, err
	}
	v, err := look(ctx, b, jobs)
	if err != nil {
		return nil, err
	}
	if err := l.recorded(ctx, b, &v); err != nil {
		return nil, err
	}
	c := &change{at: now}
	moves := decide(b, v, c)
	if err := l.complete(ctx, b, v, c, moves); err != nil {
		l.book = nil // it was changed, and is not written
		return nil, err
	}
	if err := l.commit(ctx, b, c); err != nil {
		return nil, err
	}
	return moves, nil
}

// look reads what decide must know.
func look(ctx context.Context, b *book, jobs Jobs) (view, error) {
	v := view{nodes: map[job.Name]queue.Entry{}, parts: map[job.Name]queue.Entry{}, answers: map[job.Name]string{}}
	for _, s := range b.stages {
		if err := find(ctx, jobs, s.Job, v.nodes); err != nil {
			return v, err
		}
		for _, part := range s.Stale {
			if err := find(ctx, jobs, job.PartName(s.Job, part), v.parts); err != nil {
				return v, err
			}
		}
		for _, u := range s.Units {
			name := job.PartName(s.Job, u.Part)
			if err := find(ctx, jobs, name, v.parts); err != nil {
				return v, err
			}
			e := v.parts[name]
			mistaken := e.ExitKind == job.ExitFailed && e.ErrorClass == job.InvalidOutput
			if e.State != job.Completed || e.ExitKind != job.ExitSucceeded && !mistaken {
				continue
			}
			answer, err := jobs.Answer(ctx, &e)
			if err != nil {
				return v, fmt.Errorf("read the answer of %s: %w", name, err)
			}
			v.answers[name] = answer
		}
	}
	return v, nil
}

func find(ctx context.Context, jobs Jobs, name job.Name, into map[job.Name]queue.Entry) error {
	e, err := jobs.Job(ctx, name)
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read job %s: %w", name, err)
	}
	into[name] = e
	return nil
}

// complete adds to a change what needs the data of events: the parts that were
// given some, and of those that were buried.
func (l *Log) complete(ctx context.Context, b *book, v view, c *change, moves []Move) error {
	data := func(seq int64) (Event, error) {
		if e, fresh := c.events[seq]; fresh {
			return e, nil
		}
		return l.event(ctx, b, seq)
	}
	for _, d := range c.buried {
		e, err := data(d.Event.Seq)
		if err != nil {
			return err
		}
		d.Event = e
		if err := b.letter(c, d); err != nil {
			return err
		}
	}
	var parts []queue.Entry
	for _, m := range moves {
		if m.Kind != Gave {
			continue
		}
		s, err := b.stage(m.Stage)
		if err != nil {
			return err
		}
		in := Input{Pipeline: l.line.ID, Stage: s.ID, Events: []Event{}, State: s.state, End: m.unit.End}
		for _, seq := range m.unit.Events {
			in.Again = s.answered(seq) // of all, or of none
			e, err := data(seq)
			if err != nil {
				return err
			}
			in.Events = append(in.Events, e)
		}
		p := part(v.nodes[s.Job], m.Part, m.unit.Part, in, c.at)
		if len(p.Spec.Output) == 0 && l.Schema != nil {
			p.Spec.Output = l.Schema(&p.Spec, &s.Stage)
		}
		parts = append(parts, p)
	}
	if len(parts) > 0 {
		c.ops = append(c.ops, queue.Spawn{Batch: l.batch, Entries: parts})
	}
	return nil
}

// part returns the job that is given an input.
func part(node queue.Entry, name job.Name, number int, in Input, now time.Time) queue.Entry {
	spec := node.Spec
	spec.Name = name
	spec.RunnableAt = nil
	spec.Key, spec.OnDuplicate = "", "" // each part is work of its own
	spec.Flow = job.Flow{
		Joined: true, Node: node.Spec.Name, Part: number,
		Oversight: node.Spec.Flow.Oversight, Evaluation: node.Spec.Flow.Evaluation,
	}
	resolved := job.Resolved{Instructions: spec.Instructions, SystemPrompt: spec.SystemPrompt, Verify: spec.Verify}
	if node.Resolved != nil {
		resolved = *node.Resolved
	}
	resolved.Input = marshal(in)
	return queue.Entry{
		ID: job.NewID(), Batch: node.Batch, Spec: spec, State: job.Queued, Resolved: &resolved,
		CreatedAt: now, RunnableAt: now, Deadline: node.Deadline,
	}
}
