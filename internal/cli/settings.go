package cli

import (
	"encoding/json"
	"math/rand/v2"
	"path/filepath"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// tuning returns what a scheduler and its cores take from the configuration,
// and take over from a changed one while they run.
func tuning(cfg *config.Config) (scheduler.Tuning, error) {
	watch, err := json.Marshal(cfg.WatchdogConfig())
	if err != nil {
		return scheduler.Tuning{}, err
	}
	breakers, err := json.Marshal(cfg.BreakerConfig())
	if err != nil {
		return scheduler.Tuning{}, err
	}
	retry, err := cfg.RetryPolicy(rand.Float64)
	if err != nil {
		return scheduler.Tuning{}, err
	}
	return scheduler.Tuning{
		Retry: retry,
		Settings: ipc.Configure{
			Workers: workerSettings(cfg), Prices: cfg.Prices, MaxConcurrent: cfg.Concurrency.Max, Limits: limits(cfg),
			Stop:      ipc.Stages{Interrupt: cfg.Stop.Interrupt, Terminate: cfg.Stop.Terminate, Kill: cfg.Stop.Kill},
			RunLimits: ipc.RunLimits{Each: resources(cfg.Limits.Each()), Total: resources(cfg.Limits.Total)},
			Watchdog:  watch, Breaker: breakers,
			TrustFilters: cfg.Workspace.TrustFilters, PermitValidity: cfg.Heartbeat.PermitValidity,
		},
		Policy: cfg.Policy, Expect: cfg.Expect,
		StopOnSafeStop: cfg.Escalation.SafeStop == config.StopRuns,
	}, nil
}

// workerSettings returns the kinds that the configuration says something about,
// each with its bound wherever that stands.
func workerSettings(cfg *config.Config) map[job.WorkerKind]job.WorkerSettings {
	workers := map[job.WorkerKind]job.WorkerSettings{}
	for kind, w := range cfg.Workers {
		w.MaxConcurrent = cfg.WorkerLimit(kind)
		workers[kind] = w
	}
	for kind := range cfg.Concurrency.PerWorker {
		w := workers[kind]
		w.MaxConcurrent = cfg.WorkerLimit(kind)
		workers[kind] = w
	}
	return workers
}

func resources(r config.Resources) ipc.Resources {
	return ipc.Resources{Memory: int64(r.Memory), Processes: r.Processes, CPU: r.CPU}
}

func limits(cfg *config.Config) ipc.Limits {
	l := ipc.Limits{
		PerTenant: cfg.Concurrency.PerTenant, EachTenant: cfg.Concurrency.EachTenant,
		PerWorkspace: map[string]int{}, EachWorkspace: cfg.Concurrency.EachWorkspace,
		WorkerRates: map[job.WorkerKind]ipc.Rate{}, ModelRates: map[string]ipc.Rate{},
	}
	for path, n := range cfg.Concurrency.PerWorkspace {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		l.PerWorkspace[filepath.Clean(path)] = n
	}
	for kind, r := range cfg.Rates.Workers {
		l.WorkerRates[kind] = ipc.Rate(r)
	}
	for model, r := range cfg.Rates.Models {
		l.ModelRates[model] = ipc.Rate(r)
	}
	for _, w := range cfg.CostWindows {
		l.CostWindows = append(l.CostWindows, ipc.CostWindow{Tenant: w.Tenant, Window: w.Window, MaxUSD: w.MaxUSD})
	}
	return l
}
