package exec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// checkpointed is the status of a result that says: not done, but at a boundary.
const checkpointed = "checkpointed"

// giveSteps puts the steps that are stored into the task line, or into a file in
// the task's scratch folder if they are too many for it.
func giveSteps(line *Task, t *worker.Task) error {
	if len(t.Steps) == 0 {
		return nil
	}
	steps := make(map[string]StoredStep, len(t.Steps))
	for _, s := range t.Steps {
		steps[s.ID] = StoredStep{Inputs: s.Inputs, Result: s.Result}
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("write the steps of job %s: %w", t.Job, err)
	}
	if len(text) <= MaxSteps {
		line.Steps = steps
		return nil
	}
	line.StepsFile = filepath.Join(t.Scratch, "steps.json")
	if err := os.WriteFile(line.StepsFile, text, 0o600); err != nil {
		return fmt.Errorf("write the steps of job %s: %w", t.Job, err)
	}
	return nil
}

// step reports a turn, or with a result stores a durable step.
func (r *run) step(m step) []worker.Action {
	id := strings.ToValidUTF8(m.Step, "\uFFFD")
	if len(m.Result) == 0 {
		return worker.Events(job.Event{Kind: job.EventStep, Step: id})
	}
	// A string is its text, any other JSON value stands for itself.
	var inputs string
	if err := json.Unmarshal(m.Inputs, &inputs); err != nil && len(m.Inputs) > 0 {
		var compact bytes.Buffer
		if json.Compact(&compact, m.Inputs) == nil {
			inputs = compact.String()
		}
	}
	inputs = job.StepInputs(strings.ToValidUTF8(inputs, "\uFFFD"))
	return []worker.Action{worker.Store{Step: worker.Step{ID: id, Inputs: inputs, Result: m.Result}}}
}

// stored tells the program what became of a step.
func stored(k worker.KeptStep) []worker.Action {
	if k.Err == nil {
		line := StepStored{Type: "step_stored", Step: k.ID, FromStore: k.FromStore}
		if k.FromStore {
			line.Result = k.Result
		}
		return say(line)
	}
	var refused *worker.StepRefusedError
	return say(StepRefused{Type: "step_refused", Step: k.ID, Message: k.Err.Error(), Again: !errors.As(k.Err, &refused)})
}

// checkpointed completes the result of a program that says so: it is only
// believed if it was asked, or a job could stop for ever.
func (r *run) checkpointed(out *worker.Result) {
	if r.asked == nil {
		out.Class, out.Message = job.Unknown, "the worker reported checkpointed, but nobody had asked for a checkpoint or interrupted it"
		out.Hint = "report checkpointed only after a checkpoint or an interrupt line, see docs/worker-protocol.md"
		return
	}
	out.Checkpointed, out.Message = true, cmp.Or(cut(r.verdict.Message), *r.asked)
}

// say writes a line to the program. What cannot be written as JSON is none of the
// lines of the protocol.
func say(line any) []worker.Action {
	text, err := json.Marshal(line)
	if err != nil {
		return nil
	}
	return []worker.Action{worker.Write{Data: append(text, '\n')}}
}
