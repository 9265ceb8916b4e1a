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
// The times that are passed in may go back: heads then wait again, but use does
// not come back that has left the window.
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
	Tokens  float64 `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"` // US dollars
	Slots   float64 `json:"slots,omitempty"`
}

// Tenant is how a tenant stands towards the others. The zero value of a field
// means what is said there.
type Tenant struct {
	// Weight is the tenant's part of what there is, in proportion to the others'
	// (deficit, drf); 0: 1.
	Weight float64 `json:"weight,omitempty"`
	// Credits is the tenant's credit weight (credit), 1 or more; 0: 1000 times Weight.
	Credits float64 `json:"credits,omitempty"`
	// Contracted tenants come before those of the marketplace (credit).
	Contracted bool `json:"contracted,omitempty"`
	// Reputation is in [0, 1] (credit). It holds until one was measured: see Reputed.
	Reputation float64 `json:"reputation,omitempty"`
	// MaxConcurrent bounds how many of its jobs are in flight; 0: no bound.
	MaxConcurrent int `json:"max_concurrent,omitempty"`
	// Budget bounds what the tenant uses within the window; 0 each: no bound.
	Budget Budget `json:"budget,omitzero"`
}

// Budget bounds tokens and US dollars within the policy's window; 0: no bound.
// A job may start while what was used and what is expected of jobs in flight is
// below it, so that it is passed by no more than what the last one takes.
type Budget struct {
	Tokens  float64 `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
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
}

// Config sets up a policy.
type Config struct {
	// Name is "priority", "credit", "deficit" or "drf".
	Name string `json:"name"`
	// Ageing raises a waiting entry's priority by one with each such time (priority); 0: never.
	Ageing job.Duration `json:"ageing,omitempty"`
	// Tiers is "strict" (contracted tenants first) or "weighted" (credit); "": strict.
	Tiers string `json:"tiers,omitempty"`
	// Beta is how much reputation raises a weight (credit).
	Beta float64 `json:"beta,omitempty"`
	// Window is how far back use and completions count (deficit, drf, budgets);
	// 0: 24h. It moves on in steps of a 24th part.
	Window job.Duration `json:"window,omitempty"`
	// Capacity is what there is within the window, of tokens and cost, and the
	// slots at once (drf). It is what parts are taken of and bounds nothing. A
	// resource of 0 does not count; without any the slots alone do.
	Capacity Demand `json:"capacity,omitzero"`
	// Budget bounds all tenants together within the window.
	Budget Budget `json:"budget,omitzero"`
	// Tenants are those that have settings of their own; Each is for all others.
	Tenants map[job.Tenant]Tenant `json:"tenants,omitempty"`
	Each    Tenant                `json:"each,omitzero"`
}
