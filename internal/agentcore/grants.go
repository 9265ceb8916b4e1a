package agentcore

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// grants are the entries of a network that people have allowed a run beside those of its job. They may change before the
// run's network is open, and while it is.
type grants struct {
	full bool // the run may reach all hosts without them

	mu      sync.Mutex // guards what follows
	entries []string
	held    *Confinement // nil before the network is open, and if no sandbox holds the run
	unheld  bool         // no sandbox holds the run
}

func (g *grants) list() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.entries)
}

// serve has c, which has granted the entries so far, grant what is allowed from now on; a nil c means that no sandbox
// holds the run.
func (g *grants) serve(c *Confinement, granted []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held, g.unheld = c, c == nil; c != nil && c.proxy != nil && !slices.Equal(g.entries, granted) {
		c.grant(g.entries)
	}
}

// set replaces what is allowed. It reports whether that holds for the run; changed is false if it did before.
func (g *grants) set(entries []string) (applied, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full || g.unheld {
		return false, false
	}
	if slices.Equal(g.entries, entries) {
		return true, false
	}
	g.entries = slices.Clone(entries)
	if g.held != nil && g.held.proxy != nil {
		g.held.grant(g.entries)
	}
	return true, true
}

func (c *Core) setGrants(_ context.Context, r ipc.SetGrants) (ipc.SetGrantsResult, error) {
	s, _, err := c.ready()
	if err != nil {
		return ipc.SetGrantsResult{}, err
	}
	c.mu.Lock()
	e := c.live[job.RunTag(s.instance, r.Job, r.Attempt)]
	c.mu.Unlock()
	if e == nil {
		return ipc.SetGrantsResult{}, nil
	}
	applied, changed := e.grants.set(r.Granted)
	if changed {
		text := "a person allowed no more hosts than those of the job's network"
		if len(r.Granted) > 0 {
			text = "a person allowed, besides the job's network: " + strings.Join(r.Granted, ", ")
		}
		e.emit(job.Event{Kind: job.EventLog, Text: text})
	}
	return ipc.SetGrantsResult{Applied: applied}, nil
}
