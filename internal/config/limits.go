package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

func (v *validator) concurrency() {
	c := v.config.Concurrency
	for _, kind := range slices.Sorted(maps.Keys(c.PerWorker)) {
		path, n := fields.Join("concurrency.per_worker", string(kind)), c.PerWorker[kind]
		other := v.config.Workers[kind].MaxConcurrent
		if other > 0 && other != n {
			v.Failf(path, "is %d, but %s.max_concurrent in %s says %d; remove one", n, fields.Join("workers", string(kind)), v.place(fields.Join("workers", string(kind))+".max_concurrent"), other)
		}
		v.kind(path, kind)
	}
	for _, folder := range slices.Sorted(maps.Keys(c.PerWorkspace)) {
		path := fields.Join("concurrency.per_workspace", folder)
		v.folder(path, folder)
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

func (v *validator) rates() {
	r := v.config.Rates
	for _, kind := range slices.Sorted(maps.Keys(r.Workers)) {
		path := fields.Join("rates.workers", string(kind))
		v.kind(path, kind)
		v.rate(path, r.Workers[kind])
	}
	for _, model := range slices.Sorted(maps.Keys(r.Models)) {
		v.rate(fields.Join("rates.models", model), r.Models[model])
	}
	for _, model := range slices.Sorted(maps.Keys(r.Requests)) {
		if r.Requests[model] == (RequestRate{}) {
			v.Failf(fields.Join("rates.requests", model), "bounds nothing; give per_minute or tokens_per_minute, or leave it out")
		}
	}
}

func (v *validator) rate(path string, r Rate) {
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
		if other, twice := first[key{w.Tenant, w.Window}]; twice {
			v.Failf(path, "is of the same tenant and window as %s in line %d; remove one", other, v.At(other).Line)
			continue
		}
		first[key{w.Tenant, w.Window}] = path
	}
}
