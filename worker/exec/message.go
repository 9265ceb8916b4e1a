package exec

import (
	"encoding/json"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Protocol is the version of the worker protocol that is spoken here.
const Protocol = 1

// MaxLine is the longest line that a program may print, in bytes.
const MaxLine = 16 << 20

// Task is the first line on the program's standard input.
type Task struct {
	Type     string `json:"type"` // "task"
	Protocol int    `json:"protocol"`

	Job     job.ID   `json:"job"`
	Name    job.Name `json:"name"`
	Attempt int      `json:"attempt"` // 1, 2, 3, …

	Instructions string `json:"instructions"` // feedback on the last attempt included
	SystemPrompt string `json:"system_prompt,omitempty"`
	Model        string `json:"model,omitempty"`
	BaseURL      string `json:"base_url,omitempty"`
	KeyEnv       string `json:"key_env,omitempty"` // the variable that holds the key, set in the environment
	Session      string `json:"session,omitempty"` // to resume
	Fork         bool   `json:"fork,omitempty"`    // Session stays as it is: go on in a copy of it, with another id

	Dir     string `json:"dir"`     // the workspace, also the working directory
	Home    string `json:"home"`    // kept for the job's further attempts
	Scratch string `json:"scratch"` // of this attempt

	Capabilities []job.Capability `json:"capabilities"`
	// AllowCommands are the patterns of the commands that may be run, those of
	// run_tests included; AnyCommand is set if there is no such limit.
	AllowCommands []string        `json:"allow_commands"`
	AnyCommand    bool            `json:"any_command"`
	Asked         bool            `json:"asked,omitempty"`         // ask about what is not granted, rather than leave it
	OutputSchema  json.RawMessage `json:"output_schema,omitempty"` // JSON schema of the answer
	Limits        Limits          `json:"limits"`

	// Steps are the durable steps that were stored for the job, by id. If they make
	// more than MaxSteps bytes, they are in StepsFile instead, as the same object.
	Steps     map[string]StoredStep `json:"steps,omitempty"`
	StepsFile string                `json:"steps_file,omitempty"`
}

// StoredStep is a durable step that need not be done again.
type StoredStep struct {
	Inputs string          `json:"inputs,omitempty"` // text of more than job.MaxStepInputs bytes is hashed, see job.StepInputs
	Result json.RawMessage `json:"result"`
}

// MaxSteps is how many bytes of stored steps a task line holds.
const MaxSteps = 512 << 10

// Limits are what the scheduler enforces; 0 and absent is no limit. A program
// that knows them can end in good order.
type Limits struct {
	TimeoutMillis    int64   `json:"timeout_ms,omitempty"`
	MaxSteps         int64   `json:"max_steps,omitempty"`
	MaxCommandMillis int64   `json:"max_command_ms,omitempty"`
	MaxTokens        int64   `json:"max_tokens,omitempty"`   // of the job, all attempts together
	MaxCostUSD       float64 `json:"max_cost_usd,omitempty"` // of the job, all attempts together
	MaxAttempts      int     `json:"max_attempts,omitempty"`
}

// Message is the line that brings words for the agent.
type Message struct {
	Type  string `json:"type"` // "message"
	ID    string `json:"id"`   // for its settle line
	From  string `json:"from,omitempty"`
	Text  string `json:"text"`
	Again bool   `json:"again,omitempty"` // an earlier attempt may have had it
}

// Interrupt is the line that asks the program to stop what it does now. If messages
// wait it goes on with them, else it ends with a result of the status "checkpointed".
type Interrupt struct {
	Type   string `json:"type"` // "interrupt"
	Reason string `json:"reason,omitempty"`
}

// Answer is the line that answers a question.
type Answer struct {
	Type     string          `json:"type"` // "answer"
	Question string          `json:"question"`
	Decision worker.Decision `json:"decision"`        // "": nobody answered, which is no
	Text     string          `json:"text,omitempty"`  // what was said besides, or in place of a decision
	Value    json.RawMessage `json:"value,omitempty"` // it satisfies the question's schema
}

// Cancel is the line that asks the program to stop. Signals follow.
type Cancel struct {
	Type   string `json:"type"` // "cancel"
	Reason string `json:"reason,omitempty"`
}

// Checkpoint is the line that asks the program to finish the step that it is in,
// to report it and to end with a result of the status "checkpointed".
type Checkpoint struct {
	Type   string `json:"type"` // "checkpoint"
	Reason string `json:"reason,omitempty"`
}

// StepStored is the line that says that a step's result is on disk.
type StepStored struct {
	Type string `json:"type"` // "step_stored"
	Step string `json:"step"`
	// FromStore is set if the step had a result already: that one holds, Result.
	FromStore bool            `json:"from_store,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
}

// StepRefused is the line that says why a step's result was not stored.
type StepRefused struct {
	Type    string `json:"type"` // "step_refused"
	Step    string `json:"step"`
	Message string `json:"message"`
	Again   bool   `json:"again,omitempty"` // reporting it once more may help
}

// The types of the lines that a program may print.
const (
	typeHello    = "hello"
	typeSession  = "session"
	typeText     = "text"
	typeCommand  = "command"
	typeFile     = "file"
	typeUsage    = "usage"
	typeStep     = "step"
	typeQuestion = "question"
	typeWithdraw = "withdraw"
	typeSettle   = "settle"
	typeLog      = "log"
	typeWarning  = "warning"
	typeResult   = "result"
)

// What a program can say that it converses by.
const (
	byMessages   = "messages"
	byQuestions  = "questions"
	byInterrupts = "interrupts"
)

type hello struct {
	Protocol int    `json:"protocol"`
	Name     string `json:"name"`
	Version  string `json:"version"`

	Converses []string `json:"converses"` // of messages, questions, interrupts
}

type session struct {
	Session string `json:"session"`
}

// text is the body of text, log and warning.
type text struct {
	Text string `json:"text"`
}

type command struct {
	Phase    string `json:"phase"` // "start" or "end"
	ID       string `json:"id"`    // joins start and end
	Command  string `json:"command"`
	ExitCode *int   `json:"exit_code"`
	Millis   int64  `json:"ms"`
	Output   string `json:"output"`
}

type file struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added, modified, deleted, renamed
}

// usage is an increment: what was consumed since the last usage line.
type usage struct {
	InputTokens      int64    `json:"input_tokens"`
	CachedTokens     int64    `json:"cached_tokens"`
	CacheWriteTokens int64    `json:"cache_write_tokens"`
	OutputTokens     int64    `json:"output_tokens"`
	ReasoningTokens  int64    `json:"reasoning_tokens"`
	CostUSD          *float64 `json:"cost_usd"`
}

type step struct {
	Step   string          `json:"step"`
	Inputs json.RawMessage `json:"inputs"` // a string, or any JSON value; of a durable step
	Result json.RawMessage `json:"result"` // with it the step is a durable one
}

type question struct {
	ID        string              `json:"id"` // for its answer
	Kind      worker.QuestionKind `json:"kind"`
	Text      string              `json:"text"`
	Tool      string              `json:"tool"`
	Command   string              `json:"command"`
	Path      string              `json:"path"`
	Host      string              `json:"host"`
	Diff      string              `json:"diff"`
	Input     json.RawMessage     `json:"input"` // what tells it from other questions; any JSON value
	Decisions []worker.Decision   `json:"decisions"`
	Schema    json.RawMessage     `json:"schema"`
}

// withdraw takes a question back.
type withdraw struct {
	Question string `json:"question"`
}

// settle says what became of a message.
type settle struct {
	Message string              `json:"message"`
	State   worker.MessageState `json:"state"`
	Reason  string              `json:"reason"`
}

type result struct {
	Status      string          `json:"status"` // "completed", "failed" or "checkpointed"
	Class       job.ErrorClass  `json:"class"`
	Message     string          `json:"message"`
	Hint        string          `json:"hint"`
	Answer      json.RawMessage `json:"answer"` // a string, or any JSON value
	RetryMillis *int64          `json:"retry_after_ms"`
}
