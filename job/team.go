package job

import (
	"encoding/json"
	"time"
)

// Workflow is what the jobs of a batch have in common. The zero value is that of
// jobs that stand alone.
type Workflow struct {
	Teams     []Team     `json:"teams,omitempty"`     // of the jobs
	Agents    []Profile  `json:"agents,omitempty"`    // that jobs may be done on behalf of
	Pipelines []Pipeline `json:"pipelines,omitempty"` // of the jobs
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
	// The team's name, unlike those of jobs and other teams.
	ID Name `json:"id" need:"a name for it such as builders"`
	// Who is restarted when a member fails. `one_for_one`: it. `one_for_all`: all. `rest_for_one`: it
	// and those that start after it.
	Strategy Strategy `json:"strategy"`
	// Restarts within `max_seconds`; one more, and the team fails.
	MaxRestarts int `json:"max_restarts" min:"0" otherwise:"1"`
	// The time within which restarts are counted, in seconds.
	MaxSeconds int `json:"max_seconds" min:"1" otherwise:"5"`
	// Jobs and teams, in the order in which they start; each an id of a job, or a mapping with:.
	Members []Member `json:"members" need:"at least one job or team" items:"1" short:"job"`
}

// Defaults of a Team, those of Erlang/OTP but for the time.
const (
	DefaultMaxRestarts = 1
	DefaultMaxSeconds  = 5
	DefaultShutdown    = Duration(30e9) // 30 s to checkpoint
)

// SetDefaults sets those of Erlang/OTP.
func (t *Team) SetDefaults() {
	t.Strategy, t.MaxRestarts, t.MaxSeconds = OneForOne, DefaultMaxRestarts, DefaultMaxSeconds
}

// SetDefaults makes it transient.
func (m *Member) SetDefaults() { m.Restart, m.Shutdown = Transient, DefaultShutdown }

// Member is a job or a team of a team.
type Member struct {
	// The id of a job. Nobody is in two teams.
	Job Name `json:"job,omitempty"`
	// Or the id of a team, which is a member as a whole.
	Team Name `json:"team,omitempty"`
	// After which ends it is restarted. permanent: always. transient: if it failed. temporary: never.
	Restart RestartType `json:"restart"`
	// How long it has to end when it is stopped.
	Shutdown Duration `json:"shutdown" min:"0s"`
}

// Profile is an agent as it was declared. It never changes: another profile is
// another agent.
type Profile struct {
	Name         AgentID      `json:"name"`                                                                                                    // unique within its tenant
	Capabilities []Capability `json:"capabilities,omitempty"`                                                                                  // what its jobs may do
	Domains      []string     `json:"domains,omitempty" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal"` // that its tasks may be from; none: any
	// Input and Output are JSON schemas of what its jobs are given and answer.
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	Worker           WorkerKind      `json:"worker,omitempty"`                                                                                                  // that does its jobs
	Model            string          `json:"model,omitempty"`                                                                                                   // as the worker's program calls it
	Fallback         []Choice        `json:"fallback,omitempty"`                                                                                                // tried in this order when Worker cannot
	SystemPrompt     string          `json:"system_prompt,omitempty"`                                                                                           // put in front of its jobs' own
	Oversight        *Oversight      `json:"oversight,omitempty"`                                                                                               // when a person must agree; nil: as the job says
	EvaluationDomain string          `json:"evaluation_domain,omitempty" form:"word" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @, such as legal"` // whose weights judge its work
}

// EventType names what a stage of a pipeline publishes, e.g. "page_discovered".
type EventType string

// Pipeline is a line of stages through which events stream.
type Pipeline struct {
	// The pipeline's name.
	ID Name `json:"id"`
	// In order. Events go from a stage to any later one; each stage has:.
	Stages []Stage `json:"stages"`
	// Replays is set by a scheduler that replays an earlier run; a submission does
	// not have it.
	Replays *Replay `json:"replays,omitempty" yaml:"-"`
}

// Replay is which recorded events of an earlier run a pipeline gives its stages, in
// place of the seed.
type Replay struct {
	Batch BatchID `json:"batch"` // of that run
	// Stage is the first stage that runs. Those before it have no job: what they
	// published then is what is given.
	Stage   Name        `json:"stage"`
	Types   []EventType `json:"types"`           // of events that are given
	After   int64       `json:"after,omitempty"` // only events with a larger sequence number
	Through int64       `json:"through"`         // only events with a sequence number of at most this
	Since   *time.Time  `json:"since,omitempty"` // only events that were published then or later
	Until   *time.Time  `json:"until,omitempty"` // only events that were published before then
}

// Stage is one stage of a pipeline. The first subscribes to nothing: it is given
// the pipeline's Seed.
type Stage struct {
	// The stage's name. Default: the id of its job.
	ID Name `json:"id"`
	// The job that says on which worker the stage runs, and with what words. It is the job of no other
	// stage.
	Job Name `json:"job"`
	// Types of events that it is given. An earlier stage must publish each.
	Subscribes []EventType `json:"subscribes,omitempty" otherwise:"none in the first stage, which is given the seed; else required"`
	// Types of events that it may publish.
	Publishes []EventType `json:"publishes,omitempty"`
	// `true`: the worker lives as long as the pipeline and speaks the [worker
	// protocol](worker-protocol.md). `false`: one is started for each batch of events.
	Streams bool `json:"streams,omitempty"`
	// Events that a started worker is given at most.
	Batch int `json:"batch,omitempty" min:"1" otherwise:"1"`
	// Workers of the stage at once.
	MaxParallel int `json:"max_parallel,omitempty" min:"1" otherwise:"1"`
	// Events that may wait for the stage before those that publish them have to wait.
	Buffer int `json:"buffer,omitempty" min:"1" otherwise:"1024"`
}

// DefaultBuffer is the bound of a stage's backlog, in events.
const DefaultBuffer = 1024
