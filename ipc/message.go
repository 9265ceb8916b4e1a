package ipc

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// ProtocolVersion is the version of the messages. Two sides talk only if their
// versions are equal. A field or a method may be added without a new version: a side
// ignores a field that it does not know, and answers an unknown method with
// CodeMethodNotFound. A field is never removed or given another meaning within a
// version.
const ProtocolVersion = 1

// Methods that the scheduler calls on the core. The rules of all of them:
//
//   - The core serves requests concurrently, each in a goroutine of its own, so that
//     answers may overtake each other. A scheduler that needs an order waits for the
//     first answer before it sends the second request.
//   - Hello and Configure come first. Until both have succeeded, all others but
//     heartbeat, isolate and shutdown fail with CodeNotConfigured.
//   - Params that do not decode fail with CodeInvalidParams, and a failure that has no
//     code of its own with CodeInternal. A request that failed has changed nothing,
//     unless its message says otherwise.
//   - No request is repeated by this package. A caller that got no answer does not know
//     whether the request was served; each message says what a repetition does.
const (
	MethodHello         = "hello"          // Hello → HelloResult
	MethodConfigure     = "configure"      // Configure → Empty
	MethodRequestPermit = "request_permit" // PermitRequest → PermitAnswer
	MethodSubmitJob     = "submit_job"     // SubmitJob → Empty
	MethodCancelJob     = "cancel_job"     // CancelJob → Empty
	MethodSetGrants     = "set_grants"     // SetGrants → SetGrantsResult
	MethodHeartbeat     = "heartbeat"      // Heartbeat → HeartbeatResult
	MethodShutdown      = "shutdown"       // Shutdown → Empty

	MethodReportQueueMetrics = "report_queue_metrics" // QueueMetrics → Empty
	MethodIsolate            = "isolate"              // Isolations → Empty
)

// Notifications that the core sends to the scheduler. They have no answer and arrive in
// the order in which they were sent. The core drops one only where this table says so,
// and then the next one of the same stream has a member "dropped" with the number of
// those that are missing before it.
const (
	NotifyWorkerEvent  = "on_worker_event"  // WorkerEvent; some kinds are droppable
	NotifyJobCompleted = "on_job_completed" // JobCompleted
	NotifyJobCancelled = "on_job_cancelled" // JobCancelled
	NotifyEscalation   = "on_escalation"    // Escalation
	NotifyMetrics      = "on_metrics"       // Metrics; droppable
	NotifyCircuits     = "on_circuits"      // Circuits
)

// Empty is the result of a method that only succeeds or fails.
type Empty struct{}

// Hello opens the conversation. The scheduler sends it once, as its first message, and
// waits 20 seconds for the answer. The core then prepares the state directory and its
// ownership of processes.
//
// A core of another protocol version answers with CodeVersion, ends, and exits with 2. A
// second hello fails with CodeInvalidRequest and changes nothing.
type Hello struct {
	Protocol int            `json:"protocol"` // the scheduler's ProtocolVersion
	Version  string         `json:"version"`  // the scheduler's program version; only shown to people
	Instance job.InstanceID `json:"instance"` // of the state directory; part of the tag of each run's processes
	// StateDir is the absolute path of the scheduler's state directory. The core keeps
	// workspaces, attempts and temporary files below it.
	StateDir string `json:"state_dir"`
	// Methods are the notifications that the scheduler understands. The core sends all
	// of its notifications whatever the list says; the scheduler ignores unknown ones.
	Methods []string `json:"methods"`
}

// HelloResult answers Hello.
type HelloResult struct {
	Protocol int       `json:"protocol"` // the core's ProtocolVersion; the scheduler ends a core with another one
	Version  string    `json:"version"`  // the core's program version; only shown to people
	PID      int       `json:"pid"`      // the core's process id
	Methods  []string  `json:"methods"`  // the methods that the core understands
	Adapters []string  `json:"adapters"` // the names of its worker adapters, sorted
	Started  time.Time `json:"started"`  // when the core took the hello, by its wall clock, UTC
	// PermitsLapse says that the core enforces Configure.PermitValidity. A core of an
	// earlier release does not: its runs go on until something stops them, and the
	// scheduler logs a warning.
	PermitsLapse bool `json:"permits_lapse,omitempty"`
}

// Heartbeat asks whether the core is alive. The scheduler sends one at a time, every
// second by default, also before Configure. A core that gives no answer within the
// scheduler's heartbeat.hang_after is hung: the scheduler kills and replaces it.
type Heartbeat struct {
	Seq int64 `json:"seq"` // 1, 2, 3, …; the answer repeats it
	// Renew makes the core's permits valid for another Configure.PermitValidity, counted
	// from Sent. A late renewal does not revive a permit that has lapsed. Renew is false while the scheduler's store does not answer: the
	// ends of runs could not be recorded.
	Renew bool `json:"renew,omitempty"`
	// Lapse makes the core's permits lapse at once, whatever it granted itself after it
	// stood still: from a node whose own lease, and the validity after that, have ended.
	Lapse bool `json:"lapse,omitempty"`
	// Sent is when the scheduler had decided that, as the time since the start of the host
	// that both run on (CLOCK_BOOTTIME): the request may wait while the host stands still.
	// 0, as from a scheduler of an earlier release, is when the core serves the request.
	Sent job.Duration `json:"sent,omitempty"`
}

// HeartbeatResult answers Heartbeat with what the core uses. The scheduler replaces a
// core that stays above the limits of the configuration (cores.max_rss, cores.max_cpu).
type HeartbeatResult struct {
	Seq        int64 `json:"seq"`                   // that of the Heartbeat
	Running    int   `json:"worker_inflight_count"` // permits in use: runs that have not ended
	Permits    int   `json:"permits_unused"`        // permits that wait for their submit_job
	Goroutines int   `json:"goroutines"`            // of the core's process
	RSSBytes   int64 `json:"core_rss_bytes"`        // resident memory of the core's process; -1: unknown
	CPUMS      int64 `json:"core_cpu_ms"`           // CPU time of the core's process since its start, ms; -1: unknown
}

// Shutdown ends the core. It answers at once; then it refuses permits and submissions,
// stops its runs, reports each of them with on_job_completed as CANCELLED and lost (the
// attempt does not count), closes its output at a frame's end, and exits with 0. The
// scheduler reads until that end and then closes its own output; the core waits 5 seconds
// for it.
//
// A second shutdown is harmless. One with Now hurries the first; the first Reason stands.
type Shutdown struct {
	Reason string `json:"reason"`        // for the outcomes of the runs and the log
	Now    bool   `json:"now,omitempty"` // skip the gentle stages of each run's stop
}
