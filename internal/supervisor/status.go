package supervisor

import "time"

// State is what the place of a core is in.
type State string

const (
	Starting State = "starting" // a process is started and has not been configured yet
	Up       State = "up"       // it takes work
	Draining State = "draining" // it takes no new work and is about to end
	Isolated State = "isolated" // it crashed too often: none is started for a while
	Down     State = "down"     // it is dead, or none was started yet; the next is about to be started
)

// Status is how one core fares.
type Status struct {
	Index         int           `json:"index"`           // 1, 2, …
	Node          string        `json:"node,omitempty"`  // the other host that it is on,
	Place         int           `json:"place,omitempty"` // and its index there
	PID           int           `json:"pid,omitempty"`
	State         State         `json:"state"`
	Version       string        `json:"version,omitempty"`
	Protocol      int           `json:"protocol,omitempty"`
	Since         time.Time     `json:"since"`    // when it came into the state
	Restarts      int           `json:"restarts"` // how often another was started in its place
	IsolatedUntil time.Time     `json:"isolated_until,omitzero"`
	RSSBytes      int64         `json:"core_rss_bytes,omitempty"` // resident memory; -1: unknown
	CPURatio      float64       `json:"core_cpu_ratio"`           // of one CPU, between the last two heartbeats
	Heartbeat     time.Duration `json:"heartbeat_ns,omitempty"`   // round trip of the last one
	// Cause is why it is drained or isolated, or why the last one ended.
	Cause string `json:"cause,omitempty"`
}

// Cores returns how the cores fare, by index.
func (s *Supervisor) Cores() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Status
	for _, st := range s.seats {
		all = append(all, st.statusLocked())
	}
	return all
}

func (st *seat) statusLocked() Status {
	status := Status{
		Index: st.index, State: st.state, Since: st.since, Restarts: max(st.spawned-1, 0),
		IsolatedUntil: st.until, Cause: st.cause,
	}
	if c := st.core; c != nil {
		status.PID = c.PID()
		c.mu.Lock()
		defer c.mu.Unlock()
		if st.state == Up || st.state == Draining {
			status.Version, status.Protocol = c.Info.Version, c.Info.Protocol
		}
		status.RSSBytes, status.CPURatio, status.Heartbeat = c.pulse.rss, c.pulse.cpu, c.pulse.took
	}
	return status
}
