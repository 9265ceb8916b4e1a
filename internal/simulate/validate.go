package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// Bounds of a simulation, so that it fits memory and an afternoon. The tags of the
// fields have them too.
const (
	maxJobs     = 2_000_000 // that arrive in all
	maxDuration = 10 * 365 * 24 * time.Hour
)

// validator checks what a file means, beyond the form of its fields.
type validator struct {
	*strictyaml.Doc
}

func (v validator) file(f *file) {
	if !v.Has("duration") && !v.Has("jobs") {
		v.Failf("duration", "is missing, want a duration such as 8h, or jobs: the number after which the simulation ends")
	}
	var bad *job.FieldError
	if errors.As(f.Policy.Validate(), &bad) && v.Has("policy.name") {
		v.Failf("policy."+bad.Field, "%s", bad.Message)
	}
	first := map[job.Tenant]string{}
	for i := range f.Tenants {
		t, path := &f.Tenants[i], fmt.Sprintf("tenants[%d]", i)
		if other, twice := first[t.Name]; twice {
			v.Failf(path+".name", "%q is the tenant in line %d already; give one tenant several arrivals instead", t.Name, v.At(other).Line)
		}
		first[t.Name] = path
		for i := range t.Arrivals {
			v.arrival(fmt.Sprintf("%s.arrivals[%d]", path, i), &t.Arrivals[i], f.Duration)
		}
		v.priorities(path+".priorities", t)
		v.merge(path, t, &f.Policy)
	}
}

// merge tells the policy the settings of a tenant that stand beside its jobs.
func (v validator) merge(path string, t *tenant, c *policy.Config) {
	var own string
	for _, f := range fields.Of(reflect.TypeFor[policy.Tenant]()) {
		if v.Has(path + "." + f.Name) {
			own = path + "." + f.Name
			break
		}
	}
	also := fields.Join("policy.tenants", string(t.Name))
	if own != "" && v.Has(also) {
		v.Failf(own, "the settings of %s stand in line %d (%s) as well; keep them in one place", t.Name, v.At(also).Line, also)
		return
	}
	if c.Tenants == nil {
		c.Tenants = map[job.Tenant]policy.Tenant{}
	}
	switch _, there := c.Tenants[t.Name]; {
	case own != "":
		c.Tenants[t.Name] = t.Tenant
	case !there:
		c.Tenants[t.Name] = c.Each
	}
}

func (v validator) arrival(path string, a *arrival, end job.Duration) {
	var kinds []string
	for _, kind := range []string{"rate", "burst", "waiting"} {
		if v.Has(path + "." + kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) != 1 {
		found := "none"
		if len(kinds) > 1 {
			found = strings.Join(kinds, " and ")
		}
		v.Failf(path, "has %s, want one of rate (jobs an hour), burst (jobs at once) and waiting (jobs that always wait)", found)
		return
	}
	if v.Has(path+".every") && kinds[0] != "burst" {
		v.Failf(path+".every", "has a use only with burst; remove it")
	}
	if end > 0 && a.From >= end {
		v.Failf(path+".from", "is %s, which is not before the end of the simulation, %s", a.From, end)
	}
	if v.Has(path+".until") && a.Until <= a.From {
		v.Failf(path+".until", "is %s, want a duration above from, which is %s", a.Until, a.From)
	}
}

// priorities turns the names of a mapping into levels, in order.
func (v validator) priorities(path string, t *tenant) {
	if len(t.Priorities) == 0 && v.Has(path) {
		v.Failf(path, "is empty, want levels and how often they are chosen, such as {0: 9, 10: 1}")
	}
	for _, text := range slices.Sorted(maps.Keys(t.Priorities)) {
		level, _ := strconv.Atoi(text) // the tag of the keys has bounded it
		t.priorities = append(t.priorities, priority{level, t.Priorities[text]})
	}
	slices.SortFunc(t.priorities, func(a, b priority) int { return cmp.Compare(a.level, b.level) })
}
