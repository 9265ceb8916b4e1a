package job

import (
	"errors"
	"fmt"
)

// ErrIllegalTransition is wrapped by every refusal to move between two states
// that the tables below do not connect.
var ErrIllegalTransition = errors.New("illegal transition")

// EntryState is where a queue entry stands. The entry is the durable promise
// that its job will be run; the user looks at the RunState of its attempts.
type EntryState string

const (
	// Queued entries wait to be claimed, from RunnableAt on. A dispatched entry
	// comes back here when its permit was refused, when an attempt failed in a
	// way that heals, and when its claimant is gone.
	Queued EntryState = "queued"
	// Dispatched entries are claimed: exactly one fence may write about them.
	Dispatched EntryState = "dispatched"
	// Completed entries had their last attempt recorded, with an ExitKind that
	// tells how it ended. Terminal.
	Completed EntryState = "completed"
	// Expired entries were not dispatched before their deadline. Terminal.
	Expired EntryState = "expired"
	// Cancelled entries were withdrawn while they were queued. Terminal. A
	// dispatched entry is cancelled by stopping its worker and completing it
	// with ExitCancelled.
	Cancelled EntryState = "cancelled"
)

// entryMoves is the whole state machine of a queue entry.
var entryMoves = map[EntryState][]EntryState{
	Queued:     {Dispatched, Expired, Cancelled},
	Dispatched: {Completed, Queued},
	Completed:  nil,
	Expired:    nil,
	Cancelled:  nil,
}

// EntryStates lists the states of a queue entry in the order of a job's way.
func EntryStates() []EntryState {
	return []EntryState{Queued, Dispatched, Completed, Expired, Cancelled}
}

// Terminal reports whether an entry in this state changes no more.
func (s EntryState) Terminal() bool {
	moves, known := entryMoves[s]
	return known && len(moves) == 0
}

// CheckMove returns nil if an entry may go from s to next and otherwise an
// error that names both and wraps ErrIllegalTransition.
func (s EntryState) CheckMove(next EntryState) error {
	return checkMove("queue entry", entryMoves, s, next)
}

// RunState is what a user sees of an attempt: one run of one agent.
type RunState string

const (
	// Pending runs were claimed and have no worker yet.
	Pending RunState = "pending"
	// Running runs have a worker process.
	Running RunState = "running"
	// WaitingApproval runs wait for a person: one that has ended, with what it made, holds
	// no worker; one that asks while it works keeps its worker, for as long as its job says.
	WaitingApproval RunState = "waiting_approval"
	// Checkpointed runs stopped at a step's boundary and go on from there.
	Checkpointed RunState = "checkpointed"
	// RunCompleted runs did what was asked. Terminal.
	RunCompleted RunState = "completed"
	// RunFailed runs ended in one of the error classes. Terminal for the run;
	// its job may get another.
	RunFailed RunState = "failed"
	// RunCancelled runs were stopped on request. Terminal.
	RunCancelled RunState = "cancelled"
)

// runMoves is the whole state machine of a run: assign, ask for approval,
// approve, reject with and without retries left, checkpoint, next step,
// complete, fail; and cancel from any state that is not terminal.
var runMoves = map[RunState][]RunState{
	Pending:         {Running, RunCancelled},
	Running:         {WaitingApproval, Checkpointed, RunCompleted, RunFailed, RunCancelled},
	WaitingApproval: {Running, Pending, RunFailed, RunCancelled},
	Checkpointed:    {Running, RunCancelled},
	RunCompleted:    nil,
	RunFailed:       nil,
	RunCancelled:    nil,
}

// RunStates lists the states of a run in the order of a job's way.
func RunStates() []RunState {
	return []RunState{Pending, Running, WaitingApproval, Checkpointed, RunCompleted, RunFailed, RunCancelled}
}

// Terminal reports whether a run in this state changes no more.
func (s RunState) Terminal() bool {
	moves, known := runMoves[s]
	return known && len(moves) == 0
}

// CheckMove returns nil if a run may go from s to next and otherwise an error
// that names both and wraps ErrIllegalTransition.
func (s RunState) CheckMove(next RunState) error {
	return checkMove("run", runMoves, s, next)
}

func checkMove[S ~string](what string, moves map[S][]S, from, to S) error {
	next, known := moves[from]
	if !known {
		return fmt.Errorf("%s in unknown state %q: %w", what, from, ErrIllegalTransition)
	}
	for _, s := range next {
		if s == to {
			return nil
		}
	}
	return fmt.Errorf("%s from %s to %s: %w", what, from, to, ErrIllegalTransition)
}

// ExitKind tells how a completed entry ended.
type ExitKind string

const (
	// ExitSucceeded: the job did what was asked, verified where it said how.
	ExitSucceeded ExitKind = "succeeded"
	// ExitFailed: its attempts are spent or it cannot heal; it is a dead letter.
	ExitFailed ExitKind = "failed"
	// ExitCancelled: it was stopped on request.
	ExitCancelled ExitKind = "cancelled"
)
