package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Stop asks what is in flight to end. What is not in flight is not concerned.
type Stop struct {
	Job    job.ID      // one job, or
	Batch  job.BatchID // all of a batch; both empty: everything
	How    How
	Reason string // for the log and the user; never empty
	// Unbegun has a run that has not begun not begin: its job goes back to the queue, also with OnlyBoundary.
	Unbegun bool

	sparing bool // runs that outlive the scheduler are not concerned
}

// How says how a run is asked to end.
type How int

const (
	// Withdraw ends the run in stages, and the job as cancelled. The store knows already
	// that the job is to be cancelled.
	Withdraw How = iota
	// Interrupt ends the run in stages. The attempt does not count.
	Interrupt
	// AtOnce is Interrupt without the gentle stages.
	AtOnce
	// Boundary has the run stop at the boundary of its next step. One whose worker keeps no
	// steps is interrupted.
	Boundary
	// OnlyBoundary has the run stop at the boundary of its next step, and leaves one alone
	// whose worker keeps no steps.
	OnlyBoundary
)

// Hold keeps the jobs of a batch from beginning, though they are claimed; Why is what they
// wait for, "" lets them go on. The store's own mark (queue.SetPrivate) keeps the rest of
// the batch from being claimed.
type Hold struct {
	Batch job.BatchID
	Why   string
}

// Preempt has the machine look for runs that stand in the way of more urgent jobs, or of
// contracted tenants.
type Preempt struct{}

// UsedUp says that owners have used up what they were granted: runs of theirs that keep steps
// would go on for long, and are asked to stop.
type UsedUp []queue.Owner

// stop asks the flights that are meant.
func (fs *flights) stop(at time.Time, e Stop) {
	for _, id := range sorted(fs.all) {
		f := fs.all[id]
		switch {
		case e.Job != "" && id != e.Job,
			e.Batch != "" && (f.run == nil || f.run.Entry.Batch != e.Batch),
			e.sparing && fs.lasts(f),
			f.phase == closing && e.How != Withdraw:
			continue
		}
		fs.stopFlight(at, f, e)
	}
}

func (fs *flights) stopFlight(at time.Time, f *flight, e Stop) {
	switch {
	case e.How == Withdraw: // also of one that is being claimed this very moment
		f.cancelled = true
		f.stops = append([]Stop{e}, f.stops...)
	case e.How == OnlyBoundary && f.phase < beginning && e.Unbegun:
		e.How = Interrupt // it has nothing to be kept
		f.stops = append(f.stops, e)
	case e.How == OnlyBoundary && f.phase < beginning:
		return // it has no step yet
	default:
		f.stops = append(f.stops, e)
	}
	fs.pursue(at, f)
}

// interrupts reports whether a run that has not begun is not to begin.
func interrupts(stops []Stop) bool {
	return slices.ContainsFunc(stops, func(s Stop) bool { return s.How != OnlyBoundary })
}

// askToStop asks the core for what f.asks says.
func (fs *flights) askToStop(f *flight) {
	s := f.asks
	if s.How == Boundary || s.How == OnlyBoundary {
		fs.do(f, Work{Call: CheckpointRun{f.run, s.Reason}})
		return
	}
	fs.do(f, Work{Call: CancelRun{f.run, ipc.CancelJob{
		Job: f.run.Entry.ID, Attempt: f.run.Attempt, Class: job.CancelledClass, Reason: s.Reason, Now: s.How == AtOnce, Lost: s.How != Withdraw,
	}}})
}

// checkpointAnswered takes whether a run's worker can stop at a step's boundary.
func (fs *flights) checkpointAnswered(f *flight, s Stop, can bool) {
	switch {
	case s.How == Boundary && !can:
		s.How = Interrupt
		f.stops = append([]Stop{s}, f.stops...)
	case s.How == OnlyBoundary && !can:
		f.stays, f.yieldsTo = f.preempted, "" // it has its slot until it ends
	case s.How == OnlyBoundary && fs.room.mode == Stopping:
		f.leaving = true
	}
}

// modeIs takes a mode. A scheduler that is about to end asks every run for a checkpoint.
func (m *Machine) modeIs(at time.Time, mode Mode) {
	if m.room.mode != Stopping && mode == Stopping {
		defer m.flights.stop(at, Stop{How: OnlyBoundary, Reason: "the scheduler is about to end", sparing: true})
	}
	m.room.mode = mode
}

// leaving returns how many runs stop at the boundary of a step since the scheduler ends, or
// are being asked to.
func (fs *flights) leaving() (n int) {
	for _, f := range fs.all {
		if f.leaving || f.asks.How == OnlyBoundary || slices.ContainsFunc(f.stops, func(s Stop) bool { return s.How == OnlyBoundary }) {
			n++
		}
	}
	return n
}

// preempt asks, once, a run to stop at a step's boundary that keeps a more urgent job of its
// tenant waiting: of the least urgent ones, the one that began last.
func (fs *flights) preempt(at time.Time) {
	if fs.room.free(at) > 0 || len(fs.all) == 0 {
		return
	}
	urgent := fs.backlog.urgent(at)
	var found *flight
	for _, id := range sorted(fs.all) {
		f := fs.all[id]
		if !f.mayLeave() || f.lent {
			continue
		}
		spec := &f.run.Entry.Spec
		u, waits := urgent[spec.Tenant]
		if !waits || u.lane.Priority <= spec.Priority || !u.class.suits(f.host) {
			continue
		}
		if found == nil || spec.Priority < found.run.Entry.Spec.Priority ||
			spec.Priority == found.run.Entry.Spec.Priority && f.run.Began.After(found.run.Began) {
			found = f
		}
	}
	if found != nil {
		fs.makeRoom(at, found, fmt.Sprintf("a job of priority %d waits for its place", urgent[found.run.Entry.Spec.Tenant].lane.Priority))
	}
}

// urgent is a job for which a run of its tenant of a lower priority may stop between two steps.
type urgent struct {
	lane  job.Lane
	class *class
}

// urgent returns, of each tenant that has a runnable job that some host suits, one of the
// highest priority. Jobs that were passed over count, those that are not read yet do not.
func (b *backlog) urgent(at time.Time) map[job.Tenant]urgent {
	most, hosts := map[job.Tenant]urgent{}, &b.room.cores.hosts
	for key, l := range b.lanes {
		i := 0
		for i < len(l.heads) && (b.flights[l.heads[i].ID] != nil || !hosts.suits(&l.heads[i])) {
			i++
		}
		if i == len(l.heads) || l.heads[i].RunnableAt.After(wall(at)) {
			continue
		}
		u, has := most[key.Tenant]
		if !has || key.Priority > u.lane.Priority || key.Priority == u.lane.Priority && key.Compare(u.lane) < 0 {
			most[key.Tenant] = urgent{key, hosts.class(&l.heads[i])}
		}
	}
	return most
}

// mayLeave reports whether a run may be asked to stop at a step's boundary for the sake of
// others. Each is asked once.
func (f *flight) mayLeave() bool {
	return f.phase == running && f.moved && !f.preempted && !f.cancelled && f.end == nil
}

// makeRoom asks a run to stop at a step's boundary. If its worker keeps no steps it has its
// slot until it ends.
func (fs *flights) makeRoom(at time.Time, f *flight, reason string) {
	f.preempted = true
	fs.stopFlight(at, f, Stop{How: OnlyBoundary, Reason: reason})
}

// usedUp asks the runs of owners for a checkpoint that have used up what they were granted.
func (fs *flights) usedUp(at time.Time, owners UsedUp) {
	for _, id := range sorted(fs.all) {
		f := fs.all[id]
		if !f.mayLeave() {
			continue
		}
		spec := &f.run.Entry.Spec
		i := slices.IndexFunc(owners, func(o queue.Owner) bool {
			return o.Tenant == spec.Tenant && (o.Agent == "" || o.Agent == spec.Agent)
		})
		if i >= 0 {
			fs.makeRoom(at, f, fmt.Sprintf("the budget of %s is used up", owners[i]))
		}
	}
}
