package ipc

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
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

	MethodReportQueueMetrics = "report_queue_metrics" // QueueMetrics → Empty; regularly
	MethodIsolate            = "isolate"              // Isolations → Empty; whenever the book of isolations changed
)

// Notifications that the core sends to the scheduler.
const (
	NotifyWorkerEvent  = "on_worker_event"  // WorkerEvent; droppable
	NotifyJobCompleted = "on_job_completed" // JobCompleted; once for each accepted submit_job
	NotifyJobCancelled = "on_job_cancelled" // JobCancelled; before the on_job_completed of a cancelled run
	NotifyEscalation   = "on_escalation"    // Escalation
	NotifyMetrics      = "on_metrics"       // Metrics; regularly; droppable
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
	// PermitsLapse says that the core enforces Configure.PermitValidity. One of an
	// earlier release does not, and its runs go on for as long as they are not stopped.
	PermitsLapse bool `json:"permits_lapse,omitempty"`
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
	// PermitValidity is how long permits stay valid, used or not, after a Configure or
	// a Heartbeat that renews them. Then they lapse: the core stops their runs, which are
	// lost and do not count, and gives out none before the next renewal. Time in which
	// the host sleeps counts, but after it half of this is left at least. Absent, as from
	// a scheduler of an earlier release: permits do not lapse.
	PermitValidity job.Duration `json:"permit_validity,omitempty"`
	Limits         Limits       `json:"limits,omitzero"`
	RunLimits      RunLimits    `json:"run_limits,omitzero"`
	// TrustFilters lets the filters run that the configuration of a job's
	// repository defines, not only the user's own.
	TrustFilters bool `json:"trust_filters,omitempty"`
	// Watchdog is a watchdog.Config and Breaker a breaker.Config, as JSON; absent
	// ones are the defaults. docs/config.md explains their fields.
	Watchdog json.RawMessage `json:"watchdog,omitempty"`
	Breaker  json.RawMessage `json:"breaker,omitempty"`
	// Isolations are what is out of use, as MethodIsolate says it later.
	Isolations
	// Circuits are what an earlier core said last of its breakers: this one
	// goes on from there. Only the first Configure of a core is asked for them.
	Circuits []Circuit `json:"circuits,omitempty"`
}

// Limits bound the permits of all jobs together, besides MaxConcurrent and the
// bounds of Workers. They hold for all cores of a scheduler together: each core
// counts its own runs and what PermitRequest.Elsewhere says of the others'.
// Zero and absent mean no limit.
type Limits struct {
	PerTenant     map[job.Tenant]int      `json:"per_tenant,omitempty"` // of one tenant at once; absent: EachTenant
	EachTenant    int                     `json:"each_tenant,omitempty"`
	PerWorkspace  map[string]int          `json:"per_workspace,omitempty"` // of one folder (its real path) at once; absent: EachWorkspace
	EachWorkspace int                     `json:"each_workspace,omitempty"`
	WorkerRates   map[job.WorkerKind]Rate `json:"worker_rates,omitempty"`
	ModelRates    map[string]Rate         `json:"model_rates,omitempty"` // by "provider", "provider/model" or the model's bare name
	CostWindows   []CostWindow            `json:"cost_windows,omitempty"`
}

// RunLimits bound what runs use of the host, as far as its kernel can enforce it.
type RunLimits struct {
	Each  Resources `json:"each,omitzero"`  // one run, for what its job does not limit itself
	Total Resources `json:"total,omitzero"` // all runs together
}

// Resources of a host. Zero and absent mean no limit.
type Resources struct {
	Memory    int64   `json:"memory,omitempty"`    // bytes
	Processes int64   `json:"processes,omitempty"` // and threads
	CPU       float64 `json:"cpu,omitempty"`       // CPUs
}

// Rate bounds permits in time, each figure by a token bucket of that size.
type Rate struct {
	PerSecond int `json:"per_second,omitempty"`
	PerMinute int `json:"per_minute,omitempty"`
}

// CostWindow bounds what is spent within any span of a length.
type CostWindow struct {
	Tenant job.Tenant   `json:"tenant,omitempty"` // absent: all together
	Window job.Duration `json:"window"`
	MaxUSD float64      `json:"max_usd"`
	// Spent is what the scheduler knows to have been spent within the window. A
	// core takes it over for windows that it did not have before.
	Spent []Spending `json:"spent,omitempty"`
}

// Spending is money that was spent some time ago.
type Spending struct {
	AgoMS int64   `json:"ago_ms"`
	USD   float64 `json:"usd"`
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
	Class     job.Class     `json:"class,omitempty"`      // absent: standard
	// Smaller says that there is another choice after this one: an overloaded
	// core then answers with ActionDegrade instead of a permit. Degraded says that
	// this is that choice.
	Smaller  bool `json:"smaller,omitempty"`
	Degraded bool `json:"degraded,omitempty"`
	// Elsewhere is what the scheduler's other cores hold; absent: there are none.
	Elsewhere *Elsewhere `json:"elsewhere,omitempty"`
}

// Elsewhere is what other cores of the scheduler hold now, and what they gave
// out and spent since this core was told last.
type Elsewhere struct {
	Running []Held `json:"running,omitempty"`
	Granted []Held `json:"granted,omitempty"`
	// Returned are of those granted earlier that came to nothing: refused after all.
	Returned []Held                 `json:"returned,omitempty"`
	Spent    map[job.Tenant]float64 `json:"spent,omitempty"` // US dollars
}

// Held is what a permit counts as.
type Held struct {
	Tenant    job.Tenant     `json:"tenant"`
	Worker    job.WorkerKind `json:"worker"`
	Model     string         `json:"model,omitempty"`
	Workspace string         `json:"workspace,omitempty"` // its real path
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
	Action       Action     `json:"action,omitempty"` // what backpressure asks for; absent: another reason
	// Waiting is what the job waits for, where Reason leaves that open.
	Waiting job.WaitingReason `json:"waiting,omitempty"`
}

// Action is what an overloaded core asks the scheduler to do with a job.
type Action string

const (
	// ActionReject: keep it away while it is as it is.
	ActionReject Action = "reject"
	// ActionDefer: ask again after RetryAfterMS.
	ActionDefer Action = "defer"
	// ActionDegrade: ask for the next choice of the job, at once.
	ActionDegrade Action = "degrade"
)

// SubmitJob starts the run that a permit allows. It is refused with
// CodePermitUnknown if the permit is unknown, used, expired or for another job
// or attempt, and with CodeBadTask if the job cannot be run at all.
type SubmitJob struct {
	Permit  job.PermitID `json:"permit_id"`
	Job     job.ID       `json:"job"`
	Attempt int          `json:"attempt"`
	Choice  job.Choice   `json:"choice"`
	Spec    job.Spec     `json:"spec"`
	// Environ are the values of the variables that Spec.Env names, and no others;
	// one that is not here is not set. Absent: they are those of the core itself.
	Environ map[string]string `json:"environ,omitzero"`
	// Resolved holds words and patches that replace Spec's own; absent: there are
	// none. A field of it that is empty replaces nothing.
	Resolved *job.Resolved `json:"resolved,omitempty"`
	// Session is resumed if it is set; else the workspace starts from its base.
	Session  string `json:"session,omitempty"`
	Feedback string `json:"feedback,omitempty"` // why the last attempt was not good enough
	// HasSteps says that durable steps are stored for the job. The core asks for them
	// with MethodListSteps, and leaves the workspace as it is.
	HasSteps bool `json:"has_steps,omitempty"`
	// Stream says that the run is the worker of a stage that streams; absent: it is
	// not. Only a worker of the adapter exec can.
	Stream *Stream `json:"stream,omitempty"`
	// QueueLagMS is how long the job waited since it could run, LockWaitMS how
	// much of that for its workspace, in milliseconds.
	QueueLagMS int64 `json:"worker_queue_lag_ms,omitempty"`
	LockWaitMS int64 `json:"workspace_lock_wait_ms,omitempty"`
}

// CancelJob stops a run. Unknown runs are no error: it may just have ended.
type CancelJob struct {
	Job     job.ID         `json:"job"`
	Attempt int            `json:"attempt"`
	Class   job.ErrorClass `json:"class"`          // CancelledClass, or what the run's failure shall be
	Reason  string         `json:"reason"`         // for the log and the user
	Now     bool           `json:"now,omitempty"`  // skip the gentle stages
	Lost    bool           `json:"lost,omitempty"` // nobody's fault: the attempt does not count
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

// Escalation is something that a person should look at, and what is put out of
// use because of it. The core that tells it enforces it already.
type Escalation struct {
	isolation.Escalation
	// Seq counts the core's escalations from 1, in the order in which it tells them.
	Seq uint64 `json:"seq"`
}

// Isolations are all that is out of use. The core enforces these, and what it
// has decided itself and told in an escalation after Heard.
type Isolations struct {
	Isolations []isolation.Isolation `json:"isolations"`
	// Version is that of the list. A core ignores a list that is older than the one it has.
	Version uint64 `json:"isolations_version"`
	// Heard is the Seq of the core's last escalation that the list takes into
	// account; 0: none.
	Heard uint64 `json:"escalations_heard"`
	// At is the scheduler's wall clock when it made the list; the ends are by it.
	// Zero: the core's.
	At time.Time `json:"isolations_at,omitzero"`
}

// QueueMetrics is how the queue stands: jobs that could run now and do not.
type QueueMetrics struct {
	Depth    int                      `json:"depth"`
	OldestMS int64                    `json:"oldest_ms"` // how long the oldest has waited since it could run
	ByClass  map[job.Class]ClassQueue `json:"by_class,omitempty"`
	// HeartbeatMS are the round trips of the heartbeats since the last report.
	HeartbeatMS []int64 `json:"heartbeat_ms,omitempty"`
	// LatestWins are the workspaces in which a run was cancelled for a newer one
	// since the last report, once for each.
	LatestWins []string   `json:"latest_wins,omitempty"`
	Elsewhere  *Elsewhere `json:"elsewhere,omitempty"`
}

// ClassQueue is a class's part of the queue.
type ClassQueue struct {
	Depth    int   `json:"depth"`
	OldestMS int64 `json:"oldest_ms"`
}

// Metrics is how the core fares.
type Metrics struct {
	// Stage is that of the staged defence: normal, shed, throttle, open_breaker or escalate.
	Stage string `json:"stage"`
	// Concurrency is how many runs it allows at once while it throttles; 0: as configured.
	Concurrency int `json:"concurrency,omitempty"`
	// Evidence says why the stage was entered.
	Evidence string `json:"evidence,omitempty"`
	// Metrics is a watchdog.Snapshot as JSON: worker_inflight_count and the rest.
	Metrics json.RawMessage `json:"metrics"`
}

// Heartbeat asks whether the core is alive, and says whether the scheduler is.
type Heartbeat struct {
	Seq int64 `json:"seq"`
	// Renew makes the core's permits valid for another Configure.PermitValidity. It is
	// false while the scheduler's store does not answer: what runs could not be recorded.
	Renew bool `json:"renew,omitempty"`
}

// HeartbeatResult says that it is, and how it fares.
type HeartbeatResult struct {
	Seq        int64 `json:"seq"`
	Running    int   `json:"worker_inflight_count"`
	Permits    int   `json:"permits_unused"`
	Goroutines int   `json:"goroutines"`
	RSSBytes   int64 `json:"core_rss_bytes"` // -1: unknown
	CPUMS      int64 `json:"core_cpu_ms"`    // used since the core's start; -1: unknown
}

// Shutdown ends the core: it takes no more work and stops its runs, which are
// reported as cancelled with Reason, then exits 0.
type Shutdown struct {
	Reason string `json:"reason"`
	Now    bool   `json:"now,omitempty"` // skip the gentle stages
}
