package ipc

import "github.com/agentsched/agentsched/job"

// Sandbox is how runs are held whose job does not ask for more, and what of the host they see. The lists hold absolute
// paths.
type Sandbox struct {
	Level job.SandboxLevel `json:"level,omitempty"` // of runs whose job names none, or job.SandboxStrongest; "" is none
	Least job.SandboxLevel `json:"least,omitempty"` // a job that asks for less ends as CONFIG; "" is Level
	Read  []string         `json:"read,omitempty"`  // may be read besides what every run sees
	Write []string         `json:"write,omitempty"` // may be changed besides the workspace
	Hide  []string         `json:"hide,omitempty"`  // is not seen, whatever else is granted
	// Report: a run whose job names no level is told of at Level, not held. "" is then standard.
	Report bool `json:"report,omitempty"`
	// ReportNoNewPrivileges allows to take from such a run what setuid programs give, where it cannot be told of otherwise.
	ReportNoNewPrivileges bool `json:"report_no_new_privileges,omitempty"`
	// LoginVisible lets runs see the login of their worker's program where no gateway can stand for it.
	LoginVisible bool `json:"login_visible,omitempty"`
	// Audit has what files runs are refused at level standard logged by the kernel's audit, and told.
	Audit bool `json:"audit,omitempty"`
}

// Secret is where the core finds a secret, in exactly one of File, Command and Env, when a run is granted it.
type Secret struct {
	File     string       `json:"file,omitempty"`     // absolute path of a file that holds it
	Command  []string     `json:"command,omitempty"`  // prints it
	Env      string       `json:"env,omitempty"`      // variable of the core that holds it
	Variable bool         `json:"variable,omitempty"` // the run gets it in a variable, not in a file
	Tenants  []job.Tenant `json:"tenants,omitempty"`  // whose jobs may be given it; absent: all
}
