package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Spec is what a user asks for: one entry of a job file with its defaults
// filled in and its paths made absolute. It does not change after submission.
type Spec struct {
	Name   Name   `json:"id"`              // what the job is called, unique among those that are submitted together
	Tenant Tenant `json:"tenant" yaml:"-"` // whose job it is
	Type   Type   `json:"type"`            // what sort of work it is

	Worker   WorkerKind `json:"worker" yaml:"worker,omitempty"` // the kind of worker that does it
	Model    string     `json:"model,omitempty"`                // as the worker's program calls it; "" is its own default
	Fallback []Choice   `json:"fallback,omitempty" yaml:"-"`    // tried in this order when Worker cannot

	Workspace Workspace `json:"workspace"`
	Node      Node      `json:"node,omitzero"` // what is required of the host that it runs on

	Instructions string `json:"instructions"`            // what the worker is to do
	SystemPrompt string `json:"system_prompt,omitempty"` // put in front of the agent's own instructions

	Capabilities  []Capability `json:"capabilities,omitempty"`                                                                   // what the worker may do
	AllowCommands []string     `json:"allow_commands,omitempty" match:"\\S" is:"a pattern" want:"a pattern such as 'go test *'"` // patterns such as "go test *"
	Env           []string     `json:"env,omitempty"`                                                                            // names of variables passed through

	Sandbox Sandbox      `json:"sandbox,omitzero"`                                                                                                             // how the run is held
	Network []string     `json:"network,omitempty"`                                                                                                            // "none", "full", or hosts and presets; nil is none
	Git     []Repository `json:"git,omitempty"`                                                                                                                // that the run may fetch from, or push to
	Ask     Ask          `json:"ask,omitzero"`                                                                                                                 // what is answered while it runs
	Secrets []string     `json:"secrets,omitempty" form:"variable" want:"the name of a secret of the configuration, such as NPM_TOKEN, not the secret itself"` // names of what the configuration has, given to the run

	Priority   int        `json:"priority,omitempty"`    // higher is sooner
	Class      Class      `json:"class,omitempty"`       // "" is Standard
	RunnableAt *time.Time `json:"runnable_at,omitempty"` // it does not begin before
	Deadline   *time.Time `json:"deadline,omitempty"`    // it expires if it has not begun by then
	Limits     Limits     `json:"limits"`

	// Key names the work: a job is a duplicate of the unfinished jobs of its
	// tenant that have the same one, e.g. "deploy-website". "" leaves it to
	// DeriveKey where OnDuplicate is given. See Duplicates.
	Key         string          `json:"key,omitempty"`
	OnDuplicate DuplicatePolicy `json:"on_duplicate,omitempty"` // what becomes of it beside an unfinished duplicate
	// Turn is the id of the user's turn that asks, a part of the derived key: the
	// same words in another turn are another job.
	Turn string `json:"turn,omitempty"`

	// Output is a JSON schema that the answer must satisfy; empty means text.
	Output json.RawMessage `json:"output,omitempty"`
	// Verify is a shell command that must exit 0 in the workspace afterwards.
	Verify string `json:"verify,omitempty"`
	// Agent is on whose behalf the job runs, e.g. a process id; "" nobody's in
	// particular. Tenant and Agent own what the job uses.
	Agent AgentID `json:"agent,omitempty" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as agent-7"`
	// Trigger is what made the submission; "" is ByHand.
	Trigger Trigger `json:"trigger,omitempty" yaml:"-"`
	// Payload is what whoever claims a job of type External works on, and the event of
	// one of type PluginEvent: JSON, which nobody interprets.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Expect is what the job is expected to use, for policies that share it out.
	Expect Expectation `json:"expect,omitzero"`
	// Domain is the field that the task is from, e.g. "legal": what is done about
	// a failure may depend on it.
	Domain string `json:"domain,omitempty" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal"`
	// Flow is how the job hangs together with others of its batch.
	Flow Flow `json:"flow,omitzero" yaml:",inline"`
	// Lead is the job whose agent has submitted this one. The scheduler sets it: what a
	// submission says is void.
	Lead Lead `json:"lead,omitzero" yaml:"-"`

	// Trace is an opaque id that goes into every event and log line of the job.
	Trace string `json:"trace,omitempty"`
	// Context is what the job belongs to at whoever asked for it.
	Context Context `json:"context,omitzero"`
}

// Context is what a job belongs to, in ids of whoever asked for it. They are told
// wherever the job is, and nothing follows from them. Each may be "".
type Context struct {
	// Of the request or the work that the job is a part of. Log lines of its attempts have it, too.
	CorrelationID string `json:"correlation_id,omitempty"`
	// Of the person for whom it is done.
	UserID string `json:"user_id,omitempty"`
	// Of that person's session with your program; an agent's own session is another.
	SessionID string `json:"session_id,omitempty"`
}

// Lead says which job's agent has submitted another, its child.
type Lead struct {
	Job   ID  `json:"job"`   // of the agent
	Depth int `json:"depth"` // of the child: 1 below a job that no agent has submitted
}

// Type says what sort of work a job is.
type Type string

const (
	// LLM asks a model for an answer and gives it no tools and no workspace.
	LLM Type = "LLM"
	// Tool runs a command with the shell worker.
	Tool Type = "TOOL"
	// WorkerTask lets an agent work in a workspace.
	WorkerTask Type = "WORKER_TASK"
	// External jobs are not run by the scheduler but claimed by a program outside,
	// which also completes them.
	External Type = "EXTERNAL"
	// PluginEvent has a program of the user's, run by the shell worker, handle an
	// event: Payload, which the program finds in a file.
	PluginEvent Type = "PLUGIN_EVENT"
	// Maintenance is upkeep of a folder by a command of the shell worker, which has
	// the folder for itself: no other job works in it or from it meanwhile.
	Maintenance Type = "MAINTENANCE"
)

// Types lists every type that a job file may have.
func Types() []Type { return []Type{WorkerTask, Tool, LLM, PluginEvent, Maintenance} }

// Command reports whether a job of the type is a command, which the shell worker
// runs.
func (t Type) Command() bool { return t == Tool || t == PluginEvent || t == Maintenance }

// Choice is a worker to run a job on and, where it matters, its model. In a
// job file it is written "worker" or "worker:model".
type Choice struct {
	// The kind of worker.
	Worker WorkerKind `json:"worker"`
	// The model, as its program calls it.
	Model string `json:"model,omitempty"`
}

// Choices returns the workers that may run the job, the preferred one first.
func (s *Spec) Choices() []Choice {
	return append([]Choice{{Worker: s.Worker, Model: s.Model}}, s.Fallback...)
}

// Can reports whether the job was granted c.
func (s *Spec) Can(c Capability) bool {
	for _, have := range s.Capabilities {
		if have == c {
			return true
		}
	}
	return false
}

// Capability is something that an agent is allowed to do.
type Capability string

const (
	// CanRead: read files of the workspace.
	CanRead Capability = "read"
	// CanEdit: change files of the workspace.
	CanEdit Capability = "edit"
	// CanRunCommands: run any command; with AllowCommands, only those.
	CanRunCommands Capability = "run_commands"
	// CanRunTests: run the usual test commands of a repository (TestCommands).
	CanRunTests Capability = "run_tests"
	// CanUseNetwork: reach the network from tools.
	CanUseNetwork Capability = "network"
	// CanUseScheduler: submit jobs of its own and gather what they did, within what its own job
	// has left, ask people for words, and keep notes: see Lead.
	CanUseScheduler Capability = "scheduler"
)

// Capabilities lists every capability.
func Capabilities() []Capability {
	return []Capability{CanRead, CanEdit, CanRunCommands, CanRunTests, CanUseNetwork, CanUseScheduler}
}

// TestCommands are the command patterns that CanRunTests allows.
func TestCommands() []string {
	return []string{
		"go test *", "go vet *", "make test", "make check", "npm test", "npm run test *", "pnpm test *", "yarn test *",
		"pytest *", "python -m pytest *", "cargo test *", "mvn test *", "gradle test *", "./gradlew test *",
		"dotnet test *", "mix test *", "bundle exec rspec *", "ctest *",
	}
}

// Workspace is the folder that a job works in, and how it is kept apart from
// the user's own.
type Workspace struct {
	Path      string    `json:"path,omitempty"` // absolute, "" with NoWorkspace, Repo or Parcel
	Isolation Isolation `json:"isolation"`      // how the work is kept apart from the folder
	// Base is the commit, branch or tag that a worktree starts from; "" is HEAD.
	Base string `json:"base,omitempty"`
	// Repo is the address of a repository that a worktree is made of instead of a folder;
	// see ValidRepo. Each attempt of a new worktree fetches Base of it, unless the job has begun already.
	Repo string `json:"repo,omitempty"`
	// Parcel is a folder of the submitter's host that a worktree is made of; no field is
	// set without one.
	Parcel Parcel `json:"parcel,omitzero"`
}

// IsFolder reports whether the workspace is made of a folder of the host where the job
// runs, or of nothing.
func (w *Workspace) IsFolder() bool { return w.Repo == "" && w.Parcel == (Parcel{}) }

// OfHost reports whether the workspace is made of what lies in a folder of one host: only there it can be made.
func (w *Workspace) OfHost() bool {
	if w.Repo != "" {
		_, local := LocalRepo(w.Repo)
		return local
	}
	return w.Path != "" && w.IsFolder()
}

// Mirror names the mirror that hosts keep of the workspace's repository for a tenant, 32 hexadecimal digits; "" if
// it is made of no repository that travels.
func (w *Workspace) Mirror(t Tenant) string {
	if w.IsFolder() {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s,%d:%s,%s", len(t), t, len(w.Repo), w.Repo, w.Parcel.Repository))
	return hex.EncodeToString(sum[:16])
}

// Parcel names a folder whose repository was uploaded with PUT /v1/parcels/{digest}. A submission says the
// digest, and maybe Sub and Folder; the scheduler fills in the rest.
type Parcel struct {
	Digest     string `json:"digest"`               // SHA-256 of the parcel, 64 hexadecimal digits
	Sub        string `json:"sub,omitempty"`        // the folder below the repository's top, slash separated; "" for the top
	On         string `json:"on,omitempty"`         // the digest of the parcel that it builds on; "" for one with the whole history
	Repository string `json:"repository,omitempty"` // names the repository, whichever clone of it the folder is in
	Base       string `json:"base,omitempty"`       // the commit that was checked out
	Commit     string `json:"commit,omitempty"`     // the same with what was not committed
	Folder     string `json:"folder,omitempty"`     // where the folder lies on the submitter's host, absolute
}

// Isolation is how a job's folder relates to the user's.
type Isolation string

const (
	// Worktree: a working tree on a branch of its own, from a git repository.
	Worktree Isolation = "worktree"
	// Direct: the folder itself. The job changes the user's files.
	Direct Isolation = "direct"
	// Copy: a copy of the folder.
	Copy Isolation = "copy"
	// NoWorkspace: an empty folder.
	NoWorkspace Isolation = "none"
)

// Limits bound a job. Zero means the default for Timeout and MaxAttempts and
// no limit for the others.
type Limits struct {
	// Wall time of one attempt, `verify` included.
	Timeout Duration `json:"timeout,omitempty" above:"0s" want:"a duration such as 30m"`
	// Attempts altogether.
	MaxAttempts int `json:"max_attempts,omitempty" min:"1" otherwise:"3"`
	// US dollars over all attempts.
	MaxCostUSD float64 `json:"max_cost_usd,omitempty" above:"0" want:"US dollars above 0; leave it out for no limit"`
	// Tokens, input and output, over all attempts.
	MaxTokens int64 `json:"max_tokens,omitempty" min:"1" want:"1 or more; leave it out for no limit"`
	// Turns of the agent's loop in one attempt.
	MaxSteps int64 `json:"max_steps,omitempty" min:"1" want:"1 or more; leave it out for no limit"`
	// Wall time of one command of the agent.
	MaxCommandTime Duration `json:"max_command_time,omitempty" above:"0s" want:"a duration such as 5m; leave it out for no limit"`
	// Once it is spent, no further attempt starts.
	RetryBudget RetryBudget `json:"retry_budget,omitzero"`
	// Memory of all processes of one attempt together, what was swapped out included: a number with
	// `KiB`, `MiB`, `GiB`, `TiB`; at least `1MiB`.
	Memory Size `json:"memory,omitempty" min:"1MiB" want:"1MiB or more; leave it out for the limit of the host's configuration" otherwise:"[the host's](config.md#what-a-run-may-use)"`
	// Processes and threads of one attempt.
	Processes int64 `json:"processes,omitempty" min:"1" want:"1 or more; leave it out for the limit of the host's configuration" otherwise:"the host's"`
	// CPUs that one attempt uses at most, e.g. `1.5`. It is slowed down, not ended.
	CPU float64 `json:"cpu,omitempty" above:"0" max:"65536" want:"more than zero and at most 65536 CPUs; leave it out for the limit of the host's configuration" otherwise:"the host's"`
	// What becomes of an attempt whose host hears of no scheduler any more (`heartbeat.permit_validity`). `stop`: it is stopped, is lost and
	// does not count. `finish`, for work without side effects: it goes on, and its end is told when a scheduler
	// listens again; [the job may have been given to another host by then](fleet.md#what-is-promised).
	OnPartition OnPartition `json:"on_partition,omitempty" otherwise:"stop"`
}

// OnPartition says what becomes of a run whose permit lapses, since no scheduler renews it.
type OnPartition string

const (
	// StopOnPartition stops it; "" means the same.
	StopOnPartition OnPartition = "stop"
	// FinishOnPartition lets it go on until its end, or its core's.
	FinishOnPartition OnPartition = "finish"
)

// RetryBudget bounds what a job may consume over all its attempts: once it is
// spent, no further attempt starts. Zero means no limit.
type RetryBudget struct {
	// Wall time of all attempts together.
	Time Duration `json:"time,omitempty" above:"0s" want:"a duration such as 2h; leave it out for no limit"`
	// US dollars of all attempts together.
	CostUSD float64 `json:"cost_usd,omitempty" above:"0" want:"US dollars above 0; leave it out for no limit"`
}

// SetDefaults sets those that are not without a limit.
func (l *Limits) SetDefaults() { l.Timeout, l.MaxAttempts = DefaultTimeout, DefaultMaxAttempts }

// Defaults of Limits.
const (
	DefaultTimeout     = Duration(30 * time.Minute)
	DefaultMaxAttempts = 3
)

// UsedUp says that a job has no attempts left, of n.
func UsedUp(n int) string {
	if n == 1 {
		return "its only attempt is used up"
	}
	return fmt.Sprintf("all %d attempts are used up", n)
}

// Class is how patient a job's owner is.
type Class string

const (
	// Interactive is work that a person waits for. It is never shed.
	Interactive Class = "interactive"
	// Standard is the class of work that names none.
	Standard Class = "standard"
	// Batch is work that can wait for a quiet hour. It is shed first.
	Batch Class = "batch"
)

// Or returns c, or Standard if it is not given.
func (c Class) Or() Class {
	if c == "" {
		return Standard
	}
	return c
}

// Classes lists every class.
func Classes() []Class { return []Class{Interactive, Standard, Batch} }
