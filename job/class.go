package job

// ErrorClass sorts failures by what can be done about them. An adapter turns
// what its program prints into one of these; the retry table decides by them.
type ErrorClass string

const (
	// NoError is the class of a success.
	NoError ErrorClass = ""
	// RateLimit: the provider asks us to come back later; Outcome.RetryAt says when, if it said so.
	RateLimit ErrorClass = "RATE_LIMIT"
	// Server: the provider failed (HTTP 5xx, a broken stream).
	Server ErrorClass = "SERVER"
	// Network: the provider could not be reached.
	Network ErrorClass = "NETWORK"
	// Timeout: the attempt's time or the job's deadline ran out.
	Timeout ErrorClass = "TIMEOUT"
	// Stalled: no output and no work for too long.
	Stalled ErrorClass = "STALLED"
	// Crash: the worker, or the core that ran it, died.
	Crash ErrorClass = "CRASH"
	// InvalidOutput: the answer does not satisfy the job's output schema.
	InvalidOutput ErrorClass = "INVALID_OUTPUT"
	// ResourceExhausted: memory, disk, context window or quota of the host or worker.
	ResourceExhausted ErrorClass = "RESOURCE_EXHAUSTED"
	// Auth: key missing, wrong or expired. Does not heal by waiting.
	Auth ErrorClass = "AUTH"
	// ConflictClass: the patches that the job builds on do not fit together.
	ConflictClass ErrorClass = "CONFLICT"
	// VerifyFailed: the job's verify command did not exit 0.
	VerifyFailed ErrorClass = "VERIFY_FAILED"
	// HumanRejected: a person looked and said no; the feedback goes to the next attempt.
	HumanRejected ErrorClass = "HUMAN_REJECTED"
	// Budget: tokens, cost, steps or command time of the job are spent.
	Budget ErrorClass = "BUDGET"
	// SandboxClass: the run tried again and again what no honest program does, and was stopped.
	SandboxClass ErrorClass = "SANDBOX"
	// CancelledClass: it was stopped on request.
	CancelledClass ErrorClass = "CANCELLED"
	// Config: the job or the host is set up wrongly (no such worker, not a git repository).
	Config ErrorClass = "CONFIG"
	// Unknown: a failure that no rule recognised.
	Unknown ErrorClass = "UNKNOWN"
)

// ErrorClasses lists every class of a failure.
func ErrorClasses() []ErrorClass {
	return []ErrorClass{
		RateLimit, Server, Network, Timeout, Stalled, Crash, InvalidOutput, ResourceExhausted, ConflictClass,
		Auth, VerifyFailed, HumanRejected, Budget, SandboxClass, CancelledClass, Config, Unknown,
	}
}

// Reason says why a permit was refused; the same constant stands on the wire,
// in the log and on the user's screen.
type Reason string

const (
	// QueueStall: the queue does not move and new work would make it worse.
	QueueStall Reason = "QUEUE_STALL"
	// CircuitOpen: the worker kind or provider is sick; try the next fallback at once.
	CircuitOpen Reason = "CIRCUIT_OPEN"
	// RateLimited: too many requests for now, or no free slot.
	RateLimited Reason = "RATE_LIMIT"
	// GlobalShed: the host is overloaded and sheds this class of work.
	GlobalShed Reason = "GLOBAL_SHED"
	// FatalMode: the core runs nothing until a person looks at it.
	FatalMode Reason = "FATAL_MODE"
	// WorkspaceBusy: another run holds this folder, or one above or below it.
	WorkspaceBusy Reason = "WORKSPACE_BUSY"
	// LimitExceeded: attempts, retry budget, deadline or cost are spent. Terminal.
	LimitExceeded Reason = "LIMIT_EXCEEDED"
)

// Terminal reports whether asking again cannot help: the job is a dead letter.
func (r Reason) Terminal() bool { return r == LimitExceeded }
