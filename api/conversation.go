package api

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Message is what somebody has said to a job.
type Message struct {
	// Number is its place among what was said to the job: 1, 2, ….
	Number int `json:"number"`
	// ID names it in the job. Saying something with the same id again says nothing more.
	ID string `json:"id"`
	// Job is the job's id.
	Job job.ID `json:"job"`
	// From is who has said it.
	From string `json:"from,omitempty"`
	// Text is what was said.
	Text string `json:"text"`
	// State is what became of it: queued, delivered, folded or superseded.
	State MessageState `json:"state"`
	// Attempt is the attempt that was given it last. Absent: none was yet.
	Attempt int `json:"attempt,omitempty"`
	// Reason is why it still waits, or was superseded.
	Reason string `json:"reason,omitempty"`
	// FollowUp is the job that goes on with it, of one that had ended.
	FollowUp job.ID `json:"follow_up,omitempty"`
	// At is when it was said.
	At time.Time `json:"at"`
	// SettledAt is when it was delivered or folded.
	SettledAt *time.Time `json:"settled_at,omitempty"`
}

// MessageState is what became of a message.
type MessageState string

// The states of a message.
const (
	MessageQueued     MessageState = "queued"     // no agent has it yet
	MessageDelivered  MessageState = "delivered"  // the agent's program has it, for its running turn or a later one
	MessageFolded     MessageState = "folded"     // it stands in a turn: the agent has read it
	MessageSuperseded MessageState = "superseded" // no agent of this job will be told
)

// MessageStates returns all of them.
func MessageStates() []MessageState {
	return []MessageState{MessageQueued, MessageDelivered, MessageFolded, MessageSuperseded}
}

// Say is something to tell a job.
type Say struct {
	// Text is what to say, at most 64 KiB.
	Text string `json:"text"`
	// ID names it in the job, 1 to 100 of a-z A-Z 0-9 . _ -, so that saying it again says nothing more. Absent: it gets one.
	ID string `json:"id,omitempty"`
	// By is who says it.
	By string `json:"by,omitempty"`
}

// Fork begins another job with copies of a job's work and of its agent's session.
type Fork struct {
	// Text is what the agent is told, at most 64 KiB.
	Text string `json:"text"`
	// Name is what the new job is called. Absent: as the other, with -fork.
	Name job.Name `json:"name,omitempty"`
	// ID names the fork in the job, as Say.ID, so that asking again makes no other.
	ID string `json:"id,omitempty"`
	// By is who says it.
	By string `json:"by,omitempty"`
}

// Said is what became of a Say.
type Said struct {
	// Message is as it is stored.
	Message Message `json:"message"`
	// Note says in one sentence when the agent reads it.
	Note string `json:"note"`
}

// Messages are what was said to a job.
type Messages struct {
	// Messages are in the order in which they were said.
	Messages []Message `json:"messages"`
}

// Interrupt stops the turn of a job's agent.
type Interrupt struct {
	// By is who interrupts it.
	By string `json:"by,omitempty"`
}

// Takeover puts a job into a person's hands.
type Takeover struct {
	// By is who takes it over.
	By string `json:"by,omitempty"`
}

// TakenOver is a job that a person has taken over.
type TakenOver struct {
	// Job is the job's id.
	Job job.ID `json:"job"`
	// By is who has it.
	By string `json:"by,omitempty"`
	// Since is when they took it over.
	Since time.Time `json:"since"`
	// Held says that its run has stopped, so that its folder and session are the person's. Else it is about to: the job is then held for person.
	Held bool `json:"held"`
}

// Handback lets a job go on that a person has taken over.
type Handback struct {
	// ID names it, 1 to 100 of a-z A-Z 0-9 . _ -, so that it may be asked for again. Absent: a repeated one without text is known all the same.
	ID string `json:"id,omitempty"`
	// Text is what to tell the agent besides, at most 64 KiB.
	Text string `json:"text,omitempty"`
	// By is who hands it back.
	By string `json:"by,omitempty"`
}

// HandedBack is what became of a Handback.
type HandedBack struct {
	// Job is the job's id.
	Job job.ID `json:"job"`
	// Message is the number of the message with which its agent is told. Absent: it was told before, or too much waits for it.
	Message int `json:"message,omitempty"`
	// Note says in one sentence what follows.
	Note string `json:"note"`
}

// Question is what the agent of a run has asked people.
type Question struct {
	// Number is its place among the questions of the job: 1, 2, ….
	Number int `json:"number"`
	// Job is the job's id.
	Job job.ID `json:"job"`
	// Name is the job's name.
	Name job.Name `json:"name"`
	// Tenant is whose job it is.
	Tenant job.Tenant `json:"tenant"`
	// Attempt is the attempt that has asked it last.
	Attempt int `json:"attempt"`
	// Kind is what it is about: command, write, read, host, tool or words.
	Kind string `json:"kind"`
	// Text is the question.
	Text string `json:"text"`
	// Tool is the tool that the agent would use, as its program calls it.
	Tool string `json:"tool,omitempty"`
	// Command is the command line that it would run.
	Command string `json:"command,omitempty"`
	// Path is the file or folder that it would read or write.
	Path string `json:"path,omitempty"`
	// Host is the host that it would reach.
	Host string `json:"host,omitempty"`
	// Diff is what a write would change.
	Diff string `json:"diff,omitempty"`
	// Decisions are the answers that the program takes. Absent: it wants words.
	Decisions []string `json:"decisions,omitempty"`
	// Schema is the JSON schema of an answer in words. Absent: text.
	Schema json.RawMessage `json:"schema,omitempty"`
	// State is open, answered or withdrawn.
	State QuestionState `json:"state"`
	// Waits says that the run waits for the answer now; else it has gone on without, or has ended.
	Waits bool `json:"waits,omitempty"`
	// AskedAt is when it was asked first.
	AskedAt time.Time `json:"asked_at"`
	// Until is when the run that waits goes on without an answer.
	Until *time.Time `json:"until,omitempty"`
	// Answer is the first answer. Absent: there is none yet.
	Answer *QuestionAnswer `json:"answer,omitempty"`
}

// QuestionState is how a question stands.
type QuestionState string

// The states of a question.
const (
	QuestionOpen      QuestionState = "open"      // it can be answered
	QuestionAnswered  QuestionState = "answered"  // it was; the first answer counts
	QuestionWithdrawn QuestionState = "withdrawn" // the program has taken it back, or the job was cancelled
)

// QuestionStates returns all of them.
func QuestionStates() []QuestionState {
	return []QuestionState{QuestionOpen, QuestionAnswered, QuestionWithdrawn}
}

// Questions are what agents have asked people.
type Questions struct {
	// Questions are ordered by when they were asked.
	Questions []Question `json:"questions"`
}

// Inbox is what waits for people.
type Inbox struct {
	// Jobs are those whose work oversight has people look at, the one that was submitted first first.
	Jobs []Job `json:"jobs"`
	// Questions are those of agents that can be answered, in the order in which they were asked.
	Questions []Question `json:"questions"`
}

// The decisions of an answer.
const (
	Allow       = "allow"         // the agent may
	Deny        = "deny"          // it may not, and goes on
	DenyAndStop = "deny_and_stop" // it may not, and stops
)

// QuestionAnswer is the answer to a question.
type QuestionAnswer struct {
	// Decision is allow, deny or deny_and_stop. Absent: words alone.
	Decision string `json:"decision,omitempty"`
	// Text is what was said besides, or the answer itself.
	Text string `json:"text,omitempty"`
	// Value is the answer to a question with a schema.
	Value json.RawMessage `json:"value,omitempty"`
	// Scope is for what an allow is: once, job or tenant.
	Scope RunGrantScope `json:"scope,omitempty"`
	// By is who has answered.
	By string `json:"by,omitempty"`
	// At is when that was.
	At time.Time `json:"at"`
	// Given is the attempt whose program was given the answer. Absent: none yet.
	Given int `json:"given,omitempty"`
}

// AnswerQuestion answers a question.
type AnswerQuestion struct {
	// Decision is allow, deny or deny_and_stop. Absent for a question that wants words.
	Decision string `json:"decision,omitempty"`
	// Text says more, e.g. why not; it is the answer to a question that wants words. At most 64 KiB.
	Text string `json:"text,omitempty"`
	// Value is the answer to a question with a schema.
	Value json.RawMessage `json:"value,omitempty"`
	// Scope is for what an allow is: once, for this job's further runs too (job), or for all jobs of its tenant (tenant). Absent: once.
	Scope RunGrantScope `json:"scope,omitempty"`
	// Pattern is what to allow with the scopes job and tenant, such as "npm test *". Absent: exactly what was asked.
	Pattern string `json:"pattern,omitempty"`
	// By is who answers.
	By string `json:"by,omitempty"`
}

// AnsweredQuestion is what became of an AnswerQuestion.
type AnsweredQuestion struct {
	// Question is as it is stored, with its answer.
	Question Question `json:"question"`
	// Note says in one sentence what follows.
	Note string `json:"note"`
}
