package ipc

import (
	"encoding/json"

	"github.com/agentsched/agentsched/job"
)

// Methods about durable steps. The first two are what a core calls on its
// scheduler.
const (
	MethodStoreStep = "store_step" // StoreStep → StoreStepResult; answered when the step is on disk
	MethodListSteps = "list_steps" // ListSteps → ListStepsResult; before the worker starts, if SubmitJob.HasSteps

	MethodCheckpointJob = "checkpoint_job" // CheckpointJob → CheckpointResult; the scheduler calls it on the core
)

// MaxStepsPage is about how many bytes of steps one answer holds.
const MaxStepsPage = 256 << 10

// Step is a durable step of a job.
type Step struct {
	ID     string          `json:"id"`
	Inputs string          `json:"inputs,omitempty"` // what names them, see job.StepInputs
	Result json.RawMessage `json:"result"`           // at most job.MaxStepResult bytes
}

// StoreStep asks to store the result of a step that a worker has done.
type StoreStep struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Step    Step   `json:"step"`
}

// StoreStepResult says what is on disk of the step now. An error of the call
// means that it was not stored and may be tried again.
type StoreStepResult struct {
	Step Step `json:"step"` // as it is stored: Result is the first one that there ever was
	// FromStore says that it was stored before.
	FromStore bool `json:"from_store,omitempty"`
	// Refused says why it cannot be stored, e.g. that its id is another step's; Step
	// is empty then.
	Refused string `json:"refused,omitempty"`
}

// ListSteps asks for the steps that are stored for a job, in the order of their
// ids: those behind After.
type ListSteps struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"` // that gets them
	After   string `json:"after,omitempty"`
}

// ListStepsResult is some of them; More says that there are further ones.
type ListStepsResult struct {
	Steps []Step `json:"steps"`
	More  bool   `json:"more,omitempty"`
}

// CheckpointJob asks a run to stop at the boundary of its next step.
type CheckpointJob struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"` // for the worker, the log and the user
}

// CheckpointResult says whether the run's worker was asked. If it was, it ends as
// Checkpointed at its next boundary, unless it is done or fails before. If not, it
// does not run at this moment, or cannot stop at boundaries.
type CheckpointResult struct {
	Asked bool `json:"asked"`
}
