package ipc

import (
	"encoding/json"

	"github.com/agentsched/agentsched/job"
)

// Methods by which people talk with the agents of runs. The core calls the first two on the
// scheduler, the scheduler calls the third on the core.
const (
	MethodAskPerson  = "ask_person"  // AskPerson → AskPersonResult
	MethodReportTalk = "report_talk" // ReportTalk → Empty
	MethodTellRun    = "tell_run"    // TellRun → TellRunResult
)

// Question is what a program wants to know before it goes on.
type Question struct {
	ID      string `json:"id"`                // the core's own, unique in the run
	Key     string `json:"key"`               // the same for equal questions of one session, across its attempts
	Kind    string `json:"kind"`              // as worker.QuestionKind
	Text    string `json:"text"`              // for people
	Tool    string `json:"tool,omitempty"`    // as the program calls it
	Command string `json:"command,omitempty"` // the whole command line
	Path    string `json:"path,omitempty"`    // a file or folder
	Host    string `json:"host,omitempty"`    // of the network
	Diff    string `json:"diff,omitempty"`    // what a write would change
	// Decisions are those that the program takes, as worker.Decision; empty: it wants words,
	// or a value that satisfies Schema.
	Decisions []string        `json:"decisions,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"`
}

// Answer is the answer to a question.
type Answer struct {
	Question string          `json:"question"`           // its id
	Decision string          `json:"decision,omitempty"` // as worker.Decision; absent: nobody has answered
	Text     string          `json:"text,omitempty"`     // what was said besides, or the answer itself
	Value    json.RawMessage `json:"value,omitempty"`    // of a question with a schema
	By       string          `json:"by,omitempty"`       // who has answered
}

// Message is what somebody says to an agent.
type Message struct {
	ID   string `json:"id"`             // unique in the job
	From string `json:"from,omitempty"` // who says it
	Text string `json:"text"`           // at most job.MaxMessage bytes
	// Again says that an earlier attempt may have passed it on when it was cut short.
	Again bool `json:"again,omitempty"`
	// Unread says that an earlier attempt had it and came to its end without: it is put into the
	// instructions.
	Unread bool `json:"unread,omitempty"`
}

// Answered is a question that was answered when the program that had asked was gone.
type Answered struct {
	Question string          `json:"question"`           // its text, at most 1 KiB
	Decision string          `json:"decision,omitempty"` // as worker.Decision; absent: it wanted words
	Text     string          `json:"text,omitempty"`     // what was said besides, or the answer itself
	Value    json.RawMessage `json:"value,omitempty"`    // of a question with a schema
}

// AskPerson stores a question of a run whose answer nobody knows yet. Asking again changes
// nothing. It comes before the run is told to wait; the answer to the question comes with
// it, if one was given to an equal question before, else with TellRun.
type AskPerson struct {
	Job      job.ID       `json:"job"`
	Attempt  int          `json:"attempt"`
	Question Question     `json:"question"`
	Wait     job.Duration `json:"wait"` // how long the run waits
}

// AskPersonResult has the answer to an equal question that an earlier attempt has asked and
// that nobody was given, or none.
type AskPersonResult struct {
	Answer *Answer `json:"answer,omitempty"`
}

// ReportTalk says what became of questions and messages, in this order. Saying so again changes
// nothing. The core sends it again until it is answered, and JobCompleted only after that.
type ReportTalk struct {
	Job     job.ID    `json:"job"`
	Attempt int       `json:"attempt"`
	Closed  []Closed  `json:"closed,omitempty"`
	Settled []Settled `json:"settled,omitempty"`
}

// Closed says that a run waits for the answer to a question no more.
type Closed struct {
	Question string `json:"question"` // its id
	// How is answered if the program was given the answer, expired if nobody has answered in
	// time, withdrawn if the program has taken it back, or ended if the run is over.
	How string `json:"how"`
}

// What Closed.How may be.
const (
	ClosedAnswered  = "answered"
	ClosedExpired   = "expired"
	ClosedWithdrawn = "withdrawn"
	ClosedEnded     = "ended"
)

// Settled says what became of a message.
type Settled struct {
	Message string `json:"message"` // its id
	State   string `json:"state"`   // as worker.MessageState
	Reason  string `json:"reason,omitempty"`
}

// TellRun gives a run what people have for it. Each message and each answer counts once, by its id,
// however often it comes; messages are passed on in the order in which they come first.
type TellRun struct {
	Job      job.ID    `json:"job"`
	Attempt  int       `json:"attempt"`
	Messages []Message `json:"messages,omitempty"`
	Answers  []Answer  `json:"answers,omitempty"`
	// Rules replaces SubmitJob.Rules; absent: they stay.
	Rules *[]job.AskRule `json:"rules,omitempty"`
	// Interrupt, if it is not empty, has the agent's turn stop, for this reason.
	Interrupt string `json:"interrupt,omitempty"`
}

// TellRunResult says whether the run has it. False means that the attempt is unknown or
// about to end, or that its worker cannot be told so.
type TellRunResult struct {
	Taken bool `json:"taken"`
	// Why says why not, for people.
	Why string `json:"why,omitempty"`
	// Never says that its worker can at no time.
	Never bool `json:"never,omitempty"`
}
