package workflow

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// Plan is the shape of a workflow: what can run when, and how long it takes if
// each job takes one unit of time. A job with for_each or loop counts as one,
// since how many parts it will have is not known.
type Plan struct {
	// Levels are the jobs by how many must end before them, one behind the other:
	// those of the first level need nothing. Within a level they are in the order
	// in which they were given. Levels only describe: a job does not wait for its
	// level but for its needs.
	Levels [][]job.Name
	// Critical is a longest chain of jobs of which each needs the one before it.
	// Its length is the least time that any number of workers takes.
	Critical []job.Name
}

// NewPlan returns the plan of the jobs of a batch. Needs that do not exist are
// passed over; it is an error if needs go in a circle.
func NewPlan(specs []job.Spec) (*Plan, error) {
	list := make([]*job.Spec, len(specs))
	for i := range specs {
		list[i] = &specs[i]
	}
	g := newGraph(list)
	order, cycles := g.order()
	if len(cycles) > 0 {
		var errs []error
		for _, c := range cycles {
			errs = append(errs, fmt.Errorf("needs go in a circle: %s", g.text(c)))
		}
		return nil, errors.Join(errs...)
	}
	depth := make([]int, len(specs)) // jobs on the longest chain up to and with it
	before := make([]int, len(specs))
	deepest := -1
	for _, n := range order {
		depth[n], before[n] = 1, -1
		for _, need := range g.needs[n] {
			if depth[need]+1 > depth[n] {
				depth[n], before[n] = depth[need]+1, need
			}
		}
		if deepest < 0 || depth[n] > depth[deepest] {
			deepest = n
		}
	}
	p := &Plan{}
	for n := range specs {
		for len(p.Levels) < depth[n] {
			p.Levels = append(p.Levels, nil)
		}
		p.Levels[depth[n]-1] = append(p.Levels[depth[n]-1], specs[n].Name)
	}
	for n := deepest; n >= 0; n = before[n] {
		p.Critical = append(p.Critical, specs[n].Name)
	}
	slices.Reverse(p.Critical)
	return p, nil
}

// Jobs returns how many jobs the plan has.
func (p *Plan) Jobs() int {
	n := 0
	for _, l := range p.Levels {
		n += len(l)
	}
	return n
}

// Bounds returns within what time k workers, which never idle while a job is
// runnable, end all jobs, in units of one job: at least the longer of the critical
// path and an even share, at most (|V| - cp)/k + cp, rounded down since the time
// is a whole number (R. L. Graham, "Bounds for certain multiprocessing
// anomalies", Bell System Technical Journal 45, 1966). k is 1 or more.
func (p *Plan) Bounds(k int) (least, most int) {
	n, cp := p.Jobs(), len(p.Critical)
	return max(cp, (n+k-1)/k), (n-cp)/k + cp
}
