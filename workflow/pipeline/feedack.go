package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// publish holds an event until its input is acknowledged.
func (f *Feed) publish(p PublishLine) {
	no := RefusedLine{Seq: p.For, Event: p.Event}
	line := f.Log.line
	i := slices.IndexFunc(line.Stages, func(s job.Stage) bool { return s.ID == f.Stage })
	out := Output{Type: p.Event, Data: p.Data}
	err := checkOutputs(&line.Stages[i], []Output{out})
	f.mu.Lock()
	have, held := slices.Contains(f.open, p.For), len(f.outputs[p.For])
	if have && err == nil && held < MaxOutputs {
		f.outputs[p.For] = append(f.outputs[p.For], out)
	}
	f.mu.Unlock()
	var denied *PublishError
	switch {
	case errors.As(err, &denied):
		no.Error, no.Message = UnauthorizedPublish, err.Error()
	case err != nil:
		no.Error, no.Message = InvalidData, err.Error()
	case !have:
		no.Error, no.Message = UnknownInput, fmt.Sprintf("event %d is not with the worker, so it cannot publish for it", p.For)
	case held >= MaxOutputs:
		no.Error, no.Message = InvalidData, fmt.Sprintf("more than %d events for event %d; use a checkpoint", MaxOutputs, p.For)
	default:
		return
	}
	f.refuse(no)
}

// refuse tells the worker that a line had no effect. The sender writes it: this
// goroutine must go on reading, since the worker may write before it reads.
func (f *Feed) refuse(r RefusedLine) {
	r.Type = "refused"
	f.mu.Lock()
	// A worker that is wrong all the time, and reads nothing, is not told all.
	if len(f.notices) < maxNotices {
		f.notices = append(f.notices, r)
	}
	f.mu.Unlock()
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

const maxNotices = 1000

// ack makes an input's outputs durable, once there is room for them: until then
// nothing more is read of what the worker prints.
func (f *Feed) ack(ctx context.Context, a AckLine) error {
	l := f.Log
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		b, err := l.fresh(ctx)
		if err != nil {
			return err
		}
		s, err := b.stage(f.Stage)
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err // a replay has set the stage back, or the worker is to stop
		}
		if s.Failed != "" {
			return fmt.Errorf("%w: %s", ErrOver, s.Failed)
		}
		outs, no := f.mayAck(s, a)
		if no != nil {
			f.refuse(*no)
			return nil
		}
		if b.full(outs) == nil || s.answered(a.Seq) {
			return f.commitAck(ctx, b, s, a, outs)
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// mayAck returns what was published for an input, or why it cannot be
// acknowledged now.
func (f *Feed) mayAck(s *stage, a AckLine) ([]Output, *RefusedLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	no := &RefusedLine{Seq: a.Seq, Error: InvalidData}
	i := slices.Index(f.open, a.Seq)
	switch err := checkState(&s.Stage, a.State); {
	case i < 0:
		no.Error, no.Message = UnknownInput, fmt.Sprintf("event %d is not with the worker", a.Seq)
	case err != nil:
		no.Message = err.Error()
	case i > 0 && s.MaxParallel == 1:
		no.Error, no.Message = OutOfOrder, fmt.Sprintf("event %d is not acknowledged yet; a stage with max_parallel 1 does so in order", f.open[0])
	case a.Type == typeCheckpoint && a.State == nil:
		no.Message = "a checkpoint needs the state from which the worker goes on"
	case a.Type == typeCheckpoint && a.Seq == endSeq:
		no.Message = "the end can only be acknowledged, not checkpointed"
	default:
		return f.outputs[a.Seq], nil
	}
	return nil, no
}

// commitAck writes an acknowledgement. The log's mutex is held.
func (f *Feed) commitAck(ctx context.Context, b *book, s *stage, a AckLine, outs []Output) error {
	c := &change{at: f.Now()}
	switch {
	case a.Type == typeCheckpoint:
		b.checkpoint(c, s, a.Seq, outs, a.State)
	case a.Seq == endSeq:
		s.EndAcked, s.Ended = true, true
		b.ack(c, s, nil, outs, a.State)
	default:
		b.ack(c, s, []int64{a.Seq}, outs, a.State)
	}
	if err := f.Log.commit(ctx, b, c); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.outputs, a.Seq)
	if a.Type == typeAck {
		f.open = slices.DeleteFunc(f.open, func(seq int64) bool { return seq == a.Seq })
	}
	return nil
}
