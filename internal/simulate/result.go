package simulate

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// Result is what a policy made of a workload. Times are virtual.
type Result struct {
	Policy   string
	Measure  Measure // of what Target and Actual are parts
	Slots    int
	Duration time.Duration // that was simulated
	Tenants  []TenantResult

	Done       int     // jobs that ended
	PerHour    float64 // of these
	Busy       float64 // part of the slots' time in which a job ran
	Jain       float64 // index of fairness, in [1/n, 1]; 0: nobody was to have anything
	OwnTargets bool    // the targets are the policy's own, not only the tenants' weights

	series *series
}

// TenantResult is how a tenant fared.
type TenantResult struct {
	Tenant job.Tenant
	// Target is the part of 1 that the tenant would have had from an ideal server
	// that divides without pause by the same weights: see targets.
	Target float64
	Actual float64 // the part of 1 that it had

	Arrived, Began, Done int           // jobs; Began counts those that are done too
	MeanWait, P95Wait    time.Duration // from arrival to beginning, of the jobs that began
	LongestWait          time.Duration // of all, those that still wait included
	// LongestUnserved is the longest time in which a job of the tenant waited and
	// none ran. It starved if that is a tenth of the simulation or more.
	LongestUnserved time.Duration
	Starved         bool
}

// starvedAfter is the part of the simulation after which a tenant that waits
// and has nothing running is said to starve.
const starvedAfter = 0.1

// Waiting returns how many jobs still waited at the end.
func (t *TenantResult) Waiting() int { return t.Arrived - t.Began }

// Error is by how much the actual share exceeds the target, in parts of 1.
func (t *TenantResult) Error() float64 { return t.Actual - t.Target }

// starved returns how many tenants did.
func (r *Result) starved() int {
	n := 0
	for i := range r.Tenants {
		if r.Tenants[i].Starved {
			n++
		}
	}
	return n
}

// result sums up; c is what the policy was made with, and ranks what it aims at.
func (r *run) result(c policy.Config, ranks [][]float64) *Result {
	res := &Result{
		Policy: c.Name, Measure: r.w.measureFor(c.Name), Slots: r.w.Slots, Duration: r.now, Done: r.done,
		Tenants: make([]TenantResult, len(r.w.tenants)),
	}
	res.series = newSeries(r, c)
	target, actual := res.series.targets(ranks), res.series.shares(0, r.now)
	waits := r.waits()
	for i := range res.Tenants {
		t := &res.Tenants[i]
		t.Tenant, t.Target, t.Actual = r.w.tenants[i].Name, target[i], actual[i]
		t.LongestUnserved = r.service[i].longest
		if s := &r.service[i]; s.unserved() {
			t.LongestUnserved = max(s.longest, r.now-s.since)
		}
		t.Starved = t.LongestUnserved > 0 && t.LongestUnserved.Seconds() >= starvedAfter*r.now.Seconds()
		t.MeanWait, t.P95Wait = meanP95(waits[i])
	}
	for i := range r.jobs {
		j := &r.jobs[i]
		t := &res.Tenants[j.tenant]
		t.Arrived++
		if j.began < 0 {
			t.LongestWait = max(t.LongestWait, r.now-j.arrived)
			continue
		}
		t.Began++
		t.LongestWait = max(t.LongestWait, j.began-j.arrived)
		if j.began+j.runs <= r.now {
			t.Done++
		}
	}
	if r.now > 0 {
		res.PerHour = float64(r.done) / r.now.Hours()
		res.Busy = res.series.busy().Seconds() / (r.now.Seconds() * float64(r.w.Slots))
	}
	res.Jain = jain(actual, target)
	return res
}

// waits returns by tenant how long its jobs waited that began, sorted.
func (r *run) waits() [][]time.Duration {
	all := make([][]time.Duration, len(r.w.tenants))
	for i := range r.jobs {
		if j := &r.jobs[i]; j.began >= 0 {
			all[j.tenant] = append(all[j.tenant], j.began-j.arrived)
		}
	}
	for i := range all {
		slices.Sort(all[i])
	}
	return all
}

// meanP95 returns the mean and the 95th percentile (nearest rank) of what is
// sorted.
func meanP95(sorted []time.Duration) (mean, p95 time.Duration) {
	n := len(sorted)
	if n == 0 {
		return 0, 0
	}
	sum := 0.0 // nanoseconds; two million waits of years do not fit an int64
	for _, d := range sorted {
		sum += float64(d)
	}
	return time.Duration(sum / float64(n)), sorted[(95*n+99)/100-1]
}

// jain returns the index of fairness (Σx)² / (n·Σx²) of x = actual / target over
// the n tenants that have a target. Source: R. Jain, D. Chiu, W. Hawe, A
// Quantitative Measure of Fairness and Discrimination for Resource Allocation in
// Shared Computer Systems, DEC-TR-301, 1984, with the allocation of each tenant
// relative to its fair one.
func jain(actual, target []float64) float64 {
	n, sum, squares := 0.0, 0.0, 0.0
	for i, t := range target {
		if t <= 0 {
			continue
		}
		x := actual[i] / t
		n++
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (n * squares)
}
