package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Balances are what is left of tenants' credits.
type Balances struct {
	// Balances are ordered by tenant. A tenant without one is not bounded by credits.
	Balances []Balance `json:"balances"`
	// Run is what a run takes.
	Run int64 `json:"run"`
	// Agents are what a run of these agents takes instead.
	Agents map[job.AgentID]int64 `json:"agents,omitempty"`
}

// Balance is what is left of a tenant's credits. A job for which there are too few waits.
type Balance struct {
	// Tenant is whose credits they are.
	Tenant job.Tenant `json:"tenant"`
	// Left is how many there are.
	Left int64 `json:"left"`
	// Added is how many were added, in all.
	Added int64 `json:"added"`
	// Taken is what runs took that count or are under way.
	Taken int64 `json:"taken"`
}

// TopUp adds credits to a tenant's balance.
type TopUp struct {
	// Tenant is whose balance it is. It gets one with the first credits.
	Tenant job.Tenant `json:"tenant"`
	// Credits are how many are added. Below 0: so many are taken back.
	Credits int64 `json:"credits"`
	// By is who adds them, for the history.
	By string `json:"by,omitempty"`
}

// DropBalance ends a tenant's balance.
type DropBalance struct {
	// Tenant is whose balance ends. Its runs cost nothing from then on.
	Tenant job.Tenant `json:"tenant"`
	// By is who ends it, for the history.
	By string `json:"by,omitempty"`
}

// Credits are a part of the history of a balance.
type Credits struct {
	// Credits are entries, the newest first.
	Credits []Credit `json:"credits"`
	// Next is what to give as before to read on. Absent: there is no more.
	Next string `json:"next,omitempty"`
}

// Credit is an entry in the history of a balance.
type Credit struct {
	// ID is larger than those of earlier entries of the tenant.
	ID string `json:"id"`
	// At is when credits were added, or the run was claimed that took them.
	At time.Time `json:"at"`
	// Credits are how many were added. Below 0: so many were taken.
	Credits int64 `json:"credits"`
	// Job is the job whose run took them.
	Job job.ID `json:"job,omitempty"`
	// Attempt is the number of the attempt that took them.
	Attempt int `json:"attempt,omitempty"`
	// Agent is the agent whose run took them.
	Agent job.AgentID `json:"agent,omitempty"`
	// By is who added them or took them back.
	By string `json:"by,omitempty"`
}
