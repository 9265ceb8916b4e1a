package agentcore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// limitsOf returns what the gate is to enforce, for folders by their real paths, which
// realPath finds; the error names every field that is wrong.
func limitsOf(r *ipc.Configure, realPath func(string) string) (permit.Limits, error) {
	v := &checker{}
	if r.MaxConcurrent < 1 {
		v.bad("max_concurrent", "is %d, want 1 or more", r.MaxConcurrent)
	}
	perKind := map[job.WorkerKind]int{}
	for _, kind := range slices.Sorted(maps.Keys(r.Workers)) {
		perKind[kind] = r.Workers[kind].MaxConcurrent
		v.count(fmt.Sprintf("workers.%s.max_concurrent", kind), perKind[kind])
	}
	counts(v, "limits.per_tenant", r.Limits.PerTenant)
	v.count("limits.each_tenant", r.Limits.EachTenant)
	counts(v, "limits.per_workspace", r.Limits.PerWorkspace)
	v.count("limits.each_workspace", r.Limits.EachWorkspace)
	for _, of := range []struct {
		field string
		is    ipc.Resources
	}{{"run_limits.each", r.RunLimits.Each}, {"run_limits.total", r.RunLimits.Total}} {
		if of.is.Memory < 0 || of.is.Processes < 0 || of.is.CPU < 0 {
			v.bad(of.field, "is %+v, want 0 (no limit) or more of each", of.is)
		}
	}
	if r.PermitValidity < 0 {
		v.bad("permit_validity", "is %s, want 0 (permits do not lapse) or more", r.PermitValidity)
	}
	return permit.Limits{
		MaxConcurrent: r.MaxConcurrent, PerKind: perKind, TTL: r.PermitTTL.Std(), Validity: r.PermitValidity.Std(),
		PerTenant: r.Limits.PerTenant, EachTenant: r.Limits.EachTenant,
		PerWorkspace: realPaths(v, r.Limits.PerWorkspace, realPath), EachWorkspace: r.Limits.EachWorkspace,
		CostWindows: windowsOf(v, r.Limits.CostWindows),
	}, errors.Join(v.errs...)
}

// checker collects the fields that are wrong.
type checker struct{ errs []error }

func (v *checker) bad(field, format string, args ...any) {
	v.errs = append(v.errs, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (v *checker) count(field string, n int) {
	if n < 0 {
		v.bad(field, "is %d, want 0 (no limit) or more", n)
	}
}

func counts[K ~string](v *checker, field string, limits map[K]int) {
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		v.count(field+"."+string(key), limits[key])
	}
}

func windowsOf(v *checker, list []ipc.CostWindow) []permit.CostWindow {
	var all []permit.CostWindow
	for i, w := range list {
		field := fmt.Sprintf("limits.cost_windows[%d]", i)
		if w.Window <= 0 {
			v.bad(field+".window", "is %s, want a duration above zero", w.Window)
		}
		if w.MaxUSD < 0 {
			v.bad(field+".max_usd", "is %g, want US dollars, 0 (no limit) or more", w.MaxUSD)
		}
		one := permit.CostWindow{Tenant: w.Tenant, Window: w.Window.Std(), MaxUSD: w.MaxUSD}
		for _, s := range w.Spent {
			ago := time.Duration(min(max(s.AgoMS, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
			one.Spent = append(one.Spent, permit.Spending{Ago: ago, USD: s.USD})
		}
		all = append(all, one)
	}
	return all
}

// realPaths returns the limits by the real paths of the folders; of two names
// for one folder the stricter limit holds.
func realPaths(v *checker, limits map[string]int, realPath func(string) string) map[string]int {
	all := map[string]int{}
	for _, path := range slices.Sorted(maps.Keys(limits)) {
		if !filepath.IsAbs(path) {
			v.bad("limits.per_workspace."+path, "is not an absolute path")
		}
		real, n := realPath(path), limits[path]
		if have, twice := all[real]; twice && have > 0 && (n == 0 || have < n) {
			n = have
		}
		all[real] = n
	}
	return all
}

// modelOf names the model that a choice asks for as rates are by: with its
// provider where that is known. A gateway may have models of any provider.
func (s *settings) modelOf(c job.Choice) string {
	w := s.Workers[c.Worker]
	model := cmp.Or(c.Model, w.Model)
	provider := s.provider[cmp.Or(w.Adapter, string(c.Worker))]
	switch {
	case provider == "" || w.BaseURL != "" || strings.Contains(model, "/"):
		return model
	case model == "":
		return provider
	}
	return provider + "/" + model
}

// providerOf returns what stands before the names of the models that a run with the choice asks its provider for, as rates
// are by; "" for nothing.
func (s *settings) providerOf(c job.Choice) string {
	provider, _, named := strings.Cut(s.modelOf(c), "/")
	if !named {
		return ""
	}
	return provider
}

// providersOf returns, by adapter, the provider of the models that its program knows by
// their bare names. An adapter is left out if its program names the provider itself, or
// uses no model.
func providersOf(adapters map[string]worker.Adapter) map[string]string {
	all := map[string]string{}
	for name, a := range adapters {
		if p, ok := a.(worker.Provided); ok {
			all[name] = p.Provider()
		}
	}
	return all
}

// learn books what other cores did, and returns what they hold.
func (c *Core) learn(s *settings, e *ipc.Elsewhere) []permit.Held {
	if e == nil {
		return nil
	}
	c.gate.Learn(e.Spent)
	return s.heldOf(e.Running)
}

func (s *settings) heldOf(list []ipc.Held) []permit.Held {
	byFolder := s.limits.EachWorkspace > 0 || len(s.limits.PerWorkspace) > 0
	all := make([]permit.Held, len(list))
	for i, h := range list {
		all[i] = permit.Held{Tenant: h.Tenant, Kind: h.Worker, Model: s.modelOf(job.Choice{Worker: h.Worker, Model: h.Model})}
		if byFolder { // else it need not be looked up
			all[i].Workspace = h.Workspace
		}
	}
	return all
}
