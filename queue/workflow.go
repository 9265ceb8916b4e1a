package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Approval is a question to a person, about what an attempt has made, and the
// answer to it.
type Approval struct {
	Attempt int       `json:"attempt"`
	Why     string    `json:"why"` // it is asked
	AskedAt time.Time `json:"asked_at"`
	// Until is when Default ("approve" or "reject") is taken for the answer; nil:
	// it waits for ever.
	Until   *time.Time `json:"until,omitempty"`
	Default string     `json:"default,omitempty"`
	// Draw is the number in [0, 1) that a spot check drew.
	Draw *float64 `json:"draw,omitempty"`

	// The answer; DecidedAt is nil while there is none.
	Approved  bool       `json:"approved,omitempty"`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	By        string     `json:"by,omitempty"`
	Comment   string     `json:"comment,omitempty"`
}

// ByTimeout is who has answered (Approval.By) when nobody has in time.
const ByTimeout = "timeout"

// Ready lets an entry go that is held for its needs, its team, words or a person: it is claimed
// like any other from now on, and runs with Resolved; nil leaves what it has.
// RunnableAt is Now, if it does not lie ahead.
type Ready struct {
	ID       job.ID
	Resolved *job.Resolved
	Now      time.Time
}

// Keep holds back an entry that is queued, or holds it for another reason. One
// that is HeldForApproval is refused.
type Keep struct {
	ID      job.ID
	For     job.Hold // not ""
	Waiting string   // what it waits for, one sentence
}

// Skip ends an entry that is queued, held or not, as one that was not to run: it
// becomes Cancelled, with Why in Skipped.
type Skip struct {
	ID  job.ID
	Why string
	Now time.Time
}

// Spawn adds entries to a batch. One whose name and tenant the batch has already
// is passed over, so that a Spawn may be repeated. The other rules are Enqueue's.
type Spawn struct {
	Batch   job.BatchID
	Entries []Entry
}

// Add is an Enqueue among other ops.
type Add struct {
	Batch   Batch
	Entries []Entry
}

// Conclude ends an entry that is held for its parts or its team without an
// attempt: Queued, Dispatched, Completed in one.
type Conclude struct {
	ID     job.ID
	Exit   job.ExitKind
	Result json.RawMessage // with ExitSucceeded: its answer
	// With ExitFailed: why it was given up, and the class of that.
	DeadLetter string
	Class      job.ErrorClass
	Now        time.Time
}

// Await records, like Finish, an attempt's outcome, its usage and its time, and
// then lets the entry wait for a person: the attempt goes from Running to
// WaitingApproval, the entry back to Queued, HeldForApproval with the Approval.
// The claim ends. A superseded entry, or one that somebody asked to cancel, does
// not wait: its attempt ends as the outcome says, and it becomes Completed with
// ExitCancelled. Of the Approval the question is taken, not the answer.
type Await struct {
	ID       job.ID
	Fence    job.Fence
	Attempt  int
	Outcome  job.Outcome
	Approval Approval
	Waiting  string
	Now      time.Time
}

// Decide is the answer to an entry's Approval; ErrIllegalTransition if the entry
// is not HeldForApproval of that attempt.
//
// Approved: the attempt goes from WaitingApproval through Running to RunCompleted
// and the entry through Dispatched to Completed with ExitSucceeded.
//
// Not approved, with Retry: the attempt is RunFailed, its outcome's class
// HumanRejected and its message the comment, and the entry is queued as Retry
// says. Without: the entry is Completed with ExitFailed and DeadLetter. Either way
// Rejections grows by one.
type Decide struct {
	ID       job.ID
	Attempt  int
	Approved bool
	By       string // who, e.g. the name of the user, or "timeout"
	Comment  string
	Now      time.Time

	Retry      *Retry
	DeadLetter string
}

// Write stores a record.
type Write struct {
	Record Record
	// Once refuses, with ErrExists, to replace a record that has another value;
	// one that has the same stays as it is.
	Once bool
}

// Erase removes the records of a space up to and with a key; "" removes none.
type Erase struct {
	Space string
	UpTo  string
}

func (Ready) op()    {}
func (Keep) op()     {}
func (Skip) op()     {}
func (Spawn) op()    {}
func (Add) op()      {}
func (Conclude) op() {}
func (Await) op()    {}
func (Decide) op()   {}
func (Write) op()    {}
func (Erase) op()    {}

// Record is a durable note beside the entries, e.g. the result of a step. Ops
// write it, in one transaction with what it belongs to.
type Record struct {
	// Space holds records that belong together. One that begins with "job/ID/" is
	// forgotten with that job, one with "batch/ID/" with the last job of that batch.
	Space string          `json:"space"`
	Key   string          `json:"key"`   // unique in its space; records are ordered by its bytes
	Value json.RawMessage `json:"value"` // kept without the blanks between its tokens; none is null
	At    time.Time       `json:"at"`
}

// JobSpace and BatchSpace return the name of a space that is forgotten with a
// job, or a batch.
func JobSpace(id job.ID, name string) string        { return "job/" + string(id) + "/" + name }
func BatchSpace(id job.BatchID, name string) string { return "batch/" + string(id) + "/" + name }

// Journal reads records.
type Journal interface {
	// Record returns one record, or ErrNotFound.
	Record(ctx context.Context, space, key string) (Record, error)
	// Records returns the records of a space whose key is larger than after, in
	// the order of their keys, at most limit of them.
	Records(ctx context.Context, space, after string, limit int) ([]Record, error)
	// Spaces returns the spaces that begin with prefix and have a record, in order.
	Spaces(ctx context.Context, prefix string) ([]string, error)
}
