package config

import (
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

// Concurrency bounds how many jobs run at once.
type Concurrency struct {
	Max       int                    `json:"max"`
	PerWorker map[job.WorkerKind]int `json:"per_worker,omitempty"` // by kind; none: only Max
	// PerTenant and PerWorkspace are of those that they name, 0 for no bound;
	// EachTenant and EachWorkspace of each that is not named, 0 likewise.
	PerTenant     map[job.Tenant]int `json:"per_tenant,omitempty"`
	EachTenant    int                `json:"each_tenant,omitempty"`
	PerWorkspace  map[string]int     `json:"per_workspace,omitempty"` // by absolute path
	EachWorkspace int                `json:"each_workspace,omitempty"`
}

// Queue bounds how much is submitted.
type Queue struct {
	MaxJobs   int `json:"max_jobs"`   // of one submission
	MaxQueued int `json:"max_queued"` // of each tenant at once; 0: no bound
}

// Rates bound how often runs may begin.
type Rates struct {
	Workers map[job.WorkerKind]Rate `json:"workers,omitempty"`
	// Models are by provider ("anthropic"), by provider and model
	// ("anthropic/claude-opus") or by a model's bare name ("claude-opus").
	Models map[string]Rate `json:"models,omitempty"`
}

// Rate bounds beginnings in time; 0 is no bound, and one of the two is given.
type Rate struct {
	PerSecond int `json:"per_second,omitempty"`
	PerMinute int `json:"per_minute,omitempty"`
}

// CostWindow bounds what is spent within any span of a length.
type CostWindow struct {
	Tenant job.Tenant   `json:"tenant,omitempty"` // none: all tenants together
	Window job.Duration `json:"window"`
	MaxUSD float64      `json:"max_usd"` // US dollars
}

// Stop is how long each stage of stopping a run may take until the next one.
type Stop struct {
	Interrupt job.Duration `json:"interrupt"` // after SIGINT
	Terminate job.Duration `json:"terminate"` // after SIGTERM
	Kill      job.Duration `json:"kill"`      // until the tree must be empty; then it is a ghost
}

// Heartbeat is how the scheduler notices that a core hangs.
type Heartbeat struct {
	Interval  job.Duration `json:"interval"`
	HangAfter job.Duration `json:"hang_after"` // without an answer
}

// Retry bounds the delay before attempt n+1: at most Base·2ⁿ⁻¹ and at most Max.
type Retry struct {
	Base job.Duration `json:"base"`
	Max  job.Duration `json:"max"`
}

// Retention is for how long what has ended is kept; 0: for ever.
type Retention struct {
	Finished    job.Duration `json:"finished,omitempty"`
	DeadLetters job.Duration `json:"dead_letters,omitempty"` // that nobody has requeued or dropped
}

// Limits are what one run may use of the host, unless its job says otherwise,
// and what all runs may use together. 0 is no limit.
type Limits struct {
	Memory    Size      `json:"memory"`
	Processes int64     `json:"processes"`
	CPU       float64   `json:"cpu"`
	Total     Resources `json:"total"`
}

// Each returns what one run may use.
func (l Limits) Each() Resources { return Resources{l.Memory, l.Processes, l.CPU} }

// Resources of a host.
type Resources struct {
	Memory    Size    `json:"memory"`    // what was swapped out included
	Processes int64   `json:"processes"` // and threads
	CPU       float64 `json:"cpu"`       // CPUs
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
	// TrustFilters lets filters run that a repository's own configuration defines.
	// Agents can write that.
	TrustFilters bool `json:"trust_filters,omitempty"`
}

// Cores are the processes that run the jobs. A core that crosses a threshold
// gets no new work and is replaced when its runs have ended.
type Cores struct {
	Count  int          `json:"count"`
	MaxRSS Size         `json:"max_rss"` // resident memory; 0: any
	MaxCPU float64      `json:"max_cpu"` // of one CPU, on average over CPUFor; 0: any
	CPUFor job.Duration `json:"cpu_for"`
	// SlowHeartbeat is how long three heartbeats in a row must take; 0: any time.
	SlowHeartbeat job.Duration `json:"slow_heartbeat"`
	Restarts      Restarts     `json:"restarts"`
}

// Restarts say when a core that dies again and again is left alone.
type Restarts struct {
	Count  int          `json:"count"` // crashes; one more
	Within job.Duration `json:"within"`
	// Isolate is for how long then, doubling from time to time.
	Isolate job.Duration `json:"isolate"`
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
