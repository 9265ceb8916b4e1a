package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// UpdateKind names what an update is about. It is the event's name in the stream.
type UpdateKind string

// The kinds of updates.
const (
	// UpdateJob: a job changed its state; State, Waiting and the rest say how it stands now.
	UpdateJob UpdateKind = "job"
	// UpdateWaiting: what a queued job waits for has changed, though nothing was stored
	// about it; Waiting says for what. The job may have left the queue meanwhile.
	UpdateWaiting UpdateKind = "waiting"
	// UpdateEvent: something happened in a run; Event says what.
	UpdateEvent UpdateKind = "event"
	// UpdateCore: an agentcore came up or died; Text says so.
	UpdateCore UpdateKind = "core"
	// UpdateCircuit: a circuit breaker changed its state; Text says how.
	UpdateCircuit UpdateKind = "circuit"
	// UpdateEscalation: something that a person should look at.
	UpdateEscalation UpdateKind = "escalation"
	// UpdateSignal: something happened to an agent; Signal names it.
	UpdateSignal UpdateKind = "signal"
	// UpdateGap: this listener was too slow; Missed updates were dropped.
	UpdateGap UpdateKind = "gap"
)

// Signal names what happens to an agent.
type Signal string

// The signals. Each carries the job, its name, tenant, batch, agent, worker,
// attempt and trace; Step names the step that it is about, Text says more.
const (
	JobAssigned       Signal = "job_assigned"       // an attempt has its permit
	AgentStarted      Signal = "agent_started"      // its worker runs
	StepCompleted     Signal = "step_completed"     // a step's result is on disk
	StepReplayed      Signal = "step_replayed"      // a step was answered from the store
	StepFailed        Signal = "step_failed"        // a step was refused
	ApprovalRequested Signal = "approval_requested" // a person has to look
	QuestionAsked     Signal = "question_asked"     // the agent asks a person; Step is the question's number
	QuestionResolved  Signal = "question_answered"  // somebody has answered; Step is the question's number
	JobTaken          Signal = "job_taken_over"     // a person has taken the job over; Text is who
	JobHandedBack     Signal = "job_handed_back"    // they have handed it back, and it goes on
	CheckpointCreated Signal = "checkpoint_created" // the run stopped at a step's boundary
	AgentTerminated   Signal = "agent_terminated"   // nothing of the attempt's processes is left
	AgentCancelled    Signal = "agent_cancelled"    // the job was cancelled
	JobCompleted      Signal = "job_completed"      // the job has ended, well or not
)

// Update is one change that the stream tells of.
type Update struct {
	// ID is its place in the stream, BOOT-N, to go on from. A gap has that of the update
	// before it.
	ID string `json:"id,omitempty"`
	// Kind is what it is about.
	Kind UpdateKind `json:"kind"`
	// Time is when it happened.
	Time time.Time `json:"time"`

	// Job is the job's id.
	Job job.ID `json:"job,omitempty"`
	// Name is the job's name.
	Name job.Name `json:"name,omitempty"`
	// Tenant is whose job it is.
	Tenant job.Tenant `json:"tenant,omitempty"`
	// Worker is the kind of worker that it runs on, or will.
	Worker job.WorkerKind `json:"worker,omitempty"`
	// Attempt is how many attempts have begun.
	Attempt int `json:"attempt,omitempty"`
	// Entry is the state of the job's entry in the queue.
	Entry job.EntryState `json:"entry_state,omitempty"`
	// State is how the job stands.
	State job.RunState `json:"state,omitempty"`
	// Waiting is what a queued job waits for.
	Waiting *job.Waiting `json:"waiting,omitempty"`
	// ExitKind says how a completed job ended.
	ExitKind job.ExitKind `json:"exit_kind,omitempty"`
	// Usage is what all attempts have used so far.
	Usage *job.Usage `json:"usage,omitempty"`
	// Text is for a person.
	Text string `json:"text,omitempty"`
	// Skipped is set if the job was not to run. Text says why.
	Skipped bool `json:"skipped,omitempty"`
	// Trace is the job's trace id.
	Trace string `json:"trace_id,omitempty"`

	// Signal is what happened to the agent.
	Signal Signal `json:"signal,omitempty"`
	// Step is the step that a signal is about.
	Step string `json:"step,omitempty"`
	// Batch is the job's batch, of a signal.
	Batch job.BatchID `json:"batch,omitempty"`
	// Agent is on whose behalf the job runs, of a signal.
	Agent job.AgentID `json:"agent,omitempty"`

	// CorePID is the process id of an agentcore that came up.
	CorePID int `json:"core_pid,omitempty"`

	// Escalation is what a person should look at. Absent where an isolation was lifted.
	Escalation *Escalation `json:"escalation,omitempty"`

	// Event is what happened in a run.
	Event *job.Event `json:"event,omitempty"`
	// Missed is how many updates were dropped. Absent in a gap: nobody knows.
	Missed int `json:"missed,omitempty"`
}
