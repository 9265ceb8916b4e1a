package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Pause lets nothing of a scope begin until its end, or until somebody resumes it,
// over restarts too. What runs goes on.
type Pause struct {
	// Scope is global, worker:KIND, worker:KIND@TENANT, workspace:/PATH, one of the last
	// three on a node (node:NAME/worker:KIND), or trigger:NAME.
	Scope string `json:"scope"`
	// Reason is for whoever wonders.
	Reason string `json:"reason,omitempty"`
	// For is how long. Absent: until somebody resumes it.
	For job.Duration `json:"for,omitempty"`
}

// Resume lifts the isolation of a scope.
type Resume struct {
	// Scope is global, node:NAME, worker:KIND, worker:KIND@TENANT, workspace:/PATH, one of the
	// last three on a node (node:NAME/worker:KIND), trigger:NAME or core:N.
	Scope string `json:"scope"`
}

// RestartCores replaces cores.
type RestartCores struct {
	// Core is which: 1, 2, …. Absent: all of the scheduler's own host, or of the node, one after the other.
	Core int `json:"core,omitempty"`
	// Node is the node that the core is on; Core is its index there. Absent: the scheduler's own host.
	Node string `json:"node,omitempty"`
	// Drain lets the jobs of each end first.
	Drain bool `json:"drain,omitempty"`
}

// Reloaded says what a reload has changed.
type Reloaded struct {
	// Text is for a person.
	Text string `json:"text"`
}

// Upgrade hands the scheduler's listeners, process id and state directory to a new
// program. No request is lost meanwhile.
type Upgrade struct {
	// Mode says what becomes of running jobs. checkpoint stops each, at its next step
	// where its worker keeps steps, and lets it go on with its session afterwards. drain
	// lets all of them end first, and begins no others.
	Mode string `json:"mode"`
	// Program is the absolute path of the new program. Absent: that of the running one,
	// whose file may have been replaced.
	Program string `json:"program,omitempty"`
}

// UILink is a link that opens the dashboard once.
type UILink struct {
	// Role is what whoever opens it may do: read, submit or operate. Absent: operate.
	Role string `json:"role,omitempty"`
	// URL is the link.
	URL string `json:"url,omitempty"`
	// ExpiresAt is until when it can be opened.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Me is who asks.
type Me struct {
	// Name is that of the user at the socket, of the token over TCP, and of who asked
	// for the link in a browser.
	Name string `json:"name"`
	// Role is read, submit or operate.
	Role string `json:"role"`
	// Door is socket, tcp or browser.
	Door string `json:"door"`
}

// Health says whether the process, or the scheduler, is well.
type Health struct {
	// OK is set if it is.
	OK bool `json:"ok"`
	// Why says why it is not.
	Why string `json:"why,omitempty"`
	// Standby is set if the scheduler stands by while another one leads: it answers what
	// is read, and passes everything else on.
	Standby bool `json:"standby,omitempty"`
}
