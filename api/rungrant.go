package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// RunGrant is what a person allows runs beside what their jobs say.
type RunGrant struct {
	// Kind is what it allows: network, to reach a host; or, of what its agent asks for, command, write, read, host or tool.
	Kind RunGrantKind `json:"kind"`
	// Entry is one of a job's network: a host, with a port or for the usual two, or a preset; or a pattern as in a job's ask.rules.
	Entry string `json:"entry"`
	// Scope is for which runs: once, job or tenant.
	Scope RunGrantScope `json:"scope"`
	// Tenant is whose runs they are.
	Tenant job.Tenant `json:"tenant"`
	// Job is whose runs they are. Absent: those of all jobs of the tenant whose network is not none.
	Job job.ID `json:"job,omitempty"`
	// Attempt is the one run for which it is with the scope once.
	Attempt int `json:"attempt,omitempty"`
	// By is who allowed it.
	By string `json:"by,omitempty"`
	// At is when that was.
	At time.Time `json:"at"`
}

// RunGrantKind is what a RunGrant allows.
type RunGrantKind string

// The kinds.
const (
	GrantNetwork RunGrantKind = "network" // to reach a host
	GrantCommand RunGrantKind = "command" // to run a command
	GrantWrite   RunGrantKind = "write"   // to change a file
	GrantRead    RunGrantKind = "read"    // to read a file
	GrantHost    RunGrantKind = "host"    // to use a tool that reaches a host
	GrantTool    RunGrantKind = "tool"    // to use a tool
)

// RunGrantKinds returns all of them.
func RunGrantKinds() []RunGrantKind {
	return []RunGrantKind{GrantNetwork, GrantCommand, GrantWrite, GrantRead, GrantHost, GrantTool}
}

// RunGrantScope is for which runs a RunGrant is.
type RunGrantScope string

// The scopes.
const (
	GrantOnce   RunGrantScope = "once"   // the run that is under way, else the next one of the job
	GrantJob    RunGrantScope = "job"    // all further runs of the job, requeued too
	GrantTenant RunGrantScope = "tenant" // all runs of the job's tenant
)

// RunGrantScopes returns all of them.
func RunGrantScopes() []RunGrantScope { return []RunGrantScope{GrantOnce, GrantJob, GrantTenant} }

// AllowRun allows runs something beside what their jobs say.
type AllowRun struct {
	// Entry is one of a job's network, such as registry.example.com:8443.
	Entry string `json:"entry"`
	// Scope is for which runs. Absent: job.
	Scope RunGrantScope `json:"scope,omitempty"`
	// By is who allows it.
	By string `json:"by,omitempty"`
}

// AllowedRun is what became of an AllowRun.
type AllowedRun struct {
	// Grant is what is stored.
	Grant RunGrant `json:"grant"`
	// Applied says whether the run that is under way has it already.
	Applied bool `json:"applied"`
}

// RunGrants are what people have allowed runs.
type RunGrants struct {
	// Grants are ordered by tenant and entry.
	Grants []RunGrant `json:"grants"`
}

// JobGrants are what people have allowed the runs of a job, and what these were refused.
type JobGrants struct {
	// Grants are those of the job, those of the dead letters that it does again, and those of its tenant.
	Grants []RunGrant `json:"grants"`
	// Refused are hosts that its runs were refused and that nobody has allowed since, at most 100, the latest first.
	Refused []RefusedHost `json:"refused"`
}

// RefusedHost is a host that the runs of a job were refused.
type RefusedHost struct {
	// Entry is what to allow, as in AllowRun.
	Entry string `json:"entry"`
	// Reason is why it was refused, the last time.
	Reason string `json:"reason"`
	// Attempt is the number of the attempt that was refused it last.
	Attempt int `json:"attempt"`
	// Times is how often it was refused.
	Times int `json:"times"`
}

// RevokeRun ends a RunGrant of a tenant or of a job.
type RevokeRun struct {
	// Kind is that of the grant. Absent: network.
	Kind RunGrantKind `json:"kind,omitempty"`
	// Entry is that of the grant.
	Entry string `json:"entry"`
	// Tenant is whose grant it is.
	Tenant job.Tenant `json:"tenant,omitempty"`
	// Job is an id or a name of whose grant it is, in place of the tenant.
	Job string `json:"job,omitempty"`
}
