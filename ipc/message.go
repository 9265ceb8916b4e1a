package ipc

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// ProtocolVersion is the version of these messages. Peers talk if their
// versions are equal; fields may be added without a new version, since unknown
// fields are ignored.
const ProtocolVersion = 1

// Methods that the scheduler calls on the core.
const (
	MethodHello         = "hello"          // Hello → HelloResult; first, once
	MethodConfigure     = "configure"      // Configure → Empty; before any permit, again to change
	MethodRequestPermit = "request_permit" // PermitRequest → PermitAnswer
	MethodSubmitJob     = "submit_job"     // SubmitJob → Empty; the run goes on until on_job_completed
	MethodCancelJob     = "cancel_job"     // CancelJob → Empty; on_job_cancelled follows when the tree is empty
	MethodHeartbeat     = "heartbeat"      // Heartbeat → HeartbeatResult
	MethodShutdown      = "shutdown"       // Shutdown → Empty; the core ends its runs and exits
)

// Notifications that the core sends to the scheduler.
const (
	NotifyWorkerEvent  = "on_worker_event"  // WorkerEvent; droppable
	NotifyJobCompleted = "on_job_completed" // JobCompleted; once for each accepted submit_job
	NotifyJobCancelled = "on_job_cancelled" // JobCancelled; before the on_job_completed of a cancelled run
	NotifyEscalation   = "on_escalation"    // Escalation
	NotifyCircuits     = "on_circuits"      // Circuits; whenever a circuit breaker changed its state
)

// Empty is the result of a method that only succeeds or fails.
type Empty struct{}

// Hello opens the conversation.
type Hello struct {
	Protocol int            `json:"protocol"` // the scheduler's ProtocolVersion
	Version  string         `json:"version"`  // the scheduler's program version
	Instance job.InstanceID `json:"instance"` // the state directory that the core works for
	StateDir string         `json:"state_dir"`
	Methods  []string       `json:"methods"` // notifications that the scheduler understands
}

// HelloResult answers Hello. A core that cannot talk this version answers with
// CodeVersion and exits 2.
type HelloResult struct {
	Protocol int       `json:"protocol"`
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Methods  []string  `json:"methods"`  // methods that the core understands
	Adapters []string  `json:"adapters"` // worker adapters that it has
	Started  time.Time `json:"started"`
}

// Configure sets what the core enforces. The last one is in force for permits
// requested after it.
type Configure struct {
	Workers map[job.WorkerKind]job.WorkerSettings `json:"workers,omitempty"`
	Prices  map[string]job.Price                  `json:"prices,omitempty"` // by model
	// MaxConcurrent bounds all runs of this core together, 1 or more.
	MaxConcurrent int    `json:"max_concurrent"`
	Stop          Stages `json:"stop"`
	// PermitTTL is how long a permit may stay unused; 0 means DefaultPermitTTL.
	PermitTTL job.Duration `json:"permit_ttl,omitempty"`
	// StallAfter is how long a run may neither print nor compute; 0: for ever.
	StallAfter job.Duration `json:"stall_after,omitempty"`
	// RepeatedCalls is how many like tool calls with like results in a row end
	// a run; 0: none do.
	RepeatedCalls int `json:"repeated_calls,omitempty"`
	// Circuits are what an earlier core said last of its breakers: this one
	// goes on from there. Only the first Configure of a core is asked for them.
	Circuits []Circuit `json:"circuits,omitempty"`
}

// Circuit is one circuit breaker: of a kind of worker or, with a model, of that
// kind on that model.
type Circuit struct {
	Worker    job.WorkerKind `json:"worker"`
	Model     string         `json:"model,omitempty"`
	State     string         `json:"state"`               // closed, open, half-open
	OpenUntil time.Time      `json:"open_until,omitzero"` // of an open one: when it lets a probe through
	Requests  int            `json:"requests"`            // ended attempts within the window
	Failures  int            `json:"failures"`
	Slow      int            `json:"slow"`
	Cause     string         `json:"cause,omitempty"` // why it opened last
}

// Circuits tells how all breakers stand, and which of them changed.
type Circuits struct {
	Circuits []Circuit `json:"circuits"`
	Changed  Circuit   `json:"changed"`
}

// DefaultPermitTTL is how long a permit may stay unused.
const DefaultPermitTTL = 5 * time.Second

// Stages are the waits of a stop: how long after SIGINT comes SIGTERM, how
// long after that the tree is killed, and how long the kill may take before
// what is left is a ghost.
type Stages struct {
	Interrupt job.Duration `json:"interrupt"`
	Terminate job.Duration `json:"terminate"`
	Kill      job.Duration `json:"kill"`
}

// PermitRequest asks whether one attempt of a job may run.
type PermitRequest struct {
	Job     job.ID     `json:"job"`
	Tenant  job.Tenant `json:"tenant"`
	Attempt int        `json:"attempt"` // number of the attempt to start: 1, 2, 3, …
	Counted int        `json:"counted"` // earlier attempts that count, as the scheduler knows it
	Choice  job.Choice `json:"choice"`
	// Workspace is locked, where its isolation asks for it, from the permit on.
	Workspace job.Workspace `json:"workspace"`
	Limits    job.Limits    `json:"limits"`
	Deadline  *time.Time    `json:"deadline,omitempty"`
	Spent     job.Usage     `json:"spent,omitzero"`       // by earlier attempts, as the scheduler knows it
	SpentTime job.Duration  `json:"spent_time,omitempty"` // likewise, wall time
}

// PermitAnswer is a permit or, with Rejection set, a refusal.
type PermitAnswer struct {
	Permit    *Permit    `json:"permit,omitempty"`
	Rejection *Rejection `json:"rejection,omitempty"`
}

// Permit allows one attempt to run once, if it is used before ExpiresAt.
type Permit struct {
	ID        job.PermitID `json:"permit_id"`
	Job       job.ID       `json:"job_id"`
	Attempt   int          `json:"attempt_index"`
	ExpiresAt time.Time    `json:"expires_at"`  // unused until then, it is void
	Deadline  time.Time    `json:"deadline_at"` // the run is stopped then
	// TokensGranted is how many tokens the run may use; 0 means no limit.
	TokensGranted int64 `json:"tokens_granted,omitempty"`
	// CircuitState says how the breakers of the permit's worker and model stood,
	// e.g. "codex closed, codex:gpt-5 half-open".
	CircuitState string `json:"circuit_state_snapshot,omitempty"`
	// CostGrantedUSD is how much the run may cost, in US dollars; 0 means no limit.
	CostGrantedUSD float64 `json:"cost_granted_usd,omitempty"`
}

// Rejection says why not, when to ask again, and the same in a sentence.
type Rejection struct {
	Reason       job.Reason `json:"reason"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"` // milliseconds; 0 with a terminal reason
	Message      string     `json:"message"`
}

// SubmitJob starts the run that a permit allows. It is refused with
// CodePermitUnknown if the permit is unknown, used, expired or for another job
// or attempt, and with CodeBadTask if the job cannot be run at all.
type SubmitJob struct {
	Permit  job.PermitID `json:"permit_id"`
	Job     job.ID       `json:"job"`
	Attempt int          `json:"attempt"`
	Choice  job.Choice   `json:"choice"`
	Spec    job.Spec     `json:"spec"`
	// Session is resumed if it is set; else the workspace starts from its base.
	Session  string `json:"session,omitempty"`
	Feedback string `json:"feedback,omitempty"` // why the last attempt was not good enough
}

// CancelJob stops a run. Unknown runs are no error: it may just have ended.
type CancelJob struct {
	Job     job.ID         `json:"job"`
	Attempt int            `json:"attempt"`
	Class   job.ErrorClass `json:"class"`         // CancelledClass, or what the run's failure shall be
	Reason  string         `json:"reason"`        // for the log and the user
	Now     bool           `json:"now,omitempty"` // skip the gentle stages
}

// WorkerEvent carries one event of a run.
type WorkerEvent struct {
	job.Event
}

// JobCompleted ends a run: its process tree is empty, its artifacts are
// collected, its locks are free.
type JobCompleted struct {
	Job     job.ID      `json:"job"`
	Attempt int         `json:"attempt"`
	Outcome job.Outcome `json:"outcome"`
}

// JobCancelled says that a cancelled run's process tree is proven empty.
type JobCancelled struct {
	Job       job.ID `json:"job"`
	Attempt   int    `json:"attempt"`
	LatencyMS int64  `json:"worker_cancel_latency_ms"` // from the request to the proof, milliseconds
}

// Escalation is something that a person should look at.
type Escalation struct {
	Scope   string    `json:"scope"` // "global", "worker:codex", "workspace:/path"
	Cause   string    `json:"cause"` // e.g. "ghost_process"
	Message string    `json:"message"`
	Time    time.Time `json:"time"`
}

// Heartbeat asks whether the core is alive.
type Heartbeat struct {
	Seq int64 `json:"seq"`
}

// HeartbeatResult says that it is, and how it fares.
type HeartbeatResult struct {
	Seq        int64 `json:"seq"`
	Running    int   `json:"worker_inflight_count"`
	Permits    int   `json:"permits_unused"`
	Goroutines int   `json:"goroutines"`
}

// Shutdown ends the core: it takes no more work and stops its runs, which are
// reported as cancelled with Reason, then exits 0.
type Shutdown struct {
	Reason string `json:"reason"`
	Now    bool   `json:"now,omitempty"` // skip the gentle stages
}
