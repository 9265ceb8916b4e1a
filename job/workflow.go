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
	Joined bool `json:"joined,omitempty" yaml:"-"`
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
	From       []Name   `json:"from,omitempty" yaml:"-"`
	OnConflict Conflict `json:"on_conflict,omitempty" yaml:"-"` // what follows if a patch of From does not apply
	// Best: the scheduler orders Choices by reputation.
	Best bool `json:"best,omitempty" yaml:"-"`
	// Oversight says when a person must agree; nil: never.
	Oversight *Oversight `json:"oversight,omitempty"`
	// Evaluation says how the work is judged; nil: it is not.
	Evaluation *Evaluation `json:"evaluation,omitempty"`
	// Node is the job that this one is a part of, Part its number within that,
	// from 1; "" and 0 for what was submitted. Restart is how often the team has
	// restarted it.
	Node    Name `json:"node,omitempty" yaml:"-"`
	Part    int  `json:"part,omitempty" yaml:"-"`    // the number of this part within Node, from 1
	Restart int  `json:"restart,omitempty" yaml:"-"` // how often the team has restarted it
}

// ForEach is a list and how many of its items may be.
type ForEach struct {
	// Items is a list as JSON, or the text of an expression that gives one.
	Items json.RawMessage `json:"items"`
	// Max is the most items that are allowed: more are a failure, not a cut.
	Max int `json:"max" min:"1" max:"10000"`
	// MaxParallel is how many may run at once; 0: all.
	MaxParallel int `json:"max_parallel,omitempty" min:"1" want:"1 or more; leave it out for all at once"`
}

// DefaultForEachMax is the cap on the items of a list that names none.
const DefaultForEachMax = 100

// MaxForEach bounds that cap: each item is a job in the queue.
const MaxForEach = 10_000

// Loop repeats a job, each turn in what the last one left, until a check passes.
type Loop struct {
	// A shell command that exits 0 in the workspace.
	Command string `json:"command,omitempty"`
	// A file that is there, relative to the workspace.
	File string `json:"file,omitempty"`
	// A condition on `output`, the turn's answer, such as `output.done`.
	Until string `json:"until,omitempty"`
	// Turns; when they are used up, the job has failed.
	MaxIterations int `json:"max_iterations" min:"1" otherwise:"10"`
	// Give up after so many turns in a row that made the same diff, or failed the check in the same
	// words.
	MaxSame int `json:"max_same,omitempty" min:"2" want:"2 or more turns that are alike" otherwise:"2"`
	// Give up when the turns together have changed more files.
	MaxFiles int `json:"max_files,omitempty" min:"1" want:"1 or more; leave it out for no bound"`
}

// SetDefaults sets the bound of the turns.
func (l *Loop) SetDefaults() { l.MaxIterations = DefaultMaxIterations }

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
	// `autonomous_escalation`: when the agent asks, or has to. `spot_check`: at random, too.
	// `supervised`: always.
	Mode OversightMode `json:"mode" need:"one of autonomous_escalation, spot_check, supervised"`
	// How often a `spot_check` asks.
	Probability *float64 `json:"probability,omitempty" min:"0" max:"1" otherwise:"0.3"`
	// Ask if the answer is JSON whose `confidence` is less.
	MinConfidence float64 `json:"min_confidence,omitempty" above:"0" max:"1" otherwise:"it is not looked at"`
	// How long a person may take.
	Timeout Duration `json:"timeout,omitempty" above:"0s" want:"a duration such as 12h; leave it out to wait for ever" otherwise:"for ever"`
	// What holds after that: `approve` or `reject`.
	Default string `json:"default,omitempty" words:"approve reject"`
	// How often the work may be rejected and done again. These attempts do not use up
	// `limits.max_attempts`.
	MaxRetries int `json:"max_retries" min:"0" otherwise:"2"`
}

// SetDefaults sets how often the work is done again.
func (o *Oversight) SetDefaults() { o.MaxRetries = DefaultMaxRetries }

// Defaults of Oversight.
const (
	DefaultSpotCheck  = 0.3
	DefaultMaxRetries = 2
)

// Evaluation says how a job's work is judged. What no source gives a value to is
// left out, and the weights of the others are scaled to a sum of 1.
type Evaluation struct {
	// Whose weights count: `legal`, `security`, `dashboard`, or another that `domain` may be.
	Domain string `json:"domain,omitempty" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal" otherwise:"the default's weights"`
	// Wall time beyond which the job counts as slow.
	SLA Duration `json:"sla,omitempty" above:"0s" want:"a duration such as 10m; leave it out if speed does not matter" otherwise:"speed does not count"`
	// A shell command, run in the workspace afterwards, that prints a report in JSON such as
	// `{"quality": 0.9}`.
	Command string `json:"command,omitempty" match:"\\S" is:"a command" want:"a command that prints a report"`
	// A file of the workspace with such a report.
	Report string `json:"report,omitempty"`
	// The job whose answer is such a report. It needs this one.
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
	// HeldForWords: somebody has interrupted it, and it goes on when it is told something.
	HeldForWords Hold = "words"
	// HeldByPerson: a person has taken it over, and it goes on when they hand it back.
	HeldByPerson Hold = "person"
)

// Resolved is what a job is run with once its needs have ended: its own words
// with the expressions in them replaced.
type Resolved struct {
	Instructions string          `json:"instructions,omitempty"`  // in place of those of the job
	SystemPrompt string          `json:"system_prompt,omitempty"` // in place of that of the job
	Verify       string          `json:"verify,omitempty"`        // in place of that of the job
	Input        json.RawMessage `json:"input,omitempty"`         // in place of that of the job
	// Patches are those of Flow.From.
	Patches []Patch `json:"patches,omitempty"`
	// Hash is over all that could be referred to: what a stored result is an
	// answer to.
	Hash string `json:"hash,omitempty"`
}

// Patch is what a job has changed.
type Patch struct {
	Job  Name   `json:"job"`  // whose patch it is
	Path string `json:"path"` // of the patch file, absolute; "" if it changed nothing
	// Bytes and SHA256 are those of the file, as Artifact has them; zero if none
	// were recorded.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of the file, in hexadecimal
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
