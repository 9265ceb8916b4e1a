package simulate

import (
	"time"

	"github.com/agentsched/agentsched/policy"
)

// steps is how finely a simulation's use is kept over time.
const steps = 1200

// amounts are seconds of run time, tokens, US dollars and jobs.
type amounts [4]float64

func (a amounts) plus(o amounts) amounts {
	for i := range a {
		a[i] += o[i]
	}
	return a
}

func (a amounts) times(f float64) amounts {
	for i := range a {
		a[i] *= f
	}
	return a
}

// measured says how amounts of several resources are one number.
type measured struct {
	measure Measure
	supply  amounts // by second, for Dominant; 0: the resource does not count
}

func newMeasured(w *Workload, c policy.Config) measured {
	m := measured{measure: w.measureFor(c.Name)}
	if c.Capacity == (policy.Demand{}) {
		c.Capacity.Slots = float64(w.Slots)
	}
	if c.Window == 0 {
		c.Window = policy.Default().Window
	}
	window := c.Window.Std().Seconds()
	m.supply = amounts{c.Capacity.Slots, c.Capacity.Tokens / window, c.Capacity.CostUSD / window}
	return m
}

// of returns what a tenant has had with a. Dominant is the largest part of any
// resource, in seconds of all of it (Ghodsi et al., Dominant Resource Fairness,
// NSDI 2011, section 4.1).
func (m measured) of(a amounts) float64 {
	switch m.measure {
	case Tokens:
		return a[1]
	case Cost:
		return a[2]
	case Jobs:
		return a[3]
	case Dominant:
		most := 0.0
		for i, supply := range m.supply {
			if supply > 0 {
				most = max(most, a[i]/supply)
			}
		}
		return most
	default:
		return a[0]
	}
}

// series is what the tenants used in the course of a simulation. A job uses its
// tokens and cost evenly while it runs.
type series struct {
	measured measured
	length   time.Duration
	used     [][]amounts // by tenant: before step 0, 1, … steps
	arrived  [][]amounts // by tenant: in step 0, 1, …; of jobs that came by themselves
	endless  [][]bool    // by tenant and step: something always waits
	slots    []int       // by tenant: how many it may have at once
	window   time.Duration
}

func newSeries(r *run, c policy.Config) *series {
	n := len(r.w.tenants)
	s := &series{measured: newMeasured(r.w, c), length: max(r.now, 1), used: make([][]amounts, n), arrived: make([][]amounts, n), endless: make([][]bool, n)}
	for i := range n {
		s.used[i], s.arrived[i], s.endless[i] = make([]amounts, steps+1), make([]amounts, steps), make([]bool, steps)
	}
	s.slots = r.slots(c)
	for i := range r.jobs {
		s.add(&r.jobs[i], r.streams[r.jobs[i].stream].Waiting == 0)
	}
	for i := range s.used {
		for k := 1; k <= steps; k++ {
			s.used[i][k] = s.used[i][k].plus(s.used[i][k-1])
		}
	}
	for _, st := range r.streams {
		for k := range steps {
			if st.refills(s.at(k)) {
				s.endless[st.tenant][k] = true
			}
		}
	}
	s.window = s.smoothing(r)
	return s
}

// slots returns by tenant how many slots it may have at once.
func (r *run) slots(c policy.Config) []int {
	list := make([]int, len(r.w.tenants))
	for i := range list {
		list[i] = r.w.Slots
		if most := c.Tenants[r.w.tenants[i].Name].MaxConcurrent; most > 0 {
			list[i] = min(list[i], most)
		}
	}
	return list
}

// at returns when step k begins; step is its inverse.
func (s *series) at(k int) time.Duration {
	return time.Duration(float64(s.length) * float64(k) / steps)
}

func (s *series) step(at time.Duration) float64 { return float64(at) / float64(s.length) * steps }

// add enters a job. used holds differences until all are entered, shifted by
// one, so that their sums are what was used before a step.
func (s *series) add(j *record, byItself bool) {
	all := amounts{j.runs.Seconds(), j.tokens, j.cost, 1}
	if byItself {
		k := min(int(s.step(j.arrived)), steps-1)
		s.arrived[j.tenant][k] = s.arrived[j.tenant][k].plus(all)
	}
	if j.began < 0 || j.began >= s.length {
		return
	}
	from, to := s.step(j.began), s.step(min(j.began+j.runs, s.length))
	perStep := all.times(float64(s.length) / steps / float64(j.runs))
	for k := int(from); k < steps && float64(k) < to; k++ {
		part := min(to, float64(k+1)) - max(from, float64(k))
		s.used[j.tenant][k+1] = s.used[j.tenant][k+1].plus(perStep.times(part))
	}
}

// smoothing is how far back the shares of one moment look: far enough for some
// ten beginnings a tenant, since of a few whole jobs no share can be told, and
// at most a sixth of the whole.
func (s *series) smoothing(r *run) time.Duration {
	began := 0
	for i := range r.jobs {
		if r.jobs[i].began >= 0 {
			began++
		}
	}
	const beginnings, most, least = 10, 6, 60
	width := s.length / most
	if began > 0 {
		width = min(width, time.Duration(float64(s.length)*beginnings*float64(len(s.used))/float64(began)))
	}
	width = max(width, s.length/least)
	for _, unit := range []time.Duration{time.Hour, 5 * time.Minute, time.Minute, 10 * time.Second, time.Second} {
		if width >= 5*unit {
			return width.Round(unit) // easier to say
		}
	}
	return width
}

// before returns what a tenant had used by then.
func (s *series) before(tenant int, at time.Duration) amounts {
	x := min(max(s.step(at), 0), steps)
	k := min(int(x), steps-1)
	low, high := s.used[tenant][k], s.used[tenant][k+1]
	part := x - float64(k)
	return low.times(1 - part).plus(high.times(part))
}

// shares returns each tenant's part of 1 of what was used in a time; all 0 if
// nothing was.
func (s *series) shares(from, to time.Duration) []float64 {
	list := make([]float64, len(s.used))
	for i := range s.used {
		list[i] = s.measured.of(s.before(i, to).plus(s.before(i, from).times(-1)))
	}
	return normalised(list)
}

// over returns the shares at n moments, evenly spread up to the end, each of the
// window that ends there: by tenant, then moment.
func (s *series) over(n int) [][]float64 {
	all := make([][]float64, len(s.used))
	for i := range all {
		all[i] = make([]float64, n)
	}
	for k := range n {
		at := time.Duration(float64(s.length) * float64(k+1) / float64(n))
		for i, share := range s.shares(at-s.window, at) {
			all[i][k] = share
		}
	}
	return all
}

// busy returns the run time of all.
func (s *series) busy() time.Duration {
	sum := 0.0
	for i := range s.used {
		sum += s.used[i][steps][0]
	}
	return time.Duration(sum * float64(time.Second))
}

func normalised(list []float64) []float64 {
	sum := 0.0
	for i := range list {
		list[i] = max(list[i], 0) // a difference of sums can miss 0 by a rounding
		sum += list[i]
	}
	if sum <= 0 {
		return make([]float64, len(list))
	}
	for i := range list {
		list[i] /= sum
	}
	return list
}
