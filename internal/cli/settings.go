package cli

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// tuning returns what a scheduler and its cores take from the configuration,
// and take over from a changed one while they run. enforces is whether runs are held
// where the configuration says nothing of that.
func tuning(cfg *config.Config, enforces bool) (scheduler.Tuning, error) {
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
			Workers: workerSettings(cfg), Prices: cfg.Prices, MaxConcurrent: cfg.Concurrency.Max, Limits: limits(cfg, workspace.NewResolver(nil, nil)),
			Stop:      ipc.Stages{Interrupt: cfg.Stop.Interrupt, Terminate: cfg.Stop.Terminate, Kill: cfg.Stop.Kill},
			RunLimits: ipc.RunLimits{Each: resources(cfg.Limits.Each()), Total: resources(cfg.Limits.Total)},
			Watchdog:  watch, Breaker: breakers,
			TrustFilters: cfg.Workspace.TrustFilters, PermitValidity: cfg.Heartbeat.PermitValidity,
			Sandbox: sandboxSettings(cfg.Sandbox, enforces), Secrets: secretSettings(cfg.Secrets),
		},
		Rates:  rates(cfg),
		Policy: cfg.Policy, Expect: cfg.Expect,
		Children:       scheduler.ChildBounds{Depth: cfg.Children.MaxDepth, Each: cfg.Children.MaxJobs, Workers: cfg.Children.Workers},
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

// limits returns what the cores are to enforce. folders finds the real paths of folders
// that have limits; of two names for one folder the stricter limit holds.
func limits(cfg *config.Config, folders *workspace.Resolver) ipc.Limits {
	l := ipc.Limits{
		PerTenant: cfg.Concurrency.PerTenant, EachTenant: cfg.Concurrency.EachTenant,
		PerWorkspace: map[string]int{}, EachWorkspace: cfg.Concurrency.EachWorkspace,
	}
	paths := slices.Sorted(maps.Keys(cfg.Concurrency.PerWorkspace))
	folders.Know(paths)
	for _, path := range paths {
		n := cfg.Concurrency.PerWorkspace[path]
		real, _ := folders.Get(path) // one that hangs keeps no scheduler from starting, or from being reloaded
		if have, twice := l.PerWorkspace[real]; twice && have > 0 && (n == 0 || have < n) {
			n = have
		}
		l.PerWorkspace[real] = n
	}
	for _, w := range cfg.CostWindows {
		l.CostWindows = append(l.CostWindows, ipc.CostWindow{Tenant: w.Tenant, Window: w.Window, MaxUSD: w.MaxUSD})
	}
	return l
}

// rates returns what all cores keep to together.
func rates(cfg *config.Config) scheduler.Rates {
	r := scheduler.Rates{Workers: map[job.WorkerKind]permit.Rate{}, Models: map[string]permit.Rate{}, Requests: map[string]permit.RequestRate{}}
	for kind, of := range cfg.Rates.Workers {
		r.Workers[kind] = permit.Rate(of)
	}
	for model, of := range cfg.Rates.Models {
		r.Models[model] = permit.Rate(of)
	}
	for model, of := range cfg.Rates.Requests {
		r.Requests[model] = permit.RequestRate(of)
	}
	return r
}

func sandboxSettings(s config.Sandbox, enforces bool) ipc.Sandbox {
	level, least := s.Levels()
	settings := ipc.Sandbox{
		Level: level, Least: least, Read: s.Read, Write: s.Write, Hide: s.Hide, LoginVisible: s.Login == config.LoginVisible, Audit: s.Audit,
		Report: s.Reports(enforces), ReportNoNewPrivileges: s.Mode == config.SandboxReport,
	}
	if settings.Report && level == job.SandboxStrongest {
		settings.Level = job.SandboxStandard
	}
	return settings
}

func secretSettings(secrets map[string]config.Secret) map[string]ipc.Secret {
	all := map[string]ipc.Secret{}
	for name, s := range secrets {
		all[name] = ipc.Secret{File: s.File, Command: s.Command, Env: s.Env, Variable: s.As == config.SecretVariable, Tenants: s.Tenants}
	}
	return all
}
