package policy

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Policy decides whose entry is dispatched next. It knows of each lane of the
// queue only the first entry, its head; the rest stays in the store. The same
// calls in the same order give the same answers. It is not for several
// goroutines at once.
//
// Whoever dispatches calls Next and, if the head is taken, Start; in any case
// then Add with the lane's next head, or Remove if there is none. A head that
// cannot run now (its folder is locked, its kind of worker is out of use) is
// passed over by the same Add or Remove without a Start.
//
// Of a tenant's heads the one of the highest priority comes first, then the one
// that is runnable for longest, then the first by ID. A tenant is forgotten when
// it has no head, nothing in flight, and has used nothing within the window.
//
// The times that are passed in may go back: heads then wait again, and what was
// used at a time that has not come counts as used now. What has left the window
// does not come back.
type Policy interface {
	// Add says that h is the head of its lane, instead of an earlier one.
	Add(h Head)
	// Remove says that nothing of the lane can run. An unknown lane is ignored.
	Remove(l job.Lane)
	// Next returns the head to dispatch at now; false if there is none that the
	// policy's own bounds (concurrency, budgets) let run. A head whose RunnableAt
	// is after now is not returned. Asked again with nothing between it returns
	// the same.
	Next(now time.Time) (Head, bool)
	// Wake returns the earliest moment after now at which Next could return
	// something else without another call: a head becomes runnable, a budget's
	// window moves on. Zero: none. It may be too early, never too late.
	Wake(now time.Time) time.Time

	// Start says that a job of the tenant is in flight from now on. An ask without
	// slots takes one.
	Start(t job.Tenant, ask Demand, now time.Time)
	// Charge says that jobs of the tenant have used that much, of which no Start
	// and End tell: what is known from before a restart.
	Charge(t job.Tenant, used Demand, completions int, now time.Time)
	// End says that a job is no longer in flight: what was asked for it at its
	// Start is replaced by what it has used, zero if it never ran. completed is
	// set if it was completed and not only interrupted or put back. The ask is the
	// same as at the Start.
	End(t job.Tenant, ask, used Demand, completed bool, now time.Time)

	// Shares returns how the tenants stand that are known, ordered by name.
	Shares(now time.Time) []Share
	// SetTenants changes the tenants' settings, for what follows. A value that
	// Tenant.Validate refuses counts as 0.
	SetTenants(tenants map[job.Tenant]Tenant)
}

// Reputed is a Policy that looks at how good a tenant's recent work was. All
// that New returns are; only credit makes something of it.
type Reputed interface {
	// SetReputation says that the work of a tenant was found to be worth r, in
	// [0, 1]; what cannot be meant counts as 0. From then on it takes the place of
	// the Reputation of the tenant's settings.
	SetReputation(t job.Tenant, r float64)
}

// Head is the first entry of a lane.
type Head struct {
	Lane       job.Lane
	ID         job.ID
	RunnableAt time.Time
	Ask        Demand // what it is expected to use
}

// Demand is an amount of what jobs use. Slots are workers at once; tokens and
// cost are consumed.
type Demand struct {
	// The tokens there are within the window; `0` they do not count.
	Tokens float64 `json:"tokens,omitempty" above:"0" want:"a number above 0, or 0 if it does not count" zero:""`
	// US dollars within the window; 0: they do not count.
	CostUSD float64 `json:"cost_usd,omitempty" above:"0" want:"a number above 0, or 0 if it does not count" zero:""`
	// The jobs at once.
	Slots float64 `json:"slots,omitempty" above:"0" want:"a number above 0, or 0 if it does not count" zero:""`
}

// Tenant is how a tenant stands towards the others. The zero value of a field
// means what is said there.
type Tenant struct {
	// The tenant's part of what there is, in proportion to the others' (`deficit`, `drf`).
	Weight float64 `json:"weight,omitempty" min:"1e-06" max:"1e+06" zero:"1" otherwise:"1"`
	// The tenant's credit weight, 1 or more (`credit`).
	Credits float64 `json:"credits,omitempty" min:"1" max:"1e+06" zero:"1000 times the weight" otherwise:"1000 times weight"`
	// The tenant comes before those of the marketplace, whose runs may [give
	// way](policies.md#credit) to it between two steps (`credit`).
	Contracted bool `json:"contracted,omitempty"`
	// The reputation of the tenant, from 0 to 1 (`credit`), until one was [measured](evaluation.md).
	Reputation float64 `json:"reputation,omitempty" min:"0" max:"1"`
	// Its jobs in flight at once; `0` for no bound.
	MaxConcurrent int `json:"max_concurrent,omitempty" min:"1" zero:"no bound" otherwise:"no bound"`
	// What the tenant uses within the window, at most.
	Budget Budget `json:"budget,omitzero" otherwise:"no bound"`
}

// Budget bounds tokens and US dollars within the policy's window; 0: no bound.
// A job may start while what was used and what is expected of jobs in flight is
// below it, so that it is passed by no more than what the last one takes.
type Budget struct {
	// What is used within the window, at most; `0` for no bound. A job begins while there is some
	// left.
	Tokens float64 `json:"tokens,omitempty" above:"0" zero:"no bound"`
	// The same in US dollars.
	CostUSD float64 `json:"cost_usd,omitempty" above:"0" zero:"no bound"`
}

// Share is how a tenant stands.
type Share struct {
	Tenant   job.Tenant `json:"tenant"`
	Target   float64    `json:"target"` // part of 1 that it is to have, among the tenants that are known; priority has none
	Actual   float64    `json:"actual"` // part of 1 that it has had within the window, by what the policy counts
	InFlight int        `json:"in_flight"`
	Used     Demand     `json:"used"`              // within the window; Slots are those in flight
	Waiting  bool       `json:"waiting,omitempty"` // it has a head
	// Held says why its head does not run, by the policy's own bounds; "" if it could.
	Held string `json:"held,omitempty"`
	// Contracted says that its heads come before those of all tenants that are not: where it
	// has less than its Target, theirs may be stopped at the boundary of a step.
	Contracted bool `json:"contracted,omitempty"`
}

// Config sets up a policy.
type Config struct {
	// `priority`, `credit`, `deficit` or `drf`.
	Name string `json:"name" type:"word" offer:"credit deficit drf priority"`
	// `priority`: a job counts one more for each such time that it has waited; `0s` never.
	Ageing job.Duration `json:"ageing,omitempty" min:"0s"`
	// `credit`: contracted tenants first, or, with `weighted`, only with four times the weight.
	Tiers string `json:"tiers,omitempty" words:"strict weighted"`
	// `credit`: how much reputation raises a weight.
	Beta float64 `json:"beta,omitempty" min:"0"`
	// How far back use and completions count, for `deficit`, `drf` and budgets.
	//
	// 0 is 24h. It moves on in steps of a 24th part.
	Window job.Duration `json:"window,omitempty" min:"1s" zero:"24h"`
	// What there is to share within the window (`drf`).
	//
	// It is what parts are taken of and bounds nothing.
	Capacity Demand `json:"capacity,omitzero" otherwise:"only jobs at once count"`
	// What all tenants together use within the window, at most.
	Budget Budget `json:"budget,omitzero" otherwise:"no bound"`
	// The settings of tenants, by name.
	Tenants map[job.Tenant]Tenant `json:"tenants,omitempty"`
	// The settings of each tenant that `tenants` does not name.
	Each Tenant `json:"each,omitzero"`
}
