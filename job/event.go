package job

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// MaxEventText is the most text, in bytes, that one event carries. More is cut
// to its head and tail (Event.Truncated); the whole stays in the run's log file.
const MaxEventText = 64 << 10

// MaxMessage bounds what somebody says to a job at once, in bytes.
const MaxMessage = 64 << 10

// EventKind names what an event reports.
type EventKind string

const (
	// EventState: the run moved to State (text says why, where it is not plain).
	EventState EventKind = "state"
	// EventSession: the agent's own session or thread id, Session, by which it is resumed.
	EventSession EventKind = "session"
	// EventText: the agent said something.
	EventText EventKind = "text"
	// EventCommand: a tool command; ExitCode is nil while it runs.
	EventCommand EventKind = "command"
	// EventFile: the agent changed Path.
	EventFile EventKind = "file"
	// EventTool: a tool call that is neither a command nor a file change, or a
	// file change that failed: ExitCode 1 is a call that failed, nil one that
	// began or of which no more is known.
	EventTool EventKind = "tool"
	// EventUsage: Usage was consumed since the last usage event (an increment).
	EventUsage EventKind = "usage"
	// EventStep: the agent finished a turn of its loop, or a named step. With
	// Kept it is a durable one: Step is its id.
	EventStep EventKind = "step"
	// EventRetry: the agent's program retries by itself (Text says after what).
	EventRetry EventKind = "retry"
	// EventWarning: something is odd and the run goes on.
	EventWarning EventKind = "warning"
	// EventError: the agent's program reported a failure.
	EventError EventKind = "error"
	// EventNetwork: a connection of the run to a host, or one that it was refused.
	EventNetwork EventKind = "network"
	// EventQuestion: the agent asks whether it may, or for words: Text. Ref is the question's number in the run.
	EventQuestion EventKind = "question"
	// EventAnswer: the question Ref was answered by From, with Text: "allowed", "denied", and what was said besides.
	EventAnswer EventKind = "answer"
	// EventMessage: From has said Text to the agent; Ref is the message's id, Change what became of it: delivered,
	// folded or refused.
	EventMessage EventKind = "message"
	// EventLog: a line of the worker's stderr or of output that is no protocol.
	EventLog EventKind = "log"
)

// What Change of an EventState says of a run that has jobs of its own (Spec.Lead).
const (
	WaitsForJobs  = "waits"   // it waits for them, and lends its slot
	WaitedForJobs = "goes on" // it takes the slot back
)

// Event is one thing that happened in a run. (Job, Attempt, Seq) identifies
// it: delivered twice, it counts once.
type Event struct {
	Job     ID        `json:"job"`     // that it is of
	Attempt int       `json:"attempt"` // the number of the attempt
	Seq     int64     `json:"seq"`     // 1, 2, 3, … within the attempt; gaps are events dropped under load
	Time    time.Time `json:"time"`    // when it happened
	Kind    EventKind `json:"kind"`    // what sort of event it is

	Text       string      `json:"text,omitempty"`       // what was said
	Truncated  int64       `json:"truncated,omitempty"`  // bytes cut out of Text
	Command    string      `json:"command,omitempty"`    // that the agent runs
	CallID     string      `json:"call_id,omitempty"`    // joins the start and the end of one command or tool call
	Parent     string      `json:"parent,omitempty"`     // call id of the tool call that this belongs to, e.g. of a subagent
	Tool       string      `json:"tool,omitempty"`       // that the agent uses
	ExitCode   *int        `json:"exit_code,omitempty"`  // of the command; nil until it has ended
	Millis     int64       `json:"ms,omitempty"`         // duration, milliseconds, where the event ends something
	Path       string      `json:"path,omitempty"`       // of the file, within the workspace
	Change     string      `json:"change,omitempty"`     // added, modified, deleted; of a message: what became of it
	Ref        string      `json:"ref,omitempty"`        // the id of a question or a message
	From       string      `json:"from,omitempty"`       // who has answered, or has said it
	Session    string      `json:"session,omitempty"`    // the agent's session or thread id
	State      RunState    `json:"state,omitempty"`      // that the run has come into
	Step       string      `json:"step,omitempty"`       // the name of the step
	Usage      *Usage      `json:"usage,omitempty"`      // what was consumed since the last such event
	Connection *Connection `json:"connection,omitempty"` // of the network
	Refusal    *Refusal    `json:"refusal,omitempty"`    // of a warning: what the sandbox would have refused
	// Of a durable step: what it was computed from, as the worker calls it, and
	// what became of its result. Result itself is only there on the way from the
	// worker's session to the store: no event that is sent or stored has it.
	Inputs string          `json:"inputs,omitempty"`
	Kept   Kept            `json:"kept,omitempty"` // what became of a durable step
	Result json.RawMessage `json:"result,omitempty"`
	// Dropped is how many events of this run were dropped, for lack of room on
	// the wire, just before this one.
	Dropped int    `json:"dropped,omitempty"`
	Trace   string `json:"trace_id,omitempty"` // the job's trace id
}

// Connection is one of a run to a host, which goes through the core.
type Connection struct {
	Host    string `json:"host,omitempty"`    // as the run named it
	Port    int    `json:"port,omitempty"`    // that it was for
	Address string `json:"address,omitempty"` // that was connected to; absent if none was
	Allowed bool   `json:"allowed"`           // whether the job may reach the host
	Reason  string `json:"reason,omitempty"`  // why it was refused, or ended otherwise than by its ends
	Allow   string `json:"allow,omitempty"`   // the entry of Spec.Network that would allow a refused one; absent if none would
	Sent    int64  `json:"sent,omitempty"`    // bytes to the host
	// Bytes from the host.
	Received int64 `json:"received,omitempty"`
	// More is set of an event that stands for so many connections, each of which has none of its own.
	More int `json:"more,omitempty"`
}

// Refusal is what a run did in report mode and would be refused if its sandbox were enforced.
type Refusal struct {
	Act    string `json:"act"`              // read, write, or the name of a system call
	Detail string `json:"detail,omitempty"` // of read and write: the file or folder that would have to be granted
	Hidden bool   `json:"hidden,omitempty"` // no grant shows this path
	Broad  bool   `json:"broad,omitempty"`  // the folder holds too much else to be granted
}

// The acts of a Refusal that a grant allows.
const (
	RefusedRead  = "read"
	RefusedWrite = "write"
)

// Kept says what became of a durable step; "" is a step that is none.
type Kept string

const (
	// KeptFresh: it was computed, and its result is on disk.
	KeptFresh Kept = "fresh"
	// KeptBefore: its result came from the store.
	KeptBefore Kept = "store"
	// KeptRefused: its result was not stored; the event's text says why.
	KeptRefused Kept = "refused"
)

// Cut returns text cut to at most max bytes, its head and its tail with a mark
// between them, and the number of bytes that were cut out. It cuts at UTF-8
// boundaries. Text that fits is returned as it is; a max that has no room for
// the mark leaves nothing.
func Cut(text string, max int) (string, int64) {
	if len(text) <= max {
		return text, 0
	}
	const mark = "\n… cut …\n"
	if max <= len(mark) {
		return "", int64(len(text))
	}
	// A rune has at most UTFMax bytes; text that is no UTF-8 is cut anywhere.
	head := (max - len(mark)) / 2
	for n := 0; n < utf8.UTFMax && head > 0 && !utf8.RuneStart(text[head]); n++ {
		head--
	}
	tail := len(text) - (max - len(mark) - head)
	for n := 0; n < utf8.UTFMax && tail < len(text) && !utf8.RuneStart(text[tail]); n++ {
		tail++
	}
	return text[:head] + mark + text[tail:], int64(tail - head)
}
