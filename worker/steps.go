package worker

import (
	"bytes"
	"encoding/json"
	"fmt"

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

// store stores a step, reports it, and tells the session what became of it.
func (d *driver) store(step Step) {
	step.Inputs = job.StepInputs(step.Inputs)
	k := d.keep(step)
	e := job.Event{Kind: job.EventStep, Step: step.ID, Inputs: k.Inputs}
	switch {
	case k.Err != nil:
		e.Kept, e.Text = job.KeptRefused, k.Err.Error()
	case k.FromStore:
		e.Kept = job.KeptBefore
	default:
		e.Kept = job.KeptFresh
	}
	d.rec.record(e)
	d.step(Stored{k})
}

// keep stores the step, or says why not.
func (d *driver) keep(step Step) KeptStep {
	refused := KeptStep{Step: Step{ID: step.ID, Inputs: step.Inputs}}
	if d.run.StoreStep == nil {
		refused.Err = &StepRefusedError{Message: "steps of this run are not stored"}
		return refused
	}
	if refused.Err = step.tidy(); refused.Err != nil {
		return refused
	}
	kept, err := d.run.StoreStep(d.ctx, step)
	if err != nil {
		refused.Err = err
		return refused
	}
	return kept
}

// A step's result is stored before the program hears of it, and the first result that
// was ever stored for an id is the one that holds: so an attempt that is cut off
// between the two does the step again and is told the result of before.

// tidy brings the step into the form in which it is stored, or returns why it
// cannot be.
func (s *Step) tidy() error {
	if err := job.ValidStepID(s.ID); err != nil {
		return &StepRefusedError{Message: err.Error()}
	}
	result, err := json.Marshal(json.RawMessage(bytes.ToValidUTF8(s.Result, []byte("\uFFFD"))))
	if err != nil {
		return &StepRefusedError{Message: fmt.Sprintf("the result of step %q is not JSON: %v", s.ID, err)}
	}
	if len(result) > job.MaxStepResult {
		return &StepRefusedError{Message: fmt.Sprintf(
			"the result of step %q has %d bytes, at most %d are allowed: write the rest to a file and put its name into the result", s.ID, len(result), job.MaxStepResult)}
	}
	s.Result = result
	return nil
}
