package api

import "github.com/agentsched/agentsched/job"

// Dimension is what accounts can be kept apart by.
type Dimension string

// The dimensions of accounts.
const (
	ByTenant Dimension = "tenant"
	ByAgent  Dimension = "agent" // together with its tenant
	ByWorker Dimension = "worker"
	ByModel  Dimension = "model"
	ByDay    Dimension = "day"
)

// Usage is what was used.
type Usage struct {
	// Accounts are what was used, by the dimensions that were asked for.
	Accounts []Account `json:"accounts"`
	// Total is the sum of the accounts.
	Total Account `json:"total"`
}

// Account is what was used, of one value of each dimension that was asked for.
type Account struct {
	// Tenant is whose use it is.
	Tenant job.Tenant `json:"tenant,omitempty"`
	// Agent is the tenant's agent whose use it is.
	Agent job.AgentID `json:"agent,omitempty"`
	// Worker is the kind of worker that used it.
	Worker job.WorkerKind `json:"worker,omitempty"`
	// Model is the model that was used.
	Model string `json:"model,omitempty"`
	// Day is the day, as 2006-01-02.
	Day string `json:"day,omitempty"`

	// Usage is the tokens and their cost.
	Usage job.Usage `json:"usage"`
	// Wall is the time of attempts, added up.
	Wall job.Duration `json:"wall,omitempty"`
	// Attempts is how many attempts ended.
	Attempts int64 `json:"attempts,omitempty"`
	// Completed is how many jobs succeeded. Those that share a result are among them,
	// under their own agent.
	Completed int64 `json:"completed,omitempty"`
}

// Grants are what owners may use.
type Grants struct {
	// Grants are ordered by tenant and agent.
	Grants []GrantUse `json:"grants"`
	// Balances are what is left of tenants' credits, ordered by tenant.
	Balances []Balance `json:"balances,omitempty"`
}

// GrantUse is a grant and how much of it was used.
type GrantUse struct {
	Grant
	// Used is what its owner has used within its window.
	Used Account `json:"used"`
	// UsedUp is set if that is as much as a bound allows.
	UsedUp bool `json:"used_up,omitempty"`
}

// Grant is what an owner may use: a tenant, or one agent of it. A job of an owner
// that has used as much as a bound waits. An owner without a grant is not bounded.
type Grant struct {
	// Tenant is the owner, or whose agent it is.
	Tenant job.Tenant `json:"tenant"`
	// Agent is one agent of the tenant. Absent: the tenant as a whole.
	Agent job.AgentID `json:"agent,omitempty"`
	// Dead owners are refused new jobs. What is queued stays.
	Dead bool `json:"dead,omitempty"`
	// Tokens bounds the tokens within the window. Absent: no bound.
	Tokens int64 `json:"tokens,omitempty"`
	// CostUSD bounds the cost within the window, in US dollars. Absent: no bound.
	CostUSD float64 `json:"cost_usd,omitempty"`
	// Wall bounds the time of attempts within the window, added up. Absent: no bound.
	Wall job.Duration `json:"wall,omitempty"`
	// Window is how far back use counts, in steps of 15 minutes. Absent: for ever.
	Window job.Duration `json:"window,omitempty"`
}
