package simulate_test

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// fifo is the simplest policy there is: who came first is first. It knows no
// shares and no bounds, so that what a simulation of it shows can be computed
// by hand.
type fifo struct {
	heads map[job.Lane]policy.Head
	// begun is told of each Start, if it is set.
	begun func(t job.Tenant, ask policy.Demand, at time.Time)
	ended func(ask, used policy.Demand)
	wake  func(now time.Time) time.Time
	hold  func(now time.Time) bool
}

func newFIFO(policy.Config) (policy.Policy, error) {
	return &fifo{heads: map[job.Lane]policy.Head{}}, nil
}

func (f *fifo) Add(h policy.Head)        { f.heads[h.Lane] = h }
func (f *fifo) Remove(l job.Lane)        { delete(f.heads, l) }
func (f *fifo) holds(now time.Time) bool { return f.hold != nil && f.hold(now) }

func (f *fifo) Next(now time.Time) (best policy.Head, found bool) {
	if f.holds(now) {
		return best, false
	}
	for _, h := range f.heads {
		if !found || h.RunnableAt.Before(best.RunnableAt) || h.RunnableAt.Equal(best.RunnableAt) && h.ID < best.ID {
			best, found = h, true
		}
	}
	return best, found
}

func (f *fifo) Wake(now time.Time) time.Time {
	if f.wake == nil {
		return time.Time{}
	}
	return f.wake(now)
}

func (f *fifo) Start(t job.Tenant, ask policy.Demand, now time.Time) {
	if f.begun != nil {
		f.begun(t, ask, now)
	}
}

func (f *fifo) End(_ job.Tenant, ask, used policy.Demand, _ bool, _ time.Time) {
	if f.ended != nil {
		f.ended(ask, used)
	}
}

func (f *fifo) Charge(job.Tenant, policy.Demand, int, time.Time) {}
func (f *fifo) Shares(time.Time) []policy.Share                  { return nil }
func (f *fifo) SetTenants(map[job.Tenant]policy.Tenant)          {}
