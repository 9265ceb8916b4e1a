package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// Nodes are the hosts that run jobs for this scheduler: a *node.Nodes, whose methods these are.
type Nodes interface {
	Status() []node.Status
	Cordon(ctx context.Context, name string, c node.Cordon) error
	Uncordon(ctx context.Context, name string) error
	GiveUp(ctx context.Context, name string, left bool) error
}

// nodes answers about the hosts that run jobs for this scheduler.
type nodes struct {
	sched *scheduler.Scheduler
	all   Nodes                        // Options.Nodes
	who   func(context.Context) string // Options.Who
}

func (n nodes) routes(r *router) {
	get(r, route{id: "list-nodes", method: "GET", path: "/v1/nodes", role: read, tag: "nodes",
		about: "List the nodes: hosts that run jobs for the scheduler."}, n.list)
	get(r, route{id: "get-node", method: "GET", path: "/v1/nodes/{name}", role: read, tag: "nodes", about: "Return a node."},
		func(_ context.Context, in *nodePath) (api.FleetNode, error) { return n.get(in.Name) })
	post(r, route{id: "cordon-node", method: "POST", path: "/v1/nodes/{name}/cordon", role: operate, tag: "nodes", bodyOptional: true,
		about: "Give a node no new jobs, whichever scheduler leads, until it is uncordoned.\nWhat runs there goes on. A node that has not come yet is cordoned when it comes."}, n.cordon)
	get(r, route{id: "uncordon-node", method: "POST", path: "/v1/nodes/{name}/uncordon", role: operate, tag: "nodes",
		about: "Give a node jobs again."}, n.uncordon)
	post(r, route{id: "drain-node", method: "POST", path: "/v1/nodes/{name}/drain", role: operate, tag: "nodes", bodyOptional: true,
		about: "Cordon a node, and empty it.\nThe answer is sent at once; the node is empty when running is 0."}, n.drain)
	get(r, route{id: "remove-node", method: "DELETE", path: "/v1/nodes/{name}", role: operate, tag: "nodes",
		about: "Forget a node, of which the caller says that none of its runs lives: its jobs go on elsewhere at once.\nA node that comes again is a new one; revoke its token to keep it away."}, n.remove)
}

type nodePath struct {
	Name string `path:"name" doc:"the name of the node"`
}

type removal struct {
	nodePath
	Force bool `query:"force" doc:"also while the node is connected: its connection is closed"`
}

// known returns the nodes by name, those that are isolated, and those on which an earlier scheduler has left jobs.
func (n nodes) known() map[string]api.FleetNode {
	all := map[string]api.FleetNode{}
	if n.all == nil {
		return all
	}
	st, running, cores := n.sched.Status(), n.sched.OnNodes(), map[string][]api.Core{}
	for _, c := range st.Cores {
		if c.Node != "" {
			cores[c.Node] = append(cores[c.Node], coreOf(&c))
		}
	}
	for _, s := range n.all.Status() {
		all[s.Name] = nodeOf(&s, running[s.Name], cores[s.Name])
	}
	for name, jobs := range running {
		if _, ok := all[name]; !ok {
			all[name] = nodeOf(&node.Status{Name: name}, jobs, nil)
		}
	}
	for _, i := range st.Isolations {
		name, what, ok := i.Scope.Host()
		if !ok {
			continue
		}
		x, ok := all[name]
		if !ok {
			x = nodeOf(&node.Status{Name: name}, 0, nil)
		}
		why := IsolationOf(&i)
		if what == isolation.Global {
			x.Isolation = &why
		} else {
			x.IsolatedParts = append(x.IsolatedParts, why)
		}
		all[name] = x
	}
	return all
}

func (n nodes) list(context.Context, *struct{}) (api.FleetNodes, error) {
	all := n.known()
	out := api.FleetNodes{Nodes: []api.FleetNode{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out.Nodes = append(out.Nodes, all[name])
	}
	return out, nil
}

func (n nodes) get(name string) (api.FleetNode, error) {
	if x, ok := n.known()[name]; ok {
		return x, nil
	}
	return api.FleetNode{}, fmt.Errorf("%w: %s; none of that name has come since this scheduler leads", node.ErrUnknown, name)
}

// errNoNodes is why a node cannot be commanded.
var errNoNodes = fmt.Errorf("nodes: %w: only `scheduler serve` takes them", errNoSuch)

func (n nodes) cordon(ctx context.Context, in *nodePath, body *api.CordonNode) (api.FleetNode, error) {
	if err := n.close(ctx, in.Name, body.Why, body.By); err != nil {
		return api.FleetNode{}, err
	}
	return n.get(in.Name)
}

func (n nodes) close(ctx context.Context, name, why, by string) error {
	if n.all == nil {
		return errNoNodes
	}
	if n.who != nil {
		by = cmp.Or(n.who(ctx), by)
	}
	const most = 500
	if len(why) > most {
		return badField("body.why", "has %d bytes, want at most %d", len(why), most)
	}
	if len(by) > most {
		return badField("body.by", "has %d bytes, want at most %d", len(by), most)
	}
	err := n.all.Cordon(ctx, name, node.Cordon{Why: why, By: by, Since: time.Now().UTC().Round(0)})
	if errors.Is(err, node.ErrName) {
		return badField("path.name", "%v", err)
	}
	return err
}

func (n nodes) uncordon(ctx context.Context, in *nodePath) (api.FleetNode, error) {
	if n.all == nil {
		return api.FleetNode{}, errNoNodes
	}
	before, err := n.get(in.Name)
	if err != nil {
		return before, err
	}
	if err := n.all.Uncordon(ctx, in.Name); err != nil {
		return before, err
	}
	before.Cordon = nil
	if after, err := n.get(in.Name); err == nil {
		return after, nil
	}
	return before, nil // it has never come, and nothing is left to be said of it
}

func (n nodes) drain(ctx context.Context, in *nodePath, body *api.DrainNode) (api.FleetNode, error) {
	mode := cmp.Or(body.Mode, api.DrainWait)
	if !slices.Contains(api.DrainModes(), mode) {
		return api.FleetNode{}, badField("body.mode", "is %q, want one of %s", body.Mode, strings.Join(api.DrainModes(), ", "))
	}
	if err := n.close(ctx, in.Name, cmp.Or(body.Why, "drained"), body.By); err != nil {
		return api.FleetNode{}, err
	}
	if mode != api.DrainWait {
		n.sched.StopOnNode(in.Name, mode == api.DrainCheckpoint, fmt.Sprintf("node %s is drained", in.Name))
	}
	return n.get(in.Name)
}

func (n nodes) remove(ctx context.Context, in *removal) (api.RemovedNode, error) {
	if n.all == nil {
		return api.RemovedNode{}, errNoNodes
	}
	x, err := n.get(in.Name)
	switch {
	case err != nil:
		return api.RemovedNode{}, err
	case x.State == api.NodeConnected && !in.Force:
		return api.RemovedNode{}, newProblem("node_connected", http.StatusConflict,
			"node %s is connected: drain it and end `scheduler node` there, or say force if its host does not tell the truth", in.Name)
	}
	if err := n.all.GiveUp(ctx, in.Name, x.Running > 0 || x.Isolation != nil || len(x.IsolatedParts) > 0); err != nil {
		return api.RemovedNode{}, err
	}
	scopes := []string{string(isolation.NodeScope(in.Name))}
	for i := range x.IsolatedParts {
		scopes = append(scopes, x.IsolatedParts[i].Scope)
	}
	for _, scope := range scopes {
		if _, err := n.sched.Isolations.Resume(scope); err != nil && !errors.Is(err, scheduler.ErrNotIsolated) {
			return api.RemovedNode{}, err
		}
	}
	return api.RemovedNode{Name: x.Name, Jobs: x.Running}, nil
}

// nodeOf returns a node as the API has it.
func nodeOf(s *node.Status, running int, cores []api.Core) api.FleetNode {
	v := &s.Inventory
	out := api.FleetNode{
		Name: s.Name, State: nodeState(s), Host: v.Host, OS: v.OS, Arch: v.Arch, CPUs: v.CPUs, Memory: v.Memory, Slots: v.Slots, Running: running,
		Labels: map[string]string{}, Workers: each(v.Workers, func(w *node.Worker) api.NodeWorker { return api.NodeWorker(*w) }),
		Sandbox: string(v.Sandbox), Version: s.Version, Cordon: (*api.Cordon)(s.Cordon), Since: s.Since.UTC().Round(0), Lost: s.Losses, Cores: some(cores),
	}
	maps.Copy(out.Labels, v.Labels)
	if s.Came {
		out.Seen = s.Heard.UTC().Round(0)
	}
	if s.Connected {
		out.RoundTrip = job.Duration(s.RoundTrip)
	}
	return out
}

func nodeState(s *node.Status) string {
	switch {
	case !s.Came:
		return api.NodeUnknown
	case s.Connected:
		return api.NodeConnected
	case s.Lost:
		return api.NodeLost
	}
	return api.NodeCutOff
}
