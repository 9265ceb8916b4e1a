package ipc

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// The messages of one attempt, in the order in which they are sent:
//
//	request_permit → permit
//	submit_job     → accepted
//	                 on_worker_event …
//	set_grants     → (any number of times)
//	cancel_job     → (any number of times)
//	                 on_job_cancelled    if the outcome is RunCancelled
//	                 on_job_completed    once, always last
//
// Job and Attempt identify the attempt in each of them.

// PermitRequest asks whether one attempt of a job may run. The scheduler sends it when
// it has claimed the job. A refusal is an answer, not an error.
//
// The core takes the stricter of its own record and of what the request claims. One
// attempt of a job has a permit at a time: while a permit of the job is unused or in use,
// a further request, also the same one again, is refused with RATE_LIMIT and waiting
// "turn". A permit that was lost with its answer expires after Configure.PermitTTL. While
// the core shuts down, a request fails with CodeShuttingDown.
type PermitRequest struct {
	Job     job.ID     `json:"job"`
	Tenant  job.Tenant `json:"tenant"`  // "" is job.DefaultTenant
	Attempt int        `json:"attempt"` // number of the attempt to start: 1, 2, 3, …
	Counted int        `json:"counted"` // earlier attempts that count, as the scheduler knows it
	Choice  job.Choice `json:"choice"`  // the worker and the model that the attempt is to run with
	// Workspace is locked, where its isolation asks for it, from the permit on.
	Workspace job.Workspace `json:"workspace"`
	Folder    job.ID        `json:"folder,omitempty"` // the job whose workspace that is; absent: its own
	// Limits are the job's own. MaxAttempts, RetryBudget, MaxCostUSD and MaxTokens are
	// checked against what earlier attempts used; the rest bounds this attempt.
	Limits    job.Limits   `json:"limits"`
	Deadline  *time.Time   `json:"deadline,omitempty"`   // of the job, by the wall clock; absent: none
	Now       time.Time    `json:"now,omitzero"`         // when it was asked, by the same clock, which may not be the core's
	Spent     job.Usage    `json:"spent,omitzero"`       // by earlier attempts, as the scheduler knows it
	Ceded     Ceded        `json:"ceded,omitzero"`       // of its limits, to its children
	SpentTime job.Duration `json:"spent_time,omitempty"` // wall time of earlier attempts, likewise
	Class     job.Class    `json:"class,omitempty"`      // absent: standard
	// Smaller says that the job has another choice after this one: an overloaded
	// core then answers with ActionDegrade. Degraded says that this choice was made
	// because of such an answer: the core asks for another one only if the kind of
	// worker is out of use.
	Smaller  bool `json:"smaller,omitempty"`
	Degraded bool `json:"degraded,omitempty"`
	// Elsewhere is what the scheduler's other cores hold; absent: nothing.
	Elsewhere *Elsewhere `json:"elsewhere,omitempty"`
}

// Elsewhere is what other cores of the scheduler hold now, and what they spent since this
// core was told last. It comes with a request for a permit or with a report of the queue.
//
// Running holds for the request that it comes with, and is ignored in a report; a scheduler
// with nodes leaves it out: it bounds itself what runs at once over all hosts. The core adds
// up Spent, so the scheduler tells each part once, and again only if the call failed: then
// it may count twice, and never not at all.
type Elsewhere struct {
	Running []Held                 `json:"running,omitempty"` // permits requested, unused or in use at other cores now
	Spent   map[job.Tenant]float64 `json:"spent,omitempty"`   // US dollars
}

// Held is what a permit counts as for the limits. The core resolves an empty Model by its
// own settings of the worker, as it does for a request.
type Held struct {
	Tenant    job.Tenant     `json:"tenant"`
	Worker    job.WorkerKind `json:"worker"`
	Model     string         `json:"model,omitempty"`     // as in job.Choice; "" is the configured model
	Workspace string         `json:"workspace,omitempty"` // the real path of the folder; "" if the run has none
}

// PermitAnswer has exactly one of its fields.
type PermitAnswer struct {
	Permit    *Permit    `json:"permit,omitempty"`
	Rejection *Rejection `json:"rejection,omitempty"`
}

// Permit allows one attempt to run, once. It holds slots, tokens of the rates and the
// lock on the workspace. They are free again when the permit expires unused, is revoked,
// lapses, or when its run has ended. A token of a rate is given back only if the permit
// was not used.
//
// The times are for the log and the user. The core itself counts by the monotonic clock.
type Permit struct {
	ID        job.PermitID `json:"permit_id"`
	Job       job.ID       `json:"job_id"`        // as requested
	Attempt   int          `json:"attempt_index"` // as requested
	ExpiresAt time.Time    `json:"expires_at"`    // a submit_job after it fails with CodePermitUnknown
	// Deadline is the earliest of the job's timeout, retry budget and deadline. The core
	// stops the run then, as TIMEOUT.
	Deadline time.Time `json:"deadline_at"`
	// TokensGranted and CostGrantedUSD are what is left of the job's limits. The core
	// stops the run, as BUDGET, when it has used more. 0 means no limit.
	TokensGranted  int64   `json:"tokens_granted,omitempty"`
	CostGrantedUSD float64 `json:"cost_granted_usd,omitempty"`
	// CircuitState says how the breakers of the permit's worker and model stood,
	// e.g. "codex closed, codex:gpt-5 half-open".
	CircuitState string `json:"circuit_state_snapshot,omitempty"`
}

// Rejection says why an attempt may not run now. Nothing is held after it. The reasons,
// in the order in which the core looks for them:
//
//	WORKSPACE_BUSY                             the folder's file system does not answer
//	CIRCUIT_OPEN, WORKSPACE_BUSY, FATAL_MODE   an isolation of the kind, the folder, everything
//	GLOBAL_SHED, QUEUE_STALL, CIRCUIT_OPEN     the staged defence
//	LIMIT_EXCEEDED                             the job's own limits; terminal
//	CIRCUIT_OPEN                               a circuit breaker of the worker or its model
//	RATE_LIMIT, GLOBAL_SHED                    slots, rates, cost windows
//	WORKSPACE_BUSY                             another run holds the folder, or one above or below it
//
// The scheduler puts the job back into the queue for RetryAfterMS, except that it ends a
// job with a terminal reason, and goes on with the job's next choice after CIRCUIT_OPEN.
type Rejection struct {
	Reason job.Reason `json:"reason"`
	// RetryAfterMS is when to ask again, in milliseconds: 1 or more, and 0 with a
	// terminal reason.
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Message      string `json:"message"` // the reason in a sentence, never empty
	// Action is what an isolation or the staged defence asks for; absent with all other
	// reasons.
	Action Action `json:"action,omitempty"`
	// Waiting is what the job waits for, where Reason leaves that open; else absent. With
	// RATE_LIMIT it is slot, rate, cost_window, turn (another attempt of the job has a
	// permit) or permit (the core's permits have lapsed).
	Waiting job.WaitingReason `json:"waiting,omitempty"`
}

// Action is what an overloaded core asks the scheduler to do with a job.
type Action string

const (
	// ActionReject: keep the job in the queue; the reason will not pass soon.
	ActionReject Action = "reject"
	// ActionDefer: ask again after RetryAfterMS.
	ActionDefer Action = "defer"
	// ActionDegrade: ask at once for the next choice of the job, with Degraded set. It
	// is only sent to a request with Smaller set.
	ActionDegrade Action = "degrade"
)

// SubmitJob starts the run that a permit allows, and uses the permit up. The answer
// means that the run is accepted; exactly one on_job_completed follows. A job that cannot
// be run, e.g. without a workspace or an adapter, is accepted too and ends as CONFIG.
//
// It fails with CodePermitUnknown if the permit is unknown, used, expired, revoked or for
// another job or attempt; a permit that exists stays as it is then. If Choice, Spec.Tenant
// or Spec.Workspace differ from the PermitRequest, it fails with CodePermitUnknown and the
// permit is given back. While the core shuts down, it fails with CodeShuttingDown. So a
// repetition never starts a second run. The scheduler takes these two codes as an attempt
// that does not count, and any other error code as a failure of the class CONFIG.
type SubmitJob struct {
	Permit  job.PermitID `json:"permit_id"`
	Job     job.ID       `json:"job"`     // that of the permit
	Attempt int          `json:"attempt"` // that of the permit
	Choice  job.Choice   `json:"choice"`  // that of the permit
	// Spec is the job as it was submitted. The core checks Output and Verify, and what
	// Flow says of a loop and an evaluation, after the worker has succeeded; it leaves
	// dependencies, retries and approvals to the scheduler.
	Spec job.Spec `json:"spec"`
	// Environ are the values of the variables that Spec.Env names, and no others;
	// one that is not here is not set. Absent: they are those of the core itself.
	Environ map[string]string `json:"environ,omitzero"`
	// Resolved replaces the Spec's instructions, system prompt and verify command, field
	// by field where it is not empty, and brings the input and the patches that the
	// workspace begins with. Absent: the Spec stands as it is.
	Resolved *job.Resolved `json:"resolved,omitempty"`
	// Away says that the scheduler is on another host: the paths of Resolved.Patches and Named are of that one, and
	// the core gets the files with MethodReadPatch. On the scheduler's own host it does so with a file that is not there.
	Away bool `json:"away,omitempty"`
	// Named are the patches of other jobs whose paths occur in the words or the input. The core
	// replaces the paths there by those of its own copies.
	Named []job.Patch `json:"named,omitempty"`
	// Granted are entries of Spec.Network that people have allowed besides; see SetGrants.
	Granted []string `json:"granted,omitempty"`
	// Rules are what people have allowed for good of what the run asks for.
	Rules []job.AskRule `json:"rules,omitempty"`
	// Messages are what people have said to the job that no attempt was told, in their order.
	Messages []Message `json:"messages,omitempty"`
	// Answered are questions of an earlier attempt that were answered since, and whose answers no program was given: the
	// agent is told in its instructions. The answer to an equal question comes with AskPerson all the same.
	Answered []Answered `json:"answered,omitempty"`
	// Session is the agent's session to resume. If it is empty and HasSteps is false, the
	// workspace starts from its base and the worker's private folder is emptied.
	Session string `json:"session,omitempty"`
	// Folder is the job in whose workspace the job goes on, with the private folders of that one's workers; absent: its
	// own. The workspace is then left as it is, with Session or without, and made anew only where it is not.
	Folder job.ID `json:"folder,omitempty"`
	// Left is what another job had left that this one goes on from: of Folder, or of Fork. Absent: nothing is known of it.
	Left *Left `json:"left,omitempty"`
	// Fork is the job whose private folders hold Session: this one begins with a copy of them, and its workspace with
	// what Left says, at the start of that job's. Absent: Session is the job's own.
	Fork job.ID `json:"fork,omitempty"`
	// KeepSession asks for the files of the agent's session as an artifact, unless the run does what was asked: the job
	// may go on on another host.
	KeepSession bool `json:"keep_session,omitempty"`
	// Elsewhere says that the attempt which had Session last ran on another host than this. Without Carried the agent starts over.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Carried is what such an attempt has left. The core uses it if Elsewhere is set or if it does not have the session itself.
	Carried *Carried `json:"carried,omitempty"`
	// Feedback is why the last attempt was not good enough. The worker reads it.
	Feedback string `json:"feedback,omitempty"`
	// HasSteps says that durable steps are stored for the job. The core gets them with
	// MethodListSteps before the worker starts, and leaves the workspace as it is.
	HasSteps bool `json:"has_steps,omitempty"`
	// Stream says that the run is the worker of a stage that streams; absent: it is
	// not. A worker whose adapter cannot stream ends as CONFIG.
	Stream *Stream `json:"stream,omitempty"`
	// QueueLagMS is how long the job waited since it could run, LockWaitMS how
	// much of that for its workspace, in milliseconds. They feed the core's metrics.
	QueueLagMS int64 `json:"worker_queue_lag_ms,omitempty"`
	LockWaitMS int64 `json:"workspace_lock_wait_ms,omitempty"`
}

// Left is what the latest attempt that worked in a folder has left.
type Left struct {
	// Patch is all that differs from the start; its Path is "" if that is nothing. The core gets the file with
	// MethodReadPatch where it is not on its host.
	Patch job.Patch `json:"patch"`
	// Here says that this attempt ran on the core's host, so that the folder is as it was left if it is there.
	Here bool `json:"here,omitempty"`
}

// Carried is what is needed to go on with a session that another host had. The core gets the files with MethodReadPatch.
type Carried struct {
	Session job.Artifact `json:"session"` // its files, job.ArtifactSession
	// Patch is what the job had changed when they were kept; its Path is "" if that is nothing.
	Patch job.Patch `json:"patch"`
}

// CancelJob stops a run in the stages of Configure.Stop, or revokes its unused permit, of
// which no notification tells. The answer comes at once; the run ends later. An unknown
// attempt is no error: it may just have ended. Of several, the first Class, Reason and
// Lost stand; a later one with Now skips the gentle stages that remain.
type CancelJob struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	// Class is the class of the outcome. With CancelledClass, or "", its state is
	// RunCancelled; with any other, RunFailed, and on_job_cancelled is not sent.
	Class  job.ErrorClass `json:"class"`
	Reason string         `json:"reason"`         // becomes the outcome's message
	Now    bool           `json:"now,omitempty"`  // kill at once
	Lost   bool           `json:"lost,omitempty"` // the attempt does not count for the job's limits or the breakers
}

// SetGrants replaces SubmitJob.Granted of a run, from its next connection on; connections
// that are open go on. Asking again changes nothing.
type SetGrants struct {
	Job     job.ID   `json:"job"`
	Attempt int      `json:"attempt"`
	Granted []string `json:"granted"` // entries of Spec.Network; those that cannot be used are told in a warning of the run
}

// SetGrantsResult says whether the grants hold for the run from now on. False means that the
// attempt is unknown, that no sandbox holds it, or that it may reach all hosts.
type SetGrantsResult struct {
	Applied bool `json:"applied"`
}

// WorkerEvent carries one event of a run. The events of an attempt are numbered by Seq
// from 1, and (Job, Attempt, Seq) counts once however often it arrives. Events of the
// kinds state and session, and those of durable steps, are never dropped; all others are
// when the wire is full, the oldest first. A text is cut to job.MaxEventText. After
// 50,000 texts and log lines of one attempt, further ones stay in its log files only. The
// scheduler ignores an event of an attempt that it does not run.
type WorkerEvent struct {
	job.Event
}

// JobCompleted ends an attempt: its process tree is empty, its artifacts are collected,
// its locks and its slot are free. The core sends it once for each accepted submit_job,
// after every event of the attempt. A core that dies does not send it: the scheduler waits
// until nothing of the core and its runs is left, and ends the attempt as CRASH. The
// scheduler ignores one for an attempt that it has not submitted to this core.
type JobCompleted struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	// Talk is what was not reported yet; absent: nothing.
	Talk    *ReportTalk `json:"talk,omitempty"`
	Outcome job.Outcome `json:"outcome"` // without secrets; its answer is at most job.MaxEventText
	// RetryIn is how far ahead RetryAt of the outcome lies, where the provider asked for a while and not for a
	// time: it counts from when the scheduler hears of it, whose clock may not be the core's. 0: RetryAt counts.
	RetryIn job.Duration `json:"retry_in,omitempty"`
}

// JobCancelled says that the process tree of a run is proven empty. It comes just before
// the on_job_completed of an outcome in the state RunCancelled. It is for the log and for
// measurements: only on_job_completed ends the attempt.
type JobCancelled struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	// LatencyMS is from the request to stop until the proof, in milliseconds; 0 if the
	// run had no worker yet.
	LatencyMS int64 `json:"worker_cancel_latency_ms"`
}
