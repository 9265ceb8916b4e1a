package ipc

import (
	"encoding/json"

	"github.com/agentsched/agentsched/job"
)

// Methods about durable steps: results that a worker has stored so that a later attempt
// of the job does not compute them again. The core calls the first two on the scheduler,
// the scheduler calls the third on the core.
const (
	MethodStoreStep = "store_step" // StoreStep → StoreStepResult
	MethodListSteps = "list_steps" // ListSteps → ListStepsResult

	MethodCheckpointJob = "checkpoint_job" // CheckpointJob → CheckpointResult
)

// MaxStepsPage is about how many bytes of steps one answer holds. It leaves room for one
// step more of job.MaxStepResult within MaxFrame.
const MaxStepsPage = 256 << 10

// Step is a durable step of a job.
type Step struct {
	ID     string          `json:"id"`               // unique within the job
	Inputs string          `json:"inputs,omitempty"` // what the step was computed from, see job.StepInputs
	Result json.RawMessage `json:"result"`           // at most job.MaxStepResult bytes
}

// StoreStep asks to store the result of a step that a worker has computed. The worker
// waits for the answer, which comes when the result is on disk. The core waits 30 seconds.
//
// Storing a step again changes nothing: the answer is the first result, with FromStore.
// So a call without an answer may be repeated. A job keeps at most 10,000 steps with 64 MiB
// of results; the core refuses more without asking.
type StoreStep struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Step    Step   `json:"step"`
}

// StoreStepResult says what is stored of the step now. After a call that failed or got no
// answer, the step may be stored or not.
type StoreStepResult struct {
	Step      Step `json:"step"`                 // as stored: Result is the first one that there ever was
	FromStore bool `json:"from_store,omitempty"` // it was stored before this call
	// Refused is why the step can never be stored: its id is that of a step with other
	// inputs, or the attempt is over. Step is empty then.
	Refused string `json:"refused,omitempty"`
}

// ListSteps asks for the steps that are stored for a job, in the order of their ids. The
// core sends it before the worker starts, if SubmitJob.HasSteps is set, until More is
// false. A failure ends the attempt as UNKNOWN; the scheduler refuses attempts that are
// over.
type ListSteps struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"` // the one that is about to start
	// After is the id of the last step of the page before; absent: the first page.
	After string `json:"after,omitempty"`
}

// ListStepsResult is one page of steps.
type ListStepsResult struct {
	Steps []Step `json:"steps"`
	More  bool   `json:"more,omitempty"` // there are steps after the last of Steps
}

// CheckpointJob asks a run to stop at the boundary of its next step, so that a later
// attempt goes on from there. The scheduler sends it when a user asks, and to all runs when
// it ends. Asking again changes nothing.
type CheckpointJob struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"` // for the worker, the log and the user
}

// CheckpointResult says whether the run's worker was asked. If it was, the run ends in the
// state job.Checkpointed at its next boundary, unless it completes or fails before. False
// means that the attempt is unknown, that its worker is not running at this moment, or that
// its adapter has no boundaries; then nothing happens.
type CheckpointResult struct {
	Asked bool `json:"asked"`
}
