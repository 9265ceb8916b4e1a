package queue

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Entry is a job in the queue: what was asked for and where it stands.
type Entry struct {
	ID    job.ID      `json:"id"`
	Batch job.BatchID `json:"batch"`
	Spec  job.Spec    `json:"spec"`

	State    job.EntryState `json:"state"`
	ExitKind job.ExitKind   `json:"exit_kind,omitempty"` // set with Completed

	CreatedAt    time.Time  `json:"created_at"`
	RunnableAt   time.Time  `json:"runnable_at"` // not claimed before
	Deadline     *time.Time `json:"deadline,omitempty"`
	DispatchedAt *time.Time `json:"dispatched_at,omitempty"` // of the latest claim
	CompletedAt  *time.Time `json:"completed_at,omitempty"`  // of any terminal state

	Holder     string     `json:"holder,omitempty"` // who claimed it, while Dispatched
	Fence      job.Fence  `json:"fence,omitempty"`  // of the latest claim; 0 never claimed
	LeaseUntil *time.Time `json:"lease_until,omitempty"`

	// Choice is the index into Spec.Choices of the worker to try next.
	Choice int `json:"choice,omitempty"`
	// Attempts is how many were ever begun; Counted, how many of them count
	// towards Limits.MaxAttempts.
	Attempts int `json:"attempts,omitempty"`
	Counted  int `json:"counted,omitempty"`
	// Spent and SpentTime sum over all ended attempts.
	Spent     job.Usage    `json:"spent,omitzero"`
	SpentTime job.Duration `json:"spent_time,omitempty"`

	// Session is the agent session that the next attempt resumes if it runs on
	// SessionWorker; "" starts over.
	Session       string         `json:"session,omitempty"`
	SessionWorker job.WorkerKind `json:"session_worker,omitempty"`
	// Feedback is added to the next attempt's instructions: why the last one
	// was not good enough.
	Feedback string `json:"feedback,omitempty"`

	// Waiting says in one sentence why a queued entry is not running, or how
	// its last attempt ended.
	Waiting string `json:"waiting,omitempty"`
	// DeadLetter says why a failed entry was given up.
	DeadLetter string `json:"dead_letter,omitempty"`
	// CancelRequested is set when somebody asked to cancel a dispatched entry.
	CancelRequested bool `json:"cancel_requested,omitempty"`
}

// Batch is what one `run` submitted: the jobs whose summary is printed together.
type Batch struct {
	ID job.BatchID `json:"id"`
	// Source says where the jobs came from, e.g. the absolute paths of the job
	// files; a run of the same source continues the batch while it is open.
	Source string `json:"source"`
	// Digest is a hash over the jobs' specifications.
	Digest    string     `json:"digest"`
	CreatedAt time.Time  `json:"created_at"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"` // nil while open: its summary was not yet given
}

// ClaimSpec says which entries to claim.
type ClaimSpec struct {
	Holder string      // who claims
	Batch  job.BatchID // only this batch; "" any
	Max    int         // at most so many, 1 or more
	Now    time.Time
	Lease  time.Duration // LeaseUntil becomes Now+Lease
	// Admit, if not nil, is asked for each candidate in order; false skips it
	// and changes nothing about it. It is called inside the transaction and
	// must be quick and must not use the Store.
	Admit func(*Entry) bool
}

// Claims is what a Claim returned.
type Claims struct {
	// Entries are now Dispatched, each with a fence larger than any before.
	Entries []Entry
	// NextAt is the earliest moment, after Now, at which another queued entry
	// (of the ClaimSpec's batch) becomes runnable or expires; zero if none will.
	NextAt time.Time
	// Expired are the entries that were found past their deadline and moved to
	// Expired by this claim.
	Expired []job.ID
}

// Filter selects entries; zero fields select everything.
type Filter struct {
	Batch  job.BatchID
	States []job.EntryState
	Tenant job.Tenant
	Name   job.Name
	Prefix string // of the id
	Limit  int    // at most so many; 0 means 1000
	Offset int
	Newest bool // newest first instead of oldest first
}

// StoredEvent is an event with its place in the store.
type StoredEvent struct {
	Cursor int64 `json:"cursor"` // grows with each stored event of the store
	job.Event
}
