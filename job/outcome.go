package job

import "time"

// Outcome is how one attempt ended: the core's report, stored once.
type Outcome struct {
	State   RunState   `json:"state"`             // RunCompleted, RunFailed or RunCancelled
	Class   ErrorClass `json:"class,omitempty"`   // of the failure; "" of a success
	Message string     `json:"message,omitempty"` // what happened, one or a few lines
	Hint    string     `json:"hint,omitempty"`    // what the user can do about it
	// RetryAt is when the provider asked to be left alone until.
	RetryAt *time.Time `json:"retry_at,omitempty"`

	Answer  string `json:"answer,omitempty"`  // the agent's final words, or its JSON; at most MaxEventText
	Session string `json:"session,omitempty"` // the agent's session or thread id
	Usage   Usage  `json:"usage"`

	ExitCode int    `json:"exit_code"`        // of the worker process; -1 when a signal ended it or it never started
	Signal   string `json:"signal,omitempty"` // the signal that ended it, e.g. "killed"

	Commands  []CommandRun `json:"commands,omitempty"`  // the last MaxCommands that the agent ran
	Files     []FileChange `json:"files,omitempty"`     // changed since the start, from git or by comparison
	Artifacts []Artifact   `json:"artifacts,omitempty"` // files that the attempt left in the state directory
	DiffStat  string       `json:"diff_stat,omitempty"` // e.g. "2 files changed, 5 insertions(+)"
	// PatchHash is the SHA-256 of the patch, in hexadecimal; "" if nothing changed.
	PatchHash string `json:"patch_hash,omitempty"`
	// Commit holds the work in the user's repository; nil without a worktree, or work.
	Commit *Commit `json:"commit,omitempty"`

	// Check is how the check of the job's loop went; nil if none was made.
	Check *Check `json:"check,omitempty"`
	// Checkpointed is set of an attempt that stopped at a step's boundary, as it was
	// asked to: its work is kept, and the next attempt goes on from there. Message
	// is why it was asked.
	Checkpointed bool `json:"checkpointed,omitempty"`
	// Interrupted is set of an attempt that is Checkpointed since somebody has interrupted its
	// agent: the job goes on when it is told something.
	Interrupted bool `json:"interrupted,omitempty"`
	// AskedMillis is how long the attempt waited for people, in milliseconds. It counts for no
	// limit of time.
	AskedMillis int64 `json:"asked_ms,omitempty"`
	// PreemptedBy is, of an attempt that is Checkpointed, the contracted tenant to which it
	// gave its slot; "" if it was asked for another reason.
	PreemptedBy Tenant `json:"preempted_by,omitempty"`
	// Report is what the job's evaluation command or file says: from each
	// dimension's name to a value in [0, 1].
	Report map[string]float64 `json:"report,omitempty"`
	// Denied are the tool calls, at most MaxDenied, that the agent asked for and
	// its program refused because the job does not grant them, e.g. "Bash(make)".
	Denied []string `json:"denied,omitempty"`

	StartedAt time.Time `json:"started_at"` // when the worker was started
	EndedAt   time.Time `json:"ended_at"`   // when nothing of it was left
	// StopMillis is how long it took from the request to stop until the
	// process tree was proven empty, in milliseconds; 0 if it was not stopped.
	StopMillis int64 `json:"stop_ms,omitempty"`
	// Sandbox is what held the attempt; nil if nothing did.
	Sandbox *Holding `json:"sandbox,omitempty"`
	// LeftBehind names processes that outlived the worker's own and were killed.
	LeftBehind []string `json:"left_behind,omitempty"`
}

// Holding is how an attempt was held to what its job was granted.
type Holding struct {
	Level SandboxLevel `json:"level"` // standard or strict
	// Report says that nothing held the attempt: Denied counts what Level would have refused.
	Report bool `json:"report,omitempty"`
	// Unrecorded says, with Report, that nothing could be seen; the last of NotHeld says why.
	Unrecorded bool `json:"unrecorded,omitempty"`
	// NotHeld says what this level does not hold on the host that it ran on, a sentence each.
	NotHeld []string `json:"not_held,omitempty"`
	Denied  int      `json:"denied,omitempty"` // how often the attempt was refused something, as far as that was seen
}

// MaxCommands, MaxFiles and MaxDenied bound the lists of an Outcome; the whole
// lists are in the run's events and in its patch.
const (
	MaxCommands = 200
	MaxFiles    = 500
	MaxDenied   = 20
)

// Check is the verdict on one turn of a loop. A turn that does not pass has
// not failed: another one follows.
type Check struct {
	Passed bool `json:"passed"` // whether the work is done
	// Text is why: the end of what the command printed, or what was looked for.
	// At most MaxCheckText.
	Text string `json:"text,omitempty"`
	// Mute says that the check tells one failure from another by no word: it looked
	// for a file, or its command printed nothing.
	Mute bool `json:"mute,omitempty"`
}

// MaxCheckText bounds Check.Text, in bytes.
const MaxCheckText = 8 << 10

// Succeeded reports whether the attempt did what was asked.
func (o *Outcome) Succeeded() bool { return o.State == RunCompleted }

// Artifact returns the file of that name that the attempt left; false if it left
// none.
func (o *Outcome) Artifact(name string) (Artifact, bool) {
	for _, a := range o.Artifacts {
		if a.Name == name {
			if name == ArtifactPatch && a.SHA256 == "" {
				a.SHA256 = o.PatchHash // by an earlier version
			}
			return a, true
		}
	}
	return Artifact{}, false
}

// CommandRun is a command that an agent ran.
type CommandRun struct {
	Command  string `json:"command"`      // as it was run
	ExitCode int    `json:"exit_code"`    // -1 unknown
	Millis   int64  `json:"ms,omitempty"` // how long it took, in milliseconds
}

// FileChange is a file that differs from the start of the run.
type FileChange struct {
	Path   string `json:"path"`   // relative to the workspace
	Change string `json:"change"` // added, modified, deleted, renamed
	// Bytes is the size of a file that the patch leaves out, since it is larger than
	// MaxCollected; else 0.
	Bytes int64 `json:"bytes,omitempty"`
}

// MaxCollected is the size of the largest file that a patch holds, in bytes.
const MaxCollected = 100 << 20

// Commit is the commit of a job's work on its own branch.
type Commit struct {
	Branch string `json:"branch"` // without refs/heads/
	ID     string `json:"id"`     // of the commit that holds all of the work
	// Before is what the branch was at until then: ID if the agent itself had
	// committed everything, "" if it had deleted the branch.
	Before string `json:"before,omitempty"`
}

// Artifact is a file kept from an attempt.
type Artifact struct {
	Name  string `json:"name"`  // "patch", "stdout", "stderr", "answer"
	Path  string `json:"path"`  // absolute
	Bytes int64  `json:"bytes"` // the file's length
	// SHA256 of the file's content, in hexadecimal; "" if none was recorded, as of a
	// log. What is applied, printed or handed to another job must have it.
	SHA256 string `json:"sha256,omitempty"`
}

// Artifact names.
const (
	ArtifactPatch  = "patch"
	ArtifactWhole  = "whole" // a patch that holds those of the jobs that this one builds on, too
	ArtifactStdout = "stdout"
	ArtifactStderr = "stderr"
	ArtifactAnswer = "answer" // only of an answer that Outcome.Answer is too small for
	// ArtifactSession are the files of the agent's session, as an archive (tar), of an attempt that may go on on
	// another host.
	ArtifactSession = "session"
)

// Attempt is the record of one attempt of a job.
type Attempt struct {
	Job     ID         `json:"job"`     // the job that it is an attempt of
	Number  int        `json:"attempt"` // 1, 2, 3, …
	Fence   Fence      `json:"fence"`   // the number of the claim under which it ran
	Choice  Choice     `json:"choice"`
	State   RunState   `json:"state"`              // of the run
	Node    string     `json:"node,omitempty"`     // on which it ran; "" is the scheduler's own host
	Session string     `json:"session,omitempty"`  // the agent's session or thread id
	Outcome *Outcome   `json:"outcome,omitempty"`  // nil while it runs
	Started time.Time  `json:"started_at"`         // when it began
	Ended   *time.Time `json:"ended_at,omitempty"` // when it ended; nil while it runs
	// Lost is set when the attempt ended because the scheduler itself did, was asked to
	// stop, or lost its node: the job is not to blame, so it does not count (see Counts).
	Lost bool `json:"lost,omitempty"`
}

// Counts reports whether the attempt counts towards Limits.MaxAttempts. One
// that the scheduler's own end cut short, or that was lost with its node, does not;
// one that ended with a crash of the core does, since the job may be what crashed it.
func (a *Attempt) Counts() bool { return !a.Lost }
