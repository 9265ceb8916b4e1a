package job

import (
	"encoding/json"
	"fmt"
)

// Flow is how a job hangs together with the other jobs of its batch. The zero
// value is a job that stands alone.
//
// A job with ForEach or Loop is a node that never runs itself: each item, each
// turn, is a job of its own, called NAME@1, NAME@2 and so on (see PartName), and
// the node ends with the last of them. A member of a team that is restarted is
// done again by a new job, NAME+1 and so on (see RestartName).
type Flow struct {
	// Joined is set of every job of a batch in which one waits for another, or some
	// form a team: the end of each is looked at for what follows from it.
	Joined bool `json:"joined,omitempty"`
	// Needs are the jobs whose ends it waits for.
	Needs []Name `json:"needs,omitempty"`
	// If is the condition under which it then runs, an expression such as
	// `jobs.review.output.ok` or `always()`; "" is success(). If it does not hold,
	// the job is skipped.
	If string `json:"if,omitempty"`
	// ForEach makes a job of each item of a list.
	ForEach *ForEach `json:"for_each,omitempty"`
	// Loop does the job again and again until a check passes.
	Loop *Loop `json:"loop,omitempty"`
	// Input is what the job is given, JSON whose texts may hold expressions; its
	// profile's input schema describes it.
	Input json.RawMessage `json:"input,omitempty"`
	// From are jobs, among the needs, whose patches are applied to a fresh worktree
	// or copy, in this order, before the worker starts: what it changes beyond them
	// is its own patch. OnConflict says what follows if they do not apply.
	From       []Name   `json:"from,omitempty"`
	OnConflict Conflict `json:"on_conflict,omitempty"`
	// Best: the scheduler orders Choices by reputation.
	Best bool `json:"best,omitempty"`
	// Oversight says when a person must agree; nil: never.
	Oversight *Oversight `json:"oversight,omitempty"`
	// Evaluation says how the work is judged; nil: it is not.
	Evaluation *Evaluation `json:"evaluation,omitempty"`
	// Node is the job that this one is a part of, Part its number within that,
	// from 1; "" and 0 for what was submitted. Restart is how often the team has
	// restarted it.
	Node    Name `json:"node,omitempty"`
	Part    int  `json:"part,omitempty"`
	Restart int  `json:"restart,omitempty"`
}

// ForEach is a list and how many of its items may be.
type ForEach struct {
	// Items is a list as JSON, or the text of an expression that gives one.
	Items json.RawMessage `json:"items"`
	// Max is the most items that are allowed: more are a failure, not a cut.
	Max int `json:"max"`
	// MaxParallel is how many may run at once; 0: all.
	MaxParallel int `json:"max_parallel,omitempty"`
}

// DefaultForEachMax is the cap on the items of a list that names none.
const DefaultForEachMax = 100

// MaxForEach bounds that cap: each item is a job in the queue.
const MaxForEach = 10_000

// Loop repeats a job, each turn in what the last one left, until a check passes.
type Loop struct {
	// Exactly one of these is the check, made after each turn that succeeded.
	Command string `json:"command,omitempty"` // a shell command that must exit 0 in the workspace
	File    string `json:"file,omitempty"`    // a file that must be there, relative to the workspace
	Until   string `json:"until,omitempty"`   // an expression over `output`, the turn's answer as JSON
	// MaxIterations bounds the turns; when it is reached, the job has failed.
	MaxIterations int `json:"max_iterations"`
	// MaxSame ends a loop in which so many turns in a row made the same diff, or
	// failed the check in the same words; 0 is DefaultMaxSame.
	MaxSame int `json:"max_same,omitempty"`
	// MaxFiles ends a loop whose turns together have changed more files: its scope
	// grows; 0: no bound.
	MaxFiles int `json:"max_files,omitempty"`
}

// Defaults of a Loop.
const (
	DefaultMaxIterations = 10
	DefaultMaxSame       = 2
)

// OversightMode is how much a person has a say.
type OversightMode string

// The modes, from the least to the most oversight.
const (
	// AutonomousEscalation asks only when the agent does, or has to: low
	// confidence, a denied permission, a check that keeps failing.
	AutonomousEscalation OversightMode = "autonomous_escalation"
	// SpotCheck asks with a probability, too.
	SpotCheck OversightMode = "spot_check"
	// Supervised asks always.
	Supervised OversightMode = "supervised"
)

// OversightModes lists the modes, the least oversight first.
func OversightModes() []OversightMode {
	return []OversightMode{AutonomousEscalation, SpotCheck, Supervised}
}

// Oversight says when a person must agree to what a job has made before
// anything is built on it.
type Oversight struct {
	Mode OversightMode `json:"mode"`
	// Probability of a spot check, in [0, 1]; nil is DefaultSpotCheck.
	Probability *float64 `json:"probability,omitempty"`
	// MinConfidence is the least `confidence`, a number in [0, 1] that an answer in
	// JSON may hold, with which the agent is not held to ask; 0: it is not looked at.
	MinConfidence float64 `json:"min_confidence,omitempty"`
	// Timeout is how long a person may take; 0: for ever. Then Default holds:
	// "approve", or "reject", which is also meant by "".
	Timeout Duration `json:"timeout,omitempty"`
	Default string   `json:"default,omitempty"`
	// MaxRetries is how often the work may be rejected and done again.
	MaxRetries int `json:"max_retries"`
}

// Defaults of Oversight.
const (
	DefaultSpotCheck  = 0.3
	DefaultMaxRetries = 2
)

// Evaluation says how a job's work is judged. What no source gives a value to is
// left out, and the weights of the others are scaled to a sum of 1.
type Evaluation struct {
	// Domain chooses the weights: "legal", "security", "dashboard", or one of the
	// configuration; "" is the default's.
	Domain string `json:"domain,omitempty"`
	// SLA is the wall time at which speed begins to fall below 1; 0: not judged.
	SLA Duration `json:"sla,omitempty"`
	// Command is a shell command, run in the workspace after the work, that prints
	// a JSON report such as {"quality": 0.9}.
	Command string `json:"command,omitempty"`
	// Report is a file of the workspace with such a report.
	Report string `json:"report,omitempty"`
	// Judge is the job of the same batch whose answer is such a report.
	Judge Name `json:"judge,omitempty"`
}

// PartName returns the name of a node's part, counted from 1. No submitted job
// can have it.
func PartName(node Name, part int) Name { return Name(fmt.Sprintf("%s@%d", node, part)) }

// RestartName returns the name of the job that does another again, for the n-th
// time. No submitted job can have it.
func RestartName(name Name, n int) Name { return Name(fmt.Sprintf("%s+%d", name, n)) }

// Alone reports whether the job hangs together with no other and nobody: it is
// claimed as soon as it is submitted, and ends with its attempts.
func (f *Flow) Alone() bool {
	return len(f.Needs) == 0 && f.If == "" && f.ForEach == nil && f.Loop == nil && len(f.Input) == 0 && f.Node == ""
}

// Hold is why a queued entry is kept from being claimed; "" none.
type Hold string

const (
	// HeldForNeeds: its needs have not ended, or nobody has looked yet.
	HeldForNeeds Hold = "needs"
	// HeldForParts: it stands for its parts, which run.
	HeldForParts Hold = "parts"
	// HeldForApproval: a person has to look at what its latest attempt made. That
	// attempt is WaitingApproval.
	HeldForApproval Hold = "approval"
	// HeldForTeam: its team has been stopped and decides.
	HeldForTeam Hold = "team"
)

// Resolved is what a job is run with once its needs have ended: its own words
// with the expressions in them replaced.
type Resolved struct {
	Instructions string          `json:"instructions,omitempty"`
	SystemPrompt string          `json:"system_prompt,omitempty"`
	Verify       string          `json:"verify,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	// Patches are those of Flow.From.
	Patches []Patch `json:"patches,omitempty"`
	// Hash is over all that could be referred to: what a stored result is an
	// answer to.
	Hash string `json:"hash,omitempty"`
}

// Patch is what a job has changed.
type Patch struct {
	Job  Name   `json:"job"`
	Path string `json:"path"` // of the patch file, absolute; "" if it changed nothing
	// Bytes and SHA256 are those of the file, as Artifact has them; zero if none
	// were recorded.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// Conflict is what is done when patches do not fit together.
type Conflict string

const (
	// FailOnConflict ends the attempt as CONFLICT; "" means the same.
	FailOnConflict Conflict = "fail"
	// ResolveConflict leaves the marks of the conflicts in the files and lets the
	// worker resolve them.
	ResolveConflict Conflict = "worker"
)
