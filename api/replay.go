package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// ReplayReport tells which results of a job or a workflow were computed when, and which
// came from the store.
type ReplayReport struct {
	// Job is the job. Absent if a batch was asked for.
	Job *ReplayJob `json:"job,omitempty"`
	// Steps are the job's durable steps, in the order in which they were stored.
	Steps []Step `json:"steps"`
	// Workflow is the batch of the job. Absent of a job that stands alone.
	Workflow *ReplayWorkflow `json:"workflow,omitempty"`
}

// ReplayJob is a job as a step of its workflow.
type ReplayJob struct {
	// ID is the job's.
	ID job.ID `json:"id"`
	// Name is the job's.
	Name job.Name `json:"name"`
	// State is the job's, in a word.
	State string `json:"state"`
	// Inputs is a hash over what the job could refer to.
	Inputs string `json:"inputs,omitempty"`
	// Attempts is how many the job has had.
	Attempts int `json:"attempts"`
	// CompletedAt is when the job ended.
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	// Kept is "store" if the job had ended when the workflow was interrupted, so that
	// what followed took its result from the store, and else "fresh". Absent of a job
	// without a result.
	Kept job.Kept `json:"kept,omitempty"`
}

// ReplayWorkflow is a batch with its jobs.
type ReplayWorkflow struct {
	// Batch is the batch.
	Batch job.BatchID `json:"batch"`
	// Interruptions are when attempts were lost because the scheduler itself ended.
	Interruptions []time.Time `json:"interruptions"`
	// Jobs are in the order of their submission.
	Jobs []ReplayJob `json:"jobs"`
}
