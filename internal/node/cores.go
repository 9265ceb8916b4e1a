package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// cores is a Node as its supervisor's handler.
type cores Node

// Settings implements supervisor.Handler.
func (h *cores) Settings(*supervisor.Core) ipc.Configure {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settings
}

// CoreUp implements supervisor.Handler.
func (h *cores) CoreUp(c *supervisor.Core) {
	n := (*Node)(h)
	n.mu.Lock()
	n.lives[c.Index()]++
	mine := &core{Core: c, life: n.lives[c.Index()]}
	n.cores[c.Index()] = mine
	n.mu.Unlock()
	n.cfg.Log.Info().Int("core", c.Index()).Int("core_pid", c.PID()).Str("version", c.Info.Version).Msg("agentcore is up")
	n.note(mine, noteUp, CoreUp{Place: c.Index(), Life: mine.life, PID: c.PID(), Info: c.Info})
}

// note tells something of ours about a core, or about a run that it was given.
func (n *Node) note(c *core, method string, params any) {
	data, err := json.Marshal(params)
	if err != nil {
		n.cfg.Log.Error().Err(err).Str("method", method).Msg("a note cannot be written")
		return
	}
	x := Note{Place: c.Index(), Life: c.life, Method: method, Params: data}
	n.tell(x, notedOf(&x))
}

// CoreNotify implements supervisor.Handler. What is about runs, and what happened, goes through the
// spool; how a core fares is only of interest now.
func (h *cores) CoreNotify(c *supervisor.Core, method string, params json.RawMessage) {
	n := (*Node)(h)
	mine := n.core(c.Index())
	if mine == nil || mine.Core != c {
		return
	}
	if method == ipc.NotifyMetrics {
		if s := n.welcomed(); s != nil {
			s.metrics(mine, params)
		}
		return
	}
	x := Note{Place: c.Index(), Life: mine.life, Method: method, Params: params}
	about := notedOf(&x)
	ended := about.run != (run{}) && about.event == 0
	if ended {
		n.ledger.end(about.run)
		select { // it may have left a mirror, or found that its login is over
		case n.ended <- struct{}{}:
		default:
		}
	}
	if n.tell(x, about); ended {
		n.emptied(mine)
	}
}

// emptied says so if a core that is to be replaced has no run any more.
func (n *Node) emptied(c *core) {
	n.mu.Lock()
	draining := c.draining
	n.mu.Unlock()
	if draining && len(n.ledger.on(c.Index(), c.life)) == 0 {
		c.Drained()
	}
}

// askedAgain are the methods that a core asks by which have the same answer twice.
var askedAgain = []string{ipc.MethodStoreStep, ipc.MethodListSteps, ipc.MethodSharePermit, ipc.MethodReturnPermit, ipc.MethodReserve, ipc.MethodRelease}

// CoreCall implements supervisor.Handler: it asks the scheduler, and waits for one while there is none. Some things are
// asked again if a link ends before the answer.
func (h *cores) CoreCall(ctx context.Context, c *supervisor.Core, method string, params json.RawMessage) (any, error) {
	n := (*Node)(h)
	for {
		s, err := n.await(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoScheduler, err)
		}
		var result json.RawMessage
		err = s.peers[c.Index()].Call(ctx, method, params, &result)
		var own *ipc.Error
		switch {
		case err == nil:
			return result, nil
		case errors.As(err, &own) || ctx.Err() != nil || !slices.Contains(askedAgain, method) || s.link.Err() == nil:
			return nil, err
		}
		n.leave(s)
	}
}

// RenewPermits implements supervisor.Handler.
func (h *cores) RenewPermits() bool { return (*Node)(h).leased() }

// PermitsLapsed implements supervisor.Lapser: a host that stood still finds its lease over when it goes on.
func (h *cores) PermitsLapsed() bool {
	n := (*Node)(h)
	n.mu.Lock()
	validity := n.settings.PermitValidity.Std()
	n.mu.Unlock()
	return validity > 0 && n.silence() > time.Duration(n.lease.Load())+validity
}

// CoreDraining implements supervisor.Handler.
func (h *cores) CoreDraining(c *supervisor.Core, why string, wait bool) {
	n := (*Node)(h)
	mine := n.core(c.Index())
	if mine == nil || mine.Core != c {
		c.Drained()
		return
	}
	n.mu.Lock()
	mine.draining = true
	n.mu.Unlock()
	n.note(mine, noteDraining, CoreDraining{Place: c.Index(), Life: mine.life, Why: why, Wait: wait})
	n.emptied(mine)
}

// CoreRuns implements supervisor.Handler.
func (h *cores) CoreRuns(c *supervisor.Core) (tags []string) {
	n := (*Node)(h)
	mine := n.core(c.Index())
	if mine == nil || mine.Core != c {
		return nil
	}
	for _, r := range n.ledger.on(c.Index(), mine.life) {
		tags = append(tags, job.RunTag(n.cfg.Instance, r.job, r.attempt))
	}
	return tags
}

// CoreDown implements supervisor.Handler.
func (h *cores) CoreDown(c *supervisor.Core, cause error) {
	n := (*Node)(h)
	n.mu.Lock()
	mine := n.cores[c.Index()]
	if mine == nil || mine.Core != c {
		n.mu.Unlock()
		return
	}
	delete(n.cores, c.Index())
	n.mu.Unlock()
	n.note(mine, noteDown, CoreDown{Place: c.Index(), Life: mine.life, Cause: cause.Error(), Replaced: errors.Is(cause, supervisor.ErrReplaced) || n.ending.Load()})
	n.ledger.down(c.Index(), mine.life)
}

// CoreFailed implements supervisor.Handler.
func (h *cores) CoreFailed(index int, cause error) {
	h.cfg.Log.Error().Err(cause).Int("core", index).Msg("agentcore did not come up, another is tried")
}

// CoreIsolated implements supervisor.Handler. The scheduler isolates a node all of whose cores are.
func (h *cores) CoreIsolated(index int, until time.Time, cause error) {
	n := (*Node)(h)
	x := CoreIsolated{Place: index}
	n.mu.Lock()
	if until.IsZero() {
		delete(n.isolated, index)
		n.cfg.Log.Info().Int("core", index).Msg("agentcore is tried again after its isolation")
	} else {
		x.For, x.Cause = job.Duration(max(time.Until(until), 1)), cause.Error()
		x.Cause = clip(x.Cause)
		n.isolated[index] = isolatedCore{until, x.Cause}
		n.cfg.Log.Error().Err(cause).Int("core", index).Time("until", until).Msg("agentcore is in a crash loop and isolated")
	}
	n.mu.Unlock()
	data, err := json.Marshal(x)
	if err != nil {
		n.cfg.Log.Error().Err(err).Msg("a note cannot be written")
		return
	}
	n.tell(Note{Place: index, Method: noteIsolated, Params: data}, noted{})
}

// clip shortens a text to what may be told of a node.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "")
}
