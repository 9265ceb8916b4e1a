package cli

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
)

// hosts are this host's cores and those of nodes, as one.
type hosts struct {
	*supervisor.Supervisor
	nodes *node.Nodes
}

var (
	_ scheduler.Cores       = (*hosts)(nil)
	_ scheduler.NodeResumer = (*hosts)(nil)
)

// Run keeps the cores of this host and takes nodes until ctx ends, or no core of this host starts.
func (h *hosts) Run(ctx context.Context) error {
	taking, stop := context.WithCancelCause(ctx)
	var nodes sync.WaitGroup
	nodes.Go(func() { h.nodes.Run(taking) }) //nolint:errcheck // it ends when it is told to
	err := h.Supervisor.Run(ctx)
	stop(err)
	nodes.Wait()
	return err
}

// Reconfigure implements scheduler.Cores.
func (h *hosts) Reconfigure(ctx context.Context) error {
	return errors.Join(h.Supervisor.Reconfigure(ctx), h.nodes.Reconfigure(ctx))
}

// Restart implements scheduler.Cores.
func (h *hosts) Restart(ctx context.Context, index int, drain bool) error {
	if h.nodes.Has(index) {
		return h.nodes.Restart(ctx, index, drain)
	}
	return h.Supervisor.Restart(ctx, index, drain)
}

// ResumeNode implements scheduler.NodeResumer.
func (h *hosts) ResumeNode(name string) bool { return h.nodes.ResumeNode(name) }

// Cores implements scheduler.Cores.
func (h *hosts) Cores() []supervisor.Status { return append(h.Supervisor.Cores(), h.nodes.Cores()...) }

// newNodes returns who takes nodes for an engine.
func (runs *runner) newNodes(e *engine, h supervisor.Handler, cordons *node.Cordons) (*node.Nodes, error) {
	state := e.state
	return node.NewNodes(node.NodesConfig{
		Handler: h.(supervisor.AwayHandler), Version: runs.prog.version, Instance: state.dir.Instance(), Log: state.logs.For(logging.Nodes),
		Lease: e.cfg.Fleet.NodeLease.Std(), First: config.MaxCores, Cordons: cordons,
		LostAfter: func() time.Duration {
			cfg := e.config()
			cfg.Fleet.NodeLease = e.cfg.Fleet.NodeLease // as the nodes were told
			return leaseOf(&cfg).Lost()
		},
		Attempt: state.dir.Attempt,
		Redact:  func(text []byte) []byte { return []byte(state.secrets.String(string(text))) },
	})
}

// nodesNow tells how the nodes fare; nil where none is taken.
func (e *engine) nodesNow() []node.Status {
	if e.nodes == nil {
		return nil
	}
	return e.nodes.Status()
}

// takeNode answers a node that asks for a link. Its name is that of its token.
func (e *engine) takeNode(w http.ResponseWriter, r *http.Request) {
	p, _ := access.From(r.Context())
	if err := e.nodes.Accept(w, r, p.Name); err != nil {
		log := e.state.logs.For(logging.Nodes)
		log.Warn().Err(err).Str("node", p.Name).Msg("a node was refused")
	}
}
