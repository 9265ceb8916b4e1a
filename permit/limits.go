package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Limits are what a gate enforces over all jobs together. In all of them zero
// means no limit, but for MaxConcurrent.
type Limits struct {
	MaxConcurrent int                    // permits and runs at once; at least 1
	PerKind       map[job.WorkerKind]int // of one kind at once; absent or 0: no bound of its own
	PerTenant     map[job.Tenant]int     // of one tenant at once; absent: EachTenant, 0: no bound
	EachTenant    int                    // of each tenant that PerTenant does not name
	PerWorkspace  map[string]int         // of one workspace (its real path) at once; absent: EachWorkspace
	EachWorkspace int                    // of each workspace that PerWorkspace does not name
	TTL           time.Duration          // how long a permit may stay unused
	Validity      time.Duration          // how long permits stay valid, used or not, after Gate.Renew

	KindRates map[job.WorkerKind]Rate // permits of one kind
	// ModelRates are of permits whose Request.Model is the key, lies below it or
	// ends with it: "anthropic" bounds all models of that provider together,
	// "anthropic/claude-opus" that one besides, "claude-opus" the model of that
	// name whoever provides it.
	ModelRates map[string]Rate

	CostWindows []CostWindow
}

// Rate bounds requests in time, each figure by a token bucket of that size
// that refills evenly: so many at once, and so many a second or a minute in
// the long run. In any span d there are at most n + n·d/period of them.
type Rate struct {
	PerSecond int
	PerMinute int
}

// CostWindow bounds what is spent within any span of a length.
type CostWindow struct {
	Tenant job.Tenant    // whose money; empty: that of all tenants together
	Window time.Duration // the span, up to a sixtieth longer (see window)
	MaxUSD float64       // US dollars
	// Spent is, for Configure, what the asker knows to be spent within the span:
	// a window that the gate did not have before begins with it, each part at
	// its age, so that it outlives a gate. From Windows it is the gate's record.
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
	Tenant    job.Tenant // empty: job.DefaultTenant
	Workspace string     // the real path that the run works on; empty if it has none
	// Folder is the workspace as the job says it; the permit keeps it.
	Folder   job.Workspace
	Attempt  int // number of the attempt to start: 1, 2, 3, …
	Counted  int // earlier attempts that count, as the asker knows it
	Choice   job.Choice
	Model    string // the provider/model that answers, e.g. "anthropic/claude-opus"; empty: Choice.Model
	Limits   job.Limits
	Deadline *time.Time
	Spent    job.Usage     // by earlier attempts, as the asker knows it
	Time     time.Duration // likewise, wall time

	// Elsewhere is what other gates under the same limits hold now: it counts as
	// if it were held here.
	Elsewhere []Held

	// For the Defence alone: how patient the job's owner is, whether the job has
	// another choice after this one, and whether this is one that the defence
	// asked for.
	Class    job.Class
	Smaller  bool
	Degraded bool

	// Reserve, if not nil, is called after every check has passed and takes
	// what the run needs besides (the lock on its workspace). Its error refuses
	// the request; a *Rejection is passed on. release is called exactly once,
	// when the permit ends in whatever way.
	Reserve func() (release func(), err error)
}

// withDefaults fills in what the request left to the gate.
func (r Request) withDefaults() Request {
	if r.Tenant == "" {
		r.Tenant = job.DefaultTenant
	}
	if r.Model == "" {
		r.Model = r.Choice.Model
	}
	return r
}
