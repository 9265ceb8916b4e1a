package queue

import (
	"cmp"
	"encoding/json"
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
	// SessionWorker and on SessionNode, where the session lies; "" starts over.
	Session       string         `json:"session,omitempty"`
	SessionWorker job.WorkerKind `json:"session_worker,omitempty"`
	SessionNode   string         `json:"session_node,omitempty"` // "" is the scheduler's own host
	// Feedback is added to the next attempt's instructions: why the last one
	// was not good enough.
	Feedback string `json:"feedback,omitempty"`

	// Waiting says in one sentence why a queued entry is not running, or how
	// its last attempt ended.
	Waiting string `json:"waiting,omitempty"`
	// DeadLetter says why a failed entry was given up, ErrorClass what class of
	// failure it was that ended its latest attempt.
	DeadLetter string         `json:"dead_letter,omitempty"`
	ErrorClass job.ErrorClass `json:"error_class,omitempty"`
	// RequeuedFrom is the dead letter that this entry does again, RequeuedAs the
	// entry that does this dead letter again; DroppedAt is set when somebody
	// decided that nothing more is to be done about it.
	RequeuedFrom job.ID     `json:"requeued_from,omitempty"`
	RequeuedAs   job.ID     `json:"requeued_as,omitempty"`
	DroppedAt    *time.Time `json:"dropped_at,omitempty"`
	// Continues is the ended entry that this one goes on from, ContinuedAs the one that
	// goes on from this one. Folder is the first of them, in whose folder, with whose
	// sessions, they all work; "" is its own.
	Continues   job.ID `json:"continues,omitempty"`
	ContinuedAs job.ID `json:"continued_as,omitempty"`
	Folder      job.ID `json:"folder,omitempty"`
	// ForkedFrom is the entry with copies of whose work and session this one begins.
	ForkedFrom job.ID `json:"forked_from,omitempty"`
	// Held keeps a queued entry out of its lane, so that it is not claimed; "" does
	// not. One that is HeldForApproval does not expire either: its work is done.
	Held job.Hold `json:"held,omitempty"`
	// Resolved is what it is run with instead of its Spec's own words; nil: those.
	Resolved *job.Resolved `json:"resolved,omitempty"`
	// Skipped says why an entry was Cancelled that was not to run: its condition
	// did not hold, or a need of it has not succeeded.
	Skipped string `json:"skipped,omitempty"`
	// Result is the answer of an entry that was concluded without an attempt.
	Result json.RawMessage `json:"result,omitempty"`
	// Approval is what a person is asked, while it is HeldForApproval, and what was
	// said to the last question afterwards. Rejections counts the answers no.
	Approval   *Approval `json:"approval,omitempty"`
	Rejections int       `json:"rejections,omitempty"`

	// Status is how the job stands in the words of every view, where somebody was
	// asked for that: the store neither keeps nor returns it.
	Status *job.Status `json:"status,omitempty"`

	// CancelRequested is set when somebody asked to cancel a dispatched entry.
	CancelRequested bool `json:"cancel_requested,omitempty"`
}

// MaxAttempts is how many attempts of the entry may count: what was asked for, and
// one more for each time that a person rejected the work, which MaxRetries of
// job.Oversight bounds; 0 is no limit.
func (e *Entry) MaxAttempts() int {
	if n := e.Spec.Limits.MaxAttempts; n > 0 {
		return n + e.Rejections
	}
	return 0
}

// WorksIn is the job in whose folder the entry works, with that one's sessions.
func (e *Entry) WorksIn() job.ID { return cmp.Or(e.Folder, e.ID) }

// Batch is what one `run` submitted: the jobs whose summary is printed together.
type Batch struct {
	ID job.BatchID `json:"id"`
	// Source says where the jobs came from, e.g. the absolute paths of the job
	// files; a run of the same source continues the batch while it is open.
	Source string `json:"source"`
	// Digest is a hash over the jobs' specifications.
	Digest string `json:"digest"`
	// Workflow is what its jobs have in common.
	Workflow job.Workflow `json:"workflow,omitzero"`
	// Private keeps the batch for who claims it by its id; the entries of all
	// other batches are shared.
	Private   bool       `json:"private,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"` // nil while open: its summary was not yet given
}

// ClaimSpec says which entries to claim.
type ClaimSpec struct {
	Holder string // who claims
	// Batch is the private batch to claim from, together with the entries of
	// other batches that its own wait for, directly or through others; "" is all
	// that is shared. An id that is no private batch's selects nothing.
	Batch job.BatchID
	// External claims entries of type job.External and no others; else none of
	// them is claimed. They are shared whatever their batch, so that it goes with
	// no Batch: an error.
	External bool
	Max      int // at most so many; 0 claims none (but see IDs) and lets expire what is overdue
	Now      time.Time
	Lease    time.Duration // LeaseUntil becomes Now+Lease
	// IDs, if not empty, are the entries to claim, in this order, instead of the first
	// ones. One that cannot be claimed now is passed over, be it unknown, of another
	// scope, not queued, held, waiting, not yet runnable, its owner's Grant used up, or its
	// tenant's Balance too small.
	// Max must be 0 and Admit nil.
	IDs []job.ID
	// Admit, if not nil, is asked for each candidate in order; false skips it
	// and changes nothing about it. It is called inside the transaction and
	// must be quick and must not use the Store.
	Admit func(*Entry) bool
	// OverGrants claims what an owner has queued that has used up its Grant, or whose
	// Balance is too small, too.
	OverGrants bool
	// Count asks for Claims.Ready.
	Count bool
}

// Claims is what a Claim returned.
type Claims struct {
	// Entries are now Dispatched, each with a fence larger than any before.
	Entries []Entry
	// NextAt is the earliest moment, after Now, at which another queued entry of
	// the claim's scope becomes runnable or expires; zero if none will. With IDs
	// it is zero: Heads tells it.
	NextAt time.Time
	// Expired are the entries that were found past their deadline and moved to
	// Expired by this claim. There may be some even where the Claim returns an
	// error: those of transactions before.
	Expired []job.ID
	// Ready is, with ClaimSpec.Count, what else could have been claimed, Admit
	// not asked: of each class that has some, at most MaxCount in all.
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
	Agent  job.AgentID
	Name   job.Name
	Prefix string // of the id
	Suffix string // of the id: no index knows it
	// Worker selects entries of which it is the current choice, or the first.
	Worker job.WorkerKind
	// Search selects entries in whose name, tenant, worker (as Worker has it) or
	// instructions it is found, or with which the id begins or, of 8 characters or
	// more, ends; the case of ASCII letters does not matter.
	Search string
	// DeadLetters selects what failed and waits for somebody to look at it:
	// neither requeued nor dropped.
	DeadLetters bool
	// Runs selects by Entry.RunState.
	Runs []job.RunState
	// Held selects queued entries that are kept back for one of these.
	Held []job.Hold
	// Joined selects unfinished jobs of batches whose jobs hang together
	// (job.Flow.Joined).
	Joined bool
	// ErrorClass selects by Entry.ErrorClass.
	ErrorClass job.ErrorClass
	// External selects entries of type job.External.
	External bool
	// Since leaves out what ended before it.
	Since time.Time
	// CoalescedWith selects what has or awaits the result of this entry.
	CoalescedWith job.ID
	// SupersededBy selects what was cancelled for this entry.
	SupersededBy job.ID
	// Key selects unfinished entries that have it (Entry.Key).
	Key string
	// CancelRequested selects what somebody asked to cancel while it was
	// dispatched: with the state Dispatched, what is still to be stopped.
	CancelRequested bool
	Limit           int // at most so many; 0 means 1000
	Offset          int
	Newest          bool // newest first instead of oldest first
}

// Mark is a moment of a store, for Store.BatchSince. It is known to the store that
// gave it until that is closed.
type Mark int64

// Changes is what has changed in a batch.
type Changes struct {
	// Entries are those that were added or changed, as they are now, in the order of
	// submission. One may have come back to what it was.
	Entries []Entry
	// Whole says that Entries are all of the batch instead: the store does not know,
	// or no longer, what has changed since.
	Whole bool
	Mark  Mark // to go on from
}

// StoredEvent is an event with its place in the store.
type StoredEvent struct {
	Cursor int64 `json:"cursor"` // grows with each stored event of the store
	job.Event
}
