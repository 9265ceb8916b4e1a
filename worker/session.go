package worker

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Session is one run of one task. It is a machine: it is told what happened and
// returns what to do about it, and the Runner does that.
//
// A session is pure. It starts no goroutine, takes no lock, reads no clock and
// touches no file; whatever it does to the world is an Action. So a run can be
// played from a transcript, and the same inputs give the same actions. Files are
// for Adapter.Start, and for Close if the session is an io.Closer: Close is called
// once, after everything else, and also if the process could not be started.
//
// Its methods are never called at the same time, and never before the last call
// has returned. Nobody but the session writes to the program's standard input:
// what others have for the program comes to the session as an input.
//
// A run in which the program asks for something and is told something:
//
//	Started{}                          Write{the first request}
//	Output{"… runs make"}              Emit{EventCommand}
//	Output{"… may I? id 7"}            Ask{Question{ID: "7", Command: "make"}}
//	Answer{"7", Allow}                 Write{"… id 7: yes"}
//	Message{"m1", "skip the docs"}     Write{"… skip the docs"}, Settle{"m1", MessageDelivered}
//	Output{"… make: exit code 0"}      Emit{EventCommand with ExitCode}
//	Output{"… done"}                   CloseInput{}
//	Ended{Exit{Code: 0}}               Finish{Result{Answer: …}}
//
// A one-way program needs three cases: Output, ErrorOutput and Ended. A program
// that is talked to while it runs needs Message, Answer and Cancel besides, and a
// Command with KeepStdin.
type Session interface {
	// Command returns the process to start. It is called first and once.
	Command() Command

	// Step takes what happened and returns what to do about it, in that order; nil
	// is nothing. now is the time, which never runs backwards within a run.
	//
	// The first input is Started, if the process could be started, and the last one
	// is Ended, which must be answered with Finish. In between, inputs from
	// different sources come in any order; lines of one source come in theirs.
	//
	// An input that the session has no use for is ignored: return nil. There will be
	// more kinds of them. A panic ends the run as CRASH, and no other run.
	Step(now time.Time, in Input) []Action
}

// Input is something that happened: one of the types in this file whose comment
// says that it is an input.
type Input interface{ input() }

// Started is the input that the process was started.
type Started struct{}

// Output is the input of a line of standard output, without its newline and a
// carriage return before that. A line that is not understood is not an error: emit
// an EventLog of it, or nothing. Lines of more than 64 MiB are skipped by the Runner.
type Output struct {
	Line []byte // only valid during the call, and for the actions that it returns
}

// ErrorOutput is the input of a line of standard error, like Output. A session that
// does not read them returns Log(in.Line). Of the EventLogs that answer lines of
// standard error the Runner keeps the first 2,000: the log file has all.
type ErrorOutput struct {
	Line []byte // only valid during the call, and for the actions that it returns
}

// Message is the input of words for the agent while it works, from a person or
// from another agent. The session passes them on as the program takes them and
// says with Settle what became of them, now or later. A session that cannot pass
// them on says so at once: MessageRefused.
//
// Words that come when the program's turn is over begin another one, and the run
// goes on; words that come too late for that (the program is ending) are
// MessageRefused, and reach the next attempt.
type Message struct {
	ID   string // names the message in Settle
	From string // who sent it, e.g. "ann"; "" if that is unknown
	Text string
	// Again says that an earlier attempt was passing the message on when it was cut
	// short: the session that is resumed may have it. A session that can find that out
	// says it only if not.
	Again bool
}

// Interrupt is the input that the running turn is to stop here and the session to be
// kept. The program is asked as its protocol knows it. If messages came that have no
// turn yet, they begin the next one; else the program is ended, and the Result is
// Checkpointed. It comes only to the sessions of an adapter that is Conversing and
// says Interrupts.
type Interrupt struct {
	Reason string // for people, e.g. "ann interrupted it"
}

// Answer is the input of the answer to a question. It comes once for each Ask,
// unless the session takes the question back with Withdraw before.
type Answer struct {
	Question string // Question.ID
	// Decision is Unanswered if no person was there, or none answered in time; with the
	// answer to a question without choices it is Allow.
	Decision Decision
	// Text is what was said besides, e.g. why not; to a question without choices it
	// is the answer.
	Text string
	// Value is the answer to a question with a Schema, which it satisfies.
	Value json.RawMessage
}

// Timer is the input that the time of a SetTimer is over.
type Timer struct {
	Name string
}

// Checkpoint is the input that the program is to finish the step that it is in and
// then end, with a Result that is Checkpointed. It comes only to the sessions of an
// adapter that is Checkpointing. The program may also end in another way, since
// it did not see this in time.
type Checkpoint struct {
	Reason string // for people, e.g. "the host is needed"
}

// Stored is the input of what became of a step that Store named. It comes after
// the step is on disk, or was refused.
type Stored struct {
	KeptStep
}

// FileDone is the input of what became of a ReadFile or WriteFile. It is the next input
// after the step that held the action, or comes after those of other sources.
type FileDone struct {
	ID   string
	Data []byte // that was read
	// Created says that a WriteFile made the file: there was none.
	Created bool
	Err     error // why not, in words that the program may be told
}

// StreamLines is the input of lines for the worker of a stream, each of which ends
// in a newline. It comes only if Task.Streams is set. The program must get them
// unchanged, in their order.
type StreamLines struct {
	Lines []byte // only valid during the call, and for the actions that it returns
}

// Cancel is the input that the run is being stopped. It comes only if the Command
// has KeepStdin. The program has as long after it as after SIGINT, which follows,
// as do SIGTERM and the end of the whole tree, in stages.
type Cancel struct{}

// Ended is the input that the program has ended and that all of its output was told.
// It is the last one. The answer to it must hold a Finish: what the program printed
// is one witness, how it ended another, and a program that failed did not succeed.
type Ended struct {
	Exit
}

func (Started) input()     {}
func (Output) input()      {}
func (ErrorOutput) input() {}
func (Message) input()     {}
func (Interrupt) input()   {}
func (Answer) input()      {}
func (Timer) input()       {}
func (Checkpoint) input()  {}
func (Stored) input()      {}
func (FileDone) input()    {}
func (StreamLines) input() {}
func (Cancel) input()      {}
func (Ended) input()       {}

// Action is something to do: one of the types in this file whose comment says that
// it is an action. The actions of one Step are done in their order. Store,
// Forward, ReadFile and WriteFile may take their time: they hold back the actions after them, and the
// reading of the output that caused them, but no other input.
type Action interface{ action() }

// Emit is the action to report an event of the run. Job, Attempt, Seq, Time and
// Trace are filled in by others. Usage is an increment: what was consumed since the
// last one. A command that runs is an EventCommand without ExitCode, and the same
// CallID with one when it has ended; max_command_time is measured between them.
type Emit struct {
	Event job.Event
}

// Write is the action to write to the program's standard input. It does not wait
// for the program, and the bytes of two writes are never mixed. After CloseInput,
// after the program's end, and if the program has left so much unread that there is
// no room (4 MiB), Data is dropped as a whole. Needs a Command with KeepStdin.
type Write struct {
	Data []byte
}

// CloseInput is the action to end the program's standard input after what was
// written so far. Many programs end then.
type CloseInput struct{}

// Ask is the action to ask whether the program may, or for a person's words. What the
// job was granted answers first, then rules, then people; so a session asks about all
// that its program asks about, and judges nothing itself. The Answer comes as an input.
type Ask struct {
	Question Question
}

// Withdraw is the action to take a question back that the program does not wait for
// any more, e.g. since it was interrupted. No Answer to it comes after that.
type Withdraw struct {
	Question string // Question.ID
}

// Settle is the action to say what became of a Message. The last one counts: a
// message that is delivered may turn out to be folded into the running turn.
type Settle struct {
	Message string // Message.ID
	State   MessageState
	Reason  string // for people; required if the message was refused
}

// SetTimer is the action to have a Timer of this name after a time. It replaces one
// of the same name that is not over yet. With After of zero or less there is none.
type SetTimer struct {
	Name  string
	After time.Duration
}

// Store is the action to keep a durable step: a piece of the job's work that no later
// attempt has to do again. The Runner reports it as an EventStep, and Stored comes as
// an input. See Step and the adapter's Stepping.
type Store struct {
	Step Step
}

// ReadFile is the action to read a file of the workspace for a program that leaves its
// reading to us; FileDone comes as an input. Path is absolute or within Command.Dir,
// where the file must lie, its links included. It must be a regular file of at most
// MaxFile bytes.
type ReadFile struct {
	ID   string // names it in FileDone
	Path string
}

// WriteFile is the action to write a file of the workspace, as ReadFile reads one: as a
// whole or not at all, with the folders that it needs. No part of Path may be a link, nor
// a folder that is git's own: whoever writes there has commands run by others. Whether the
// job may write is the session's to find out before.
type WriteFile struct {
	ID   string // names it in FileDone
	Path string
	Data []byte // at most MaxFile bytes
}

// Forward is the action to pass a line of the program's on to the stream that it is
// the worker of. It is dropped unless Task.Streams is set.
type Forward struct {
	Line []byte // with or without its newline
}

// Finish is the action to say what the run amounts to. It answers Ended. Before
// that, it ends a program that would go on although its output has decided the run,
// e.g. one that waits for hours to try again: Result must be a failure then, or
// Checkpointed for a turn that does not stop; it holds, and the program is stopped. Of the Finish that answers Ended after that
// only CostUSD counts, which many programs print when they are stopped.
type Finish struct {
	Result Result
}

func (Emit) action()       {}
func (Write) action()      {}
func (CloseInput) action() {}
func (Ask) action()        {}
func (Withdraw) action()   {}
func (Settle) action()     {}
func (SetTimer) action()   {}
func (Store) action()      {}
func (ReadFile) action()   {}
func (WriteFile) action()  {}
func (Forward) action()    {}
func (Finish) action()     {}

// Question is something that a program wants to know before it goes on, mostly
// whether it may do something that its task does not grant outright.
type Question struct {
	// ID is unique in the run. Where the program has an id for its request, it is
	// that: so a question is known again when the program is resumed.
	ID   string
	Kind QuestionKind
	Text string // for people, e.g. "run make deploy?"

	// What it is about, for rules that answer before people do; "" if it is not
	// about that.
	Tool    string // as the program calls it, e.g. "Bash"
	Command string // the whole command line
	Path    string // a file or folder, absolute or within the workspace
	Host    string // of the network
	Diff    string // of a write, where the program tells it: what it would change
	// Input are the arguments as the program sent them: with Tool they tell whether two
	// questions are the same, also across attempts of one session. It must hold nothing
	// that differs each time, such as an id of the call.
	Input json.RawMessage

	// Decisions are those that the program takes for an answer. Empty: it wants
	// words, or a Value that satisfies Schema.
	Decisions []Decision
	Schema    json.RawMessage // JSON schema; empty: text
}

// QuestionKind is what a question is about: it says which of its fields decide.
type QuestionKind string

// The kinds of questions.
const (
	AboutCommand QuestionKind = "command" // may it run Command
	AboutWrite   QuestionKind = "write"   // may it change the file or folder Path
	AboutRead    QuestionKind = "read"    // may it read Path
	AboutHost    QuestionKind = "host"    // may it reach Host
	AboutTool    QuestionKind = "tool"    // may it use Tool, which is none of these
	AboutWords   QuestionKind = "words"   // the agent asks for words, or for one of several choices
)

// Decision is an answer to the question whether the program may.
type Decision string

// The decisions.
const (
	Unanswered  Decision = ""              // no answer: the session tells the program no
	Allow       Decision = "allow"         // this once
	AllowInRun  Decision = "allow_in_run"  // this and the like until the run ends
	Deny        Decision = "deny"          // not this; the agent goes on
	DenyAndStop Decision = "deny_and_stop" // not this, and the agent is to stop here
)

// Allows reports whether the program may.
func (d Decision) Allows() bool { return d == Allow || d == AllowInRun }

// MessageState is what became of a Message.
type MessageState string

// The states of a message.
const (
	MessageDelivered MessageState = "delivered" // the program has it, for its running turn or a later one
	MessageFolded    MessageState = "folded"    // it stands in the running turn: the agent has read it
	MessageRefused   MessageState = "refused"   // the program did not take it
)

// Events returns the actions that emit events.
func Events(events ...job.Event) []Action {
	if len(events) == 0 {
		return nil
	}
	actions := make([]Action, len(events))
	for i, e := range events {
		actions[i] = Emit{e}
	}
	return actions
}

// Log returns the action that emits a line as an EventLog, cut to what an event may
// carry; nothing if the line is blank.
func Log(line []byte) []Action {
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	if strings.TrimSpace(text) == "" {
		return nil
	}
	e := job.Event{Kind: job.EventLog}
	e.Text, e.Truncated = job.Cut(text, job.MaxEventText)
	return []Action{Emit{e}}
}
