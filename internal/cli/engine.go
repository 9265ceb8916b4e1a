package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/telemetry"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/schedule"
	"github.com/agentsched/agentsched/worker"
)

// engine is an embedded scheduler with everything around it.
type engine struct {
	mu    sync.Mutex // guards cfg
	cfg   config.Config
	state *owned
	host  *proc.Host
	sched *scheduler.Scheduler
	nodes *node.Nodes // of a server that leads; else nil
	hooks *hooks
	// parcels are the folders of submitters.
	parcels *parcel.Keeper
	eval    *eval.Evaluator
	// triggers are those of a server; else nil.
	triggers *trigger.Runner
	env      []string // of this process
	// readConfig reads the configuration again, level says what the log's is then.
	readConfig func() (config.Config, error)
	level      func(*config.Log) (logging.Level, error)
	ended      chan struct{} // closed when run has returned
	// beside runs while the scheduler does, after the hooks and the listeners.
	beside    []daemon.Part
	listeners *listeners
	audit     *audit.Log   // nil: none is kept
	chain     *audit.Chain // joins it with the logs of others; nil: there are none
	telemetry *telemetry.Telemetry
	observers observers
	notifier  *daemon.Notifier // of a server; else nil

	// What waits for an occasion, such as an upgrade, and the context that ends it.
	waiting  sync.WaitGroup
	draining context.Context
}

// observers all hear of each moment.
type observers []scheduler.Observer

// Observe tells each of them.
func (o observers) Observe(m scheduler.Moment) {
	for _, one := range o {
		one.Observe(m)
	}
}

// newEngine builds the parts; nothing runs before engine.run.
func (runs *runner) newEngine(ctx context.Context, state *owned, cfg *config.Config, batch job.BatchID) (*engine, error) {
	command, err := runs.prog.coreProgram()
	if err != nil {
		return nil, err
	}
	tuning, err := tuning(cfg, state.dir.EnforcesSandbox())
	if err != nil {
		return nil, failure(err)
	}
	isolations, keepIsolations, err := scheduler.LoadIsolations(ctx, state.docs)
	if err != nil {
		return nil, usage(err)
	}
	var cordons *node.Cordons
	if batch == "" {
		if cordons, err = node.LoadCordons(ctx, state.docs); err != nil {
			return nil, usage(err)
		}
	}
	var also []job.BatchID
	if batch != "" {
		if also, err = submitted(ctx, state.store); err != nil {
			return nil, failure(err)
		}
	}
	instance := state.dir.Instance()
	host, err := runs.newHost(state)
	if err != nil {
		return nil, err
	}
	limitRuns(host, cfg, state.log)
	e := &engine{cfg: *cfg, state: state, host: host, parcels: parcel.NewKeeper(state.parcels, state.dir.Parcels()), env: runs.con.environ, readConfig: runs.rereadConfig, level: runs.local.level, ended: make(chan struct{})}
	if err := runs.watch(e); err != nil {
		return nil, errors.Join(err, e.close())
	}
	if e.listeners, err = runs.newListeners(ctx, e); err != nil {
		return nil, errors.Join(usage(err), e.close())
	}
	e.hooks = newHooks(e, e.newHook(cfg))
	e.observers = append(e.observers, endsOfFirings{e})
	e.eval = eval.New(eval.Config{Store: state.store, Settings: cfg.Evaluation, Changed: func(v eval.Verdict) { e.sched.Judge.TakeVerdict(v) }})
	lease, extend := scheduler.DefaultLease, time.Duration(0)
	if batch == "" {
		lease, extend = claimLease(cfg), extendEvery(cfg)
	}
	var keepFiles func(job.ID, int, *job.Outcome)
	var fileHere func(context.Context, job.Artifact) (job.Artifact, error)
	if state.artifacts != nil {
		keepFiles, fileHere = state.keepFiles, state.fileHere
	}
	e.sched = scheduler.New(scheduler.Config{
		Lease: lease, Extend: extend, Store: state.store, Batch: batch, Also: also, Instance: instance, Cores: cfg.Cores.Count,
		Isolations: isolations, KeepIsolations: keepIsolations, OnQuestion: e.hooks.Ask, Evaluator: e.eval, Observer: e.observers, Parcels: state.parcels, KeepFiles: keepFiles, FileHere: fileHere,
		Mirrors: func() []string { return travel.Names(state.dir.Mirrors(), node.MaxMirrors) },
		OnEscalation: func(x isolation.Escalation) {
			e.telemetry.Escalated(x)
			e.hooks.Tell(x)
		},
		Placement: schedule.Placement(cfg.Fleet.Placement), NodesOnly: batch == "" && !cfg.Fleet.Work, Traits: worker.AllTraits(runs.prog.adapters), NewPolicy: runs.prog.policies.make, Tuning: tuning, Log: state.log,
		Supervise: func(h supervisor.Handler) scheduler.Cores {
			local := runs.supervise(state, cfg, host, command, h)
			if batch != "" {
				return local
			}
			e.nodes, err = runs.newNodes(e, h, cordons)
			return &hosts{Supervisor: local, nodes: e.nodes}
		},
	})
	if err != nil {
		return nil, errors.Join(failure(err), e.close())
	}
	return e, nil
}

// supervise returns who keeps the cores of this host alive.
func (runs *runner) supervise(state *owned, cfg *config.Config, host *proc.Host, command []string, h supervisor.Handler) *supervisor.Supervisor {
	c := &cfg.Cores
	return supervisor.New(supervisor.Config{
		Command: command, Env: append(slices.Clone(runs.con.environ), "AGENTSCHED_LOG="+coreLevel(state.logs)), Host: host, Instance: state.dir.Instance(), StateDir: state.dir.Path(), Version: runs.prog.version,
		Cores: c.Count, MaxRSS: int64(c.MaxRSS), MaxCPU: c.MaxCPU, CPUFor: c.CPUFor.Std(), SlowHeartbeat: c.SlowHeartbeat.Std(),
		Intensity: supervisor.Intensity{Count: c.Restarts.Count, Within: c.Restarts.Within.Std(), Isolate: c.Restarts.Isolate.Std()},
		Crash:     state.keepCrash, Forget: state.removeTemp,
		Handler: h, Log: state.logs.For(logging.Supervisor), Stderr: state.logs.CoreLines(),
		Heartbeat: cfg.Heartbeat.Interval.Std(), HangAfter: cfg.Heartbeat.HangAfter.Std(),
		Stop: proc.Stages{Interrupt: cfg.Stop.Interrupt.Std(), Terminate: cfg.Stop.Terminate.Std(), Kill: cfg.Stop.Kill.Std()},
	})
}

// newHost prepares to own processes in the name of a state directory.
func (runs *runner) newHost(state *owned) (*proc.Host, error) {
	cgroup := "agentsched-" + string(state.dir.Instance())
	if runs.con.getenv("AGENTSCHED_NO_CGROUP") != "" {
		cgroup = ""
	}
	host, err := proc.NewHost(proc.Config{Tag: job.RunTagVariable, Cgroup: cgroup, Log: state.logs.For(logging.Process)})
	if err != nil {
		return nil, failure(fmt.Errorf("prepare to own processes: %w", err))
	}
	return host, nil
}

// limitRuns bounds all runs of all cores together, and says so where nobody can.
func limitRuns(host *proc.Host, cfg *config.Config, log zerolog.Logger) {
	t := cfg.Limits.Total
	err := host.LimitAll(proc.Limits{Memory: int64(t.Memory), Processes: t.Processes, CPU: t.CPU})
	if _, why := host.Enforces(); err == nil {
		err = why
	}
	if err != nil {
		log.Warn().Err(err).Msg("not every limit of runs can be enforced here; `scheduler doctor` says more")
	}
}

// coreLevel returns which lines the cores write: what is not wanted of them is left
// out where they come in, too.
func coreLevel(logs *logging.Logs) string {
	if level := logs.Level(logging.Core); level != logging.Off {
		return string(level)
	}
	return string(logging.Error)
}

// config returns what is in force.
func (e *engine) config() config.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cfg
}

// newHook returns what is told of escalations.
func (e *engine) newHook(cfg *config.Config) *daemon.Hook {
	x := &cfg.Escalation
	return daemon.NewHook(daemon.HookConfig{
		Command: x.Command, Webhook: x.Webhook, Timeout: x.Timeout.Std(), Run: daemon.Through(e.host, string(e.state.dir.Instance())+"/hook", e.env), Log: e.state.logs.For(logging.Hooks),
	})
}

// keepCrash writes the report of a core that died.
func (o *owned) keepCrash(r *supervisor.Report) {
	for _, text := range []*string{&r.Cause, &r.Exit, &r.LastWords, &r.Stderr, &r.Dump} {
		*text = o.secrets.String(*text)
	}
	if err := r.Write(o.dir.Crashes()); err != nil {
		o.log.Error().Err(err).Msg("the report of a core's crash is lost")
	}
}

// removeTemp removes the temporary files of runs that are dead; nil: of all.
func (o *owned) removeTemp(tags []string) {
	if err := o.dir.RemoveTemp(tags); err != nil {
		o.log.Warn().Err(err).Msg("temporary files stay behind")
	}
}

// run works until the scheduler's end, showing what happens.
//
//	scheduler ── the loop; its end is the run's end
//	beside    ── as soon as that has taken back what an earlier scheduler held;
//	             rest for one, in this order:
//	             hooks     tell of escalations, the last of them after the scheduler's end
//	             listeners the socket, on which is listened from the beginning, and TCP:
//	                       for other processes and browsers
//	             what `serve` adds: upkeep, dead letters, triggers, sign of life
//	view      ── shows updates until the scheduler has ended
func (e *engine) run(ctx context.Context, view terminal.View) error {
	defer close(e.ended)
	draining, giveUp := context.WithCancel(ctx)
	e.draining = draining
	defer e.waiting.Wait()
	defer giveUp()
	e.listeners.listen()
	defer e.listeners.unlisten()
	side, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	updates, unsubscribe := e.sched.Feed.Subscribe(64 << 10)
	var g run.Group
	var result error
	g.Add(func() error {
		result = e.sched.Run(ctx)
		stopSide()
		unsubscribe()
		return result
	}, func(error) {})
	g.Add(func() error {
		select {
		case <-e.sched.Begun():
		case <-side.Done(): // what has something to do at the end does it
		}
		parts := append([]daemon.Part{{Name: "hooks", Run: e.hooks.run}, {Name: "listeners", Run: e.listeners.serve}}, e.beside...)
		err := daemon.RunParts(side, parts, e.state.log)
		if side.Err() == nil {
			// The jobs go on; only what is around them does not.
			e.state.log.Error().Err(err).Msg("a supporting service (API, hooks, triggers) failed")
			e.sched.Feed.Tell(fmt.Sprintf("jobs go on, but a supporting service (API, hooks, triggers) failed: %v", err))
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

// anchorEvery is how often the end of the audit log is written into the other log, and
// anchorTime how long it may take to exchange it with other hosts.
const (
	anchorEvery = time.Minute
	anchorTime  = 10 * time.Second
)

// anchor writes down where the audit log ends, as often as that, and where those of
// other hosts do: a log that was cut since then is found out by it.
func (e *engine) anchor(ctx context.Context) error {
	log := e.state.logs.For(logging.Audit)
	tick := time.NewTicker(anchorEvery)
	defer tick.Stop()
	tokens := tokensSeen{}
	for first := true; ; first = false {
		tokens.note(ctx, e, first)
		if e.chain != nil {
			e.joinChain(ctx, log, e.chain.Join)
		}
		log.Info().Stringer("head", e.audit.Head()).Msg("the audit log goes up to here")
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// joinChain exchanges the end of the audit log with other hosts.
func (e *engine) joinChain(ctx context.Context, log zerolog.Logger, exchange func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, anchorTime)
	defer cancel()
	if err := exchange(ctx); err != nil && !errors.Is(err, context.Canceled) {
		log.Error().Err(err).Msg("the audit log is not joined with those of other hosts")
	}
}

// watch opens the audit log, the metrics and the traces.
func (runs *runner) watch(e *engine) (err error) {
	cfg := &e.cfg
	if cfg.Audit.Enabled {
		log := e.state.logs.For(logging.Audit)
		e.audit, err = audit.Open(e.state.dir.Audit(), audit.Options{
			MaxSize: int64(cfg.Audit.MaxSize), Keep: cfg.Audit.Keep + 1, Redact: e.state.secrets,
			Failed: func(err error, lost int64) { log.Error().Err(err).Int64("lost", lost).Msg("records are missing") },
		})
		if err != nil {
			return usage(fmt.Errorf("open the audit log: %w", err))
		}
		if e.state.shared {
			e.chain = audit.NewChain(e.audit, e.state.docs, e.state.dir.Instance())
		}
		e.observers = append(e.observers, audit.NewObserver(e.audit))
		e.beside = append(e.beside, daemon.Part{Name: "audit log's anchor", Run: e.anchor})
	}
	e.telemetry, err = telemetry.New(telemetry.Config{
		Log: e.state.logs.For(logging.Telemetry), Version: runs.prog.version, Store: e.state.store, Redact: e.state.secrets.String,
		Status: func() scheduler.Status { return e.sched.Status() }, Nodes: e.nodesNow,
		OTLP: telemetry.OTLP{Endpoint: cfg.Telemetry.OTLP.Endpoint, Headers: cfg.Telemetry.OTLP.Headers},
	})
	if err != nil {
		return usage(fmt.Errorf("telemetry: %w", err))
	}
	e.observers = append(e.observers, e.telemetry)
	return nil
}

// tracesTime is how long the last traces may take to be sent.
const tracesTime = 5 * time.Second

// close ends what the engine has begun, in the opposite order.
func (e *engine) close() error {
	var errs []error
	if e.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), tracesTime)
		defer cancel()
		errs = append(errs, e.telemetry.Shutdown(ctx))
	}
	if e.audit != nil {
		errs = append(errs, e.audit.Close())
		log := e.state.logs.For(logging.Audit)
		log.Info().Stringer("head", e.audit.Head()).Msg("the audit log ends here")
		if e.chain != nil {
			e.joinChain(context.Background(), log, e.chain.Publish)
		}
	}
	if e.listeners != nil {
		e.listeners.giveBack()
	}
	errs = append(errs, e.host.Close())
	err := errors.Join(errs...)
	if err != nil {
		e.state.log.Error().Err(err).Msg("stop the supporting services")
	}
	return err
}
