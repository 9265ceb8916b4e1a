package worker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentsched/agentsched/job"
)

// Adapter knows one kind of worker program. It holds no state of a run and may
// be used by many goroutines at once.
type Adapter interface {
	// Locate returns the path of the program that Start would use, without
	// starting anything. The error is a *NotInstalledError if there is none.
	Locate(s job.WorkerSettings) (path string, err error)

	// Version asks the program at path for its version, e.g. "0.169.0". A
	// built-in worker returns the version of what it relies on, or "".
	Version(ctx context.Context, path string) (string, error)

	// Start prepares a run of t and starts no process: it may write files into
	// t.Home, t.Scratch and the TMPDIR of t.Environ, nowhere else. An error here is a failure of class
	// CONFIG (wrap a *Failure to say otherwise): the attempt never starts.
	Start(t *Task) (Session, error)
}

// Folderless is an optional part of an Adapter, for one whose runs may do
// without private folders: making and removing them takes longer than starting
// a small program.
type Folderless interface {
	// Folderless reports whether neither Start nor the program of t needs t.Home
	// or t.Scratch to be there. Both are named all the same.
	Folderless(t *Task) bool
}

// Scripted is an optional part of an Adapter, for one whose program does what the
// job's instructions say and nothing else, such as a shell. A crash of it says
// nothing about the kind of worker.
type Scripted interface {
	Scripted()
}

// Credentialed is an optional part of an Adapter, for one whose program needs a
// login or a key.
type Credentialed interface {
	// Credentials returns what to do where neither a login nor a key is found for
	// a program with these settings; "" if there is one. It looks at files and
	// variables and asks nobody: what it finds may have expired.
	Credentials(s job.WorkerSettings, getenv func(name string) string) (todo string)
}

// MissingKey is Credentials where the settings name an endpoint: the key that goes
// with it is all that counts. The second result is false if they name none.
func MissingKey(s job.WorkerSettings, getenv func(name string) string) (todo string, own bool) {
	switch {
	case s.BaseURL == "":
		return "", false
	case s.KeyEnv != "" && getenv(s.KeyEnv) == "":
		return "set " + s.KeyEnv + ", which key_env names, where the scheduler runs", true
	}
	return "", true
}

// Session is one run of one task. Its methods are called by one goroutine at
// a time: Command first and once, Event for each line, Result last and once;
// Cancel at any time between Command and Result, from another goroutine.
type Session interface {
	// Command returns the process to start.
	Command() Command

	// Event is told each line of the program's standard output, without its
	// newline, and returns what it means; nil if nothing. The slice is only
	// valid during the call. Job, Attempt, Seq, Time and Trace of the returned
	// events are filled in by the caller. A line that is not understood is not
	// an error: return an EventLog with it, or nothing.
	Event(line []byte) []job.Event

	// Cancel asks the program to stop in its own way, e.g. by a message on its
	// standard input, and returns at once. Most adapters do nothing here:
	// SIGINT, SIGTERM and the end of the whole tree follow anyway, in stages.
	Cancel(stdin io.Writer) error

	// Result says what the run amounts to, after the program has ended and its
	// whole output was told. It must not report success for a program that
	// failed: what the program printed is one witness, how it ended another.
	Result(e Exit) Result
}

// Framer is an optional part of a Session, for what no output line tells.
type Framer interface {
	// Opening returns what there is to tell when the process was started,
	// before its first line of output.
	Opening() []job.Event
	// Closing returns what there is to tell when it has ended, before Result.
	Closing(e Exit) []job.Event
}

// ErrorReader is an optional part of a Session, for a program that says on
// standard error what matters. Without it each such line is an EventLog.
type ErrorReader interface {
	// ErrorLine is to standard error what Event is to standard output. It is
	// called from another goroutine than Event.
	ErrorLine(line []byte) []job.Event
}

// Judge is an optional part of a Session, for a program that goes on although
// its output has already decided the run: it waits for hours to try again, or
// tries for ever.
type Judge interface {
	// Verdict returns the run's result, which must be a failure, if it is
	// decided. It is asked after each Event, and after each ErrorLine, each time
	// by the same goroutine as that. The program is then stopped, and Result is
	// not asked.
	Verdict() (Result, bool)
}

// Command is a process to start. The Runner adds the run's tag to Env.
type Command struct {
	Path  string
	Args  []string // without the program's name
	Env   []string // the whole environment, NAME=VALUE
	Dir   string
	Stdin []byte // written first
	// KeepStdin keeps standard input open after Stdin was written, for Cancel;
	// else it is closed.
	KeepStdin bool
}

// Exit is how the program ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // e.g. "killed"; "" if it exited
	// Stderr is the end of what it wrote to standard error, at most 16 KiB.
	Stderr string
	// Stopped is set if the Runner ended it: the result is then known from the
	// cause and Result is asked only for answer, session and usage.
	Stopped bool
}

// Result is what a run amounts to, as its adapter reads it.
type Result struct {
	Class   job.ErrorClass // NoError: it did what was asked
	Message string
	Hint    string
	Answer  string // whole; what is stored of it is bounded elsewhere
	RetryAt *RetryAfter
	// Checkpointed says that the program stopped at a step's boundary, as it was
	// asked to, and goes on from there in another attempt. Class is NoError and
	// Message says why then.
	Checkpointed bool `json:",omitempty"`
	// Denied are the tool calls that the program refused because the task does not
	// grant them, e.g. "Bash(make deploy)", in their order.
	Denied []string `json:",omitempty"`
	// CostUSD is the program's own total of the run in US dollars; it replaces
	// what was priced from the table. It is read when the program has ended,
	// also that of a Verdict; nil, or negative then, if it has said none.
	CostUSD *float64
}

// Failure is an error with its class and what to do about it.
type Failure struct {
	Class   job.ErrorClass
	Message string
	Hint    string
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// NotInstalledError says that an adapter's program was not found.
type NotInstalledError struct {
	Kind    job.WorkerKind
	Program string
	Hint    string // how to get it, e.g. "npm install -g @openai/codex"
}

// Error names the program and how to get it.
func (e *NotInstalledError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("worker %s: program %q not found", e.Kind, e.Program)
	}
	return fmt.Sprintf("worker %s: program %q not found; to get it: %s", e.Kind, e.Program, e.Hint)
}

// ErrNotInstalled lets callers branch on a missing program with errors.Is.
var ErrNotInstalled = errors.New("program not installed")

// Is reports that every NotInstalledError is ErrNotInstalled.
func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }
