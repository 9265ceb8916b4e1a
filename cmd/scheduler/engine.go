package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/oklog/run"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/crashlog"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/hook"
	"github.com/agentsched/agentsched/internal/parts"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
)

// engine is an embedded scheduler with everything around it.
type engine struct {
	mu    sync.Mutex // guards cfg
	cfg   config.Config
	state *owned
	host  *proc.Host
	sched *scheduler.Scheduler
	hooks *hooks
	eval  *eval.Evaluator
	// triggers are those of a server; else nil.
	triggers *trigger.Runner
	env      []string      // of this process
	ended    chan struct{} // closed when run has returned
	// beside runs while the scheduler does, after the hooks and the socket.
	beside []parts.Part
}

// newEngine builds the parts; nothing runs before engine.run.
func (m *Main) newEngine(ctx context.Context, state *owned, cfg *config.Config, batch job.BatchID) (*engine, error) {
	command, err := m.coreProgram()
	if err != nil {
		return nil, err
	}
	tuning, err := tuning(cfg)
	if err != nil {
		return nil, failure(err)
	}
	isolations, err := scheduler.LoadIsolations(state.dir.Isolations())
	if err != nil {
		return nil, usage(err)
	}
	var also []job.BatchID
	if batch != "" {
		if also, err = submitted(ctx, state.store); err != nil {
			return nil, failure(err)
		}
	}
	instance := state.dir.Instance()
	cgroup := "agentsched-" + string(instance)
	if m.getenv("AGENTSCHED_NO_CGROUP") != "" {
		cgroup = ""
	}
	host, err := proc.NewHost(proc.Config{Tag: job.RunTagVariable, Cgroup: cgroup, Log: state.log})
	if err != nil {
		return nil, failure(fmt.Errorf("prepare to own processes: %w", err))
	}
	e := &engine{cfg: *cfg, state: state, host: host, env: m.environ, ended: make(chan struct{})}
	e.hooks = newHooks(e.newHook(cfg))
	e.eval = eval.New(eval.Config{Store: state.store, Journal: state.store, Settings: cfg.Evaluation, Changed: func(v eval.Verdict) { e.sched.TakeVerdict(v) }})
	e.sched = scheduler.New(scheduler.Config{
		Store: state.store, Batch: batch, Also: also, Holder: fmt.Sprintf("scheduler-%d", os.Getpid()), Instance: instance, Cores: cfg.Cores.Count,
		Isolations: isolations, IsolationsFile: state.dir.Isolations(), OnEscalation: e.hooks.Tell, OnQuestion: e.hooks.Ask, Evaluator: e.eval,
		NewPolicy: m.policies.make, Tuning: tuning, Log: state.log,
		Supervise: func(h supervisor.Handler) *supervisor.Supervisor {
			c := &cfg.Cores
			return supervisor.New(supervisor.Config{
				Command: command, Env: append(slices.Clone(m.environ), "AGENTSCHED_LOG="+m.logLevel), Host: host, Instance: instance, StateDir: state.dir.Path(), Version: m.version,
				Cores: c.Count, MaxRSS: int64(c.MaxRSS), MaxCPU: c.MaxCPU, CPUFor: c.CPUFor.Std(), SlowHeartbeat: c.SlowHeartbeat.Std(),
				Intensity: supervisor.Intensity{Count: c.Restarts.Count, Within: c.Restarts.Within.Std(), Isolate: c.Restarts.Isolate.Std()},
				Crash:     e.keepCrash, Forget: e.removeTemp,
				Handler: h, Log: state.log, Stderr: &lineWriter{w: state.file},
				Heartbeat: cfg.Heartbeat.Interval.Std(), HangAfter: cfg.Heartbeat.HangAfter.Std(),
				Stop: proc.Stages{Interrupt: cfg.Stop.Interrupt.Std(), Terminate: cfg.Stop.Terminate.Std(), Kill: cfg.Stop.Kill.Std()},
			})
		},
	})
	return e, nil
}

// config returns what is in force.
func (e *engine) config() config.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cfg
}

// newHook returns what is told of escalations.
func (e *engine) newHook(cfg *config.Config) *hook.Hook {
	x := &cfg.Escalation
	return hook.New(hook.Config{
		Command: x.Command, Webhook: x.Webhook, Timeout: x.Timeout.Std(), Run: hook.Through(e.host, string(e.state.dir.Instance())+"/hook", e.env), Log: e.state.log,
	})
}

// keepCrash writes the report of a core that died.
func (e *engine) keepCrash(r crashlog.Report) {
	if err := crashlog.Write(e.state.dir.Crashes(), r); err != nil {
		e.state.log.Error().Err(err).Msg("the report of a core's crash is lost")
	}
}

// removeTemp removes the temporary files of runs that are dead; nil: of all.
func (e *engine) removeTemp(tags []string) {
	if err := e.state.dir.RemoveTemp(tags); err != nil {
		e.state.log.Warn().Err(err).Msg("temporary files stay behind")
	}
}

// run works until the scheduler's end, showing what happens.
//
//	scheduler ── the loop; its end is the run's end
//	beside    ── rest for one, in this order:
//	             hooks    tell of escalations, the last of them after the scheduler's end
//	             socket   for ls, show, cancel of other processes
//	             what `serve` adds: upkeep, dead letters, triggers
//	view      ── shows updates until the scheduler has ended
func (e *engine) run(ctx context.Context, view progress.View) error {
	defer close(e.ended)
	side, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	updates, unsubscribe := e.sched.Subscribe(64 << 10)
	var g run.Group
	var result error
	g.Add(func() error {
		result = e.sched.Run(ctx)
		stopSide()
		unsubscribe()
		return result
	}, func(error) {})
	g.Add(func() error {
		beside := parts.Group{Log: e.state.log, Parts: append([]parts.Part{{Name: "hooks", Run: e.hooks.run}, {Name: "socket", Run: e.serveSocket}}, e.beside...)}
		err := beside.Run(side)
		if side.Err() == nil {
			// The jobs go on; only what is around them does not.
			e.state.log.Error().Err(err).Msg("what is around the scheduler does not work")
			e.sched.Tell(fmt.Sprintf("jobs go on, but what is around them does not work: %v", err))
			<-side.Done()
		}
		return err
	}, func(error) {})
	g.Add(func() error {
		for u := range updates {
			view.Show(u)
		}
		view.Done()
		return nil
	}, func(error) {})
	g.Run()
	return result
}

// serveSocket lets other processes ask and tell.
func (e *engine) serveSocket(ctx context.Context) error {
	door := server.New(e.state.store, e.sched, e.state.log)
	door.TakeEvaluations(e.eval)
	if e.triggers != nil {
		door.ShowTriggers(e.triggers.Status)
	}
	return door.Serve(ctx, e.state.dir.Socket())
}

func (e *engine) close() error {
	if err := e.host.Close(); err != nil {
		e.state.log.Error().Err(err).Msg("close the process host")
		return err
	}
	return nil
}

// lineWriter lets the core's log lines and our own go into one file.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
