package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// MaxYields is how often the runs of one job give way: a job of which so many attempts did
// not count keeps its slot from then on. It stops between two steps, so that each of its
// runs does at least one, and it has an end however much the contracted tenants want.
const MaxYields = 3

// Candidate is a job in flight that may be asked to stop at the boundary of its next step.
type Candidate struct {
	ID        job.ID
	Tenant    job.Tenant
	Priority  int
	Began     time.Time
	Uncounted int  // attempts of its job that did not count
	Asked     bool // it stops, for whatever reason: its slot will be free
	Stays     bool // it cannot stop
}

// Claimant is a tenant as far as it matters for who gives way to whom.
type Claimant struct {
	Tenant     job.Tenant
	Contracted bool
	Share      float64 // in slots: its part of those that there are
	InFlight   int
	Waiting    int // jobs that would start if there were a slot for each
}

// Yield is a run that is to give way.
type Yield struct {
	ID job.ID
	To job.Tenant // whose contract it is
}

// Yields says which runs are to stop at their next step where all slots are taken. A
// contracted tenant has a claim to its share of the slots, rounded up, for the jobs that it
// has waiting. For each slot that it lacks, and that no run which was asked already will
// free, one run gives way of a tenant without a contract that has more than its own share,
// rounded down: of those that may still (MaxYields), one of the least priority and, among
// these, the one that began last.
func Yields(tenants []Claimant, runs []Candidate) (list []Yield) {
	lacks, missing := map[job.Tenant]int{}, 0
	above := map[job.Tenant]int{} // its share, of those without a contract
	for _, t := range tenants {
		if !t.Contracted {
			above[t.Tenant] = t.InFlight - int(t.Share+rounding)
		} else if n := min(t.Waiting, int(math.Ceil(t.Share-rounding))-t.InFlight); n > 0 {
			lacks[t.Tenant] = n
			missing += n
		}
	}
	if missing == 0 {
		return nil
	}
	var may []Candidate
	for _, r := range runs {
		if r.Asked {
			missing--
			above[r.Tenant]--
		} else if !r.Stays && r.Uncounted < MaxYields {
			may = append(may, r)
		}
	}
	slices.SortFunc(may, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), b.Began.Compare(a.Began), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range may {
		if missing <= 0 {
			break
		}
		if above[r.Tenant] <= 0 {
			continue
		}
		to := slices.MinFunc(slices.Sorted(maps.Keys(lacks)), func(a, b job.Tenant) int { return cmp.Compare(lacks[b], lacks[a]) })
		list = append(list, Yield{r.ID, to})
		missing--
		lacks[to]--
		above[r.Tenant]--
	}
	return list
}

// rounding is how far a sum of parts may be off a whole number.
const rounding = 1e-9

// yields says which of the runs are to give way, given how things stand; none as long as a
// slot is free, or nothing may start for another reason.
func (fs *flights) yields(at time.Time, runs []Candidate) []Yield {
	free, why := fs.room.slots(at)
	slots := fs.cores.hosts.slots(fs.room.bounds.Slots)
	if free > 0 || why.Reason != job.WaitSlot || fs.room.taken() > slots {
		return nil
	}
	var tenants []Claimant
	var wanted []*class
	for _, s := range fs.backlog.policy.Shares(wall(at)) {
		c := Claimant{Tenant: s.Tenant, Contracted: s.Contracted, Share: s.Target * float64(slots), InFlight: s.InFlight}
		if c.Contracted && s.Held == "" {
			could := fs.backlog.couldStart(at, s.Tenant)
			c.Waiting, wanted = len(could), append(wanted, could...)
		}
		tenants = append(tenants, c)
	}
	if len(wanted) == 0 {
		return nil
	}
	runs = slices.Clone(runs)
	for i := range runs { // a slot on its host must be of use to somebody
		f := fs.all[runs[i].ID]
		runs[i].Stays = runs[i].Stays || !slices.ContainsFunc(wanted, func(c *class) bool { return f != nil && c.suits(f.host) })
	}
	return Yields(tenants, runs)
}

// yield asks the runs to stop at their next step that are to give way.
func (fs *flights) yield(at time.Time) {
	var runs []Candidate
	for _, id := range sorted(fs.all) {
		f := fs.all[id]
		if f.run == nil || f.lent { // it has no slot to give
			continue
		}
		e := &f.run.Entry
		runs = append(runs, Candidate{
			ID: id, Tenant: e.Spec.Tenant, Priority: e.Spec.Priority, Began: f.run.Began, Uncounted: e.Attempts - e.Counted,
			Asked: f.preempted && !f.stays || f.phase == closing || f.cancelled, Stays: !f.mayLeave(),
		})
	}
	for _, y := range fs.yields(at, runs) {
		f := fs.all[y.ID]
		f.yieldsTo = y.To
		fs.makeRoom(at, f, yieldReason(y.To))
	}
}

// yieldReason is what a run is told that gives way, and the user.
func yieldReason(to job.Tenant) string {
	return fmt.Sprintf("tenant %s has a contract and waits for its place", to)
}

// yieldNote says to whom a job in flight gives way at its next step; "" to nobody.
func (fs *flights) yieldNote(id job.ID) string {
	f := fs.all[id]
	if f == nil || f.yieldsTo == "" || f.end != nil {
		return ""
	}
	return "stops at its next step: " + yieldReason(f.yieldsTo)
}

// couldStart returns the classes of the jobs of a tenant that would start if there were slots
// for all, one for each, as far as its heads are known.
func (b *backlog) couldStart(at time.Time, t job.Tenant) (list []*class) {
	var uses []use
	defer func() {
		for _, u := range uses {
			b.room.give(u)
		}
	}()
	for _, key := range slices.SortedFunc(maps.Keys(b.lanes), job.Lane.Compare) {
		if key.Tenant != t {
			continue
		}
		for i := range b.lanes[key].heads {
			h := &b.lanes[key].heads[i]
			if h.RunnableAt.After(wall(at)) {
				break
			}
			if b.room.wouldRun(at, t, h) {
				u := h.use(t)
				b.room.take(u)
				uses, list = append(uses, u), append(list, b.room.cores.hosts.class(h))
			}
		}
	}
	return list
}
