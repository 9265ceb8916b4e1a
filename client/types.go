package client

import (
	"time"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// Jobs is the answer to GET /v1/jobs.
type Jobs struct {
	Jobs []queue.Entry `json:"jobs"`
	// Total is how many there are without a limit; -1 on a page that is not the
	// first, where they are not counted.
	Total int `json:"total"`
	// Next is the cursor of the next page; "" after the last.
	Next string `json:"next,omitempty"`
}

// Job is the answer to GET /v1/jobs/{job}.
type Job struct {
	Job      queue.Entry   `json:"job"`
	Attempts []job.Attempt `json:"attempts"`
}

// Events is the answer to GET /v1/jobs/{job}/events.
type Events struct {
	Events []queue.StoredEvent `json:"events"`
}

// Submission is the body of POST /v1/jobs: jobs that stand or fall together.
type Submission struct {
	Source string     `json:"source"` // where they come from, e.g. the job file's path
	Digest string     `json:"digest"` // a hash over the jobs
	Jobs   []job.Spec `json:"jobs"`
	// Workflow is what the jobs have in common.
	Workflow job.Workflow `json:"workflow,omitzero"`
}

// Resume is the body of POST /v1/resume. The answer is the isolation that was
// lifted.
type Resume struct {
	Scope string `json:"scope"` // global, worker:KIND, worker:KIND@TENANT, workspace:/PATH or core:N
}

// RestartCores is the body of POST /v1/cores/restart. The answer comes when the
// successors are up and is that of GET /v1/status.
type RestartCores struct {
	Core  int  `json:"core,omitempty"`  // 1, 2, …; 0: all, one after the other
	Drain bool `json:"drain,omitempty"` // let the jobs of each end first
}

// Checkpoint is the body of POST /v1/jobs/{job}/checkpoint.
type Checkpoint struct {
	Reason string `json:"reason,omitempty"` // for the worker and the log
}

// Requeue is the body of POST /v1/dead-letters/requeue: which dead letters are
// done again. The answer is a Requeued.
type Requeue struct {
	Letters []RequeueLetter `json:"letters"`
	// ResetSession lets the agents begin without their sessions.
	ResetSession bool `json:"reset_session,omitempty"`
}

// RequeueLetter is one of them.
type RequeueLetter struct {
	ID   job.ID    `json:"id"`
	Spec *job.Spec `json:"spec,omitempty"` // what is to be done instead; none: what the letter says
}

// Requeued is what became of a Requeue.
type Requeued struct {
	Jobs    []queue.Entry `json:"jobs"`              // the new ones
	Refused []string      `json:"refused,omitempty"` // a sentence for each that is not among them
}

// CancelKey is the body of POST /v1/jobs/cancel: the unfinished jobs of a tenant that
// have a key. The answer is the jobs (Jobs).
type CancelKey struct {
	Key    string     `json:"key"`
	Tenant job.Tenant `json:"tenant,omitempty"` // "": job.DefaultTenant
}

// Drop is the body of POST /v1/dead-letters/drop: about which dead letters
// nothing more is to be done, all or none. The answer is the letters (Jobs).
type Drop struct {
	IDs []job.ID `json:"ids"`
}

// Evaluations is the answer to GET /v1/jobs/{job}/evaluations, and to POST.
type Evaluations struct {
	Evaluations []eval.Evaluation `json:"evaluations"`
	// Reputations and Alerts are what follows from a new one.
	Reputations []eval.Reputation `json:"reputations,omitempty"`
	Alerts      []eval.Alert      `json:"alerts,omitempty"`
}

// Reputations is the answer to GET /v1/reputations.
type Reputations struct {
	Reputations []eval.Reputation `json:"reputations"`
}

// SimilarSubjects is the answer to GET /v1/reputations/similar: who works like whom,
// the nearest first.
type SimilarSubjects struct {
	Of      eval.Reputation `json:"of"`
	Similar []eval.Similar  `json:"similar"`
}

// Pipelines is the answer to GET /v1/pipelines.
type Pipelines struct {
	Pipelines []scheduler.Pipeline `json:"pipelines"`
}

// PipelineEvents is the answer to GET /v1/pipelines/{pipeline}/events.
type PipelineEvents struct {
	Events []pipeline.Event `json:"events"`
}

// Rewound is the answer to POST /v1/pipelines/{pipeline}/replay, whose body is a
// scheduler.Rewind.
type Rewound struct {
	First int64 `json:"first"` // sequence number of the first event that is given again
}

// Usage is the answer to GET /v1/usage.
type Usage struct {
	Accounts []queue.Account `json:"accounts"`
	Total    queue.Account   `json:"total"`
}

// Grants is the answer to GET /v1/grants.
type Grants struct {
	Grants []queue.Grant `json:"grants"`
}

// Triggers is the answer to GET /v1/triggers.
type Triggers struct {
	Triggers []trigger.Status `json:"triggers"`
}

// JobFile is the body of POST /v1/job-files: the text of a job file, or of a
// single job, which the scheduler reads as `scheduler submit` would on its host.
// The answer is that of POST /v1/jobs.
type JobFile struct {
	Name string `json:"name,omitempty"` // what errors call it; default "request"
	// Dir is the absolute folder, on the scheduler's host, that relative paths
	// start from; "" allows none.
	Dir  string `json:"dir,omitempty"`
	Text string `json:"text"` // YAML, or JSON
	// Files are the texts of the files that the job file names in
	// instructions.file and agents_file, by the path as it stands there. The
	// scheduler reads no others but below the folder api.files of its configuration.
	Files map[string]string `json:"files,omitempty"`
}

// Pause is the body of POST /v1/pause. The answer is the isolation, which lasts
// until its end or until somebody resumes the scope, over restarts too. What runs
// goes on; nothing of the scope begins.
type Pause struct {
	Scope  string `json:"scope"`            // global, worker:KIND, worker:KIND@TENANT or workspace:/PATH
	Reason string `json:"reason,omitempty"` // for whoever wonders
	// For is how long; 0: until somebody resumes it.
	For job.Duration `json:"for,omitempty"`
}

// Upgrade is the body of POST /v1/upgrade: the scheduler hands its listeners, its
// process id and its state directory to a new program and takes no request amiss.
type Upgrade struct {
	// Mode says what becomes of running jobs: "checkpoint" stops each, at its next
	// step where its worker keeps steps, and lets it go on with its session
	// afterwards; "drain" lets all of them end first, and begins no others.
	Mode string `json:"mode"`
	// Program is the absolute path of the new program; "" is that of the running
	// one, whose file may have been replaced.
	Program string `json:"program,omitempty"`
}

// UILink is the body of POST /v1/ui-links and, with URL, its answer: a link that
// opens the dashboard once.
type UILink struct {
	Role      string    `json:"role,omitempty"` // read, submit or operate; "" is operate
	URL       string    `json:"url,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Overview is the answer to GET /v1/overview: all that somebody sees at a glance.
type Overview struct {
	At        time.Time `json:"at"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
	Stopping  bool      `json:"stopping,omitempty"`
	Running   int       `json:"running"` // jobs given to cores
	MaxAtOnce int       `json:"max_at_once"`
	// Census is what there is in the queue.
	Census queue.Census `json:"census"`
	// Waiting are the reasons for which queued jobs wait, the most frequent first,
	// over the first 1,000 of them.
	Waiting []Waiting `json:"waiting"`
	// Throughput is what ended within the last hour, in steps of five minutes, the
	// oldest first.
	Throughput []queue.Throughput `json:"throughput"`
	// Today is what was used since midnight, UTC.
	Today      queue.Account          `json:"today"`
	Budgets    []Budget               `json:"budgets"`
	Tenants    []Tenant               `json:"tenants"`
	Cores      []scheduler.CoreStatus `json:"cores"`
	Circuits   []ipc.Circuit          `json:"circuits"`
	Isolations []isolation.Isolation  `json:"isolations"`
	Alerts     []Alert                `json:"alerts"` // the newest first, at most 50
	Policy     string                 `json:"policy"`
}

// Waiting is a reason for which jobs wait.
type Waiting struct {
	Reason job.WaitingReason `json:"reason"`
	Why    string            `json:"why"` // a sentence
	Jobs   int               `json:"jobs"`
}

// Budget bounds what is used within a window, and tells what was: one of the cost
// windows of the configuration, or a budget of its policy.
type Budget struct {
	Tenant    job.Tenant   `json:"tenant,omitempty"` // "": all together
	Policy    bool         `json:"policy,omitempty"` // of the policy
	Window    job.Duration `json:"window"`
	MaxUSD    float64      `json:"max_usd"` // 0: no bound
	SpentUSD  float64      `json:"spent_usd"`
	MaxTokens float64      `json:"max_tokens,omitempty"` // 0: no bound
	Tokens    float64      `json:"tokens,omitempty"`
}

// Alert is something that a person should look at, or should have.
type Alert struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"` // escalation, isolation, team, circuit, core, reputation
	Scope   string    `json:"scope,omitempty"`
	Message string    `json:"message"`
}

// Tenant is how a tenant stands: one of GET /v1/tenants.
type Tenant struct {
	Tenant  job.Tenant `json:"tenant"`
	Queued  int        `json:"queued"`
	Running int        `json:"running"`
	Oldest  time.Time  `json:"oldest,omitzero"` // since when its oldest queued job could run
	// Share is what the policy makes of it; absent where it knows nothing of it.
	Share *policy.Share `json:"share,omitempty"`
	Today queue.Account `json:"today"` // since midnight, UTC
	Grant *queue.Grant  `json:"grant,omitempty"`
}

// Tenants is the answer to GET /v1/tenants.
type Tenants struct {
	Tenants []Tenant `json:"tenants"`
}

// Worker is a kind of worker: one of GET /v1/workers.
type Worker struct {
	Kind       job.WorkerKind        `json:"kind"`
	Adapter    string                `json:"adapter"`
	Program    string                `json:"program,omitempty"` // its path; "" was not found
	Problem    string                `json:"problem,omitempty"` // why it cannot run
	Model      string                `json:"model,omitempty"`
	Running    int                   `json:"running"`
	Max        int                   `json:"max,omitempty"` // at once; 0: as the host's limit
	Circuits   []ipc.Circuit         `json:"circuits"`
	Isolations []isolation.Isolation `json:"isolations"`
}

// Workers is the answer to GET /v1/workers.
type Workers struct {
	Workers []Worker `json:"workers"`
}

// Timeline is the answer to GET /v1/timeline: the attempts that ran within a span
// of time, the first to begin first.
type Timeline struct {
	Since    time.Time       `json:"since"`
	Until    time.Time       `json:"until"`
	Attempts []queue.Running `json:"attempts"`
	// More says that there were more than the answer holds.
	More bool `json:"more,omitempty"`
}

// Workflows is the answer to GET /v1/workflows: batches of jobs that hang
// together, the newest first.
type Workflows struct {
	Workflows []Workflow `json:"workflows"`
}

// Workflow is a batch of jobs that hang together.
type Workflow struct {
	Batch     job.BatchID    `json:"batch"`
	Source    string         `json:"source"`
	CreatedAt time.Time      `json:"created_at"`
	Jobs      int            `json:"jobs"`
	States    map[string]int `json:"states"` // how many jobs are in which state
	Teams     []job.Name     `json:"teams,omitempty"`
	Pipelines []job.Name     `json:"pipelines,omitempty"`
}

// Graph is the answer to GET /v1/workflows/{batch}: the jobs as the nodes of a
// graph. A job that is a part of another has it as Of.
type Graph struct {
	Workflow
	Nodes []Node `json:"nodes"`
}

// Node is one job of a Graph.
type Node struct {
	ID        job.ID         `json:"id"`
	Name      job.Name       `json:"name"`
	Kind      string         `json:"kind"`               // job, for_each, loop, merge, stage
	State     string         `json:"state"`              // as `scheduler ls` has it
	Level     int            `json:"level"`              // the longest path to it from a job that needs none, from 0
	Critical  bool           `json:"critical,omitempty"` // on the longest path of all
	Needs     []job.Name     `json:"needs,omitempty"`
	Of        job.Name       `json:"of,omitempty"`
	If        string         `json:"if,omitempty"`
	Worker    job.WorkerKind `json:"worker"`
	Attempts  int            `json:"attempts"`
	Note      string         `json:"note,omitempty"` // why it is where it is
	StartedAt *time.Time     `json:"started_at,omitempty"`
	EndedAt   *time.Time     `json:"ended_at,omitempty"`
}

// Steps is the answer to GET /v1/jobs/{job}/steps: the durable steps of a job, in
// the order in which they were stored.
type Steps struct {
	Steps []Step `json:"steps"`
}

// Step is a durable step that a job's worker reported.
type Step struct {
	ID       string     `json:"id"`
	Inputs   string     `json:"inputs,omitempty"`
	StoredAt *time.Time `json:"stored_at,omitempty"` // absent: it is not stored, or no longer
	Attempt  int        `json:"attempt,omitempty"`   // that computed what is stored
	Uses     []StepUse  `json:"uses"`                // by attempt
}

// StepUse is what one attempt did with a step.
type StepUse struct {
	Attempt int      `json:"attempt"`
	Kept    job.Kept `json:"kept"`          // fresh: computed; store: from the store; refused
	Why     string   `json:"why,omitempty"` // it was refused
}

// Agents is the answer to GET /v1/agents.
type Agents struct {
	Agents []Agent `json:"agents"`
}

// Agent is a declared agent and how it has done.
type Agent struct {
	Tenant      job.Tenant        `json:"tenant"`
	Profile     job.Profile       `json:"profile"`
	State       string            `json:"state,omitempty"` // of its newest job
	Jobs        int               `json:"jobs"`
	Reputations []eval.Reputation `json:"reputations"`
}

// History is the answer to GET /v1/reputations/history: how the reputation of a
// subject in a domain has moved, the oldest first.
type History struct {
	Points []HistoryPoint `json:"points"`
}

// HistoryPoint is a reputation after one evaluation.
type HistoryPoint struct {
	At        time.Time `json:"at"`
	Job       job.ID    `json:"job"`
	Composite float64   `json:"composite"` // of that evaluation, in [0, 1]
	Score     float64   `json:"score"`     // the reputation after it, in [0, 1]
}

// Health is the answer to GET /healthz and GET /readyz.
type Health struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"` // it is not
}

// Reloaded is the answer to POST /v1/reload.
type Reloaded struct {
	Text string `json:"text"` // what has changed
}
