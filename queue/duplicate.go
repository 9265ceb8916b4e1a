package queue

import (
	"fmt"

	"github.com/agentsched/agentsched/job"
)

// DuplicateError refuses an entry with the policy job.Reject. It wraps
// ErrDuplicate.
type DuplicateError struct {
	Key      string
	ID       job.ID // the refused one
	Name     job.Name
	Other    job.ID // the unfinished one that has the key
	OtherJob job.Name
}

// Error names both jobs and the key.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("job %s (%q) is rejected, since job %s (%q) with the same key %q is unfinished", e.ID, e.Name, e.Other, e.OtherJob, e.Key)
}

// Unwrap returns ErrDuplicate.
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// WaitingFor is the Waiting of an entry that waits for another of its key.
func WaitingFor(id job.ID, name job.Name, key string) string {
	return job.Waiting{Reason: job.WaitKey, Text: fmt.Sprintf("job %s (%s) has the key %q, too", name, id, key)}.String()
}

// Superseded is the Waiting of an entry that was cancelled for a newer one of its key.
func Superseded(id job.ID, name job.Name, key string) string {
	return fmt.Sprintf("superseded by job %s (%s), which has the same key %q", name, id, key)
}
