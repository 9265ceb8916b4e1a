package queue

import (
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/job"
)

// Bounds are how much a Store takes at once; 0 means no bound.
type Bounds struct {
	Submission int // entries of one Enqueue
	Tenant     int // entries of a tenant that are queued
}

var (
	// ErrTooManyJobs: an Enqueue has more entries than Bounds.Submission.
	ErrTooManyJobs = errors.New("too many jobs in one submission")
	// ErrQueueFull: a tenant would have more entries queued than Bounds.Tenant.
	ErrQueueFull = errors.New("too many jobs are queued")
)

// CheckSubmission refuses a submission of more jobs than are allowed at once.
func (b Bounds) CheckSubmission(jobs int) error {
	if b.Submission > 0 && jobs > b.Submission {
		return fmt.Errorf("%w: it has %d, at most %d are allowed (queue.max_jobs); submit them in parts", ErrTooManyJobs, jobs, b.Submission)
	}
	return nil
}

// CheckTenant refuses more jobs of a tenant that has so many queued.
func (b Bounds) CheckTenant(t job.Tenant, queued, more int) error {
	if b.Tenant > 0 && queued+more > b.Tenant {
		return fmt.Errorf("%w: tenant %s has %d of at most %d (queue.max_queued), and %d more were submitted; wait until some have started, or cancel some",
			ErrQueueFull, t, queued, b.Tenant, more)
	}
	return nil
}
