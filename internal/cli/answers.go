package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// readFile reads a job file that came in a request: nothing is submitted. The
// files that it names come with it, or lie in the folder api.files; whoever sends
// it may not have this process read others, at the unix socket neither.
func (runs *runner) readFile(ctx context.Context, e *engine, f api.JobFile) (api.Submission, error) {
	if f.Dir != "" && !filepath.IsAbs(f.Dir) {
		return api.Submission{}, fmt.Errorf("dir is %q, want an absolute path on the scheduler's host", f.Dir)
	}
	name := f.Name
	if name == "" {
		name = "request"
	}
	if strings.TrimSpace(f.Text) == "" {
		return api.Submission{}, errors.New("text is empty, want a job file")
	}
	cfg := e.config()
	base := f.Dir
	if base == "" {
		base = nowhere
	}
	jobs, err := jobfile.DecodeJobs(name, []byte(f.Text), jobfile.Options{
		Now: utcNow(), Workers: runs.prog.workerKinds(&cfg), Domains: domains(&cfg), Grants: cfg.Grants, BaseDir: base, Files: &jobfile.Files{Sent: f.Files, Below: cfg.API.Files}, Parcels: f.Parcels,
	})
	if err != nil {
		return api.Submission{}, err
	}
	if f.Dir == "" {
		for i := range jobs.Specs {
			if path := jobs.Specs[i].Workspace.Path; strings.HasPrefix(path, nowhere) {
				rel, _ := filepath.Rel(nowhere, path)
				return api.Submission{}, fmt.Errorf("job %s: workspace.path is relative (%s): make it absolute, or give dir", jobs.Specs[i].Name, rel)
			}
		}
	}
	if err := runs.local.checkJobs(ctx, jobs.Specs, &cfg, e.host.Run); err != nil {
		return api.Submission{}, err
	}
	if err := runs.prog.checkPipelines(&jobs.Workflow, jobs.Specs, &cfg); err != nil {
		return api.Submission{}, err
	}
	src := source{name: submittedPrefix + name, specs: jobs.Specs, workflow: jobs.Workflow}
	digest, err := src.digest()
	if err != nil {
		return api.Submission{}, err
	}
	return api.Submission{Source: src.name, Digest: digest, Jobs: jobs.Specs, Workflow: jobs.Workflow}, nil
}

// bounds are how much may be submitted, in whichever way.
func bounds(cfg *config.Config) queue.Bounds {
	return queue.Bounds{Submission: cfg.Queue.MaxJobs, Tenant: cfg.Queue.MaxQueued}
}

// setLimits says how much the store takes, and what it takes from credits.
func setLimits(store *sqlite.Store, cfg *config.Config) {
	store.SetBounds(bounds(cfg))
	store.SetPrices(prices(cfg))
}

func prices(cfg *config.Config) queue.Prices {
	return queue.Prices{Run: cfg.Credits.Run, Agents: cfg.Credits.Agents}
}

// nowhere stands for the folder of a job file that has none.
const nowhere = "/nonexistent/no-dir-was-given"

// workersNow tells how each kind of worker stands.
func (runs *runner) workersNow(e *engine) []api.Worker {
	cfg := e.config()
	st, running := e.sched.Status(), e.sched.Running()
	list := runs.prog.configuredWorkers(&cfg, st.Isolations)
	for i := range list {
		w := &list[i]
		w.Running = running[w.Kind]
		for _, c := range st.Circuits {
			if c.Worker == w.Kind {
				w.Circuits = append(w.Circuits, server.CircuitsOf([]ipc.Circuit{c})...)
			}
		}
	}
	return list
}

// budgetsNow tells how full each cost window and each budget of the policy is.
func (e *engine) budgetsNow() []api.Budget {
	list := []api.Budget{}
	for _, w := range e.sched.Settings().Limits.CostWindows {
		b := api.Budget{Tenant: w.Tenant, Window: w.Window, MaxUSD: w.MaxUSD}
		for _, s := range w.Spent {
			b.SpentUSD += s.USD
		}
		list = append(list, b)
	}
	return append(list, policyBudgets(e.config().Policy, e.sched.Status().Shares)...)
}

// policyBudgets returns the budgets of a policy, and what was used of each: that of all
// tenants together, and those of the tenants that it names or knows, by name.
func policyBudgets(c policy.Config, shares []policy.Share) []api.Budget {
	used, all := map[job.Tenant]policy.Demand{}, policy.Demand{}
	bounds := map[job.Tenant]policy.Budget{}
	for _, s := range shares {
		used[s.Tenant], bounds[s.Tenant] = s.Used, c.Each.Budget
		all.Tokens, all.CostUSD = all.Tokens+s.Used.Tokens, all.CostUSD+s.Used.CostUSD
	}
	for name, t := range c.Tenants {
		bounds[name] = t.Budget
	}
	var list []api.Budget
	add := func(t job.Tenant, b policy.Budget, u policy.Demand) {
		if b != (policy.Budget{}) {
			list = append(list, api.Budget{Tenant: t, Policy: true, Window: cmp.Or(c.Window, job.Duration(24*time.Hour)),
				MaxUSD: b.CostUSD, SpentUSD: u.CostUSD, MaxTokens: b.Tokens, Tokens: u.Tokens})
		}
	}
	add("", c.Budget, all)
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		add(name, bounds[name], used[name])
	}
	return list
}

// configuredWorkers are the kinds that a job may name.
func (prog *program) configuredWorkers(cfg *config.Config, isolated []isolation.Isolation) []api.Worker {
	list := []api.Worker{}
	for _, name := range prog.workerKinds(cfg) {
		kind := job.WorkerKind(name)
		settings := cfg.Workers[kind]
		w := api.Worker{
			Kind: kind, Adapter: cfg.AdapterOf(kind), Model: settings.Model, Max: cfg.WorkerLimit(kind),
			Circuits: []api.Circuit{}, Isolations: []api.Isolation{},
		}
		if a := prog.adapters[w.Adapter]; a == nil {
			w.Problem = fmt.Sprintf("there is no adapter %q", w.Adapter)
		} else if program, err := a.Locate(settings); err != nil {
			w.Problem = err.Error()
		} else {
			w.Program = program
		}
		for _, i := range isolated {
			if of, _, ok := i.Scope.Worker(); i.Scope == isolation.Global || ok && of == kind {
				w.Isolations = append(w.Isolations, server.IsolationOf(&i))
			}
		}
		list = append(list, w)
	}
	return list
}
