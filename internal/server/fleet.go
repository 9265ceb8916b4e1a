package server

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
)

// members answers which schedulers work on the queue.
type members struct {
	sched *scheduler.Scheduler
	self  api.FleetMember                          // Options.Self
	fleet func(context.Context) (api.Fleet, error) // Options.Fleet
}

func (m members) routes(r *router) {
	get(r, route{id: "get-fleet", method: "GET", path: "/v1/fleet", role: read, answered: byEach, tag: "overview",
		about: "List the schedulers that work on the queue: which one leads, since when and why, and which stand by.\nEach of them answers this itself."}, m.get)
}

func (m members) get(ctx context.Context, _ *struct{}) (api.Fleet, error) {
	if m.fleet == nil {
		return m.alone(), nil
	}
	f, err := m.fleet(ctx)
	f.Members, f.History = some(f.Members), some(f.History)
	return f, err
}

// alone returns the fleet of a scheduler that has its queue for itself, and leads if it
// runs.
func (m members) alone() api.Fleet {
	f := api.Fleet{Instance: m.self.Instance, Members: []api.FleetMember{}, History: []api.FleetTerm{}}
	st := m.sched.Status()
	if st.PID == 0 {
		return f
	}
	me, term := m.self, api.FleetTerm{Instance: m.self.Instance, Host: m.self.Host, Since: st.Started, Why: "it has the queue for itself"}
	me.Role, me.Since, me.Seen = api.FleetLeader, st.Started, time.Now().UTC().Round(0)
	f.Leader, f.Members, f.History = &term, append(f.Members, me), append(f.History, term)
	return f
}
