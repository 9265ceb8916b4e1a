package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// ErrReplayed ends a Feed whose stage was set back: its worker has to start anew.
var ErrReplayed = errors.New("the stage was set back by a replay")

// ErrOver says that a stage has ended, or failed: it is given nothing any more.
var ErrOver = errors.New("the stage is over")

// Replay sets a stage back: it is given again, in their order, all its events
// from a sequence number on, and with them what it keeps as its state is what it
// had kept before them. It returns the first event that is given again, which is
// an earlier one if no state was kept just before from.
//
// What the stage publishes for an event that it had acknowledged is dropped: that
// is in the log. With again, what it publishes for events from from on is
// published a second time, with new numbers. Open dead letters are given again
// too, and as they published nothing, what comes of them is published either way.
// What is at work is stopped and counts for nothing.
func (l *Log) Replay(ctx context.Context, id job.Name, from int64, again bool, now time.Time) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.fresh(ctx)
	if err != nil {
		return 0, err
	}
	s, err := b.stage(id)
	if err != nil {
		return 0, err
	}
	if err := b.mayReplay(s, from, again); err != nil {
		return 0, fmt.Errorf("replay stage %q of pipeline %q from %d: %w", id, l.line.ID, from, err)
	}
	c := &change{at: now}
	base, err := l.rewindState(ctx, b, c, s, from)
	if err != nil {
		l.book = nil
		return 0, err
	}
	s.rewind(base, from, again)
	c.touch(s)
	if err := l.commit(ctx, b, c); err != nil {
		return 0, err
	}
	if f := l.feeds[id]; f != nil {
		f.cancel(ErrReplayed)
	}
	return s.inputs[s.pos], nil
}

func (b *book) mayReplay(s *stage, from int64, again bool) error {
	switch {
	case s.Over():
		return fmt.Errorf("%w; `scheduler pipelines rerun %s --stage %s` replays it in a new run", ErrOver, b.line.ID, s.ID)
	case from < 1:
		return fmt.Errorf("want a sequence number of the log, from 1")
	case s.index(from) >= s.pos && len(s.Beyond) == 0:
		return fmt.Errorf("the stage has acknowledged its events up to %d, none of them is as late", s.Acked)
	}
	for _, t := range b.stages[s.at+1:] {
		if again && t.Over() && slices.Contains(t.publishers, s) {
			return fmt.Errorf("stage %q, which subscribes to it, would not be given what is published again: %w", t.ID, ErrOver)
		}
	}
	return nil
}

// rewind moves the cursor back to base, with from as the first event whose
// outputs may be published again.
func (s *stage) rewind(base, from int64, again bool) {
	done := append(slices.Clone(s.Beyond), s.AnsweredBeyond...)
	s.Answered = max(s.Answered, s.Acked)
	if again {
		s.Answered = min(s.Answered, from-1)
	}
	slices.Sort(done)
	s.AnsweredBeyond = slices.DeleteFunc(slices.Compact(done), func(seq int64) bool { return seq <= s.Answered || again && seq >= from })
	if p := s.Partial; p != nil {
		p.Skip = p.Count
		if again {
			s.Partial = nil
		}
	}
	s.Acked, s.Beyond = base, nil
	s.pos = s.index(base + 1)
	s.Alone, s.Tries, s.EndAcked = nil, nil, false
	s.abandon()
}

// rewindState takes up the latest state that was kept before an event, and
// returns the last input that is in it; 0 if none was. A stage without a state
// goes back to just before the event.
func (l *Log) rewindState(ctx context.Context, b *book, c *change, s *stage, from int64) (int64, error) {
	if s.state == nil {
		return min(from-1, s.Acked), nil
	}
	var base kept
	err := eachRecord(ctx, l.store, b.stateSpace(s), func(r queue.Record) error {
		seq, err := strconv.ParseInt(r.Key, 10, 64)
		if err != nil {
			return nil // stateNow
		}
		var k kept
		switch err := readRecord(r, &k); {
		case err != nil:
			return err
		case seq < from && !k.Void:
			base = k
		case seq >= from && !k.Void:
			r.Value, r.At = marshal(kept{Seq: seq, Void: true}), c.at
			c.ops = append(c.ops, queue.Write{Record: r})
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.state = base.State
	c.ops = append(c.ops, queue.Write{Record: b.record(b.stateSpace(s), stateNow, marshal(base), c.at)})
	return base.Seq, nil
}
