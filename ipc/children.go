package ipc

import (
	"encoding/json"

	"github.com/agentsched/agentsched/job"
)

// Methods by which the agent of a run uses the scheduler: it has jobs of its own, its children
// (job.Lead), and notes that it shares with the jobs of its batch. The core calls them on the
// scheduler, for a run that it has and whose job has the capability scheduler.
const (
	MethodSubmitChild  = "submit_child"  // SubmitChild → ChildResult
	MethodListChildren = "list_children" // ListChildren → Children
	MethodReadChild    = "read_child"    // ReadChild → ChildResult
	MethodCancelChild  = "cancel_child"  // CancelChild → ChildResult
	MethodNotes        = "notes"         // Notes → NotesResult
)

// Budget is a part of what a job may spend.
type Budget struct {
	Tokens  int64   `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
}

// NewChild is what an agent says of a child. What it leaves out is as its own job has it.
type NewChild struct {
	Name         string   `json:"name"` // unique among the children of the job: it is submitted once
	Instructions string   `json:"instructions"`
	Worker       string   `json:"worker,omitempty"` // or worker:model
	Capabilities []string `json:"capabilities,omitempty"`
	// The rest bounds it further. Commands and hosts are some of those that the job has.
	AllowCommands []string        `json:"allow_commands,omitempty"`
	Network       []string        `json:"network,omitempty"`
	Secrets       []string        `json:"secrets,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"` // JSON schema of its answer
	Timeout       job.Duration    `json:"timeout,omitempty"`
}

// SubmitChild submits a child of a run's job. One that has its name already is returned as it is,
// if it was given the same instructions.
type SubmitChild struct {
	Job     job.ID   `json:"job"`
	Attempt int      `json:"attempt"`
	Child   NewChild `json:"child"`
	// Budget is what it may spend, which the core has set apart; zero where the job has no limit.
	Budget Budget `json:"budget,omitzero"`
}

// Child is how a child stands.
type Child struct {
	Name  string `json:"name"`
	Job   job.ID `json:"job"`
	State string `json:"state"` // queued, running, waiting_approval, succeeded, failed, cancelled, expired
	Ended bool   `json:"ended,omitempty"`
	// Why says what it waits for, or why it has failed.
	Why    string    `json:"why,omitempty"`
	Spent  job.Usage `json:"spent,omitzero"`
	Limits Budget    `json:"limits,omitzero"`
}

// ChildResult is about one child.
type ChildResult struct {
	// Refused says why nothing was done, for the agent; the rest is empty then, but for Ceded.
	Refused string `json:"refused,omitempty"`
	Child   Child  `json:"child,omitzero"`
	Before  bool   `json:"before,omitempty"` // it was submitted before
	// With read_child: what it answered, cut to job.MaxEventText, and a piece of its patch.
	Answer     string `json:"answer,omitempty"`
	Patch      []byte `json:"patch,omitempty"`
	PatchBytes int64  `json:"patch_bytes,omitempty"` // of all of it
	Ceded      Ceded  `json:"ceded,omitzero"`
}

// Ceded is what the children of a job take of its limits: one that has not ended all that it may spend, one that has what it has spent.
type Ceded struct {
	Budget
	// Version grows with each change: an answer that is overtaken by another one is void.
	Version int64 `json:"version,omitempty"`
}

// ListChildren asks how the children of a run's job stand.
type ListChildren struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
}

// Children are all that the job has, in the order in which they were submitted.
type Children struct {
	Refused  string  `json:"refused,omitempty"` // why there is no answer, for the agent
	Children []Child `json:"children,omitempty"`
	Free     int     `json:"free,omitempty"`  // how many more it may have
	Depth    int     `json:"depth,omitempty"` // how many levels may lie below it
	Ceded    Ceded   `json:"ceded,omitzero"`
}

// ReadChild asks for what a child has left.
type ReadChild struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Name    string `json:"name"`
	Offset  int64  `json:"offset,omitempty"` // of the piece of its patch
}

// MaxPatchPiece bounds ChildResult.Patch, in bytes.
const MaxPatchPiece = 48 << 10

// CancelChild withdraws a child. One that has ended stays as it is.
type CancelChild struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Name    string `json:"name"`
}

// Notes stores a note, if Key is given, and returns those of the run's batch and tenant.
type Notes struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Key     string `json:"key,omitempty"`
	Text    string `json:"text,omitempty"` // "" takes the note away
}

// Note is one that jobs of a batch share.
type Note struct {
	Key  string `json:"key"`
	Text string `json:"text"`
	By   string `json:"by"` // the name of the job that has written it
}

// NotesResult has the notes, by their keys.
type NotesResult struct {
	Refused string `json:"refused,omitempty"`
	Notes   []Note `json:"notes,omitempty"`
}
