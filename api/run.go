package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Run is jobs that run to their end, as `scheduler run` has it. Source and digest
// say which run it is.
type Run struct {
	Submission
	// Env holds the values of the variables that the jobs name in their env, as who
	// submits them has them. They are kept in memory only.
	Env map[string]string `json:"env,omitempty"`
	// Fresh cancels what an unfinished run of the same source has left.
	Fresh bool `json:"fresh,omitempty"`
}

// OpenedRun is the batch that a run led to.
type OpenedRun struct {
	// Batch is the run's id.
	Batch job.BatchID `json:"batch"`
	// Continued is set if the run was there already.
	Continued bool `json:"continued,omitempty"`
	// CreatedAt is when it was submitted.
	CreatedAt time.Time `json:"created_at"`
	// Jobs is how many jobs it has.
	Jobs int `json:"jobs"`
	// Unfinished is how many of them have not ended.
	Unfinished int `json:"unfinished"`
}

// ContinueRun lets a run go on.
type ContinueRun struct {
	// Env is as in a run that is opened.
	Env map[string]string `json:"env,omitempty"`
}

// StopRun stops what runs of a run.
type StopRun struct {
	// Now skips the gentle stages of the stop.
	Now bool `json:"now,omitempty"`
}

// ClosedRun is a run whose summary was given.
type ClosedRun struct {
	// Batch is the run's id.
	Batch job.BatchID `json:"batch"`
}

// Runs are runs of `scheduler run` that are not closed.
type Runs struct {
	// Runs are the newest first.
	Runs []RunStatus `json:"runs"`
}

// RunStatus is how a run of `scheduler run` stands.
type RunStatus struct {
	OpenedRun
	// Source is where its jobs come from.
	Source string `json:"source"`
	// Env are the names of the variables that its jobs take from the environment of
	// the command.
	Env []string `json:"env,omitempty"`
	// Stopped is set while nobody works on it: it waits for its command.
	Stopped bool `json:"stopped,omitempty"`
	// FailedTeams are its teams that have given up.
	FailedTeams []FailedTeam `json:"failed_teams,omitempty"`
}
