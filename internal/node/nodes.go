package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// NodesConfig is what Nodes need.
type NodesConfig struct {
	Handler  supervisor.AwayHandler
	Version  string
	Instance job.InstanceID
	Log      zerolog.Logger
	// Lease is for how long a node's runs are valid after it was heard.
	Lease time.Duration
	// LostAfter returns after which silence nothing of a node's runs lives; see ipc.Lease.Lost.
	LostAfter func() time.Duration
	// Attempt returns the folder for what an attempt left.
	Attempt func(id job.ID, attempt int) string
	// Redact removes secrets from what a node tells, in JSON.
	Redact func([]byte) []byte
	// First is the index of the first core here that is on a node: those before it are the scheduler's own.
	First int
	// Cordons are those nodes that take no new jobs; nil: none, and none can be.
	Cordons *Cordons
	// Changed hears that the nodes have changed: who is there, and what they offer. It must not wait. nil: nobody does.
	Changed func()
}

// Nodes are the hosts that work for this scheduler, as long as it leads.
type Nodes struct {
	cfg      NodesConfig
	acceptor *wire.Acceptor
	ended    chan struct{} // closed when Run has ended

	mu     sync.Mutex // guards what follows
	ctx    context.Context
	nodes  map[string]*remote // by name
	places map[int]place      // by index of a core
	next   int                // index of the next core that is new
	work   sync.WaitGroup     // sessions
}

// place is where a core is.
type place struct {
	node  *remote
	place int
}

// NewNodes returns who takes nodes. They are refused before Run and after it.
func NewNodes(cfg NodesConfig) (*Nodes, error) {
	heartbeat, silence := pace(cfg.Lease)
	n := &Nodes{cfg: cfg, ended: make(chan struct{}), nodes: map[string]*remote{}, places: map[int]place{}, next: cfg.First}
	var err error
	n.acceptor, err = wire.NewAcceptor(wire.AcceptConfig{
		Limits: wire.Limits{Heartbeat: heartbeat, Silence: silence, Confirm: cfg.Handler.RenewPermits},
		// A link that was away for longer is of a node whose runs are given up.
		Keep: 2 * cfg.Lease,
	})
	if err != nil {
		return nil, err
	}
	for name := range cfg.Cordons.all() {
		n.remote(name).close(true)
	}
	return n, nil
}

// errNotYet is why a node is refused before the scheduler has begun, or after its end.
var errNotYet = errors.New("this scheduler takes no nodes now; ask again, or another one")

// Accept answers a node's request for a link; name is its token's. It returns when the link has ended, or the node has
// come again: as long as that it makes sure that the node may be here, which the end of r's context denies.
func (n *Nodes) Accept(w http.ResponseWriter, r *http.Request, name string) error {
	w.Header().Set(HeaderProtocols, fmt.Sprintf("%d-%d", MinProtocol, MaxProtocol))
	n.mu.Lock()
	ctx := n.ctx
	if ctx == nil || ctx.Err() != nil {
		n.mu.Unlock()
		http.Error(w, errNotYet.Error(), http.StatusServiceUnavailable)
		return errNotYet
	}
	n.work.Add(1)
	n.mu.Unlock()
	link, resumed, err := n.acceptor.Accept(w, r, name)
	if err != nil {
		n.work.Done()
		return err
	}
	again := n.remote(name).comes()
	if resumed {
		n.work.Done()
	} else {
		s := newVisit(n, link)
		go func() {
			defer n.work.Done()
			s.run(ctx)
		}()
	}
	select {
	case <-again:
	case <-link.Done():
	case <-r.Context().Done():
		link.Close("the node may not be here any more")
	}
	return nil
}

// Run takes nodes until ctx ends. Their runs go on then: whoever leads next takes them over.
func (n *Nodes) Run(ctx context.Context) error {
	defer close(n.ended)
	n.mu.Lock()
	n.ctx = ctx
	n.mu.Unlock()
	tick := time.NewTicker(max(n.cfg.Lease/4, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.watch()
		case <-ctx.Done():
			n.mu.Lock()
			n.ctx = nil // whoever was let in is counted by now, and nobody is any more
			n.mu.Unlock()
			n.acceptor.Close("the scheduler does not lead any more, or ends")
			n.work.Wait()
			return context.Cause(ctx)
		}
	}
}

// watch gives up nodes that were not heard for so long that nothing of their runs lives.
func (n *Nodes) watch() {
	for _, r := range n.list() {
		r.watch()
	}
}

// list returns the nodes by name.
func (n *Nodes) list() []*remote {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []*remote
	for _, r := range n.nodes {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *remote) int { return strings.Compare(a.name, b.name) })
	return list
}

// remote returns a node, which is made if it is new.
func (n *Nodes) remote(name string) *remote {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.nodes[name]
	if r == nil {
		r = &remote{nodes: n, name: name, cores: map[int]*away{}, isolated: map[int]isolatedCore{}, indexes: map[int]int{}, heard: time.Now(), unsettled: map[run]RunSettled{}}
		n.nodes[name] = r
	}
	return r
}

// index returns a number for the core in a place of a node, the same one each time.
func (n *Nodes) index(r *remote, at int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := r.indexes[at]
	if !ok {
		n.next++
		i = n.next
		r.indexes[at] = i
		n.places[i] = place{r, at}
	}
	return i
}

// Status returns how the nodes fare, by name: those that have come since this scheduler leads, and those that are
// closed for when they come.
func (n *Nodes) Status() (all []Status) {
	cordons := n.cfg.Cordons.all()
	for _, r := range n.list() {
		if !r.known() {
			continue
		}
		s := r.status()
		if c, ok := cordons[s.Name]; ok {
			s.Cordon = &c
		}
		all = append(all, s)
	}
	return all
}

// Status is how a node fares.
type Status struct {
	Name      string
	Version   string
	Came      bool // since this scheduler leads
	Connected bool
	Lost      bool // it was not heard for so long that its runs were given up
	Losses    int  // how often that was so
	Closed    bool // it takes no new jobs
	Cordon    *Cordon
	Heard     time.Time
	Since     time.Time // when its process was seen first
	RoundTrip time.Duration
	Inventory Inventory
	Cores     []supervisor.Status
}

// Cores returns the cores that are up on nodes.
func (n *Nodes) Cores() (all []supervisor.Status) {
	for _, r := range n.list() {
		all = append(all, r.status().Cores...)
	}
	slices.SortFunc(all, func(a, b supervisor.Status) int { return a.Index - b.Index })
	return all
}

// Reconfigure tells the cores on nodes the settings of now. Those of a node that is not there hear of
// them when it is.
func (n *Nodes) Reconfigure(ctx context.Context) error {
	var errs []error
	for _, r := range n.list() {
		errs = append(errs, r.reconfigure(ctx))
	}
	return errors.Join(errs...)
}

// ErrUnknown: no node of that name has come since this scheduler leads.
var ErrUnknown = errors.New("no such node")

// Close has a node take no new jobs, or take some again. One that is not there is closed when it comes.
func (n *Nodes) Close(name string, closed bool) {
	n.remote(name).close(closed)
	n.cfg.Handler.CoresChanged()
	n.changed()
}

// GiveUp forgets a node, of whose runs the caller says that none lives, and its cordon: its jobs go on elsewhere at once, also
// those that an earlier scheduler has left there. A node that comes again is a new one. The error wraps ErrUnknown
// if the scheduler knows neither the node nor jobs of it, which left says.
func (n *Nodes) GiveUp(ctx context.Context, name string, left bool) error {
	if !left && !n.knows(name) {
		return fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	if n.cfg.Cordons != nil {
		if err := n.cfg.Cordons.change(ctx, name, nil); err != nil {
			return err
		}
	}
	r := n.remote(name)
	if err := r.remove(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	if n.nodes[name] == r {
		delete(n.nodes, name)
	}
	n.mu.Unlock()
	n.changed()
	return nil
}

// ResumeNode has the cores of a node that are in a crash loop tried again, and reports whether there are any. A node
// that is not heard does so when it is.
func (n *Nodes) ResumeNode(name string) bool {
	n.mu.Lock()
	r := n.nodes[name]
	n.mu.Unlock()
	return r != nil && r.forgive()
}

// Has reports whether a core with that index is on a node.
func (n *Nodes) Has(index int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.places[index]
	return ok
}

// Restart replaces a core on a node; see supervisor.Supervisor.Restart.
func (n *Nodes) Restart(ctx context.Context, index int, drain bool) error {
	n.mu.Lock()
	at := n.places[index]
	n.mu.Unlock()
	if at.node == nil {
		return fmt.Errorf("there is no core %d", index)
	}
	s := at.node.session()
	if s == nil {
		return fmt.Errorf("node %s is not connected", at.node.name)
	}
	return s.ctl.Call(ctx, methodRestart, Restart{Place: at.place, Drain: drain}, nil)
}

// redact removes secrets from what a node tells.
func (n *Nodes) redact(text []byte) []byte {
	if n.cfg.Redact == nil {
		return text
	}
	return n.cfg.Redact(text)
}

// changed tells that the nodes have changed.
func (n *Nodes) changed() {
	if n.cfg.Changed != nil {
		n.cfg.Changed()
	}
}

// timeOfCall bounds what a node is asked while its words wait.
const timeOfCall = 20 * time.Second

// configure tells a core what it is to enforce.
func (n *Nodes) configure(ctx context.Context, c *supervisor.Core) error {
	ctx, cancel := context.WithTimeout(ctx, timeOfCall)
	defer cancel()
	return c.Call(ctx, ipc.MethodConfigure, forNode(n.cfg.Handler.Settings(c)), nil)
}

// forNode returns what of the settings concerns a node: what belongs to a host is its own, and what this one has is nothing
// for others.
func forNode(c ipc.Configure) ipc.Configure {
	bounds := map[job.WorkerKind]job.WorkerSettings{}
	for kind, w := range c.Workers {
		bounds[kind] = job.WorkerSettings{MaxConcurrent: w.MaxConcurrent}
	}
	c.Workers, c.RunLimits, c.Sandbox, c.Secrets, c.Watchdog, c.TrustFilters = bounds, ipc.RunLimits{}, ipc.Sandbox{}, nil, nil, false
	return c
}
