package queue

import (
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// CheckpointedText begins what Entry.Waiting says, behind the reason, of a job that
// has stopped at a step's boundary.
const CheckpointedText = "checkpointed ("

// RunState returns the state of the latest run of e. One that has expired is
// job.RunFailed, one that was not to run job.RunCancelled.
func (e *Entry) RunState() job.RunState {
	switch e.State {
	case job.Dispatched:
		if w, ok := job.ParseWaiting(e.Waiting); ok && w.Reason == job.WaitApproval {
			return job.WaitingApproval
		}
		return job.Running
	case job.Expired:
		return job.RunFailed
	case job.Cancelled:
		return job.RunCancelled
	case job.Completed:
		switch e.ExitKind {
		case job.ExitSucceeded:
			return job.RunCompleted
		case job.ExitCancelled:
			return job.RunCancelled
		}
		return job.RunFailed
	}
	if e.Held == job.HeldForApproval {
		return job.WaitingApproval
	}
	text, _, _ := strings.Cut(e.Waiting, "\n")
	if w, ok := job.ParseWaiting(text); ok {
		text = w.Text
	}
	if e.Held == "" && strings.HasPrefix(text, CheckpointedText) {
		return job.Checkpointed
	}
	return job.Pending
}

// EntryStates returns the states of entries whose runs may be in one of runs.
func EntryStates(runs []job.RunState) []job.EntryState {
	of := map[job.RunState][]job.EntryState{
		job.Pending: {job.Queued}, job.WaitingApproval: {job.Dispatched, job.Queued}, job.Checkpointed: {job.Queued}, job.Running: {job.Dispatched},
		job.RunCompleted: {job.Completed}, job.RunFailed: {job.Completed, job.Expired}, job.RunCancelled: {job.Completed, job.Cancelled},
	}
	var states []job.EntryState
	for _, run := range runs {
		states = append(states, of[run]...)
	}
	slices.Sort(states)
	return slices.Compact(states)
}
