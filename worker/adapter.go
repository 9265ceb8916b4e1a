package worker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/agentsched/agentsched/job"
)

// Adapter knows one kind of worker program. It holds no state of a run and may
// be used by many goroutines at once.
type Adapter interface {
	// Locate returns the path of the program that Start would use, without
	// starting anything. The error is a *NotInstalledError if there is none.
	Locate(s job.WorkerSettings) (path string, err error)

	// Version asks the program at path for its version, e.g. "0.169.0". A
	// built-in worker returns the version of what it relies on, or "". It is the only
	// method that may start a process, which must end with ctx. Runs do not ask it:
	// it is for `scheduler doctor`.
	Version(ctx context.Context, path string) (string, error)

	// Start prepares a run of t and starts no process: it may write files into
	// t.Home, t.Scratch and the TMPDIR of t.Environ, nowhere else. An error here is a failure of class
	// CONFIG (wrap a *Failure to say otherwise): the attempt never starts. It is called
	// for each attempt, from many goroutines at once, and must not wait for a network.
	Start(t *Task) (Session, error)
}

// Command is a process to start. The Runner adds the run's tag to Env.
type Command struct {
	Path  string   // absolute, as Locate returned it
	Args  []string // without the program's name; at most 128 KiB each on Linux
	Env   []string // the whole environment, NAME=VALUE
	Dir   string
	Stdin []byte // written first, of any length
	// KeepStdin keeps standard input open after Stdin was written, for Write; else
	// it is closed.
	KeepStdin bool
	// Files are the program's descriptors 3, 4, and so on. They stay the session's to close, in Close.
	Files []*os.File
	// Programs are other programs that it starts, absolute, which a confined run must be able to start as it must Path.
	Programs []string
	// Read and Write are files of the user's that the program needs beside what its run
	// may reach anyway, absolute: the sandbox of a confined run has to let it.
	Read, Write []string
}

// Exit is how the program ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // e.g. "killed"; "" if it exited
	// Stderr is the end of what it wrote to standard error, at most 16 KiB.
	Stderr string
	// Stopped is set if the Runner ended it: the class is then known from the cause,
	// and only the answer and the cost of the Result count.
	Stopped bool
}

// Result is what a run amounts to, as its adapter reads it.
type Result struct {
	Class   job.ErrorClass // NoError: it did what was asked
	Message string
	Hint    string
	Answer  string // whole; what is stored of it is bounded elsewhere
	// RetryAt is when the provider asked to be left alone until; nil if it did not. It
	// counts for failures only, above all for RATE_LIMIT: the job waits until then, and
	// the model's circuit stays open for all other jobs.
	RetryAt *RetryAfter
	// Checkpointed says that the program stopped at a step's boundary, as it was
	// asked to, and goes on from there in another attempt. Class is NoError and
	// Message says why then.
	Checkpointed bool `json:",omitempty"`
	// Denied are the tool calls that the program refused because the task does not
	// grant them, e.g. "Bash(make deploy)", in their order.
	Denied []string `json:",omitempty"`
	// CostUSD is the program's own total of the run in US dollars; it replaces
	// what was priced from the table. nil if the program has said none.
	CostUSD *float64
}

// Failure is an error with its class and what to do about it. The class decides what
// follows: the retry policy knows nothing else of a failure. Message says what
// happened, Hint what a person can do about it; both are shown as they are.
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
