package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"github.com/oklog/run"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/watchdog"
)

// engine is an embedded scheduler with everything around it.
type engine struct {
	state *owned
	host  *proc.Host
	sched *scheduler.Scheduler
	ended chan struct{} // closed when run has returned
}

// newEngine builds the parts; nothing runs before engine.run.
func (m *Main) newEngine(state *owned, cfg *config.Config, batch job.BatchID) (*engine, error) {
	command, err := m.coreProgram()
	if err != nil {
		return nil, err
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
	stages := ipc.Stages{Interrupt: cfg.Stop.Interrupt, Terminate: cfg.Stop.Terminate, Kill: cfg.Stop.Kill}
	workers := map[job.WorkerKind]job.WorkerSettings{}
	perKind := map[job.WorkerKind]int{}
	for kind, w := range cfg.Workers {
		w.MaxConcurrent = cfg.WorkerLimit(kind)
		workers[kind] = w
	}
	for kind := range cfg.Concurrency.PerWorker {
		w := workers[kind]
		w.MaxConcurrent = cfg.WorkerLimit(kind)
		workers[kind] = w
	}
	for kind, w := range workers {
		perKind[kind] = w.MaxConcurrent
	}
	watching := watchdog.Default()
	watching.Stall.After, watching.Repetition.Calls = cfg.Watchdog.StallAfter, cfg.Watchdog.RepeatedCalls
	watch, err := json.Marshal(watching)
	if err != nil {
		return nil, failure(err)
	}
	e := &engine{state: state, host: host, ended: make(chan struct{})}
	e.sched = scheduler.New(scheduler.Config{
		Store: state.store, Batch: batch, Holder: fmt.Sprintf("scheduler-%d", os.Getpid()),
		Retry: policy.NewRetry(cfg.Retry.Base.Std(), cfg.Retry.Max.Std(), rand.Float64),
		Slots: cfg.Concurrency.Max, PerKind: perKind, Log: state.log,
		Supervise: func(h supervisor.Handler) *supervisor.Supervisor {
			return supervisor.New(supervisor.Config{
				Command: command, Env: append(slices.Clone(m.environ), "AGENTSCHED_LOG="+m.logLevel), Host: host, Instance: instance, StateDir: state.dir.Path(), Version: m.version,
				Settings: ipc.Configure{Workers: workers, Prices: cfg.Prices, MaxConcurrent: cfg.Concurrency.Max, Stop: stages, Watchdog: watch},
				Handler:  h, Log: state.log, Stderr: &lineWriter{w: state.file},
				Heartbeat: cfg.Heartbeat.Interval.Std(), HangAfter: cfg.Heartbeat.HangAfter.Std(),
				Stop: proc.Stages{Interrupt: cfg.Stop.Interrupt.Std(), Terminate: cfg.Stop.Terminate.Std(), Kill: cfg.Stop.Kill.Std()},
			})
		},
	})
	return e, nil
}

// run works until the scheduler's end, showing what happens.
//
//	scheduler ── the loop; its end is the run's end
//	server    ── the socket for ls, show, cancel of other processes
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
		err := server.New(e.state.store, e.sched, e.state.log).Serve(side, e.state.dir.Socket())
		if side.Err() == nil {
			// The jobs go on; only other processes cannot reach them.
			e.state.log.Error().Err(err).Msg("the socket does not work")
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
