package config

import (
	"net"
	"strconv"

	"github.com/agentsched/agentsched/job"
)

// Fleet is how several schedulers share one queue.
type Fleet struct {
	// The database of the queue: `postgres://user@host/name?sslmode=verify-full` without a password,
	// `service=NAME` of the connection service file, `file:/path` or `env:NAME` with such an address in
	// it. `scheduler serve --store` sets it, too.
	Store string `json:"store,omitempty" otherwise:"none: the queue lies in the state directory"`
	// Where the other schedulers of the queue reach this one: IP address or `localhost`, and port. They
	// know each other by certificates that they make themselves.
	Listen string `json:"listen,omitempty" otherwise:"127.0.0.1 and any free port"`
	// What the others connect to, host and port, where that is not what is listened on.
	Advertise string `json:"advertise,omitempty" otherwise:"the address that is listened on"`
	// For how long a leader may be silent before another scheduler takes over, `1s` to `10m`.
	Lease job.Duration `json:"lease" min:"1s" max:"10m"`
	// For how long a node (`scheduler node`) may work on after this scheduler has answered it last, `1s` to
	// `10m`. After that its runs have `heartbeat.permit_validity` and the stages of `stop` to end, before their jobs go
	// on elsewhere.
	NodeLease job.Duration `json:"node_lease" min:"1s" max:"10m"`
	// Whether jobs run on this scheduler's own host, too; else on nodes alone. Those that work in a folder of
	// it wait then.
	Work bool `json:"work"`
	// On which of the hosts that can run a job it does: `spread`, the one of whose slots the least part
	// is taken; `pack`, the one with the largest part that has room: [placement](fleet.md#placement).
	Placement string `json:"placement" words:"spread pack"`
}

func (v *validator) fleet() {
	f := v.config.Fleet
	v.listen("fleet.listen", f.Listen)
	if f.Advertise != "" {
		host, port, err := net.SplitHostPort(f.Advertise)
		n, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || n == 0 || host == "" {
			v.Failf("fleet.advertise", "%q is no address that others can connect to, want host and port such as scheduler-a.example.com:7434", f.Advertise)
		}
	}
	if f.Store != "" && v.config.Heartbeat.PermitValidity == 0 {
		v.Failf("heartbeat.permit_validity", "is 0s, by which runs would go on beside the next leader's; want a duration such as 1m")
	}
}
