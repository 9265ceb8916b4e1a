package config

import (
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

// Concurrency bounds how many jobs run at once.
type Concurrency struct {
	// Jobs that run at once on this host.
	Max int `json:"max" min:"1" otherwise:"number of CPUs, at least 2"`
	// Jobs that run at once by kind of worker. Another place to say it is `max_concurrent` of a
	// worker; they must not differ.
	PerWorker map[job.WorkerKind]int `json:"per_worker,omitempty" min:"1" otherwise:"no bound"`
	// Jobs that run at once by tenant; `0` for no bound.
	PerTenant map[job.Tenant]int `json:"per_tenant,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
	// Jobs that run at once of each tenant that `per_tenant` does not name; `0` for no bound.
	EachTenant int `json:"each_tenant,omitempty" min:"1" zero:"no bound"`
	// Jobs that run at once by folder, an absolute path; `0` for no bound. Symlinks are resolved.
	PerWorkspace map[string]int `json:"per_workspace,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
	// Jobs that run at once in each folder that `per_workspace` does not name; `0` for no bound.
	EachWorkspace int `json:"each_workspace,omitempty" min:"1" zero:"no bound"`
}

// Queue bounds how much is submitted.
type Queue struct {
	// Jobs of one submission, whichever way it comes; up to `100000`. A request with more is answered
	// 413.
	MaxJobs int `json:"max_jobs" min:"1" max:"100000"`
	// Jobs that each tenant may have queued; `0` no bound. More are refused, a request with 429; a
	// `for_each` whose items find no room fails.
	MaxQueued int `json:"max_queued" min:"1" zero:"no bound"`
}

// Children bounds the jobs that agents submit.
type Children struct {
	// How many levels of them may lie below a job that no agent has submitted; `0` for none: then agents submit nothing.
	MaxDepth int `json:"max_depth" min:"0" max:"8" zero:"none"`
	// How many each job's agent may submit.
	MaxJobs int `json:"max_jobs" min:"1" max:"100"`
	// Kinds of workers on which they may run beside those of the job whose agent submits them.
	Workers []job.WorkerKind `json:"workers,omitempty" otherwise:"no others"`
}

// Rates bound how often runs may begin, and how often they ask their models.
type Rates struct {
	// How often runs may begin, by kind of worker.
	Workers map[job.WorkerKind]Rate `json:"workers,omitempty" otherwise:"no bound"`
	// How often runs may begin, by provider (`anthropic`: all its models together), by
	// `anthropic/claude-opus`, or by `claude-opus`, whoever provides it.
	Models map[string]Rate `json:"models,omitempty" keys:"match:\"[^ ]\" is:\"a model\" want:\"a provider such as anthropic, a model or provider/model\"" otherwise:"no bound"`
	// How often all runs together may ask models through the core, named as in `models`. A request waits, and its run does
	// not count as silent meanwhile. Runs without a sandbox are not counted.
	Requests map[string]RequestRate `json:"requests,omitempty" keys:"match:\"[^ ]\" is:\"a model\" want:\"a provider such as anthropic, a model or provider/model\"" otherwise:"no bound"`
}

// RequestRate bounds requests to models in time; 0 is no bound, and one of the two is given.
type RequestRate struct {
	// So many requests at once, and so many a minute in the long run; `0` for no bound.
	PerMinute int `json:"per_minute,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
	// So many tokens at once, and so many a minute in the long run: those that a request probably has, then those that it had;
	// `0` for no bound. Both may be given, and one must be.
	TokensPerMinute int `json:"tokens_per_minute,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
}

// Rate bounds beginnings in time; 0 is no bound, and one of the two is given.
type Rate struct {
	// So many at once, and so many a second in the long run; `0` for no bound.
	PerSecond int `json:"per_second,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
	// So many at once, and so many a minute in the long run; `0` for no bound. Both may be given, and
	// one must be.
	PerMinute int `json:"per_minute,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
}

// CostWindow bounds what is spent within any span of a length.
type CostWindow struct {
	// Whose money.
	Tenant job.Tenant `json:"tenant,omitempty" otherwise:"all together"`
	// The span, such as `24h`.
	Window job.Duration `json:"window" need:"the span that is looked at, such as 24h" above:"0s" want:"a duration such as 24h"`
	// US dollars, more than 0. What has no known price (see below) is not counted.
	MaxUSD float64 `json:"max_usd" need:"US dollars" above:"0" want:"US dollars, more than 0"`
}

// Credits are the prices of runs. Each attempt that counts takes its price.
type Credits struct {
	// What a run takes, in whole credits; `0` for nothing.
	Run int64 `json:"run" min:"0" max:"1000000000"`
	// What a run of an agent takes instead, by the agent's name.
	Agents map[job.AgentID]int64 `json:"agents,omitempty" min:"0" max:"1000000000"`
}

// Stop is how long each stage of stopping a run may take until the next one.
type Stop struct {
	// From SIGINT to SIGTERM; `0s` goes on at once.
	Interrupt job.Duration `json:"interrupt"`
	// From SIGTERM to the end by force; `0s` goes on at once.
	Terminate job.Duration `json:"terminate"`
	// Until every process of the run must be gone; after that the run is reported as a ghost.
	Kill job.Duration `json:"kill" above:"0s" want:"a duration such as 10s"`
}

// Heartbeat is how the scheduler notices that a core hangs, and a core that the
// scheduler does.
type Heartbeat struct {
	// Between two heartbeats of scheduler and core.
	Interval job.Duration `json:"interval" above:"0s" want:"a duration such as 10s"`
	// Without an answer, a core counts as hung and is restarted.
	HangAfter job.Duration `json:"hang_after" above:"0s" want:"a duration such as 10s"`
	// How long runs go on without a heartbeat of a scheduler that works; then their core stops them,
	// and no attempt counts. `0s`: for as long as they like. At least twice `hang_after` ([when the
	// scheduler stands still](operations.md#when-the-scheduler-stands-still)).
	PermitValidity job.Duration `json:"permit_validity" otherwise:"1m, or three times heartbeat.hang_after if that is longer"`
}

// defaultHeartbeat returns one whose permits outlive a disk that hangs for 20 s, and
// a core or a host that is slow.
func defaultHeartbeat() Heartbeat {
	h := Heartbeat{Interval: job.Duration(time.Second), HangAfter: job.Duration(10 * time.Second)}
	h.PermitValidity = permitValidity(h)
	return h
}

// permitValidity is the default: a minute, or three times what a core may take to
// answer if that is longer.
func permitValidity(h Heartbeat) job.Duration {
	return max(job.Duration(time.Minute), 3*h.HangAfter)
}

// Retry bounds the delay before attempt n+1: at most Base·2ⁿ⁻¹ and at most Max.
type Retry struct {
	// The most that the second attempt is delayed; it doubles with each further one.
	Base job.Duration `json:"base" above:"0s" want:"a duration such as 10s"`
	// The most that any attempt is delayed.
	Max job.Duration `json:"max" above:"0s" want:"a duration such as 10s"`
}

// Retention is for how long what has ended is kept; 0: for ever.
type Retention struct {
	// For how long after its end a job is kept; `0s` for ever.
	Finished job.Duration `json:"finished,omitempty"`
	// For how long a dead letter that nobody has requeued or dropped is kept; `0s` for ever.
	DeadLetters job.Duration `json:"dead_letters,omitempty"`
}

// Limits are what one run may use of the host, unless its job says otherwise,
// and what all runs may use together. 0 is no limit.
type Limits struct {
	// Memory of one run, what was swapped out included: bytes, or a number with `KiB`, `MiB`, `GiB`,
	// `TiB`; at least `1MiB`, or `0` for no limit.
	Memory Size `json:"memory" min:"1MiB" want:"1MiB or more, which a program needs" zero:"no limit" otherwise:"half of the host's memory"`
	// Processes and threads of one run; `0` no limit.
	Processes int64 `json:"processes" min:"1" zero:"no limit" otherwise:"half of what the host can have, at most 32768"`
	// CPUs of one run, e.g. `1.5`; `0` no limit.
	CPU float64 `json:"cpu" min:"0" max:"65536" want:"a number of CPUs up to 65536" zero:"no limit"`
	// What all runs together may use.
	Total Resources `json:"total"`
}

// Each returns what one run may use.
func (l Limits) Each() Resources { return Resources{l.Memory, l.Processes, l.CPU} }

// Resources of a host.
type Resources struct {
	// Memory of all runs together, what was swapped out included; `0` for no limit.
	Memory Size `json:"memory" min:"1MiB" want:"1MiB or more, which a program needs" zero:"no limit" otherwise:"85 % of the host's memory"`
	// Processes and threads of all runs together; `0` for no limit.
	Processes int64 `json:"processes" min:"1" zero:"no limit" otherwise:"85 % of what the host can have"`
	// CPUs of all runs together; `0` for no limit.
	CPU float64 `json:"cpu" min:"0" max:"65536" want:"a number of CPUs up to 65536" zero:"no limit"`
}

// maxProcesses is the most that a run is given by default: for long the most that
// Linux could have at all.
const maxProcesses = 1 << 15

// defaultLimits leave something of the host for everything else, and something of
// what runs may have for the other runs, and bound no run more than that.
func defaultLimits(host proc.Limits) Limits {
	return Limits{
		Memory: Size(host.Memory / 2), Processes: min(host.Processes/2, maxProcesses),
		Total: Resources{Memory: Size(host.Memory / 100 * 85), Processes: host.Processes / 100 * 85},
	}
}

// Workspace is what holds for the folders that jobs work in.
type Workspace struct {
	// Run the filters that a repository's own `.git/config` defines. Agents can write that file, so a
	// filter there is a program that they can have run outside of their job. Filters of your global
	// git configuration, such as that of `git lfs install`, run without this.
	TrustFilters bool `json:"trust_filters,omitempty"`
}

// MaxCores is more than any host has use for: each is a process.
const MaxCores = 64

// Cores are the processes that run the jobs. A core that crosses a threshold
// gets no new work and is replaced when its runs have ended.
type Cores struct {
	// Processes that run the jobs, at most `64`.
	Count int `json:"count" min:"1" max:"64"`
	// Resident memory: bytes, or a number with `KiB`, `MiB`, `GiB`, `TiB`; at least `64MiB`, or `0`
	// for any.
	MaxRSS Size `json:"max_rss" min:"64MiB" want:"64MiB or more, which a core needs" zero:"any"`
	// How many CPUs the core itself (not its workers) uses, on average over `cpu_for`; `0` any.
	MaxCPU float64 `json:"max_cpu" min:"0" want:"how many CPUs" zero:"any"`
	// The time over which that is taken.
	CPUFor job.Duration `json:"cpu_for" above:"0s" want:"a duration such as 5m"`
	// Three answers in a row that took longer; `0s` any. Shorter than `hang_after`.
	SlowHeartbeat job.Duration `json:"slow_heartbeat" otherwise:"half of heartbeat.hang_after"`
	// When a core dies again and again.
	Restarts Restarts `json:"restarts"`
}

// Restarts say when a core that dies again and again is left alone.
type Restarts struct {
	// More crashes than so.
	Count int `json:"count" min:"1"`
	// Within so long.
	Within job.Duration `json:"within" above:"0s" want:"a duration such as 1m"`
	// For how long it is left alone then; the time doubles up to `10m`.
	Isolate job.Duration `json:"isolate" above:"0s" want:"a duration such as 30s"`
}

// defaultCores returns a single core: it is enough for what one host can run,
// and more are for the day on which one dies.
func defaultCores(h Heartbeat) Cores {
	return Cores{
		Count: 1,
		// Where the watchdog's ladder for core_rss_bytes ends: what is left to do
		// is to begin anew.
		MaxRSS: 2 << 30,
		// Twice what the watchdog calls a flood, and for longer than one lasts.
		MaxCPU:        2,
		CPUFor:        job.Duration(5 * time.Minute),
		SlowHeartbeat: slowHeartbeat(h),
		Restarts:      Restarts{Count: 5, Within: job.Duration(time.Minute), Isolate: job.Duration(30 * time.Second)},
	}
}

// slowHeartbeat is the default: half of the time after which a core hangs.
func slowHeartbeat(h Heartbeat) job.Duration { return h.HangAfter / 2 }
