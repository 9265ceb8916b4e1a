package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/agentsched/agentsched/job"
)

// Step is a durable step of a job: a piece of its work whose result is kept, so
// that no later attempt has to do it again.
type Step struct {
	ID     string          `json:"id"`               // see job.ValidStepID
	Inputs string          `json:"inputs,omitempty"` // names what it was computed from, see job.StepInputs
	Result json.RawMessage `json:"result"`           // JSON, compact, at most job.MaxStepResult
}

// KeptStep is the answer to a step that a program reported.
type KeptStep struct {
	Step           // as it is stored: Result is the first one that was ever reported
	FromStore bool // the result was there already
	// Err is why the step is not stored; then only its ID and Inputs are set. It
	// is a *StepRefusedError where reporting the step again cannot help.
	Err error
}

// StepRefusedError says that a step cannot be stored as it is, e.g. since its id
// is another one's.
type StepRefusedError struct{ Message string }

// Error returns the message.
func (e *StepRefusedError) Error() string { return e.Message }

// Stepper is an optional part of a Session, for a program that reports durable
// steps: an EventStep with a Result. A session that has it is given those of
// earlier attempts in Task.Steps.
type Stepper interface {
	// Stored tells the program, by what it writes to its standard input, what
	// became of a step. It is called by the same goroutine as Event, after the
	// result is on disk, or was refused; writing does not block.
	Stored(stdin io.Writer, k KeptStep) error
}

// Checkpointer is an optional part of a Session, for a program that can stop at
// the boundary of a step and go on from there in another attempt.
type Checkpointer interface {
	// Checkpoint asks the program, by what it writes to its standard input, to
	// finish the step that it is in and then end, with a Result that is
	// Checkpointed. It may be called at any time between Command and Result, from
	// another goroutine; writing does not block.
	Checkpoint(stdin io.Writer, reason string) error
}

// stepper returns the session's optional part; nil if it has none.
func (g *guarded) stepper() Stepper {
	s, _ := g.session.(Stepper)
	return s
}

func (g *guarded) stored(stdin io.Writer, k KeptStep) (err error) {
	g.call("Stored", func() { err = g.stepper().Stored(stdin, k) })
	return err
}

func (g *guarded) checkpoint(stdin io.Writer, reason string) (err error) {
	c, ok := g.session.(Checkpointer)
	if !ok {
		return nil
	}
	g.call("Checkpoint", func() { err = c.Checkpoint(stdin, reason) })
	return err
}

// steps stores the durable steps among a run's events.
type steps struct {
	ctx   context.Context // of the run: a step whose run is stopped is not waited for
	g     *guarded
	run   Run
	stdin io.Writer
}

// keep stores the event's result, if it has one, and answers the program. It
// returns the event as it is recorded: without the result.
func (s *steps) keep(e job.Event) job.Event {
	result := e.Result
	e.Result = nil
	if e.Kind != job.EventStep || len(result) == 0 || s.g.stepper() == nil {
		return e
	}
	k := s.store(Step{ID: e.Step, Inputs: job.StepInputs(e.Inputs), Result: result})
	e.Inputs = k.Inputs
	switch {
	case k.Err != nil:
		e.Kept, e.Text = job.KeptRefused, k.Err.Error()
	case k.FromStore:
		e.Kept = job.KeptBefore
	default:
		e.Kept = job.KeptFresh
	}
	if err := s.g.stored(s.stdin, k); err != nil {
		s.g.log.Warn().Err(err).Str("step", e.Step).Msg("the worker could not be told of its step")
	}
	return e
}

// store stores the step, or says why not.
func (s *steps) store(step Step) KeptStep {
	refused := KeptStep{Step: Step{ID: step.ID, Inputs: step.Inputs}}
	if s.run.StoreStep == nil {
		refused.Err = &StepRefusedError{Message: "steps of this run are not kept"}
		return refused
	}
	if refused.Err = step.tidy(); refused.Err != nil {
		return refused
	}
	kept, err := s.run.StoreStep(s.ctx, step)
	if err != nil {
		refused.Err = err
		return refused
	}
	return kept
}

// tidy brings the step into the form in which it is stored, or returns why it
// cannot be.
func (s *Step) tidy() error {
	if err := job.ValidStepID(s.ID); err != nil {
		return &StepRefusedError{Message: err.Error()}
	}
	result, err := json.Marshal(json.RawMessage(bytes.ToValidUTF8(s.Result, []byte("\uFFFD"))))
	if err != nil {
		return &StepRefusedError{Message: fmt.Sprintf("the result of step %q is no JSON: %v", s.ID, err)}
	}
	if len(result) > job.MaxStepResult {
		return &StepRefusedError{Message: fmt.Sprintf(
			"the result of step %q has %d bytes, at most %d are kept: put more into a file and let the result name it", s.ID, len(result), job.MaxStepResult)}
	}
	s.Result = result
	return nil
}

// maxUnread is how much a program may leave unread of what it is told, in bytes.
const maxUnread = 4 << 20

// ErrUnread is wrapped by what refuses a line for a program that has too many
// unread ones.
var ErrUnread = errors.New("the program does not read its standard input")

// feed is a program's standard input for what it is told while it runs: writing
// to it never blocks, one goroutine writes it on.
type feed struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex // guards what follows
	unread []byte
	closed bool
}

func newFeed() *feed { return &feed{wake: make(chan struct{}, 1)} }

// Write queues p as a whole or not at all.
func (f *feed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return 0, io.ErrClosedPipe
	case len(f.unread)+len(p) > maxUnread:
		return 0, ErrUnread
	}
	f.unread = append(f.unread, p...)
	f.poke()
	return len(p), nil
}

// close ends copyTo; what is queued by then may be lost.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.unread = true, nil
	f.poke()
}

func (f *feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// copyTo writes on what is queued until close, or until w takes no more.
func (f *feed) copyTo(w io.Writer) {
	for range f.wake {
		f.mu.Lock()
		chunk, closed := f.unread, f.closed
		f.unread = nil
		f.mu.Unlock()
		if closed {
			return
		}
		if _, err := w.Write(chunk); err != nil {
			f.close()
			return
		}
	}
}
