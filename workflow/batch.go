package workflow

import (
	"bytes"
	"encoding/json"

	"github.com/agentsched/agentsched/job"
)

// Batch is all that is known of jobs that were submitted together, the parts of nodes
// and what teams have restarted among them. It is kept from one end to the next: Put
// says what has changed, Advance what follows from that, which costs what depends on it
// and not the batch. Of two jobs with the same name the later one counts.
type Batch struct {
	// Shells are the workers, beside "shell", whose instructions are a shell script:
	// what expressions give there is passed in variables.
	Shells []job.WorkerKind
	// Workflow is what the jobs have in common: of it the agents' input schemas are
	// needed. nil: there are none.
	Workflow *job.Workflow

	jobs    []Job
	waits   []int              // of each, the need that was waited for when it was looked at last
	latest  map[job.Name]int   // by name
	heir    map[job.Name]int   // by the name before restarts: who stands for it now
	needed  map[job.Name][]int // by the name before restarts: who needs it
	nodes   map[job.Name]*node
	open    int            // jobs that have not ended
	circles map[int]string // jobs whose needs go in a circle; nil: to be found anew
	todo    []int          // jobs to be looked at
	marked  []bool         // of each, whether it is to be

	// Of one Advance.
	before   map[int]Job  // jobs as they stand, of which moves change something
	failures map[int]bool // of skipped jobs: whether a failure is behind it
	cancels  map[int]bool
	moves    []Move
}

// Job is one job of a batch and what has become of it.
type Job struct {
	Spec  *job.Spec
	State job.EntryState
	Exit  job.ExitKind // of a Completed one
	Held  job.Hold     // of a Queued one
	// Skipped says of a Cancelled one why it was not to run; "" somebody withdrew it.
	Skipped string
	// Unsettled is set of one that has ended but that its team may yet restart: who
	// needs it waits on.
	Unsettled bool
	// CancelRequested is set of one that runs and was told to stop: to cancel it
	// again changes nothing.
	CancelRequested bool

	// What its last attempt, or its Conclude, left. Output is JSON; see Output.
	Output  json.RawMessage
	Class   job.ErrorClass // of a failure
	Message string         // of a failure: what happened
	Patch   string         // path of the patch file; "" none
	Bytes   int64          // size of the patch file; 0 if none was recorded
	Digest  string         // the SHA-256 of the patch file; "" none
	Files   []string       // changed paths, relative to the workspace
	Metrics Metrics        // what its attempts took, of one that has ended
	// Check is the core's word about Loop.Command or Loop.File, of a turn that
	// succeeded. It has to be there as soon as the turn has ended: without it the
	// loop fails.
	Check *CheckResult
}

func (j *Job) patch() job.Patch {
	return job.Patch{Job: j.Spec.Name, Path: j.Patch, Bytes: j.Bytes, SHA256: j.Digest}
}

// CheckResult is how the check after a turn of a loop went.
type CheckResult struct {
	Passed  bool   `json:"passed"`
	Message string `json:"message,omitempty"` // of one that did not pass: e.g. the command's output
	// Mute says that Message is the same whatever has failed: it tells nothing of
	// whether the loop gets anywhere.
	Mute bool `json:"mute,omitempty"`
}

// Output returns the answer of a job as jobs.NAME.output has it: JSON where the
// job has an output schema, and else the answer as a JSON text.
func Output(s *job.Spec, answer string) json.RawMessage {
	if text := bytes.TrimSpace([]byte(answer)); len(s.Output) > 0 && json.Valid(text) {
		return text
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return text
}

// isNode reports whether the job never runs itself but stands for its parts.
func (j *Job) isNode() bool {
	f := &j.Spec.Flow
	return f.Node == "" && (f.ForEach != nil || f.Loop != nil)
}

// settled reports whether nothing more will become of the job.
func (j *Job) settled() bool { return j.State.Terminal() && !j.Unsettled }

// How a job stands, as jobs.NAME.state says it.
const (
	stateSucceeded = "succeeded"
	stateFailed    = "failed"
	stateCancelled = "cancelled"
	stateSkipped   = "skipped"
	stateExpired   = "expired"
)

// state returns how a job has ended, or "".
func (j *Job) state() string {
	switch {
	case j.State == job.Completed:
		return string(j.Exit)
	case j.State == job.Expired:
		return stateExpired
	case j.State == job.Cancelled && j.Skipped != "":
		return stateSkipped
	case j.State == job.Cancelled:
		return stateCancelled
	}
	return ""
}

func (j *Job) succeeded() bool { return j.state() == stateSucceeded }

// Move is something that follows from how a batch stands.
type Move interface{ move() }

// Ready lets a job run, with Resolved instead of its own words.
type Ready struct {
	Name     job.Name
	Resolved *job.Resolved
}

// Skip ends a job that is not to run.
type Skip struct {
	Name job.Name
	Why  string // one sentence
}

// Keep lets a job stand for its parts, or for its end that follows at once.
type Keep struct {
	Name    job.Name
	For     job.Hold
	Waiting string // one sentence
}

// Spawn adds parts of a node to the batch: held for their needs, like any job
// whose Flow is not Alone. A part that is there is passed over.
type Spawn struct {
	Node  job.Name
	Specs []job.Spec
}

// Conclude ends a job that was kept.
type Conclude struct {
	Name       job.Name
	Exit       job.ExitKind
	Result     json.RawMessage // with ExitSucceeded: its output
	DeadLetter string          // with ExitFailed: why
	Class      job.ErrorClass  // with ExitFailed
}

// Cancel stops a part whose node has ended without it.
type Cancel struct{ Name job.Name }

func (Ready) move()    {}
func (Skip) move()     {}
func (Keep) move()     {}
func (Spawn) move()    {}
func (Conclude) move() {}
func (Cancel) move()   {}
