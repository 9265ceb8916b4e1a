package telemetry

import (
	"fmt"
	"strconv"

	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
)

// nodes collects how the hosts fare that work for the scheduler.
type nodes struct {
	nodes  func() []node.Status
	status func() scheduler.Status
	names  *names

	connected, cordoned, isolated, running, slots, roundTrip, lost *metric
}

func newNodes(cfg Config, n *names) *nodes {
	gauge := func(name, help string) *metric { return newMetric(gaugeKind, name, help, "node") }
	return &nodes{
		nodes: cfg.Nodes, status: cfg.Status, names: n,
		connected: gauge("node_connected", "1 while the node is heard."),
		cordoned:  gauge("node_cordoned", "1 while the node is given no new jobs."),
		isolated:  gauge("node_isolated", "1 while the node is given no new jobs because something is wrong with it."),
		running:   gauge("node_running_jobs", "Jobs that were given to the node."),
		slots:     gauge("node_slots", "Jobs that the node runs at once."),
		roundTrip: gauge("node_round_trip_seconds", "How long the node's last heartbeat took; 0 while it is not heard."),
		lost:      newMetric(counterKind, "node_lost_total", "How often the node was not heard for so long that its jobs went on elsewhere.", "node"),
	}
}

func (n *nodes) collect(p *page) {
	if n.nodes == nil || n.status == nil {
		return
	}
	st, inflight, isolated := n.status(), map[string]int{}, map[string]bool{}
	for _, i := range st.Isolations {
		if name, ok := i.Scope.Node(); ok {
			isolated[name] = true
		}
	}
	for _, c := range st.Cores {
		inflight[c.Node] += c.Inflight
	}
	type figures struct{ connected, cordoned, isolated, running, slots, roundTrip, lost float64 }
	sums := map[string]*figures{} // by label: some share one
	for _, s := range n.nodes() {
		label := n.names.node(s.Name)
		f := sums[label]
		if f == nil {
			f = &figures{}
			sums[label] = f
		}
		f.connected += truth(s.Connected)
		f.cordoned += truth(s.Closed)
		f.isolated += truth(isolated[s.Name])
		f.running += float64(inflight[s.Name])
		f.slots += float64(s.Inventory.Slots)
		f.roundTrip = max(f.roundTrip, s.RoundTrip.Seconds())
		f.lost += float64(s.Losses)
	}
	for label, f := range sums {
		p.put(n.connected, f.connected, label)
		p.put(n.cordoned, f.cordoned, label)
		p.put(n.isolated, f.isolated, label)
		p.put(n.running, f.running, label)
		p.put(n.slots, f.slots, label)
		p.put(n.roundTrip, f.roundTrip, label)
		p.put(n.lost, f.lost, label)
	}
}

// core returns the label of a core: its number, or NODE/NUMBER. "": it has none, since too many nodes were met.
func (n *names) core(c *supervisor.Status) string {
	if c.Node == "" {
		return strconv.Itoa(c.Index)
	}
	if name := n.node(c.Node); name != other {
		return fmt.Sprintf("%s/%d", name, c.Place)
	}
	return ""
}
