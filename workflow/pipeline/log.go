package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Store is what a Log needs of a store.
type Store interface {
	queue.Journal
	Apply(ctx context.Context, ops ...queue.Op) error
}

// Log is the durable record of one pipeline, and the way to change it. Its
// methods may be called by many goroutines at once; one process has it open.
//
// A method that returns an error has changed nothing, or the store could not say:
// the next one reads again what is there.
type Log struct {
	// Schema, if not nil, says what the answers of a stage's parts must satisfy if
	// its job names no schema, e.g. AnswerSchema of the stage. It is set before the
	// first Advance.
	Schema func(spec *job.Spec, s *job.Stage) json.RawMessage

	store Store
	batch job.BatchID
	line  *job.Pipeline

	mu      sync.Mutex
	book    *book              // nil: to be read
	changed chan struct{}      // closed, and replaced, at each change
	feeds   map[job.Name]*Feed // by stage, those that run
}

// Open reads the log of a pipeline, which Check has found right. It is empty at
// first.
func Open(ctx context.Context, store Store, batch job.BatchID, line *job.Pipeline) (*Log, error) {
	l := &Log{store: store, batch: batch, line: line, changed: make(chan struct{}), feeds: map[job.Name]*Feed{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.fresh(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// Seed gives the first stage its events, in one write; only once, later calls
// change nothing. input is JSON: each item of a list is an event, anything else
// is one, nothing is one without data.
func (l *Log) Seed(ctx context.Context, input json.RawMessage, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.fresh(ctx)
	if err != nil || b.last > 0 {
		return err
	}
	c := &change{at: now}
	if err := b.seed(c, input); err != nil {
		return fmt.Errorf("seed pipeline %q: %w", l.line.ID, err)
	}
	return l.commit(ctx, b, c)
}

// seed publishes what the first stage is given.
func (b *book) seed(c *change, input json.RawMessage) error {
	outs := []Output{{Type: SeedType, Data: input}}
	var items []json.RawMessage
	if json.Unmarshal(input, &items) == nil && len(items) > 0 {
		outs = outs[:0]
		for _, item := range items {
			outs = append(outs, Output{Type: SeedType, Data: item})
		}
	}
	if err := checkOutputs(&job.Stage{Publishes: []job.EventType{SeedType}}, outs); err != nil {
		return err
	}
	b.publish(c, "", outs, nil)
	return nil
}

// Events returns events with a larger sequence number than after, at most limit.
func (l *Log) Events(ctx context.Context, after int64, limit int) ([]Event, error) {
	records, err := l.store.Records(ctx, l.naming().logSpace(), seqKey(after), limit)
	if err != nil {
		return nil, fmt.Errorf("read the log of pipeline %q: %w", l.line.ID, err)
	}
	events := make([]Event, len(records))
	for i, r := range records {
		if events[i], err = readEvent(r); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// Status is how a stage stands.
type Status struct {
	Cursor
	Backlog int `json:"backlog"` // events that wait for it or are at work
	Dead    int `json:"dead"`    // its dead letters that no replay has mended
}

// Status returns how the stages stand, in order.
func (l *Log) Status(ctx context.Context) ([]Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.fresh(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Status, len(b.stages))
	for i, s := range b.stages {
		var c Cursor // a copy that shares nothing
		if err := json.Unmarshal(marshal(s.Cursor), &c); err != nil {
			return nil, fmt.Errorf("copy the cursor of stage %q: %w", s.ID, err)
		}
		all[i] = Status{c, s.backlog(), len(s.dead)}
	}
	return all, nil
}

// DeadLetters returns what a stage could not handle, those that a replay has
// mended included, in the order of the events.
func (l *Log) DeadLetters(ctx context.Context, id job.Name) ([]DeadLetter, error) {
	b := l.naming()
	s, err := b.stage(id)
	if err != nil {
		return nil, err
	}
	var all []DeadLetter
	err = eachRecord(ctx, l.store, b.deadSpace(s), func(r queue.Record) error {
		var d DeadLetter
		all = append(all, d)
		return readRecord(r, &all[len(all)-1])
	})
	return all, err
}

// naming returns an empty book, which knows the names of the spaces.
func (l *Log) naming() *book { return newBook(l.batch, l.line) }

// fresh returns the book, read anew if the last write may have failed. The mutex
// is held.
func (l *Log) fresh(ctx context.Context) (*book, error) {
	if l.book != nil {
		return l.book, nil
	}
	b, err := load(ctx, l.store, l.naming())
	if err != nil {
		return nil, fmt.Errorf("read pipeline %q: %w", l.line.ID, err)
	}
	l.book = b
	return b, nil
}

// commit makes a change durable and tells everybody. The mutex is held.
func (l *Log) commit(ctx context.Context, b *book, c *change) error {
	ops := b.writes(c)
	if len(ops) == 0 {
		return nil
	}
	if err := l.store.Apply(ctx, ops...); err != nil {
		l.book = nil
		l.wake()
		return fmt.Errorf("write pipeline %q: %w", l.line.ID, err)
	}
	l.wake()
	return nil
}

// wake tells everybody who waits for a change.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed returns a channel that is closed when something has changed since.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// event reads one event.
func (l *Log) event(ctx context.Context, b *book, seq int64) (Event, error) {
	r, err := l.store.Record(ctx, b.logSpace(), seqKey(seq))
	if err != nil {
		return Event{}, fmt.Errorf("read event %d of pipeline %q: %w", seq, l.line.ID, err)
	}
	return readEvent(r)
}

// load reads what the store has of a pipeline into an empty book.
func load(ctx context.Context, store Store, b *book) (*book, error) {
	err := eachRecord(ctx, store, b.logSpace(), func(r queue.Record) error {
		e, err := readEvent(r)
		if err == nil && e.Seq != b.last+1 {
			err = fmt.Errorf("event %d follows event %d in %s: %w", e.Seq, b.last, r.Space, errGap)
		}
		if err == nil {
			b.enter(e.Seq, e.Type, len(r.Value))
		}
		return err
	})
	for _, s := range b.stages {
		if err == nil {
			err = s.load(ctx, store, b)
		}
	}
	if err == nil && b.line.Replays != nil {
		err = b.loadCopied(ctx, store)
	}
	return b, err
}

var errGap = errors.New("the log has a gap")

func (s *stage) load(ctx context.Context, store Store, b *book) error {
	r, err := store.Record(ctx, b.cursorSpace(), string(s.ID))
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	if err := readRecord(r, &s.Cursor); err != nil {
		return err
	}
	s.pos = s.index(s.Acked + 1)
	if r, err = store.Record(ctx, b.stateSpace(s), stateNow); err == nil {
		var k kept
		err = readRecord(r, &k)
		s.state = k.State
	}
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	return eachRecord(ctx, store, b.deadSpace(s), func(r queue.Record) error {
		var d DeadLetter
		if err := readRecord(r, &d); err != nil {
			return err
		}
		if d.MendedAt == nil {
			s.dead[d.Event.Seq] = d
		}
		return nil
	})
}

// index returns the place of the first input from a sequence number on.
func (s *stage) index(seq int64) int {
	return sort.Search(len(s.inputs), func(i int) bool { return s.inputs[i] >= seq })
}

// eachRecord reads a space page by page.
func eachRecord(ctx context.Context, store queue.Journal, space string, do func(queue.Record) error) error {
	const page = 500
	for after := ""; ; {
		records, err := store.Records(ctx, space, after, page)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := do(r); err != nil {
				return err
			}
			after = r.Key
		}
		if len(records) < page {
			return nil
		}
	}
}

func readEvent(r queue.Record) (Event, error) {
	var e Event
	return e, readRecord(r, &e)
}

func readRecord(r queue.Record, v any) error {
	if err := json.Unmarshal(r.Value, v); err != nil {
		return fmt.Errorf("read record %s of %s as a %T: %w", r.Key, r.Space, v, err)
	}
	return nil
}
