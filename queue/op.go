package queue

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Op is one durable change, decided elsewhere and only applied here. Ops that
// carry a Fence are refused with ErrFenced unless the entry is Dispatched
// under exactly that fence.
type Op interface{ op() }

// Begin records that an attempt starts: Attempt.Number must be the entry's
// Attempts+1, its state Pending. The entry's Attempts and Counted grow by one.
type Begin struct {
	ID      job.ID
	Fence   job.Fence
	Attempt job.Attempt
}

// Move records that the attempt's run changed its state (checked against the
// run's table) and, where it is not empty, its session, which becomes the
// entry's Session too, on the attempt's node. To WaitingApproval, Waiting becomes
// that of the entry, which stays Dispatched: the run keeps its worker while a person
// is asked. A move from there clears it.
type Move struct {
	ID      job.ID
	Fence   job.Fence
	Attempt int
	To      job.RunState // "" leaves the state as it is
	Session string
	Waiting string // with To WaitingApproval: what for, as job.Waiting of WaitApproval says it
}

// Append stores events. An event whose (job, attempt, seq) is already stored
// is ignored, so that delivery may be repeated. It needs no fence.
type Append struct{ Events []job.Event }

// Finish records an attempt's outcome, adds its usage and time to the
// entry's, and moves the entry on: to Completed if Exit is set, else back to
// Queued as Retry says. An entry that is superseded does not go back, here nor
// with Release: it becomes Completed with ExitCancelled.
type Finish struct {
	ID      job.ID
	Fence   job.Fence
	Attempt int // 0: no attempt was begun (the permit was refused for good); Outcome then only gives DeadLetter its reason
	Outcome job.Outcome
	Lost    bool // the attempt does not count (see job.Attempt.Lost): Counted goes down by one
	Now     time.Time

	Exit       job.ExitKind // ExitSucceeded, ExitFailed, ExitCancelled, or "" to retry
	DeadLetter string       // with ExitFailed: why no further attempt will be made
	Retry      Retry        // with Exit "": when and how
}

// Retry says how a job goes back to the queue.
type Retry struct {
	RunnableAt    time.Time
	Choice        int // index into Spec.Choices
	Session       string
	SessionWorker job.WorkerKind
	SessionNode   string
	Feedback      string
	Waiting       string
	Hold          job.Hold // "" or HeldForWords, which a Ready ends
}

// Release gives a claim back without an attempt: its permit was refused.
type Release struct {
	ID         job.ID
	Fence      job.Fence
	Now        time.Time // of the end of a superseded entry; zero: RunnableAt
	RunnableAt time.Time
	Choice     int
	Waiting    string
}

// Cancel withdraws an entry: a queued one becomes Cancelled, and if a person was
// asked about its latest attempt, that RunCancelled; of a dispatched one
// CancelRequested is set and whoever holds it must stop it. A terminal
// entry gives ErrIllegalTransition.
type Cancel struct {
	ID  job.ID
	Now time.Time
}

// Reclaim takes dispatched entries back from holders that are known to be gone:
// those that one of Holders has claimed, but for entries of type job.External, whose
// holders name themselves; those under one of Fences; and, with Lapsed, those whose
// lease ended before Now. Their open attempts end as RunFailed with class Crash, are
// Lost, their outcomes' usage is the sum of the usage events stored of them, and
// the entries are Queued, with the session of the attempt, and runnable at once:
// RunnableAt stays, so that they keep their place, unless it lies ahead of Now. An
// entry with CancelRequested becomes Completed with ExitCancelled instead, its
// attempt RunCancelled.
type Reclaim struct {
	Now     time.Time
	Holders []string    // as ClaimSpec.Holder named them
	Fences  []job.Fence // one that is no longer held is passed over
	Lapsed  bool
	Message string // for the attempt's outcome, e.g. "the scheduler was killed"
}

// Rebase repairs what was stored while the wall clock stood ahead of what it is
// now: queued entries that are runnable only after After, and did not ask for
// that by their job.Spec.RunnableAt, are runnable at Now.
type Rebase struct {
	Now   time.Time
	After time.Time
	// Future leaves alone what was submitted and claimed, and whose attempts have
	// ended, by Now: of it nothing says that the clock was wrong. What was never claimed
	// waits for nothing but what it asked for, so that it is runnable at Now.
	Future bool
}

// Drop says that nothing more is to be done about a dead letter. One that is
// none, or was requeued or dropped already, gives ErrIllegalTransition.
type Drop struct {
	ID  job.ID
	Now time.Time
}

// Adopt shares what is left of all private batches, and what joins them from now
// on: for a scheduler that works on everything.
type Adopt struct{}

// SetPrivate makes one batch private, or shares it, with what is left of it and
// what joins it from now on.
type SetPrivate struct {
	ID      job.BatchID
	Private bool
	// Waiting becomes that of its queued entries that could be claimed; "" leaves theirs.
	Waiting string
}

// SetGrant replaces the grant of an owner; one that neither bounds it nor calls
// it dead removes it.
type SetGrant struct{ Grant Grant }

// CloseBatch marks a batch as done with: its summary was given.
type CloseBatch struct {
	ID  job.BatchID
	Now time.Time
}

func (Begin) op()      {}
func (Move) op()       {}
func (Append) op()     {}
func (Finish) op()     {}
func (Release) op()    {}
func (Cancel) op()     {}
func (Reclaim) op()    {}
func (Rebase) op()     {}
func (CloseBatch) op() {}
func (Drop) op()       {}
func (Adopt) op()      {}
func (SetPrivate) op() {}
func (SetGrant) op()   {}
