package pipeline

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Feed joins the worker of a streaming stage to the log: it gives the worker
// events and takes what it publishes and acknowledges.
type Feed struct {
	Log   *Log
	Stage job.Name
	Now   func() time.Time
	// Attempts is how often a worker may die of one event before that goes to the
	// dead letters; 0 is job.DefaultMaxAttempts.
	Attempts int
	// Job is the job that the worker runs, for dead letters.
	Job job.Name
	// Line, if not nil, is told each line of the worker's that is not about the
	// stream. The slice is only valid during the call.
	Line func(line []byte)

	cancel context.CancelCauseFunc
	poke   chan struct{} // wakes the sender: there are notices

	mu      sync.Mutex
	open    []int64            // inputs that the worker has, in order; endSeq for the end
	outputs map[int64][]Output // published for them, not durable yet
	notices []any              // lines for the worker that no event is
}

// endSeq is the sequence number by which a worker acknowledges the end.
const endSeq = 0

// DiedError says that a worker went away before the end of the stream.
type DiedError struct {
	Stage  job.Name
	Events []int64 // that it had
	Err    error   // nil: it closed its output
}

// Error names the stage and the events.
func (e *DiedError) Error() string {
	text := fmt.Sprintf("the worker of stage %q went away before the end of the stream, with events %v", e.Stage, e.Events)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *DiedError) Unwrap() error { return e.Err }

// Run feeds a worker that was given its task, until it closes its standard
// output, and closes both pipes. It returns nil if the worker has acknowledged
// the end of the stream. Otherwise the stage goes on at its cursor with the next
// worker; if this one went away by itself, of one event, that counts as an
// attempt at the event, and if it had several, each is given alone next.
//
// A cancelled ctx ends it with that one's cause, a replay with ErrReplayed, a
// stage that is done with ErrOver: then the worker is to be stopped, and nothing
// is counted.
func (f *Feed) Run(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser) error {
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.cancel, f.poke = cancel, make(chan struct{}, 1)
	f.open, f.outputs, f.notices = nil, map[int64][]Output{}, nil
	first, err := f.attach(ctx)
	if err != nil {
		_ = stdin.Close()
		_ = stdout.Close()
		return err
	}
	defer f.detach()
	closed := make(chan struct{})
	context.AfterFunc(running, func() {
		defer close(closed)
		_ = stdin.Close()
		_ = stdout.Close()
	})
	var sender sync.WaitGroup
	sender.Go(func() {
		if err := f.send(running, stdin, first); err != nil {
			cancel(err)
		}
	})
	err = f.receive(running, stdout)
	cancel(errGone)
	sender.Wait()
	<-closed
	return f.ended(ctx, running, err)
}

// errGone ends what serves a worker that has closed its output.
var errGone = errors.New("the worker has closed its output")

// attach makes this the stage's feed and returns the line to open with.
func (f *Feed) attach(ctx context.Context) (OpenLine, error) {
	l := f.Log
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.fresh(ctx)
	if err != nil {
		return OpenLine{}, err
	}
	s, err := b.stage(f.Stage)
	switch {
	case err != nil:
		return OpenLine{}, err
	case s.Over():
		return OpenLine{}, fmt.Errorf("feed stage %q: %w", f.Stage, ErrOver)
	case l.feeds[f.Stage] != nil:
		return OpenLine{}, fmt.Errorf("feed stage %q: it has a worker already", f.Stage)
	}
	l.feeds[f.Stage] = f
	publishes := s.Publishes
	if publishes == nil {
		publishes = []job.EventType{}
	}
	return OpenLine{
		Type: "open", Pipeline: l.line.ID, Stage: s.ID, Publishes: publishes,
		Acked: s.Acked, State: s.state, Window: s.Batch * s.MaxParallel,
	}, nil
}

func (f *Feed) detach() {
	f.Log.mu.Lock()
	defer f.Log.mu.Unlock()
	delete(f.Log.feeds, f.Stage)
}

// send writes lines to the worker as there are some. It returns nil when it
// cannot: the worker is then about to go away.
func (f *Feed) send(ctx context.Context, stdin io.Writer, first OpenLine) error {
	var next any = first
	for {
		if next != nil {
			if _, err := stdin.Write(append(marshal(next), '\n')); err != nil {
				return nil
			}
		}
		var changed <-chan struct{}
		var err error
		if next, changed, err = f.next(ctx); err != nil {
			return err
		}
		if next != nil {
			continue
		}
		select {
		case <-changed:
		case <-f.poke:
		case <-ctx.Done():
			return nil
		}
	}
}

// next returns the next line for the worker, or what to wait for.
func (f *Feed) next(ctx context.Context) (any, <-chan struct{}, error) {
	f.mu.Lock()
	if len(f.notices) > 0 {
		notice := f.notices[0]
		f.notices = f.notices[1:]
		f.mu.Unlock()
		return notice, nil, nil
	}
	f.mu.Unlock()

	l := f.Log
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.fresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := b.stage(f.Stage)
	if err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seq, end := f.choose(b, s)
	switch {
	case end:
		f.open = append(f.open, endSeq)
		return EndLine{Type: "end"}, nil, nil
	case seq == 0:
		if s.Failed != "" {
			return nil, nil, fmt.Errorf("%w: %s", ErrOver, s.Failed)
		}
		return nil, l.changed, nil
	}
	e, err := l.event(ctx, b, seq)
	if err != nil {
		return nil, nil, err
	}
	f.open = append(f.open, seq)
	return EventLine{
		Type: "event", Seq: seq, ID: e.ID, Pipeline: e.Pipeline, Stage: e.Stage,
		Event: e.Type, Data: e.Data, Time: e.Time, Replays: e.Replays, Again: s.answered(seq),
	}, nil, nil
}

// choose returns the event that the worker may have now, 0 if none, or that the
// stream has ended. Both mutexes are held.
func (f *Feed) choose(b *book, s *stage) (seq int64, end bool) {
	if s.Over() || slices.Contains(f.open, endSeq) || len(f.open) >= s.Batch*s.MaxParallel {
		return 0, false
	}
	if len(f.open) == 0 && s.backlog() == 0 {
		return 0, b.drained(s)
	}
	busy := map[int64]bool{}
	for _, seq := range f.open {
		busy[seq] = true
		if slices.Contains(s.Alone, seq) {
			return 0, false
		}
	}
	unit := b.next(s, 1, busy)
	if len(unit) == 0 || len(f.open) > 0 && slices.Contains(s.Alone, unit[0]) {
		return 0, false
	}
	return unit[0], false
}

// ended says what the end of the worker means.
func (f *Feed) ended(ctx, running context.Context, readErr error) error {
	if cause := context.Cause(running); !errors.Is(cause, errGone) {
		return cause
	}
	l := f.Log
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.fresh(ctx)
	if err != nil {
		return err
	}
	s, err := b.stage(f.Stage)
	if err != nil {
		return err
	}
	if s.Ended {
		return nil
	}
	// An ack that was on its way when the worker ended has been taken.
	open := slices.DeleteFunc(f.open, func(seq int64) bool { return seq == endSeq || s.acked(seq) })
	died := &DiedError{Stage: f.Stage, Events: open, Err: readErr}
	if err := l.suspect(ctx, b, s, f, died); err != nil {
		return errors.Join(died, err)
	}
	return died
}

// suspect counts what a worker has died of. The mutex is held.
func (l *Log) suspect(ctx context.Context, b *book, s *stage, f *Feed, died *DiedError) error {
	c := &change{at: f.Now()}
	for _, seq := range died.Events {
		if !slices.Contains(s.Alone, seq) {
			s.Alone = append(s.Alone, seq)
		}
		c.touch(s)
	}
	if len(died.Events) == 1 {
		seq := died.Events[0]
		if s.Tries == nil {
			s.Tries = map[int64]int{}
		}
		s.Tries[seq]++
		limit := f.Attempts
		if limit == 0 {
			limit = job.DefaultMaxAttempts
		}
		if tries := s.Tries[seq]; tries >= limit {
			e, err := l.event(ctx, b, seq)
			if err == nil {
				d := DeadLetter{Stage: s.ID, Event: e, Class: job.Crash, Message: died.Error(), Job: f.Job, Attempts: tries, At: c.at}
				b.bury(c, s, d)
				err = b.letter(c, d)
			}
			if err != nil {
				l.book = nil
				return err
			}
		}
	}
	return l.commit(ctx, b, c)
}

// receive reads the worker's lines to their end.
func (f *Feed) receive(ctx context.Context, stdout io.Reader) error {
	lines := bufio.NewReaderSize(stdout, 64<<10)
	for {
		line, err := readLine(lines)
		if len(line) > 0 {
			if failed := f.line(ctx, line); failed != nil {
				f.cancel(failed)
				return failed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLong):
			f.refuse(RefusedLine{Error: InvalidData, Message: err.Error()})
		case err != nil:
			return err
		}
	}
}

// MaxLine is the longest line that a worker may print about the stream, in bytes.
const MaxLine = 1 << 20

var errLong = fmt.Errorf("a line was longer than %d bytes and was skipped", MaxLine)

// readLine returns a line without its end, or errLong behind one that is too long.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for long := false; ; {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > MaxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil && long:
			return nil, errLong
		case err == nil:
			return line[:len(line)-1], nil
		default:
			return nil, err // what was not ended by a newline is no line
		}
	}
}

// line takes one line of the worker's.
func (f *Feed) line(ctx context.Context, line []byte) error {
	var head struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &head) != nil {
		head.Type = ""
	}
	switch head.Type {
	case typePublish:
		var p PublishLine
		if err := json.Unmarshal(line, &p); err != nil {
			f.refuse(RefusedLine{Error: InvalidData, Message: err.Error()})
			return nil
		}
		f.publish(p)
	case typeAck, typeCheckpoint:
		var a AckLine
		if err := json.Unmarshal(line, &a); err != nil {
			f.refuse(RefusedLine{Error: InvalidData, Message: err.Error()})
			return nil
		}
		return f.ack(ctx, a)
	default:
		if f.Line != nil {
			f.Line(line)
		}
	}
	return nil
}
