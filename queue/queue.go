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

	// Key is what makes it a duplicate of other unfinished entries of its tenant
	// (see job.Spec.Duplicates); "" if nothing does. Enqueue sets it.
	Key string `json:"key,omitempty"`
	// WaitsFor is the entry of the same key that must end first; "" none. Only a
	// queued entry waits, and only one that waits for none is claimed.
	WaitsFor job.ID `json:"waits_for,omitempty"`
	// CoalescedWith is the entry whose result becomes, or became, this one's.
	CoalescedWith job.ID `json:"coalesced_with,omitempty"`
	// SupersededBy is the newer entry for which this one was cancelled; with
	// CancelRequested and the state Dispatched, for which it is to be stopped.
	SupersededBy job.ID `json:"superseded_by,omitempty"`

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
	Holder string // who claims
	// Batch is the batch to claim from, together with the entries of other
	// batches that its own wait for, directly or through others; "" is any.
	Batch job.BatchID
	Max   int // at most so many, 1 or more; with Count also 0
	Now   time.Time
	Lease time.Duration // LeaseUntil becomes Now+Lease
	// Admit, if not nil, is asked for each candidate in order; false skips it
	// and changes nothing about it. It is called inside the transaction and
	// must be quick and must not use the Store.
	Admit func(*Entry) bool
	// Count asks for Claims.Ready.
	Count bool
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
	// Ready is, with ClaimSpec.Count, what else could have been claimed, Admit
	// not asked: of each class that has some, at most MaxCount in all, those
	// that are claimed first.
	Ready map[job.Class]ClassReady `json:",omitempty"`
}

// MaxCount is how many entries Claims.Ready counts at most.
const MaxCount = 10_000

// ClassReady is a class's part of what could run and does not.
type ClassReady struct {
	Depth  int       `json:"depth"`
	Oldest time.Time `json:"oldest"` // the earliest RunnableAt
}

// Filter selects entries; zero fields select everything.
type Filter struct {
	Batch  job.BatchID
	States []job.EntryState
	Tenant job.Tenant
	Name   job.Name
	Prefix string // of the id
	// Since leaves out what ended before it.
	Since time.Time
	// CoalescedWith selects what has or awaits the result of this entry.
	CoalescedWith job.ID
	// SupersededBy selects what was cancelled for this entry.
	SupersededBy job.ID
	// CancelRequested selects what somebody asked to cancel while it was
	// dispatched: with the state Dispatched, what is still to be stopped.
	CancelRequested bool
	Limit           int // at most so many; 0 means 1000
	Offset          int
	Newest          bool // newest first instead of oldest first
}

// StoredEvent is an event with its place in the store.
type StoredEvent struct {
	Cursor int64 `json:"cursor"` // grows with each stored event of the store
	job.Event
}
