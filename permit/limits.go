package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Limits are what a gate enforces over all jobs together. Zero means no limit, except for
// MaxConcurrent and TTL. The first six bound the permits at once, unused and in use.
type Limits struct {
	MaxConcurrent int                    // of all; a number below 1 counts as 1
	PerKind       map[job.WorkerKind]int // of one kind of worker
	PerTenant     map[job.Tenant]int     // of one tenant; a tenant that is absent has EachTenant, one with 0 no limit
	EachTenant    int                    // of each tenant that PerTenant does not name
	PerWorkspace  map[string]int         // of one workspace, by its real path; absent: EachWorkspace
	EachWorkspace int                    // of each workspace that PerWorkspace does not name

	TTL      time.Duration // how long a permit may stay unused
	Validity time.Duration // how long permits stay valid after Gate.Renew, unused or in use

	KindRates map[job.WorkerKind]Rate // permits of one kind of worker
	// ModelRates are of permits whose Request.Model is the key, lies below it or
	// ends with it: "anthropic" bounds all models of that provider together,
	// "anthropic/claude-opus" that one besides, "claude-opus" the model of that
	// name, of any provider.
	ModelRates map[string]Rate
	// RequestRates are of requests to models (Permit.Reserve) whose Demand.Model is named by the key as in ModelRates.
	RequestRates map[string]RequestRate

	CostWindows []CostWindow
}

// Rate bounds permits in time. Each figure n is a token bucket of that size that refills
// evenly: n at once, and n a second or a minute in the long run. In any span d there are at
// most n + n·d/period permits, where the period is 1 s or 1 min.
type Rate struct {
	PerSecond int
	PerMinute int
}

// RequestRate bounds requests to models, and the tokens that they use, as Rate bounds permits.
type RequestRate struct {
	PerMinute       int
	TokensPerMinute int
}

// CostWindow bounds what is spent within any span of a length.
type CostWindow struct {
	Tenant job.Tenant    // empty: all tenants together
	Window time.Duration // the length; 0 or less: the window is ignored
	MaxUSD float64       // US dollars; 0 or less: the window is ignored
	// Spent is what was spent within the window. A gate that does not have the window yet
	// begins it with Spent, so that a record outlives its gate, and otherwise ignores Spent.
	// From Gate.Windows it is the gate's record.
	Spent []Spending
}

// SpentUSD returns the sum of what is spent, in US dollars.
func (w CostWindow) SpentUSD() float64 {
	var sum float64
	for _, s := range w.Spent {
		sum += s.USD
	}
	return sum
}

// Spending is money that was spent some time ago.
type Spending struct {
	Ago time.Duration
	USD float64
}

// Request asks for one attempt of a job.
type Request struct {
	Job       job.ID
	Tenant    job.Tenant    // empty: job.DefaultTenant
	Workspace string        // the real path of the folder that the run works on; empty if it has none
	Folder    job.Workspace // the workspace as the job describes it; only copied to the permit
	Attempt   int           // number of the attempt to start: 1, 2, 3, …
	Choice    job.Choice
	// Model is the model for Limits.ModelRates, e.g. "anthropic/claude-opus"; empty:
	// Choice.Model.
	Model    string
	Limits   job.Limits // the job's own
	Deadline *time.Time // the job's own, by the wall clock; nil: none

	// What earlier attempts of the job used, as the caller knows it. The gate's record may
	// know less, since it begins with the gate, or more, since it is never late.
	Counted int           // attempts that count
	Spent   job.Usage     // tokens and cost
	Time    time.Duration // wall time
	Ceded   Budget        // what others spend of the job's limits; see Permit.Cede

	// Elsewhere is what other gates under the same limits hold now: it counts for this
	// request as if it were held here.
	Elsewhere []Held

	// Running says that the run is there already, as another gate allowed it: neither rates nor cost windows refuse it.
	Running bool

	// For the Defence only: the job's class, whether the job has another choice after
	// this one, and whether this choice is the one that the defence asked for.
	Class    job.Class
	Smaller  bool
	Degraded bool

	// Reserve, if not nil, is called when every check has passed. It takes what else the
	// run needs, the lock on its workspace. It may block; the slot is held meanwhile. Its
	// error refuses the request. release is called exactly once, when the permit ends.
	Reserve func() (release func(), err error)
}

// withDefaults returns r with Tenant and Model set.
func (r Request) withDefaults() Request {
	if r.Tenant == "" {
		r.Tenant = job.DefaultTenant
	}
	if r.Model == "" {
		r.Model = r.Choice.Model
	}
	return r
}
