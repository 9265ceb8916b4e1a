package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// A new run of a pipeline may replay an earlier one: it begins with recorded events
// of that in place of seeds.
//
//	earlier log ─ of the types and numbers of job.Replay ─► log of the new run ─► its stages, from job.Replay.Stage on
//
// The events are copied in order and in several writes, as long as the stages that
// are given them have room. The stages before have ended when all is copied.

// copied is how far the log of the earlier run was copied: one record, written with
// the events.
type copied struct {
	Seq  int64 `json:"seq"` // what comes up to it is copied, or not wanted
	Done bool  `json:"done,omitempty"`
}

const copiedKey = "copied"

func (b *book) loadCopied(ctx context.Context, store Store) error {
	b.copied.Seq = b.line.Replays.After
	r, err := store.Record(ctx, b.copySpace(), copiedKey)
	switch {
	case err == nil:
		return readRecord(r, &b.copied)
	case errors.Is(err, queue.ErrNotFound):
		return nil
	}
	return err
}

// copyPage is how many events are copied in one write.
const copyPage = 64

// recorded reads what comes next of the log of the run that is replayed.
func (l *Log) recorded(ctx context.Context, b *book, v *view) error {
	r := l.line.Replays
	if r == nil || b.copied.Done {
		return nil
	}
	space := newBook(r.Batch, l.line).logSpace()
	records, err := l.store.Records(ctx, space, seqKey(b.copied.Seq), copyPage)
	if err != nil {
		return fmt.Errorf("read the run that is replayed: %w", err)
	}
	next := b.copied.Seq
	for _, rec := range records {
		e, err := readEvent(rec)
		if err != nil {
			return err
		}
		if next++; e.Seq != next {
			break
		}
		v.recorded = append(v.recorded, e)
	}
	v.lost = len(v.recorded) == 0 && b.copied.Seq < r.Through
	return nil
}

// copy publishes events of the run that is replayed.
func (d *decider) copy() {
	r := d.b.line.Replays
	if r == nil || d.b.copied.Done {
		return
	}
	first := slices.IndexFunc(d.b.stages, func(s *stage) bool { return s.ID == r.Stage })
	if !slices.ContainsFunc(d.b.stages[first:], func(s *stage) bool { return !s.Over() }) {
		return
	}
	if d.v.lost {
		why := fmt.Sprintf("the events of the run that it replays, %s, are not there any more", r.Batch)
		for _, s := range d.b.stages[first:] {
			switch {
			case d.runs(s):
				d.failStage(s, job.Config, why)
			case s.Streams && !s.Over(): // its worker ends, and so its job
				s.Failed = why
				d.move(Failed, s, Move{Why: why})
			}
		}
		return
	}
	n, from := 0, d.b.copied.Seq
	for _, e := range d.v.recorded {
		if e.Seq > r.Through {
			break
		}
		if gives(r, d.b.line, &e) {
			if d.b.full([]Output{{Type: e.Type}}) != nil {
				break // it goes on when that stage has done something
			}
			if e.Replays == "" {
				e.Replays = e.ID
			}
			e.For = nil // they are numbers of the earlier log
			d.b.append(d.c, e)
			n++
		}
		d.b.copied.Seq = e.Seq
	}
	d.b.copied.Done = d.b.copied.Seq >= r.Through
	if d.b.copied.Seq == from && !d.b.copied.Done {
		return
	}
	for _, s := range d.b.stages[:first] {
		if d.b.copied.Done {
			s.Ended = true
			d.c.touch(s)
		}
	}
	d.c.ops = append(d.c.ops, queue.Write{Record: d.b.record(d.b.copySpace(), copiedKey, marshal(d.b.copied), d.c.at)})
	d.move(Copied, d.b.stages[first], Move{Published: n})
}

// gives reports whether a replay gives an event of the earlier run to its stages.
func gives(r *job.Replay, line *job.Pipeline, e *Event) bool {
	before := slices.IndexFunc(line.Stages, func(s job.Stage) bool { return s.ID == r.Stage })
	by := slices.IndexFunc(line.Stages, func(s job.Stage) bool { return s.ID == e.Stage }) // -1 of a seed
	return e.Seq > r.After && e.Seq <= r.Through && by < before && slices.Contains(r.Types, e.Type) &&
		(r.Since == nil || !e.Time.Before(*r.Since)) && (r.Until == nil || e.Time.Before(*r.Until))
}

// Selection is which recorded events are to be replayed; a zero field selects all.
type Selection struct {
	Stage job.Name        // the first stage that runs again; "": the first that takes one of Types
	Types []job.EventType // none: all that the stages from Stage on take of those before
	// From and To are the first and the last sequence number.
	From, To     int64
	Since, Until *time.Time
}

// Replay returns what a new run of the pipeline gives its stages of the events of
// this one, which stay as they are, and how many events that is. What is recorded
// later is not replayed. An error says what is wrong with the selection.
func (s *Selection) Replay(ctx context.Context, l *Log) (*job.Replay, int, error) {
	l.mu.Lock()
	b, err := l.fresh(ctx)
	if err != nil {
		l.mu.Unlock()
		return nil, 0, err
	}
	last := b.last
	l.mu.Unlock()

	r, err := s.plan(l.line)
	if err != nil {
		return nil, 0, err
	}
	r.Batch, r.Through = l.batch, last
	if s.To > 0 {
		r.Through = min(last, s.To)
	}
	n := 0
	err = eachRecord(ctx, l.store, b.logSpace(), func(rec queue.Record) error {
		e, err := readEvent(rec)
		if err == nil && gives(r, l.line, &e) {
			n++
		}
		return err
	})
	if err == nil && n == 0 {
		err = badSelection("types", "none of the %d events that are recorded is one of those: %s; `scheduler pipelines events %s` lists them", last, list(r.Types), l.line.ID)
	}
	return r, n, err
}

// SelectionError says what is wrong with a Selection.
type SelectionError struct {
	Field   string // as the API names it, e.g. "types"
	Message string
}

// Error returns "FIELD: message".
func (e *SelectionError) Error() string { return e.Field + ": " + e.Message }

func badSelection(field, format string, args ...any) error {
	return &SelectionError{field, fmt.Sprintf(format, args...)}
}

// plan returns the stage and the types.
func (s *Selection) plan(line *job.Pipeline) (*job.Replay, error) {
	stages, known := []job.Name{}, []job.EventType{SeedType}
	for i := range line.Stages {
		stages = append(stages, line.Stages[i].ID)
		known = append(known, line.Stages[i].Publishes...)
	}
	slices.Sort(known[1:])
	known = slices.Compact(known)
	for _, t := range s.Types {
		if !slices.Contains(known, t) {
			return nil, badSelection("types", "pipeline %s has no event type %q%s", line.ID, t, oneOf(t, known))
		}
	}
	first, err := s.first(line, stages)
	if err != nil {
		return nil, err
	}
	r := &job.Replay{Stage: stages[first], Types: slices.Clone(s.Types), After: max(s.From-1, 0), Since: s.Since, Until: s.Until}
	if len(r.Types) == 0 {
		r.Types = slices.DeleteFunc(known, func(t job.EventType) bool { return !given(line, first, t) })
	}
	for _, t := range r.Types {
		if given(line, first, t) {
			continue
		}
		for _, by := range line.Stages[first:] {
			if slices.Contains(by.Publishes, t) {
				return nil, badSelection("types", "%s is published by stage %s, which runs again and publishes it anew; leave it out, or let the first stage be one after %s", t, by.ID, by.ID)
			}
		}
		return nil, badSelection("types", "no stage from %s on takes %s; leave it out, or let an earlier stage be the first", r.Stage, t)
	}
	switch {
	case s.From < 0 || s.To < 0 || s.To > 0 && s.To < s.From:
		return nil, badSelection("from", "%d to %d is no range of sequence numbers, want numbers from 1, the smaller one first", s.From, s.To)
	case s.Since != nil && s.Until != nil && !s.Since.Before(*s.Until):
		return nil, badSelection("since", "%s is not before until, %s", s.Since.Format(time.RFC3339), s.Until.Format(time.RFC3339))
	}
	return r, nil
}

// first returns the place of the first stage that runs again.
func (s *Selection) first(line *job.Pipeline, stages []job.Name) (int, error) {
	first := slices.Index(stages, s.Stage)
	switch {
	case s.Stage == "" && len(s.Types) == 0:
		first = 0
	case s.Stage == "":
		first = slices.IndexFunc(line.Stages, func(stage job.Stage) bool {
			return slices.ContainsFunc(s.Types, func(t job.EventType) bool { return takes(line, slices.Index(stages, stage.ID), t) })
		})
		if first < 0 {
			return 0, badSelection("types", "no stage of pipeline %s takes %s, so there is nothing to replay it to", line.ID, list(s.Types))
		}
	case first < 0:
		return 0, badSelection("stage", "pipeline %s has no stage %q%s", line.ID, s.Stage, oneOf(s.Stage, stages))
	}
	if old := line.Replays; old != nil && first < slices.Index(stages, old.Stage) {
		return 0, badSelection("stage", "%s did not run in this run, which replays run %s from stage %s on; replay that one", stages[first], old.Batch, old.Stage)
	}
	return first, nil
}

// given reports whether a stage from the one at first on takes events of a type that
// were published before that one.
func given(line *job.Pipeline, first int, t job.EventType) bool {
	before := first == 0 && t == SeedType
	for i := range line.Stages[:first] {
		before = before || slices.Contains(line.Stages[i].Publishes, t)
	}
	for i := range line.Stages[first:] {
		if before && takes(line, first+i, t) {
			return true
		}
	}
	return false
}

// takes reports whether the stage at i is given events of a type.
func takes(line *job.Pipeline, i int, t job.EventType) bool {
	return i == 0 && t == SeedType || slices.Contains(line.Stages[i].Subscribes, t)
}

// oneOf says what a word that is not known may have been meant for.
func oneOf[T ~string](word T, known []T) string {
	texts := make([]string, len(known))
	for i, k := range known {
		texts[i] = string(k)
	}
	near := fields.Nearest(string(word), texts)
	if near != "" {
		near = "; did you mean " + near + "?"
	} else {
		near = "."
	}
	return near + " It has " + strings.Join(texts, ", ")
}
