package job

import "encoding/json"

// Workflow is what the jobs of a batch have in common. The zero value is that of
// jobs that stand alone.
type Workflow struct {
	Teams     []Team     `json:"teams,omitempty"`
	Agents    []Profile  `json:"agents,omitempty"`
	Pipelines []Pipeline `json:"pipelines,omitempty"`
	// Caller is set by a scheduler to which another process has handed the jobs; a
	// submission does not have it.
	Caller *Caller `json:"caller,omitempty"`
}

// Caller is the process that has handed its jobs to a scheduler.
type Caller struct {
	// Env are the variables of which the jobs get the caller's values. The values
	// are not stored.
	Env []string `json:"env,omitempty"`
}

// Strategy says who is restarted when a member of a team fails.
type Strategy string

// The strategies of Erlang/OTP's supervisor.
const (
	OneForOne  Strategy = "one_for_one"
	OneForAll  Strategy = "one_for_all"
	RestForOne Strategy = "rest_for_one"
)

// Strategies lists every strategy.
func Strategies() []Strategy { return []Strategy{OneForOne, OneForAll, RestForOne} }

// RestartType says after which ends a member of a team is restarted.
type RestartType string

// The restart types of Erlang/OTP's supervisor.
const (
	Permanent RestartType = "permanent" // always
	Transient RestartType = "transient" // if it failed
	Temporary RestartType = "temporary" // never
)

// RestartTypes lists every restart type.
func RestartTypes() []RestartType { return []RestartType{Permanent, Transient, Temporary} }

// Team supervises jobs, and other teams, in the manner of Erlang/OTP.
type Team struct {
	ID       Name     `json:"id"`
	Strategy Strategy `json:"strategy"`
	// MaxRestarts is how many restarts within MaxSeconds are allowed: one more, and
	// the team stops its members and fails itself, upwards.
	MaxRestarts int      `json:"max_restarts"`
	MaxSeconds  int      `json:"max_seconds"`
	Members     []Member `json:"members"` // in the order in which they start
}

// Defaults of a Team, those of Erlang/OTP but for the time.
const (
	DefaultMaxRestarts = 1
	DefaultMaxSeconds  = 5
	DefaultShutdown    = Duration(30e9) // 30 s to checkpoint
)

// Member is a job or a team of a team.
type Member struct {
	Job     Name        `json:"job,omitempty"`
	Team    Name        `json:"team,omitempty"`
	Restart RestartType `json:"restart"`
	// Shutdown is how long it has to end when it is stopped.
	Shutdown Duration `json:"shutdown"`
}

// Profile is an agent as it was declared. It never changes: another profile is
// another agent.
type Profile struct {
	Name         AgentID      `json:"name"`
	Capabilities []Capability `json:"capabilities,omitempty"`
	Domains      []string     `json:"domains,omitempty"` // that its tasks may be from; none: any
	// Input and Output are JSON schemas of what its jobs are given and answer.
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	Worker           WorkerKind      `json:"worker,omitempty"`
	Model            string          `json:"model,omitempty"`
	Fallback         []Choice        `json:"fallback,omitempty"`
	SystemPrompt     string          `json:"system_prompt,omitempty"`
	Oversight        *Oversight      `json:"oversight,omitempty"`
	EvaluationDomain string          `json:"evaluation_domain,omitempty"`
}

// EventType names what a stage of a pipeline publishes, e.g. "page_discovered".
type EventType string

// Pipeline is a line of stages through which events stream.
type Pipeline struct {
	ID     Name    `json:"id"`
	Stages []Stage `json:"stages"` // in order
}

// Stage is one stage of a pipeline. The first subscribes to nothing: it is given
// the pipeline's Seed.
type Stage struct {
	ID         Name        `json:"id"`
	Job        Name        `json:"job"` // of the batch, which says on which worker it runs and with what words
	Subscribes []EventType `json:"subscribes,omitempty"`
	Publishes  []EventType `json:"publishes,omitempty"`
	// Streams tells a worker that lives as long as the pipeline and speaks the
	// worker protocol from one that is started for each batch of events.
	Streams bool `json:"streams,omitempty"`
	// Batch is how many events a started worker gets at most; 0 is 1. MaxParallel
	// is how many may be at work at once; 0 is 1.
	Batch       int `json:"batch,omitempty"`
	MaxParallel int `json:"max_parallel,omitempty"`
	// Buffer is how many events may wait for the stage before those that publish
	// them have to wait; 0 is DefaultBuffer.
	Buffer int `json:"buffer,omitempty"`
}

// DefaultBuffer is the bound of a stage's backlog, in events.
const DefaultBuffer = 1024
