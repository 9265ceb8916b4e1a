package schedule_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// midnight is when every story begins.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a store and a Machine that works on it. The store is as simple as can be: a
// list that is looked through each time.
type world struct {
	testing.TB
	m       *schedule.Machine
	now     time.Time
	rows    []*row
	version uint64
	changed map[job.Lane]uint64
	over    map[job.Tenant]bool // whose grants are used up
	hidden  map[string]bool     // folders whose real path is not known yet
	ready   schedule.Ready      // what was asked for last and is not answered
	claimed int                 // how many Claims were made, each of them for at least one job
	read    int                 // heads that were read
}

// row is a job in the store.
type row struct {
	queue.Head
	lane     job.Lane
	deadline time.Time // zero: none
	state    job.EntryState

	attempts, counted, choice int
	session                   string
	fallback                  []job.Choice
}

func newWorld(t testing.TB, c schedule.Config) *world {
	w := &world{TB: t, now: midnight, changed: map[job.Lane]uint64{}, over: map[job.Tenant]bool{}, hidden: map[string]bool{}}
	if c.Policy == nil {
		c.Policy = w.policyOfTest()
	}
	if c.Scopes == nil {
		c.Scopes = []job.BatchID{""}
	}
	w.m = schedule.New(c)
	return w
}

// policyOfTest returns a policy that orders by priority.
func (w *world) policyOfTest() policy.Policy {
	p, err := policy.New(policy.Config{Name: policy.NamePriority})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) find(id job.ID) *row {
	for _, r := range w.rows {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// touch raises the version of a lane, as the store does in the transaction that changes it.
func (w *world) touch(l job.Lane) {
	w.version++
	w.changed[l] = w.version
}

func (w *world) add(r row) {
	r.state = job.Queued
	w.rows = append(w.rows, &r)
	w.touch(r.lane)
}

// step feeds events, and keeps what is asked for.
func (w *world) step(events ...schedule.Event) {
	w.ready = w.m.Step(w.now, events...)
}

// rest answers what is asked for until nothing is any more, and returns what was started
// on the way.
func (w *world) rest(events ...schedule.Event) (started []*schedule.Run) {
	w.Helper()
	w.step(events...)
	for range 10_000 {
		started = append(started, w.started()...)
		answers := w.answers()
		if len(answers) == 0 {
			return started
		}
		w.step(answers...)
	}
	w.Fatal("the machine does not come to rest")
	return nil
}

// started returns the runs for which a permit is asked for.
func (w *world) started() (list []*schedule.Run) {
	for _, work := range w.ready.Work {
		if ask, ok := work.Call.(schedule.AskPermit); ok {
			list = append(list, ask.Run)
		}
	}
	return list
}

// answers does what was asked for.
func (w *world) answers() (list []schedule.Event) {
	for _, spec := range w.ready.Reads {
		spec.Now = w.now
		list = append(list, w.heads(spec))
	}
	for _, c := range w.ready.Claims {
		list = append(list, w.take(c))
	}
	for _, path := range w.ready.Resolve {
		if !w.hidden[path] {
			list = append(list, schedule.FolderKnown{Path: path, Real: "/real" + path})
		}
	}
	w.ready.Reads, w.ready.Claims, w.ready.Work = nil, nil, nil
	return list
}

// queued returns the entries of a lane, in its order.
func (w *world) queued(l job.Lane) (list []*row) {
	for _, r := range w.rows {
		if r.lane == l && r.state == job.Queued {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return comparePlaces(a.Place(), b.Place()) })
	return list
}

func comparePlaces(a, b queue.Place) int {
	return cmp.Or(a.RunnableAt.Compare(b.RunnableAt), cmp.Compare(a.ID, b.ID))
}

// heads answers a read as a store does.
func (w *world) heads(spec queue.HeadsSpec) schedule.HeadsRead {
	a := schedule.HeadsRead{Batch: spec.Batch, Folders: map[string]string{}}
	a.All = spec.Since == 0
	for _, r := range w.rows {
		if r.lane.Batch == spec.Batch && r.state == job.Queued && !r.deadline.IsZero() && !r.deadline.After(w.now) {
			r.state = job.Expired
			a.Expired = append(a.Expired, r.ID)
			w.touch(r.lane)
		}
	}
	a.Version = w.version
	lanes := map[job.Lane]bool{}
	for _, r := range w.rows {
		lanes[r.lane] = true
		if r.lane.Batch == spec.Batch && r.state == job.Queued && !r.deadline.IsZero() && (a.NextAt.IsZero() || r.deadline.Before(a.NextAt)) {
			a.NextAt = r.deadline
		}
	}
	for l := range lanes {
		if l.Batch == spec.Batch && (w.changed[l] > spec.Since || a.All && len(w.queued(l)) > 0) {
			a.Lanes = append(a.Lanes, w.slice(l, queue.Place{}, spec.Each, a.Folders))
		}
	}
	slices.SortFunc(a.Lanes, func(x, y queue.LaneHeads) int { return x.Lane.Compare(y.Lane) })
	for _, p := range spec.Pages {
		a.Pages = append(a.Pages, w.slice(p.Lane, p.After, p.Max, a.Folders))
	}
	return a
}

func (w *world) slice(l job.Lane, after queue.Place, most int, folders map[string]string) queue.LaneHeads {
	a := queue.LaneHeads{Lane: l}
	for _, r := range w.queued(l) {
		if comparePlaces(r.Place(), after) <= 0 {
			continue
		}
		if len(a.Heads) == most {
			a.More = true
			break
		}
		h := r.Head
		h.Over = w.over[l.Tenant]
		a.Heads = append(a.Heads, h)
		w.read++
		if path := h.Workspace.Path; path != "" && !w.hidden[path] {
			folders[path] = "/real" + path
		}
	}
	return a
}

// take claims as a store does: what is still queued, runnable, in time and within its grant.
func (w *world) take(c schedule.Claim) schedule.Claimed {
	a := schedule.Claimed{Asked: c.IDs}
	w.claimed++
	if len(c.IDs) == 0 {
		w.Error("a claim of nothing")
	}
	for _, id := range c.IDs {
		r := w.find(id)
		if r == nil || r.state != job.Queued || r.lane.Batch != c.Batch || r.RunnableAt.After(w.now) || w.over[r.lane.Tenant] || !r.deadline.IsZero() && !r.deadline.After(w.now) {
			continue
		}
		r.state = job.Dispatched
		a.Entries = append(a.Entries, r.entry())
	}
	return a
}

// entry returns the row as it is claimed.
func (r *row) entry() queue.Entry {
	e := queue.Entry{ID: r.ID, Batch: r.lane.Batch, State: job.Dispatched, RunnableAt: r.RunnableAt, Attempts: r.attempts, Counted: r.counted, Choice: r.choice, Session: r.session}
	if r.Resumes && e.Session == "" {
		e.Session = "old"
	}
	if e.Session != "" {
		e.SessionWorker, e.SessionNode = r.Worker, r.SessionNode
	}
	e.Spec = job.Spec{Tenant: r.lane.Tenant, Priority: r.lane.Priority, Worker: r.Worker, Workspace: r.Workspace, Node: r.Node, Fallback: r.fallback, Limits: job.Limits{MaxAttempts: 3}}
	return e
}

// end ends a job that is in flight: for good, or back to the queue.
func (w *world) end(id job.ID, over bool, at time.Time) schedule.Gone {
	r := w.find(id)
	r.state = job.Completed
	if !over {
		r.state, r.RunnableAt = job.Queued, at
		w.touch(r.lane)
	}
	return schedule.Gone{ID: id, Over: over}
}

func (w *world) inState(s job.EntryState) (list []*row) {
	for _, r := range w.rows {
		if r.state == s {
			list = append(list, r)
		}
	}
	return list
}

// up is a core that takes work.
func up() schedule.Cores { return schedule.Cores{{ID: 1, Index: 1, Takes: true}} }

// task returns a queued job of a tenant that may run at once.
func task(n int, t job.Tenant, priority int) row {
	return row{Head: queue.Head{ID: job.ID(fmt.Sprintf("j%03d", n)), RunnableAt: midnight, Worker: "shell"}, lane: job.Lane{Tenant: t, Priority: priority}}
}
