package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Status is how the scheduler and its cores fare.
type Status struct {
	// PID is the scheduler's process id.
	PID int `json:"pid"`
	// Started is when it was started.
	Started time.Time `json:"started"`
	// Cores are its cores, by index.
	Cores []Core `json:"cores"`
	// Isolations are what is out of use.
	Isolations []Isolation `json:"isolations"`
	// Circuits are the circuit breakers of workers.
	Circuits []Circuit `json:"circuits"`
	// Ready are jobs that could run and wait, by their class.
	Ready map[job.Class]ClassReady `json:"ready"`
	// Running is how many jobs are given to cores.
	Running int `json:"running"`
	// Policy is the one that says who is next.
	Policy string `json:"policy"`
	// Shares are those of the tenants that the policy knows.
	Shares []Share `json:"shares"`
	// FailedTeams are those that have given up since the scheduler started, at most
	// 100, the newest last.
	FailedTeams []FailedTeam `json:"failed_teams,omitempty"`
	// Stopping is set when the scheduler is about to end.
	Stopping bool `json:"stopping,omitempty"`
	// PermitValidity is how long runs go on without a heartbeat of the scheduler; absent:
	// for as long as they like.
	PermitValidity job.Duration `json:"permit_validity,omitempty"`
}

// Core is how one agentcore fares.
type Core struct {
	// Index is its place: 1, 2, …. Those on nodes have numbers beyond the scheduler's own.
	Index int `json:"index"`
	// Node is the node that it is on. Absent: it is on the scheduler's own host.
	Node string `json:"node,omitempty"`
	// Place is its index on its node, 1, 2, …. Absent: it is on the scheduler's own host.
	Place int `json:"place,omitempty"`
	// PID is its process id.
	PID int `json:"pid,omitempty"`
	// State is starting, up, draining, isolated or down.
	State string `json:"state"`
	// Version is that of its program.
	Version string `json:"version,omitempty"`
	// Protocol is the version of the protocol that it speaks.
	Protocol int `json:"protocol,omitempty"`
	// Since is when it came into the state.
	Since time.Time `json:"since"`
	// Restarts is how often another was started in its place.
	Restarts int `json:"restarts"`
	// IsolatedUntil is when another one is started in its place.
	IsolatedUntil time.Time `json:"isolated_until,omitzero"`
	// RSSBytes is its resident memory, in bytes. -1: unknown.
	RSSBytes int64 `json:"core_rss_bytes,omitempty"`
	// CPURatio is how much of one CPU it uses, between the last two heartbeats.
	CPURatio float64 `json:"core_cpu_ratio"`
	// Heartbeat is the round trip of the last one, in nanoseconds.
	Heartbeat time.Duration `json:"heartbeat_ns,omitempty"`
	// Cause is why it is drained or isolated, or why the last one ended.
	Cause string `json:"cause,omitempty"`

	// Inflight is how many jobs were given to it.
	Inflight int `json:"inflight"`
	// Stage is that of its staged defence.
	Stage string `json:"stage,omitempty"`
	// Concurrency is how many runs it takes at once while it throttles. Absent: as
	// configured.
	Concurrency int `json:"concurrency,omitempty"`
	// Evidence is why it is at the stage.
	Evidence string `json:"evidence,omitempty"`
	// Metrics are the core's, by name.
	Metrics json.RawMessage `json:"metrics,omitempty"`
}

// Name is what a person calls the core: its index, or NODE/PLACE of one that is on a node.
func (c *Core) Name() string {
	if c.Node == "" {
		return strconv.Itoa(c.Index)
	}
	return c.Node + "/" + strconv.Itoa(c.Place)
}

// Isolation is a scope that is out of use.
type Isolation struct {
	// Scope is global, node:NAME, worker:KIND, worker:KIND@TENANT, workspace:/PATH, one of the last
	// three on a node (node:NAME/worker:KIND), or trigger:NAME.
	Scope string `json:"scope"`
	// Cause is a word for why: worker_crashes, ghost_process, latest_wins,
	// core_crash_loop, disk_nearly_full, clock_jump, overload, usage_limit or paused.
	Cause string `json:"cause"`
	// Message says why, for a person.
	Message string `json:"message"`
	// Action is what is done about it: isolate_kind, isolate_node, lock_workspace, hold_trigger or safe_stop.
	Action string `json:"action"`
	// Since is when it began.
	Since time.Time `json:"since"`
	// Until is when it ends by itself. Absent: until an operator lifts it.
	Until time.Time `json:"until,omitzero"`
}

// Escalation is something that a person must know.
type Escalation struct {
	// Scope is what it is about, as in an isolation.
	Scope string `json:"scope"`
	// Cause is a word for why, as in an isolation.
	Cause string `json:"cause"`
	// Message says why, for a person.
	Message string `json:"message"`
	// Action is as in an isolation, or notify if it is only told.
	Action string `json:"action"`
	// Time is when it happened.
	Time time.Time `json:"time"`
	// Until is when what is done about it ends. Absent: only an operator ends it.
	Until time.Time `json:"until,omitzero"`
	// Again says that it was told before and lasts.
	Again bool `json:"again,omitempty"`
}

// Circuit is the circuit breaker of a kind of worker, or of a model of it.
type Circuit struct {
	// Worker is the kind.
	Worker job.WorkerKind `json:"worker"`
	// Model is the model. Absent: the kind as a whole.
	Model string `json:"model,omitempty"`
	// State is closed, open or half-open.
	State string `json:"state"`
	// OpenUntil is when an open one lets a probe through.
	OpenUntil time.Time `json:"open_until,omitzero"`
	// Requests is how many attempts have ended within the breaker's window.
	Requests int `json:"requests"`
	// Failures is how many of them have failed.
	Failures int `json:"failures"`
	// Slow is how many of them were slow.
	Slow int `json:"slow"`
	// Cause is why it opened last.
	Cause string `json:"cause,omitempty"`
}

// ClassReady is how much of a class could run and does not.
type ClassReady struct {
	// Depth is how many jobs.
	Depth int `json:"depth"`
	// Oldest is since when the first of them could run.
	Oldest time.Time `json:"oldest"`
}

// Share is how a tenant stands towards the others, by the policy.
type Share struct {
	// Tenant is whose it is.
	Tenant job.Tenant `json:"tenant"`
	// Target is the part of 1 that it is to have among the tenants that are known. The
	// policy priority has none.
	Target float64 `json:"target"`
	// Actual is the part of 1 that it has had within the window, by what the policy
	// counts.
	Actual float64 `json:"actual"`
	// InFlight is how many jobs of it run.
	InFlight int `json:"in_flight"`
	// Used is what it has used within the window. Slots are those in flight.
	Used Demand `json:"used"`
	// Waiting is set if it has a job that could run.
	Waiting bool `json:"waiting,omitempty"`
	// Held says why that does not run, by the policy's own bounds.
	Held string `json:"held,omitempty"`
	// Contracted is set if its jobs come before those of tenants that are not.
	Contracted bool `json:"contracted,omitempty"`
}

// Demand is an amount of what tenants share.
type Demand struct {
	// Tokens are those of models.
	Tokens float64 `json:"tokens,omitempty"`
	// CostUSD is in US dollars.
	CostUSD float64 `json:"cost_usd,omitempty"`
	// Slots are runs at once.
	Slots float64 `json:"slots,omitempty"`
}

// FailedTeam is a team that has given up.
type FailedTeam struct {
	// Team is its name.
	Team job.Name `json:"team"`
	// Batch is the batch that it is in.
	Batch job.BatchID `json:"batch"`
	// Why says why.
	Why string `json:"why"`
	// At is when.
	At time.Time `json:"at"`
}

// Overview is all that somebody sees at a glance.
type Overview struct {
	// At is when it was made.
	At time.Time `json:"at"`
	// Version is the scheduler's.
	Version string `json:"version"`
	// Started is when the scheduler was started.
	Started time.Time `json:"started"`
	// Stopping is set when the scheduler is about to end.
	Stopping bool `json:"stopping,omitempty"`
	// Running is how many jobs are given to cores.
	Running int `json:"running"`
	// MaxAtOnce is how many may be.
	MaxAtOnce int `json:"max_at_once"`
	// Census is what there is in the queue.
	Census Census `json:"census"`
	// Waiting are the reasons for which queued jobs wait, the most frequent first, over
	// the first 1,000 jobs.
	Waiting []Waiting `json:"waiting"`
	// Throughput is what ended within the last hour, in steps of five minutes, the
	// oldest first.
	Throughput []Throughput `json:"throughput"`
	// Today is what was used since midnight, UTC.
	Today Account `json:"today"`
	// Budgets are the windows of cost and the budgets of the policy.
	Budgets []Budget `json:"budgets"`
	// Tenants are ordered by name.
	Tenants []Tenant `json:"tenants"`
	// Cores are ordered by index.
	Cores []Core `json:"cores"`
	// Circuits are the circuit breakers of workers.
	Circuits []Circuit `json:"circuits"`
	// Isolations are what is out of use.
	Isolations []Isolation `json:"isolations"`
	// Alerts are the newest first, at most 50.
	Alerts []Alert `json:"alerts"`
	// Policy is the one that says who is next.
	Policy string `json:"policy"`
}

// Census is what there is in a queue.
type Census struct {
	// Queued is how many jobs are neither held nor wait for another.
	Queued int `json:"queued"`
	// Held is how many wait for other jobs.
	Held int `json:"held"`
	// Approval is how many wait for a person.
	Approval int `json:"approval"`
	// Dispatched is how many run.
	Dispatched int `json:"dispatched"`
	// DeadLetters is how many were given up and wait for somebody.
	DeadLetters int `json:"dead_letters"`
	// Tenants are those that have a job that has not ended, by name.
	Tenants []TenantCensus `json:"tenants"`
}

// TenantCensus is a tenant's part of a census.
type TenantCensus struct {
	// Tenant is whose it is.
	Tenant job.Tenant `json:"tenant"`
	// Queued is as in the census.
	Queued int `json:"queued"`
	// Held is as in the census.
	Held int `json:"held"`
	// Approval is as in the census.
	Approval int `json:"approval"`
	// Dispatched is as in the census.
	Dispatched int `json:"dispatched"`
	// Oldest is since when the first of those queued could run.
	Oldest time.Time `json:"oldest,omitzero"`
}

// Waiting is a reason for which jobs wait.
type Waiting struct {
	// Reason is a word for it.
	Reason job.WaitingReason `json:"reason"`
	// Why is a sentence.
	Why string `json:"why"`
	// Jobs is how many wait for it.
	Jobs int `json:"jobs"`
}

// Throughput is what ended within a step of time.
type Throughput struct {
	// At is when the step begins.
	At time.Time `json:"at"`
	// Succeeded is how many jobs did.
	Succeeded int `json:"succeeded"`
	// Failed is how many did, expired ones too.
	Failed int `json:"failed"`
	// Cancelled is how many were.
	Cancelled int `json:"cancelled"`
}

// Budget bounds what is used within a window, and tells what was: a window of cost
// of the configuration, or a budget of its policy.
type Budget struct {
	// Tenant is whose budget it is. Absent: all together.
	Tenant job.Tenant `json:"tenant,omitempty"`
	// Policy is set of a budget of the policy.
	Policy bool `json:"policy,omitempty"`
	// Window is how far back use counts.
	Window job.Duration `json:"window"`
	// MaxUSD is the bound, in US dollars. 0: none.
	MaxUSD float64 `json:"max_usd"`
	// SpentUSD is what was spent within the window, in US dollars.
	SpentUSD float64 `json:"spent_usd"`
	// MaxTokens is the bound of tokens. Absent: none.
	MaxTokens float64 `json:"max_tokens,omitempty"`
	// Tokens is how many were used within the window.
	Tokens float64 `json:"tokens,omitempty"`
}

// Alert is something that a person should look at, or should have.
type Alert struct {
	// At is when it happened. What lasts is as old as it began.
	At time.Time `json:"at"`
	// Kind is escalation, isolation, team, circuit, core or reputation.
	Kind string `json:"kind"`
	// Scope is what it is about.
	Scope string `json:"scope,omitempty"`
	// Message is for a person.
	Message string `json:"message"`
}

// Tenant is how a tenant stands.
type Tenant struct {
	// Tenant is its name.
	Tenant job.Tenant `json:"tenant"`
	// Queued is how many jobs of it could run.
	Queued int `json:"queued"`
	// Running is how many do.
	Running int `json:"running"`
	// Oldest is since when the first of its queued jobs could run.
	Oldest time.Time `json:"oldest,omitzero"`
	// Share is what the policy makes of it. Absent where the policy knows nothing of it.
	Share *Share `json:"share,omitempty"`
	// Today is what it has used since midnight, UTC.
	Today Account `json:"today"`
	// Grant is what it may use. Absent: it is not bounded.
	Grant *Grant `json:"grant,omitempty"`
	// Balance is what is left of its credits. Absent: its runs take none.
	Balance *Balance `json:"balance,omitempty"`
}

// Tenants are those that are known.
type Tenants struct {
	// Tenants are ordered by name.
	Tenants []Tenant `json:"tenants"`
}

// Worker is a kind of worker.
type Worker struct {
	// Kind is its name.
	Kind job.WorkerKind `json:"kind"`
	// Adapter is what drives it.
	Adapter string `json:"adapter"`
	// Program is the path of its program. Absent: it was not found.
	Program string `json:"program,omitempty"`
	// Problem says why it cannot run.
	Problem string `json:"problem,omitempty"`
	// Model is the model that it uses where a job names none.
	Model string `json:"model,omitempty"`
	// Running is how many runs of it there are.
	Running int `json:"running"`
	// Max is how many there may be at once. Absent: as many as of all kinds.
	Max int `json:"max,omitempty"`
	// Circuits are its circuit breakers.
	Circuits []Circuit `json:"circuits"`
	// Isolations are those that keep it from running.
	Isolations []Isolation `json:"isolations"`
}

// Workers are the kinds that jobs may name.
type Workers struct {
	// Workers are ordered by name.
	Workers []Worker `json:"workers"`
}

// Timeline is the attempts that ran within a span of time.
type Timeline struct {
	// Since is when the span begins.
	Since time.Time `json:"since"`
	// Until is when it ends.
	Until time.Time `json:"until"`
	// Attempts are the first to begin first.
	Attempts []Running `json:"attempts"`
	// More says that there were more than the answer holds.
	More bool `json:"more,omitempty"`
}

// Running is an attempt on a line of time.
type Running struct {
	// Job is the job's id.
	Job job.ID `json:"job"`
	// Name is the job's name.
	Name job.Name `json:"name"`
	// Tenant is whose job it is.
	Tenant job.Tenant `json:"tenant"`
	// Worker is the kind of worker that it ran on.
	Worker job.WorkerKind `json:"worker"`
	// Attempt is its number, from 1.
	Attempt int `json:"attempt"`
	// State is the run's.
	State job.RunState `json:"state"`
	// Class is the class of its failure.
	Class job.ErrorClass `json:"class,omitempty"`
	// Began is when it began.
	Began time.Time `json:"began"`
	// Ended is when it ended. Absent: it runs.
	Ended *time.Time `json:"ended,omitempty"`
}

// Triggers is how the triggers are doing.
type Triggers struct {
	// Triggers are ordered by name.
	Triggers []Trigger `json:"triggers"`
}

// Trigger is how a trigger is doing.
type Trigger struct {
	// Name is the trigger's.
	Name string `json:"name"`
	// Source is cron, every, watch, webhook or command.
	Source string `json:"source"`
	// Enabled is set unless the configuration says otherwise.
	Enabled bool `json:"enabled"`
	// Next is when it is due, or its command runs. Absent if nobody knows.
	Next time.Time `json:"next,omitzero"`
	// Last is when it fired last.
	Last time.Time `json:"last,omitzero"`
	// LastError is why its last attempt failed.
	LastError string `json:"last_error,omitempty"`
	// Fired counts what it has submitted, over restarts, until its source is changed or
	// disabled.
	Fired int `json:"fired"`
	// Skipped counts, in the same way, what fired while a job was active and times that
	// were missed, as far as these were counted.
	Skipped int `json:"skipped"`
	// Failures is how many firings in a row there were, up to the last one whose jobs
	// have ended, of which a job failed.
	Failures int `json:"failures,omitempty"`
	// Isolated is why it does not fire for now. Absent if it does.
	Isolated string `json:"isolated,omitempty"`
}
