package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

func (v *validator) concurrency() {
	c := v.config.Concurrency
	if c.Max < 1 {
		v.Failf("concurrency.max", "is %d, want 1 or more", c.Max)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.PerWorker)) {
		path, n := strictyaml.Entry("concurrency.per_worker", string(kind)), c.PerWorker[kind]
		other := v.config.Workers[kind].MaxConcurrent
		switch {
		case n < 1:
			v.Failf(path, "is %d, want 1 or more", n)
		case other > 0 && other != n:
			v.Failf(path, "is %d, but %s.max_concurrent in %s says %d; remove one", n, strictyaml.Entry("workers", string(kind)), v.place(strictyaml.Entry("workers", string(kind))+".max_concurrent"), other)
		}
		v.kind(path, kind)
	}
	for _, tenant := range slices.Sorted(maps.Keys(c.PerTenant)) {
		path := strictyaml.Entry("concurrency.per_tenant", string(tenant))
		v.tenant(path, tenant)
		v.atLeastZero(path, c.PerTenant[tenant])
	}
	for _, folder := range slices.Sorted(maps.Keys(c.PerWorkspace)) {
		path := strictyaml.Entry("concurrency.per_workspace", folder)
		v.folder(path, folder)
		v.atLeastZero(path, c.PerWorkspace[folder])
	}
	if n := v.config.Queue.MaxJobs; n < 1 || n > 100_000 {
		v.Failf("queue.max_jobs", "is %d, want 1 to 100000 jobs of one submission", n)
	}
	v.atLeastZero("queue.max_queued", v.config.Queue.MaxQueued)
	v.atLeastZero("concurrency.each_tenant", c.EachTenant)
	v.atLeastZero("concurrency.each_workspace", c.EachWorkspace)
}

// tenant refuses what cannot be a tenant. One that has no job yet is fine.
func (v *validator) tenant(path string, t job.Tenant) {
	if err := job.ValidTenant(t); err != nil {
		v.Failf(path, "%v", err)
	}
}

// folder refuses a path that could mean another folder, or none, later on.
func (v *validator) folder(path, folder string) {
	switch {
	case !filepath.IsAbs(folder):
		v.Failf(path, "%q is a relative path, want an absolute one", folder)
	case filepath.Clean(folder) != folder:
		v.Failf(path, "%q is not in its shortest form, write %s", folder, filepath.Clean(folder))
	}
}

func (v *validator) atLeastZero(path string, n int) {
	if n < 0 {
		v.Failf(path, "is %d, want 1 or more, or 0 for no bound", n)
	}
}

func (v *validator) rates() {
	r := v.config.Rates
	for _, kind := range slices.Sorted(maps.Keys(r.Workers)) {
		path := strictyaml.Entry("rates.workers", string(kind))
		v.kind(path, kind)
		v.rate(path, r.Workers[kind])
	}
	for _, model := range slices.Sorted(maps.Keys(r.Models)) {
		path := strictyaml.Entry("rates.models", model)
		if model == "" {
			v.Failf(path, "is empty, want a provider such as anthropic, a model or provider/model")
		}
		v.rate(path, r.Models[model])
	}
}

func (v *validator) rate(path string, r Rate) {
	v.atLeastZero(path+".per_second", r.PerSecond)
	v.atLeastZero(path+".per_minute", r.PerMinute)
	if r == (Rate{}) {
		v.Failf(path, "bounds nothing; give per_second or per_minute, or leave it out")
	}
}

func (v *validator) costWindows() {
	type key struct {
		tenant job.Tenant
		window job.Duration
	}
	first := map[key]string{}
	for i, w := range v.config.CostWindows {
		path := fmt.Sprintf("cost_windows[%d]", i)
		if v.Has(path + ".tenant") {
			v.tenant(path+".tenant", w.Tenant)
		}
		switch {
		case !v.Has(path + ".window"):
			v.Failf(path+".window", "is missing, want the span that is looked at, such as 24h")
		case w.Window == 0:
			v.Failf(path+".window", "is 0, want a duration such as 24h")
		}
		switch {
		case !v.Has(path + ".max_usd"):
			v.Failf(path+".max_usd", "is missing, want US dollars")
		case w.MaxUSD <= 0:
			v.Failf(path+".max_usd", "is %g, want US dollars, more than 0", w.MaxUSD)
		}
		if other, twice := first[key{w.Tenant, w.Window}]; twice {
			v.Failf(path, "is of the same tenant and window as %s in line %d; remove one", other, v.At(other).Line)
			continue
		}
		first[key{w.Tenant, w.Window}] = path
	}
}
