package ipc

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// Circuit is one circuit breaker: of a kind of worker or, with a model, of that
// kind on that model. A permit is only given out if neither is open, and while one is
// half-open, only for a probe of it.
type Circuit struct {
	Worker    job.WorkerKind `json:"worker"`
	Model     string         `json:"model,omitempty"`
	State     string         `json:"state"`               // closed, open, half-open
	OpenUntil time.Time      `json:"open_until,omitzero"` // of an open one: when it lets a probe through
	// Requests are the attempts that ended within the breaker's window; Failures and Slow
	// are how many of them count against the worker.
	Requests int    `json:"requests"`
	Failures int    `json:"failures"`
	Slow     int    `json:"slow"`
	Cause    string `json:"cause,omitempty"` // why it opened last
}

// Circuits reports a change of a breaker's state. The scheduler keeps the latest list of
// each core, shows it, and sends it to the next core in its first Configure. When a
// breaker is no longer open, the scheduler looks for jobs again.
type Circuits struct {
	Circuits []Circuit `json:"circuits"`     // all breakers of the core, after the change
	Changed  Circuit   `json:"changed"`      // the one that changed, without its counts
	Now      time.Time `json:"now,omitzero"` // when this was told, by the clock of OpenUntil
}

// By puts a circuit, which was told at told by another clock, on the clock that says now.
func (c Circuit) By(told, now time.Time) Circuit {
	if !told.IsZero() && !c.OpenUntil.IsZero() {
		c.OpenUntil = now.Add(c.OpenUntil.Sub(told)).UTC().Round(0)
	}
	return c
}

// Escalation is something that a person should look at, and what is put out of
// use because of it. The core enforces it before it sends it: it has revoked the unused
// permits that it affects, and runs go on. The scheduler stores the isolation, shows the
// escalation, and answers with an Isolations to every core. Action "notify" isolates
// nothing. Again prolongs an earlier one; the scheduler does not show it a second time.
type Escalation struct {
	isolation.Escalation
	// Seq counts the escalations of this core process from 1, in the order in which it
	// sends them.
	Seq uint64 `json:"seq"`
}

// Isolations are all that is out of use. The scheduler sends the whole list to every
// core whenever it changes, and again with each report of the queue until the core has
// answered.
//
// A list replaces the one before it. The core keeps enforcing what it has decided itself
// and sent in an escalation after Heard. It revokes the unused permits that the list
// affects; runs go on. A scope that does not parse or that is there twice fails with
// CodeInvalidParams.
type Isolations struct {
	Isolations []isolation.Isolation `json:"isolations"`
	// Version grows with each change of the list. A core ignores a list with a lower
	// version than the one it has, and takes one with the same version again.
	Version uint64 `json:"isolations_version"`
	// Heard is the Seq of the core's last escalation that the list takes into
	// account; 0: none.
	Heard uint64 `json:"escalations_heard"`
	// At is the scheduler's wall clock when it made the list. An isolation ends
	// Until - At after the core took the list, by the core's monotonic clock. Zero: the
	// core's wall clock.
	At time.Time `json:"isolations_at,omitzero"`
}

// QueueMetrics is how the queue stands: the jobs that could run now and do not. The
// scheduler sends it every second, to a core that has answered the one before. It
// replaces the earlier figures; the lists are only what is new.
type QueueMetrics struct {
	Depth    int                      `json:"depth"`              // jobs
	OldestMS int64                    `json:"oldest_ms"`          // how long the oldest has waited since it could run, ms
	ByClass  map[job.Class]ClassQueue `json:"by_class,omitempty"` // the same, by class
	// HeartbeatMS are the round trips of the heartbeats since the last report, ms.
	HeartbeatMS []int64 `json:"heartbeat_ms,omitempty"`
	// LatestWins are the workspaces in which a run was cancelled for a newer one
	// since the last report, one entry for each run. Too many of them are an escalation.
	LatestWins []string   `json:"latest_wins,omitempty"`
	Elsewhere  *Elsewhere `json:"elsewhere,omitempty"`
	// Ledger names who keeps what cores share, as in ReserveResult; absent: nothing is shared.
	Ledger string `json:"ledger,omitempty"`
}

// ClassQueue is a class's part of the queue. The staged defence leaves the classes out that
// it sheds: jobs of them wait because of it.
type ClassQueue struct {
	Depth    int   `json:"depth"`
	OldestMS int64 `json:"oldest_ms"`
}

// Metrics is the state of the core. The core looks at itself every second and sends a
// report when something other than its own use of the host has changed, and at least
// every 10 seconds. The scheduler keeps the latest report of each core, counts Concurrency
// as the core's slots, and shows a change of Stage.
type Metrics struct {
	// Stage is that of the staged defence: normal, shed, throttle, open_breaker or escalate.
	Stage string `json:"stage"`
	// Concurrency is how many runs the core allows at once while it throttles; 0: as
	// configured.
	Concurrency int `json:"concurrency,omitempty"`
	// Evidence is the measurement that led to the stage; "" at normal.
	Evidence string `json:"evidence,omitempty"`
	// Metrics is a watchdog.Snapshot as JSON: worker_inflight_count and the rest.
	Metrics json.RawMessage `json:"metrics"`
}
