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

// Limits of a host hold for all of its cores together, so each core has to know what the
// others do. A core is told with each request for a permit, and with each report on the queue:
//
//	Running   permits that are held elsewhere now
//	Granted   permits that were asked for elsewhere since it was told last
//	Returned  those of them that were refused after all
//	Spent     US dollars that were spent elsewhere since it was told last
//
// For each permit p that was asked for at core c, and each other core d, with Told(d, p) the
// number of times that d heard of p as Granted less those as Returned:
//
//	p is held or asked for  =>  Told(d, p) = 1 after the next word to d
//	p was refused           =>  Told(d, p) = 0 after the next word to d
//
// A word that fails is taken back (Untold) though d may have heard it: it may then count
// twice, which delays a job, and never not at all, which would break a limit.
//
// A request counts at every other core before it is answered: of two requests at once
// neither misses the other, and no limit is exceeded.
//
// Where cores run on nodes (Lasting) there may be thousands of runs and of cores, of which no
// request can tell all. What runs at once is then bounded by the machine alone, which has each
// of them in flight from before its permit to after its end; cores are told of permits only
// where rates bound them in time.

// coreBooks is what every core has still to be told of the others.
type coreBooks struct {
	flights map[job.ID]*flight
	ready   *Ready

	fleet bool    // some cores are Lasting
	rated bool    // there are limits of permits in time
	books []*book // of the cores that are up or starting, by their places
	byID  map[CoreID]*book
	hosts hosts
	asked []asked // permits, of the last minute, the oldest first
	spent spendings
}

// book is what one core has still to be told.
type book struct {
	core     Core
	flights  int
	asked    []asked
	returned []ipc.Held
	spent    map[job.Tenant]float64
}

// asked is a permit that was asked for, mostly at another core.
type asked struct {
	by *flight // nil: it was told once, in vain
	at time.Time
	ipc.Held
}

// rateMemory is how long a permit counts in a rate: a core that starts anew is told of
// those that were asked for since, or its buckets would be full. maxAsked bounds how many
// are remembered.
const (
	rateMemory = time.Minute
	maxAsked   = 10_000
)

// cores takes the list of cores. A core that is new, starting or up, has to hear of the
// permits of the last minute.
func (k *coreBooks) coresAre(at time.Time, list Cores) {
	books := make([]*book, 0, len(list))
	k.fleet = false
	for _, c := range list {
		k.fleet = k.fleet || c.Lasting
		b := k.book(c.ID)
		if b == nil {
			b = &book{asked: slices.DeleteFunc(slices.Clone(k.asked), func(a asked) bool { return at.Sub(a.at) > rateMemory })}
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
	e := &ipc.Elsewhere{Returned: b.returned, Spent: b.spent}
	for _, a := range b.asked {
		e.Granted = append(e.Granted, a.Held)
	}
	b.asked, b.returned, b.spent = nil, nil, nil
	if len(k.books) > 1 && !k.fleet {
		for _, other := range sorted(k.flights) {
			if f := k.flights[other]; f.held && f.run.Core != id {
				e.Running = append(e.Running, f.holds())
			}
		}
	}
	if len(e.Running)+len(e.Granted)+len(e.Returned)+len(e.Spent) == 0 {
		return nil
	}
	return e
}

// untold takes back that a core was told of the others: the call has failed. What it may
// have heard all the same counts twice then, which is better than not at all.
func (k *coreBooks) untold(at time.Time, id CoreID, e *ipc.Elsewhere) {
	b := k.book(id)
	if b == nil || e == nil {
		return
	}
	for _, h := range e.Granted {
		b.asked = append(b.asked, asked{at: at, Held: h})
	}
	b.returned = append(b.returned, e.Returned...)
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

// count counts the permit that a flight is about to ask for at every other core.
func (k *coreBooks) count(at time.Time, f *flight) {
	f.held, f.told = true, nil
	if k.fleet && !k.rated {
		return
	}
	a := asked{f, at, f.holds()}
	for _, b := range k.books {
		if b.core.ID != f.run.Core {
			b.asked = append(b.asked, a)
			f.told = append(f.told, b.core.ID)
		}
	}
	k.asked = append(k.asked, a)
	// The oldest stand first, and are looked at one by one: it is done for every job.
	old := max(len(k.asked)-maxAsked, 0)
	for at.Sub(k.asked[old].at) > rateMemory {
		old++
	}
	k.asked = k.asked[old:]
}

// uncount takes back what count has counted. A core that was told of it already is told
// that it came to nothing.
func (k *coreBooks) uncount(f *flight) {
	f.held = false
	by := func(a asked) bool { return a.by == f }
	k.asked = slices.DeleteFunc(k.asked, by)
	for _, id := range f.told {
		b := k.book(id)
		if b == nil {
			continue
		}
		untold := len(b.asked)
		if b.asked = slices.DeleteFunc(b.asked, by); len(b.asked) == untold {
			b.returned = append(b.returned, f.holds())
		}
	}
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
	tenant := f.run.Entry.Spec.Tenant
	f.charged += usd
	k.spent.add(wall(at), tenant, usd)
	for _, b := range k.books {
		if b.core.ID != f.run.Core {
			b.spend(tenant, usd)
		}
	}
}
