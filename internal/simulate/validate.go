package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// Bounds of a simulation, so that it fits memory and an afternoon.
const (
	maxSlots    = 100_000
	maxJobs     = 2_000_000 // that arrive in all
	maxDuration = 10 * 365 * 24 * time.Hour
	maxRate     = 3_600_000 // jobs an hour: a thousand a second
)

// validator checks what a file means, beyond the form of its fields.
type validator struct {
	*strictyaml.Doc
}

func (v validator) file(f *file) {
	v.whole("slots", int64(f.Slots), 1, maxSlots, true)
	if v.Has("duration") && (f.Duration <= 0 || f.Duration.Std() > maxDuration) {
		v.Failf("duration", "is %s, want a duration above 0 and at most 87600h", f.Duration)
	}
	v.whole("jobs", int64(f.Jobs), 1, maxJobs, false)
	if !v.Has("duration") && !v.Has("jobs") {
		v.Failf("duration", "is missing, want a duration such as 8h, or jobs: the number after which the simulation ends")
	}
	v.whole("seed", f.Seed, 0, math.MaxInt64, false)
	v.word("measure", string(f.Measure), texts(Measures()))
	v.policy(&f.Policy)
	v.tenants(f)
}

func texts[S ~string](list []S) []string {
	var all []string
	for _, s := range list {
		all = append(all, string(s))
	}
	return all
}

func (v validator) policy(c *policy.Config) {
	v.word("policy.name", c.Name, policy.Names())
	v.word("policy.tiers", c.Tiers, []string{policy.TiersStrict, policy.TiersWeighted})
	v.number("policy.beta", c.Beta, 0, math.Inf(1))
	v.number("policy.capacity.tokens", c.Capacity.Tokens, 0, math.Inf(1))
	v.number("policy.capacity.cost_usd", c.Capacity.CostUSD, 0, math.Inf(1))
	v.number("policy.capacity.slots", c.Capacity.Slots, 0, math.Inf(1))
	v.budget("policy.budget", c.Budget)
	v.settings("policy.each", c.Each)
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		path := strictyaml.Entry("policy.tenants", string(name))
		v.name(path, name)
		v.settings(path, c.Tenants[name])
	}
	if c.Window != 0 && c.Window.Std() < time.Second {
		v.Failf("policy.window", "is %s, want a duration of at least 1s such as 1h", c.Window)
	}
	// Whatever else a policy would refuse.
	named := *c
	if named.Name == "" {
		named.Name = policy.Default().Name
	}
	if err := named.Validate(); err != nil {
		v.Failf("policy", "%v", err)
	}
}

// settings are those of one tenant, or of each.
func (v validator) settings(path string, t policy.Tenant) {
	v.weight(path+".weight", t.Weight)
	if t.Credits != 0 {
		v.number(path+".credits", t.Credits, 1, 1e6)
	}
	v.number(path+".reputation", t.Reputation, 0, 1)
	v.whole(path+".max_concurrent", int64(t.MaxConcurrent), 0, math.MaxInt32, false)
	v.budget(path+".budget", t.Budget)
}

func (v validator) budget(path string, b policy.Budget) {
	v.number(path+".tokens", b.Tokens, 0, math.Inf(1))
	v.number(path+".cost_usd", b.CostUSD, 0, math.Inf(1))
}

func (v validator) tenants(f *file) {
	if len(f.Tenants) == 0 {
		if v.Has("tenants") {
			v.Failf("tenants", "is empty, want at least one tenant")
		} else {
			v.Failf("tenants", "is missing, want a list of tenants")
		}
	}
	first := map[job.Tenant]string{}
	for i := range f.Tenants {
		t, path := &f.Tenants[i], fmt.Sprintf("tenants[%d]", i)
		if !v.Has(path + ".name") {
			v.Failf(path+".name", "is missing, want the name of a tenant such as website")
		}
		v.name(path+".name", t.Name)
		if other, twice := first[t.Name]; twice {
			v.Failf(path+".name", "%q is the tenant in line %d already; give one tenant several arrivals instead", t.Name, v.At(other).Line)
		}
		first[t.Name] = path
		v.tenant(path, t, f.Duration)
		v.merge(path, t, &f.Policy)
	}
}

// merge tells the policy the settings of a tenant that stand beside its jobs.
func (v validator) merge(path string, t *tenant, c *policy.Config) {
	var own string
	for _, field := range []string{"weight", "credits", "contracted", "reputation", "max_concurrent", "budget"} {
		if v.Has(path + "." + field) {
			own = path + "." + field
			break
		}
	}
	also := strictyaml.Entry("policy.tenants", string(t.Name))
	if own != "" && v.Has(also) {
		v.Failf(own, "the settings of %s stand in line %d (%s) as well; keep them in one place", t.Name, v.At(also).Line, also)
		return
	}
	if c.Tenants == nil {
		c.Tenants = map[job.Tenant]policy.Tenant{}
	}
	switch _, there := c.Tenants[t.Name]; {
	case own != "":
		c.Tenants[t.Name] = t.settings()
	case !there:
		c.Tenants[t.Name] = c.Each
	}
}

func (v validator) tenant(path string, t *tenant, end job.Duration) {
	v.settings(path, t.settings())
	if len(t.Arrivals) == 0 {
		v.Failf(path+".arrivals", "is missing, want a list such as [{rate: 30}]")
	}
	for i := range t.Arrivals {
		v.arrival(fmt.Sprintf("%s.arrivals[%d]", path, i), &t.Arrivals[i], end)
	}
	if !v.Has(path + ".size.run_time") {
		v.Failf(path+".size.run_time", "is missing, want how long a job takes, such as 10m")
	}
	if !v.Has(path + ".declared") {
		t.Declared = amount{dist{constant, 1, 0}}
	}
	v.priorities(path+".priorities", t)
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
	if v.Has(path+".rate") && (a.Rate <= 0 || a.Rate > maxRate) {
		v.Failf(path+".rate", "is %s, want a number of jobs an hour above 0 and at most %d", formatNumber(a.Rate), maxRate)
	}
	v.whole(path+".burst", int64(a.Burst), 1, maxJobs, false)
	v.whole(path+".waiting", int64(a.Waiting), 1, maxJobs, false)
	if v.Has(path + ".every") {
		switch {
		case kinds[0] != "burst":
			v.Failf(path+".every", "has a use only with burst; remove it")
		case a.Every <= 0:
			v.Failf(path+".every", "is %s, want a duration above 0 such as 1h", a.Every)
		}
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
	if len(t.Priorities) == 0 {
		if v.Has(path) {
			v.Failf(path, "is empty, want levels and how often they are chosen, such as {0: 9, 10: 1}")
		}
		return
	}
	for _, text := range slices.Sorted(maps.Keys(t.Priorities)) {
		at := strictyaml.Entry(path, text)
		level, err := strconv.ParseInt(text, 10, 32)
		if err != nil || strconv.FormatInt(level, 10) != text { // 01 and 1 would be two names of one level
			v.Failf(at, "%q is no priority, want a whole number such as 10", text)
		}
		weight := t.Priorities[text]
		v.positive(at, weight)
		t.priorities = append(t.priorities, priority{int(level), weight})
	}
	slices.SortFunc(t.priorities, func(a, b priority) int { return cmp.Compare(a.level, b.level) })
}

func (v validator) name(path string, t job.Tenant) {
	if err := job.ValidTenant(t); err != nil && v.Has(path) {
		v.Failf(path, "%v", err)
	}
}

func (v validator) word(path, got string, known []string) {
	if !v.Has(path) || slices.Contains(known, got) {
		return
	}
	if near := strictyaml.Nearest(got, known); near != "" {
		v.Failf(path, "%q is not known here; did you mean %s? Known: %s", got, near, strings.Join(known, ", "))
		return
	}
	v.Failf(path, "%q is not known here, want one of %s", got, strings.Join(known, ", "))
}

func (v validator) whole(path string, got, low, high int64, required bool) {
	switch {
	case required && !v.Has(path):
		v.Failf(path, "is missing, want a whole number from %d to %d", low, high)
	case v.Has(path) && got < low && high >= math.MaxInt32:
		v.Failf(path, "is %d, want a whole number from %d up", got, low)
	case v.Has(path) && (got < low || got > high):
		v.Failf(path, "is %d, want a whole number from %d to %d", got, low, high)
	}
}

// weight takes what policy.Tenant.Validate takes.
func (v validator) weight(path string, got float64) {
	if one := (policy.Tenant{Weight: got}); one.Validate() != nil {
		v.number(path, got, 1e-6, 1e6)
	}
}

func (v validator) positive(path string, got float64) {
	if v.Has(path) && got <= 0 {
		v.Failf(path, "is %s, want a number above 0", formatNumber(got))
	}
}

func (v validator) number(path string, got, low, high float64) {
	switch {
	case !v.Has(path) || got >= low && got <= high:
	case math.IsInf(high, 1):
		v.Failf(path, "is %s, want a number from %s up", formatNumber(got), formatNumber(low))
	default:
		v.Failf(path, "is %s, want a number from %s to %s", formatNumber(got), formatNumber(low), formatNumber(high))
	}
}

// formatNumber writes what people write without an exponent without one.
func formatNumber(v float64) string {
	if size := math.Abs(v); size >= 1e-6 && size < 1e12 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
