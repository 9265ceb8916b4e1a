package cli

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/fleet"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// together is what the listeners of one of several schedulers have besides.
type together struct {
	self  api.FleetMember
	fleet func(context.Context) (api.Fleet, error)
	peers *fleet.Peers    // how the others ask this one,
	at    *fleet.Listener // and where; it outlasts the engines that serve it
	pass  *fleet.Pass     // while this one stands by; nil: it leads
}

// standsBy returns what a server needs that stands by; false: it leads, or works alone.
func (t *together) standsBy() (server.Standby, bool) {
	if t == nil || t.pass == nil {
		return server.Standby{}, false
	}
	return server.Standby{Pass: t.pass, Fresh: t.pass.Fresh}, true
}

// self is what this scheduler is called.
func (d *listeners) self() api.FleetMember {
	if d.together != nil {
		return d.together.self
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // then it has none
	}
	cfg := d.e.config()
	return api.FleetMember{Instance: string(d.e.state.dir.Instance()), Host: host, Version: d.runs.prog.version, Config: configHash(&cfg)}
}

// newStandby builds what a scheduler needs that stands by: the listeners, with what looks
// on, over a copy of the queue. Nothing runs before engine.standBy; close ends it.
func (runs *runner) newStandby(ctx context.Context, state *owned, cfg *config.Config, copied *sqlite.Store, t *together) (*engine, error) {
	host, err := runs.newHost(state)
	if err != nil {
		return nil, err
	}
	reads := *state
	reads.store = copied
	e := &engine{
		cfg: *cfg, state: &reads, host: host, env: runs.con.environ, readConfig: runs.rereadConfig, level: runs.local.level, ended: make(chan struct{}),
		sched: scheduler.Standby(copied),
	}
	if err := runs.watch(e); err != nil {
		return nil, errors.Join(err, e.close())
	}
	if e.listeners, err = runs.newListeners(ctx, e); err != nil {
		return nil, errors.Join(usage(err), e.close())
	}
	e.listeners.together = t
	if err := e.listeners.prepare(); err != nil {
		return nil, errors.Join(usage(err), e.close())
	}
	return e, nil
}

// standBy answers at the doors until ctx ends. Before it closes the sockets it keeps them
// for the engine that comes next in this process: who connects meanwhile waits for that.
func (e *engine) standBy(ctx context.Context) (kept map[string]daemon.Inherited, err error) {
	defer close(e.ended)
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var handover *daemon.Handover
	over := make(chan struct{})
	var keeping sync.WaitGroup
	keeping.Go(func() {
		select {
		case <-over: // the listeners have failed
			return
		case <-ctx.Done():
		}
		if errors.Is(context.Cause(ctx), errInterrupted) { // nobody comes after this
			stop(errInterrupted)
			return
		}
		var failed error
		if handover, failed = daemon.Pass(e.listeners.all()); failed != nil {
			e.state.log.Warn().Err(failed).Msg("who connects before this scheduler leads is refused")
		}
		stop(context.Cause(ctx))
	})
	err = daemon.RunParts(serving, append([]daemon.Part{{Name: "listeners", Run: e.listeners.serve}}, e.beside...), e.state.log)
	close(over)
	keeping.Wait()
	if handover == nil {
		return nil, err
	}
	defer handover.Release()
	return handover.Listeners()
}
