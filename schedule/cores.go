package schedule

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// CoreID names one life of a core: the one that takes its place has another. 0 is none.
type CoreID uint64

// Cores lists the cores that are up or starting, all of them, in any order. It replaces the
// list of before. Without one that takes jobs nothing is claimed: a claim that no core can
// serve would only wear out its lease.
type Cores []Core

// Core is one of them.
type Core struct {
	ID       CoreID
	Host     *Host // on which it runs; nil: the scheduler's own, without bounds of its own
	Index    int   // its place, from 1
	Takes    bool  // it takes new jobs; false while it starts
	Draining bool  // it is replaced as soon as it has no run any more
	Lasting  bool  // it and its runs outlive the scheduler, whose successor takes them over
	// Concurrency is how many jobs at once it allows, all cores of its host together, since
	// that is overloaded; 0: no bound.
	Concurrency int
}

// CoreGone says that a core is dead and that no process of its runs is left: their jobs may
// be given out again. ID 0 means that the scheduler has none any more, since it ends: the runs
// of those that are Lasting go on, with their claims.
type CoreGone struct {
	ID       CoreID
	Cause    error
	Replaced bool // on purpose: its runs are nobody's fault
}

// What cores have in common is kept in three places. Rates, and what requests to models may
// reserve of cost windows, are the scheduler's: cores ask for them (ipc.Limits.Shared). Limits
// of what runs at once hold for all cores of a host together, so each core is told with each
// request for a permit what the others hold:
//
//	Running   permits that are held elsewhere now
//
// and with that, and with each report on the queue, what runs have spent there whose requests
// no core sees, so that it can stop its own once a cost window is full:
//
//	Spent     US dollars that were spent elsewhere since it was told last
//
// A word that fails is taken back (Untold) though the core may have heard it: it may then count
// twice, and never not at all, which would break a limit. A request counts at every other core
// before it is answered: of two requests at once neither misses the other.
//
// Where cores run on nodes (Lasting) there may be thousands of runs and of cores, of which no
// request can tell all. What runs at once is then bounded by the machine alone, which has each
// of them in flight from before its permit to after its end.

// coreBooks is what every core has still to be told of the others.
type coreBooks struct {
	flights map[job.ID]*flight
	ready   *Ready

	fleet bool    // some cores are Lasting
	books []*book // of the cores that are up or starting, by their places
	byID  map[CoreID]*book
	hosts hosts
	spent spendings
}

// book is what one core has still to be told.
type book struct {
	core    Core
	flights int
	spent   map[job.Tenant]float64
}

// coresAre takes the list of cores.
func (k *coreBooks) coresAre(list Cores) {
	books := make([]*book, 0, len(list))
	k.fleet = false
	for _, c := range list {
		k.fleet = k.fleet || c.Lasting
		b := k.book(c.ID)
		if b == nil {
			b = &book{}
		}
		b.core = c
		books = append(books, b)
	}
	slices.SortFunc(books, func(a, b *book) int {
		if a.core.Index != b.core.Index {
			return a.core.Index - b.core.Index
		}
		return int(a.core.ID) - int(b.core.ID)
	})
	k.books, k.byID = books, make(map[CoreID]*book, len(books))
	for _, b := range books {
		k.byID[b.core.ID] = b
		k.drained(b)
	}
	throttle := k.hosts.describe(books)
	if len(throttle) == 0 {
		return
	}
	for _, f := range k.flights {
		if slices.Contains(throttle, f.host) {
			f.earlier = true
		}
	}
	for _, h := range throttle {
		h.fresh = 0
	}
}

// drained says so if a core that is to be replaced has no run any more.
func (k *coreBooks) drained(b *book) {
	if b.core.Draining && b.flights == 0 && !slices.Contains(k.ready.Drained, b.core.ID) {
		k.ready.Drained = append(k.ready.Drained, b.core.ID)
	}
}

// book returns the book of a core; nil if it is not there any more.
func (k *coreBooks) book(id CoreID) *book { return k.byID[id] }

// pick returns the core of a host that has the least to do, 0 if none takes work.
func (k *coreBooks) pick(h *host) CoreID {
	best := h.least()
	if best == nil {
		return 0
	}
	best.flights++
	return best.core.ID
}

// leave takes a flight off its core.
func (k *coreBooks) leave(f *flight) {
	if f.run == nil {
		return
	}
	if b := k.book(f.run.Core); b != nil {
		b.flights--
		k.drained(b)
	}
}

// enter puts a flight on its core, which it did not begin on.
func (k *coreBooks) enter(f *flight) {
	if b := k.book(f.run.Core); b != nil {
		b.flights++
	}
}

// coreGone ends what the core had in flight. What was not handed to it yet finds out by
// itself that the core does not answer.
func (fs *flights) coreGone(at time.Time, e CoreGone) {
	for _, id := range sorted(fs.all) {
		switch f := fs.all[id]; {
		case e.ID == 0 && fs.lasts(f):
			fs.leave(at, f)
		case f.run != nil && (e.ID == 0 || f.run.Core == e.ID):
			fs.settle(at, f, ending{died: e.Cause, replaced: e.Replaced})
		}
	}
}

// elsewhere returns what a core has to know of the others and of those that were before
// it, nil if there is nothing. What it returned once it does not return again: the
// caller tells the core, or calls Untold.
func (k *coreBooks) elsewhere(id CoreID) *ipc.Elsewhere {
	b := k.book(id)
	if b == nil {
		return nil
	}
	e := &ipc.Elsewhere{Spent: b.spent}
	b.spent = nil
	if len(k.books) > 1 && !k.fleet {
		for _, other := range sorted(k.flights) {
			if f := k.flights[other]; f.held && !f.lent && f.run.Core != id {
				e.Running = append(e.Running, f.holds())
			}
		}
	}
	if len(e.Running)+len(e.Spent) == 0 {
		return nil
	}
	return e
}

// untold takes back that a core was told of the others: the call has failed. What it may
// have heard all the same counts twice then, which is better than not at all.
func (k *coreBooks) untold(id CoreID, e *ipc.Elsewhere) {
	b := k.book(id)
	if b == nil || e == nil {
		return
	}
	for tenant, usd := range e.Spent {
		b.spend(tenant, usd)
	}
}

// spend notes what was spent elsewhere.
func (b *book) spend(tenant job.Tenant, usd float64) {
	if b.spent == nil {
		b.spent = map[job.Tenant]float64{}
	}
	b.spent[tenant] += usd
}

// holds returns what the permit of a flight counts as.
func (f *flight) holds() ipc.Held {
	return ipc.Held{Tenant: f.run.Entry.Spec.Tenant, Worker: f.run.Choice.Worker, Model: f.run.Choice.Model, Workspace: f.uses.folder}
}

// charge books what a flight has just spent: for the cores that start later, and for the
// other cores.
func (k *coreBooks) charge(at time.Time, f *flight, usd float64) {
	if !(usd > 0) {
		return
	}
	f.charged += usd
	if k.spent.keep <= 0 {
		return
	}
	tenant := f.run.Entry.Spec.Tenant
	k.spent.add(wall(at), tenant, usd)
	for _, b := range k.books {
		if b.core.ID != f.run.Core {
			b.spend(tenant, usd)
		}
	}
	k.ready.Tell = append(k.ready.Tell, Charged{Run: f.run, USD: usd, Total: f.charged})
}
