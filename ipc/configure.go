package ipc

import (
	"encoding/json"
	"time"

	"github.com/agentsched/agentsched/job"
)

// DefaultPermitTTL is how long a permit may stay unused if Configure does not say. A
// permit is used within milliseconds; the time covers a scheduler that is slow to commit.
const DefaultPermitTTL = 5 * time.Second

// Configure sets what the core enforces. The scheduler sends it after hello and again
// whenever its configuration changes; each one replaces the last as a whole.
//
// The core checks all of it before it changes anything. CodeInvalidParams names every
// field that is wrong. New limits hold for permits requested from then on; a run keeps
// the settings that it began with, but is charged to the new cost windows and bounded by
// the new RunLimits.Total. Each Configure renews the permits, as Heartbeat.Renew does.
type Configure struct {
	// Workers are the settings of each kind of worker. A kind that is missing has the
	// zero settings: the adapter of the same name, without a bound of its own. A run
	// whose kind has no adapter in this core ends as CONFIG.
	Workers map[job.WorkerKind]job.WorkerSettings `json:"workers,omitempty"`
	// Prices, by model, turn tokens into a cost where a worker reports none.
	Prices map[string]job.Price `json:"prices,omitempty"`
	// MaxConcurrent bounds the permits and runs of all cores of the scheduler together:
	// those of this core and those in Elsewhere.Running. It is 1 or more.
	MaxConcurrent int    `json:"max_concurrent"`
	Stop          Stages `json:"stop"`
	// PermitTTL is how long a permit may stay unused; 0 means DefaultPermitTTL.
	PermitTTL job.Duration `json:"permit_ttl,omitempty"`
	// PermitValidity is how long permits stay valid, used or not, after a Configure or
	// a Heartbeat that renews them. Then they lapse: the core stops their runs, which are
	// lost and do not count, and refuses requests with RATE_LIMIT and waiting "permit"
	// until the next renewal. Time in which the host sleeps counts, but at least half of
	// the validity remains after it. 0, as from a scheduler of an earlier release, means
	// that permits do not lapse. With it, the core also waits without end for a scheduler
	// that does not read; without it, it ends after the hang limit of 10 seconds.
	PermitValidity job.Duration `json:"permit_validity,omitempty"`
	Limits         Limits       `json:"limits,omitzero"`
	RunLimits      RunLimits    `json:"run_limits,omitzero"`
	// TrustFilters lets git run the filters that the configuration of a job's
	// repository defines, not only the user's own.
	TrustFilters bool `json:"trust_filters,omitempty"`
	// Sandbox is how runs are held. Absent, as from a scheduler of an earlier release: not at all.
	Sandbox Sandbox `json:"sandbox,omitzero"`
	// Secrets are what jobs may be given, by name. The values never cross the wire.
	Secrets map[string]Secret `json:"secrets,omitempty"`
	// Watchdog is a watchdog.Config and Breaker a breaker.Config, as JSON. A field that
	// is absent has its default. docs/config.md explains the fields.
	Watchdog json.RawMessage `json:"watchdog,omitempty"`
	Breaker  json.RawMessage `json:"breaker,omitempty"`
	// Isolations are taken over as by MethodIsolate.
	Isolations
	// Circuits are the breakers as an earlier core reported them last: this core goes on
	// from there. Only the first successful Configure of a core reads them. Their times are by the clock
	// of Isolations.At.
	Circuits []Circuit `json:"circuits,omitempty"`
}

// Stages are the waits of a stop. The core sends SIGINT to the worker and waits for
// Interrupt, sends SIGTERM and waits for Terminate, then kills the process tree. It may
// take Kill until the tree is empty; what is left then is a ghost, and an escalation says
// so. 0 skips Interrupt and Terminate; a Kill of 0 means 10 seconds.
type Stages struct {
	Interrupt job.Duration `json:"interrupt"`
	Terminate job.Duration `json:"terminate"`
	Kill      job.Duration `json:"kill"`
}

// Limits bound the permits of all jobs together, besides MaxConcurrent and the
// bounds of Workers. They hold for all cores of a scheduler together: each core
// counts its own runs and what PermitRequest.Elsewhere says of the others', and asks for what
// is Shared. Zero and absent mean no limit; a negative number is an error.
type Limits struct {
	PerTenant  map[job.Tenant]int `json:"per_tenant,omitempty"`  // of one tenant at once
	EachTenant int                `json:"each_tenant,omitempty"` // of each tenant that PerTenant does not name
	// PerWorkspace bounds the runs at once in a folder, by its absolute path. The core
	// resolves symbolic links; of two names of one folder the lower limit holds.
	PerWorkspace  map[string]int `json:"per_workspace,omitempty"`
	EachWorkspace int            `json:"each_workspace,omitempty"` // in each folder that PerWorkspace does not name
	// CostWindows stop runs that report what they have spent once a window is full. What requests to models that
	// the core serves may reserve of them is Shared.
	CostWindows []CostWindow `json:"cost_windows,omitempty"`
	// Shared says that there are rates, or cost windows: the core asks for each permit (SharePermit) and for each
	// request to a model (Reserve).
	Shared bool `json:"shared,omitempty"`
}

// CostWindow bounds what is spent within any span of the length Window. A full window
// refuses permits, and stops a run of the tenant at its next request to a model, or report of
// usage where those are not served by the core.
type CostWindow struct {
	Tenant job.Tenant   `json:"tenant,omitempty"` // absent: all tenants together
	Window job.Duration `json:"window"`           // above zero
	MaxUSD float64      `json:"max_usd"`          // US dollars; 0 means no limit
	// Spent is what the scheduler knows to have been spent within the window. A core
	// starts a window with it that it did not have before, and ignores it for a window
	// that it has: its own record is complete.
	Spent []Spending `json:"spent,omitempty"`
}

// Spending is money that was spent some time ago.
type Spending struct {
	AgoMS int64   `json:"ago_ms"` // milliseconds before the message was made; below 0 counts as 0
	USD   float64 `json:"usd"`    // US dollars
}

// RunLimits bound what runs use of the host. The kernel enforces them (cgroup v2). Where
// it cannot, the core logs a warning and the runs go on without the limit.
type RunLimits struct {
	Each  Resources `json:"each,omitzero"`  // one run, for what its job does not limit itself
	Total Resources `json:"total,omitzero"` // all runs of this core together
}

// Resources of a host. Zero and absent mean no limit; a negative number is an error.
type Resources struct {
	Memory    int64   `json:"memory,omitempty"`    // bytes
	Processes int64   `json:"processes,omitempty"` // processes and threads
	CPU       float64 `json:"cpu,omitempty"`       // CPUs; 1.5 is one and a half
}
