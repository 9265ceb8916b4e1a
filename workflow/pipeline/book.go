package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// book is what the log and its cursors amount to, in memory: no clock, no store.
// Its methods change it and add to a change what makes that durable. Of an event
// it keeps a number for each subscriber, not the data.
type book struct {
	batch  job.BatchID
	line   *job.Pipeline
	stages []*stage // in order
	last   int64    // sequence number of the newest event
	sizes  []int32  // bytes of each event, by Seq-1
	copied copied   // of the run that is replayed
}

// stage is one stage with its cursor.
type stage struct {
	job.Stage
	Cursor
	at         int      // its place in the line
	publishers []*stage // whose events it subscribes to
	inputs     []int64  // sequence numbers of all events that it is given, ever
	pos        int      // index of the first input beyond Acked
	dead       map[int64]DeadLetter
	state      json.RawMessage
}

// change is what one write makes durable.
type change struct {
	at      time.Time
	ops     []queue.Op
	touched []*stage
	events  map[int64]Event // published by it
	buried  []DeadLetter    // their events by number alone
}

func newBook(batch job.BatchID, line *job.Pipeline) *book {
	b := &book{batch: batch, line: line}
	for i := range line.Stages {
		s := &stage{Stage: line.Stages[i], at: i, dead: map[int64]DeadLetter{}}
		s.Cursor.Stage = s.ID
		s.Batch, s.MaxParallel = max(s.Batch, 1), max(s.MaxParallel, 1)
		if s.Buffer == 0 {
			s.Buffer = job.DefaultBuffer
		}
		for _, earlier := range b.stages {
			if slices.ContainsFunc(s.Subscribes, func(t job.EventType) bool { return slices.Contains(earlier.Publishes, t) }) {
				s.publishers = append(s.publishers, earlier)
			}
		}
		b.stages = append(b.stages, s)
	}
	return b
}

func (b *book) stage(id job.Name) (*stage, error) {
	for _, s := range b.stages {
		if s.ID == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("pipeline %q has no stage %q: %w", b.line.ID, id, queue.ErrNotFound)
}

// takes reports whether the stage is given events of a type.
func (s *stage) takes(t job.EventType) bool {
	if s.at == 0 {
		return t == SeedType
	}
	return slices.Contains(s.Subscribes, t)
}

// enter notes an event that is in the log, or will be with this change.
func (b *book) enter(seq int64, t job.EventType, size int) {
	b.last = seq
	b.sizes = append(b.sizes, int32(size))
	for _, s := range b.stages {
		if s.takes(t) {
			s.inputs = append(s.inputs, seq)
		}
	}
}

// publish adds events to the log. The outputs were checked.
func (b *book) publish(c *change, from job.Name, outs []Output, inputs []int64) {
	for _, o := range outs {
		b.append(c, Event{Stage: from, Type: o.Type, Data: o.Data, For: inputs})
	}
}

// append adds an event to the log.
func (b *book) append(c *change, e Event) {
	e.Seq, e.Pipeline, e.Time = b.last+1, b.line.ID, c.at
	e.ID = eventID(b.batch, b.line.ID, e.Seq)
	value := marshal(e)
	b.enter(e.Seq, e.Type, len(value))
	// Once: should another process have written this number, nothing of the change
	// is written.
	c.ops = append(c.ops, queue.Write{Record: b.record(b.logSpace(), seqKey(e.Seq), value, c.at), Once: true})
	if c.events == nil {
		c.events = map[int64]Event{}
	}
	c.events[e.Seq] = e
}

// ack acknowledges inputs of a stage and publishes what it says for them, unless
// that is in the log already. Without inputs it acknowledges the end.
func (b *book) ack(c *change, s *stage, inputs []int64, outs []Output, state json.RawMessage) int {
	if len(inputs) > 0 && s.answered(inputs[0]) {
		outs = nil
	}
	if p := s.Partial; p != nil && len(inputs) > 0 && inputs[0] == p.Seq {
		outs = outs[min(p.Skip, len(outs)):]
		s.Partial = nil
	}
	b.publish(c, s.ID, outs, inputs)
	s.Published += int64(len(outs))
	for _, seq := range inputs {
		if d, was := s.dead[seq]; was {
			d.MendedAt = &c.at
			delete(s.dead, seq)
			c.ops = append(c.ops, queue.Write{Record: b.record(b.deadSpace(s), seqKey(seq), marshal(d), c.at)})
		}
	}
	before := s.pos
	s.pass(inputs)
	if state != nil {
		b.keep(c, s, state, before)
	}
	c.touch(s)
	return len(outs)
}

// checkpoint publishes what a stage says for an input that it is still at, with
// the state from which it goes on with that.
func (b *book) checkpoint(c *change, s *stage, seq int64, outs []Output, state json.RawMessage) {
	p := s.Partial
	if p == nil || p.Seq != seq {
		p = &Partial{Seq: seq}
	}
	again := min(p.Skip, len(outs))
	p.Skip -= again
	outs = outs[again:]
	if s.answered(seq) {
		outs = nil
	}
	b.publish(c, s.ID, outs, []int64{seq})
	s.Published += int64(len(outs))
	p.Count += len(outs)
	s.Partial = p
	b.keep(c, s, state, s.pos)
	c.touch(s)
}

// snapshotEvery is after how many inputs a state is kept for a replay.
const snapshotEvery = 64

// keep stores a stage's state after what it has acknowledged.
func (b *book) keep(c *change, s *stage, state json.RawMessage, before int) {
	s.state = state
	value := marshal(kept{Seq: s.Acked, State: state})
	c.ops = append(c.ops, queue.Write{Record: b.record(b.stateSpace(s), stateNow, value, c.at)})
	if before/snapshotEvery != s.pos/snapshotEvery {
		c.ops = append(c.ops, queue.Write{Record: b.record(b.stateSpace(s), seqKey(s.Acked), value, c.at)})
	}
}

// pass moves the cursor over inputs: as far as there is no gap.
func (s *stage) pass(inputs []int64) {
	for _, seq := range inputs {
		s.Alone = without(s.Alone, seq)
		delete(s.Tries, seq)
		if i, there := slices.BinarySearch(s.Beyond, seq); !there {
			s.Beyond = slices.Insert(s.Beyond, i, seq)
		}
	}
	n := 0
	for n < len(s.Beyond) && s.pos < len(s.inputs) && s.Beyond[n] == s.inputs[s.pos] {
		s.Acked = s.Beyond[n]
		s.pos++
		n++
	}
	s.Beyond = slices.Delete(s.Beyond, 0, n)
	s.AnsweredBeyond = slices.DeleteFunc(s.AnsweredBeyond, func(seq int64) bool { return seq <= s.Acked })
}

// bury gives an input up: it goes to the stage's dead letters, and the cursor
// moves on. The letter needs but its event's number: see letter.
func (b *book) bury(c *change, s *stage, d DeadLetter) {
	seq := d.Event.Seq
	s.dead[seq] = d
	c.buried = append(c.buried, d)
	s.pass([]int64{seq})
	if p := s.Partial; p != nil && p.Seq == seq {
		s.Partial = nil
	}
	c.touch(s)
}

// letter writes a dead letter, with its event.
func (b *book) letter(c *change, d DeadLetter) error {
	s, err := b.stage(d.Stage)
	if err != nil {
		return err
	}
	s.dead[d.Event.Seq] = d
	c.ops = append(c.ops, queue.Write{Record: b.record(b.deadSpace(s), seqKey(d.Event.Seq), marshal(d), c.at)})
	return nil
}

// answered reports whether the outputs for an input are in the log although it
// is given again.
func (s *stage) answered(seq int64) bool {
	if _, dead := s.dead[seq]; dead {
		return false
	}
	return seq <= s.Answered || slices.Contains(s.AnsweredBeyond, seq)
}

// acked reports whether an input was acknowledged.
func (s *stage) acked(seq int64) bool { return seq <= s.Acked || slices.Contains(s.Beyond, seq) }

// backlog is how many events wait for the stage or are at work.
func (s *stage) backlog() int {
	if s.Over() {
		return 0
	}
	return len(s.inputs) - s.pos - len(s.Beyond)
}

// full returns the subscriber for which too many events wait already to publish
// these, or nil.
//
// Nobody waits for ever: subscribers come later in the line than those they
// subscribe to, so the last stage with a backlog has only subscribers with none
// and its acknowledgements pass. That ends its backlog, and so on up the line.
func (b *book) full(outs []Output) *stage {
	for _, s := range b.stages {
		if s.backlog() >= s.Buffer && slices.ContainsFunc(outs, func(o Output) bool { return s.takes(o.Type) }) {
			return s
		}
	}
	return nil
}

// drained reports whether no event will come for a stage that is not in its
// inputs yet.
func (b *book) drained(s *stage) bool {
	if s.at == 0 {
		if b.line.Replays != nil {
			return b.copied.Done
		}
		return b.last > 0 // the seeds are one write
	}
	return !slices.ContainsFunc(s.publishers, func(p *stage) bool { return !p.Over() })
}

// next returns up to so many of the inputs that a stage may be given beside those
// that are busy. They are consecutive, either all answered already or none, and
// several only if none must be alone.
func (b *book) next(s *stage, most int, busy map[int64]bool) []int64 {
	var unit []int64
	bytes := 0
	for i := s.pos; i < len(s.inputs) && len(unit) < most; i++ {
		seq := s.inputs[i]
		if len(unit) == 0 && i > s.pos && len(s.Beyond) >= s.Buffer {
			return nil // so much is done beyond the first input that it has to be done now
		}
		if busy[seq] || slices.Contains(s.Beyond, seq) {
			if len(unit) > 0 {
				break
			}
			continue
		}
		bytes += int(b.sizes[seq-1])
		if len(unit) > 0 && (bytes > MaxInput || slices.Contains(s.Alone, seq) || s.answered(seq) != s.answered(unit[0])) {
			break
		}
		unit = append(unit, seq)
		if slices.Contains(s.Alone, seq) {
			break
		}
	}
	return unit
}

func (c *change) touch(s *stage) {
	if !slices.Contains(c.touched, s) {
		c.touched = append(c.touched, s)
	}
}

// writes returns all ops of a change: what was asked for, and the cursors.
func (b *book) writes(c *change) []queue.Op {
	ops := slices.Clip(c.ops)
	for _, s := range c.touched {
		ops = append(ops, queue.Write{Record: b.record(b.cursorSpace(), string(s.ID), marshal(s.Cursor), c.at)})
	}
	return ops
}

func (b *book) record(space, key string, value json.RawMessage, at time.Time) queue.Record {
	return queue.Record{Space: space, Key: key, Value: value, At: at}
}

// marshal writes one of our own values, whose raw parts were checked.
func marshal(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("pipeline: write %T: %v", v, err))
	}
	return text
}

func without(all []int64, seq int64) []int64 {
	return slices.DeleteFunc(all, func(s int64) bool { return s == seq })
}
