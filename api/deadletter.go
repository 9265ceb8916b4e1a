package api

import "github.com/agentsched/agentsched/job"

// DeadLetter is a job that was given up, or one that runs such a job again.
type DeadLetter struct {
	// Job is the job itself.
	Job Job `json:"job"`
	// Attempts are its attempts, the oldest first.
	Attempts []job.Attempt `json:"attempts"`
	// Chain is what it was requeued from, the first job first.
	Chain []Job `json:"chain"`
	// Next is what it was requeued as, the latest job last.
	Next []Job `json:"next"`
	// Settled says why nobody has to decide about it any more. Absent: it waits for
	// somebody.
	Settled string `json:"settled,omitempty"`
}
