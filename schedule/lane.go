package schedule

import (
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// How much of a lane is read at once: firstHeads of every lane when nothing is known,
// someHeads of one that has changed, and then pages that double up to maxPage. Of a lane
// in which more than maxPassed heads were passed over, the first ones are forgotten and
// read again when there is room for something else.
const (
	firstHeads = 1
	someHeads  = 4
	maxPage    = 64
	maxPassed  = 256
)

// backlog is what is known of the queue, and the policy that orders it.
type backlog struct {
	policy  policy.Policy
	expect  job.Expectation
	flights map[job.ID]*flight // of which nothing but their ids and whether they fly is asked
	room    *room

	scopes  []*scope
	lanes   map[job.Lane]*lane
	behind  []*lane   // lanes in which heads were passed over; each once
	unknown []string  // workspaces of heads whose real path is not known, sorted
	fresh   bool      // heads were read since the last Step
	overAt  time.Time // when to read again what was passed over for a used up grant; zero: nothing was
}

// scope is one of the batches to work on, or what is shared.
type scope struct {
	batch   job.BatchID
	since   uint64     // what is known of its lanes; 0: nothing
	stale   bool       // lanes may have changed since
	reading bool       // a read was asked for and not answered yet
	void    bool       // its answer is not wanted any more
	pages   []job.Lane // of which more is wanted; each once
	only    []job.Lane // those with job.Lane.Only, as they were read last
	nextAt  time.Time  // the first deadline; zero: none
}

// lane is what is known of one lane of the queue.
//
//	heads[:passed]  passed over since there was room for something else; they stay queued
//	heads[passed]   what the policy knows as the lane's head
type lane struct {
	key    job.Lane
	heads  []head
	passed int
	more   bool        // the store has more behind last
	last   queue.Place // the place of the last head that was read
	size   int         // of the next page
	wanted bool        // it is in scope.pages
	paging bool        // a page behind last was asked for
	behind bool        // it is in Machine.behind
	// trimmed is set if heads that were passed over are not in memory any more.
	trimmed bool
}

// head is a queued job that the machine knows of.
type head struct {
	queue.Head
	class  *class    // nil: not looked for yet
	mirror string    // of its repository; see job.Workspace.Mirror
	real   string    // the real path of its workspace
	known  bool      // that is known
	since  time.Time // when it first waited for nothing but its workspace; zero: it did not
}

// use returns what the head would hold in flight. Its workspace is its real path, since
// two names of one folder are one folder.
func (h *head) use(t job.Tenant) use {
	return use{worker: h.Worker, tenant: t, folder: h.real, direct: h.Workspace.Isolation == job.Direct, alone: h.Type == job.Maintenance}
}

// headsRead takes what was read of a scope.
//
// Lanes of one entry (job.Lane.Only) are listed each time, all of them: those that an
// answer does not list any more are gone. Since when a head waits for its
// workspace is kept over the read, or the time that it waited would begin anew with every
// change of its lane.
func (b *backlog) headsRead(e *HeadsRead) {
	s := b.scope(e.Batch)
	if s == nil || !s.reading {
		return
	}
	for _, id := range e.Expired {
		delete(b.room.parked, id)
		delete(b.room.sessions, id)
	}
	s.reading = false
	if s.void {
		s.void = false
		return
	}
	s.since, s.nextAt = e.Version, e.NextAt
	listed := make(map[job.Lane]bool, len(e.Lanes))
	for _, l := range e.Lanes {
		listed[l.Lane] = true
	}
	gone := s.only
	if e.All {
		gone = b.lanesOf(s.batch)
	}
	for _, key := range gone {
		if l := b.lanes[key]; l != nil && !listed[key] {
			l.heads, l.passed, l.more, l.trimmed = nil, 0, false, false
			b.tell(l)
		}
	}
	s.only = nil
	for i := range e.Lanes {
		r := &e.Lanes[i]
		if r.Lane.Only != "" {
			s.only = append(s.only, r.Lane)
		}
		l := b.laneOf(r.Lane)
		waited := l.waited()
		l.heads, l.passed, l.trimmed, l.paging, l.size, l.last = l.heads[:0], 0, false, false, 2*someHeads, queue.Place{}
		b.extend(l, r, e.Folders)
		for n := range l.heads {
			l.heads[n].since = waited[l.heads[n].ID]
		}
	}
	for i := range e.Pages {
		r := &e.Pages[i]
		if l := b.lanes[r.Lane]; l != nil && l.paging {
			l.paging = false
			b.extend(l, r, e.Folders)
		}
	}
}

// waited returns since when heads of the lane wait for their workspaces.
func (l *lane) waited() map[job.ID]time.Time {
	var since map[job.ID]time.Time
	for i := range l.heads {
		if h := &l.heads[i]; !h.since.IsZero() {
			if since == nil {
				since = map[job.ID]time.Time{}
			}
			since[h.ID] = h.since
		}
	}
	return since
}

// lanesOf returns the known lanes of a scope, in no order: its caller empties all of them.
func (b *backlog) lanesOf(batch job.BatchID) (list []job.Lane) {
	for key := range b.lanes {
		if key.Batch == batch {
			list = append(list, key)
		}
	}
	return list
}

// laneOf returns what is known of a lane, nothing if it was not heard of.
func (b *backlog) laneOf(key job.Lane) *lane {
	l := b.lanes[key]
	if l == nil {
		l = &lane{key: key}
		b.lanes[key] = l
	}
	return l
}

// extend puts heads behind those that are known of a lane.
func (b *backlog) extend(l *lane, r *queue.LaneHeads, folders map[string]string) {
	l.more = r.More
	for _, h := range r.Heads {
		l.last = h.Place()
		if f := b.flights[h.ID]; f != nil && !f.isClaimed() {
			continue // it was read before its claim
		}
		c := head{Head: h, mirror: h.Workspace.Mirror(l.key.Tenant), known: h.Workspace.Path == ""}
		if real, ok := folders[h.Workspace.Path]; ok {
			c.real, c.known = real, true
		}
		if !c.known {
			b.resolve(h.Workspace.Path)
		}
		l.heads = append(l.heads, c)
	}
	b.tell(l)
}

// tell tells the policy of the head of a lane, and asks for more where none is known.
func (b *backlog) tell(l *lane) {
	if l.passed < len(l.heads) {
		h := &l.heads[l.passed]
		b.policy.Add(policy.Head{Lane: l.key, ID: h.ID, RunnableAt: h.RunnableAt, Ask: b.demand(h.Expect)})
		return
	}
	b.policy.Remove(l.key)
	switch {
	case l.more:
		b.wantPage(l)
	case len(l.heads) == 0 && !l.trimmed:
		delete(b.lanes, l.key)
	}
}

// wantPage has the next reads ask for what lies behind the last head of a lane. Lanes of
// one entry have no more than that one.
func (b *backlog) wantPage(l *lane) {
	if s := b.scope(l.key.Batch); s != nil && l.key.Only == "" && !l.wanted {
		l.wanted, s.pages = true, append(s.pages, l.key)
	}
}

// passOver leaves the head of a lane where it is and goes on behind it. Beyond maxPassed
// heads, memory is worth more than a second read: the lane is read from its beginning when
// there may be room again.
func (b *backlog) passOver(at time.Time, l *lane, why job.Waiting) {
	h := &l.heads[l.passed]
	if why.Reason == job.WaitFolder && h.known {
		if h.since.IsZero() {
			h.since = at
		}
		if h.Type == job.Maintenance {
			b.room.reserve(h.real) // else it would wait for ever beside a stream of jobs
		}
	}
	if h.Over && b.overAt.IsZero() {
		b.overAt = at.Add(overEvery)
	}
	if !l.behind {
		l.behind, b.behind = true, append(b.behind, l)
	}
	if l.passed++; l.passed > maxPassed {
		l.heads, l.passed, l.trimmed = slices.Delete(l.heads, 0, l.passed), 0, true
	}
	b.tell(l)
}

// again looks at everything that was passed over: there may be room for it now.
func (b *backlog) again() {
	behind := b.behind
	b.behind = nil
	b.room.release()
	for _, l := range behind {
		l.behind = false
		if b.lanes[l.key] != l {
			continue
		}
		if l.trimmed {
			b.reload(l)
			continue
		}
		l.passed = 0
		b.tell(l)
	}
}

// reload forgets what is known of a lane and reads it from its beginning.
func (b *backlog) reload(l *lane) {
	l.heads, l.passed, l.trimmed, l.paging, l.more, l.last, l.size = nil, 0, false, false, true, queue.Place{}, someHeads
	if l.key.Only != "" {
		l.more = false
		if s := b.scope(l.key.Batch); s != nil {
			s.stale = true
		}
	}
	b.tell(l)
}

// reads returns what is to be read, and counts on its being read. A page that is wanted of a
// lane that is read from its beginning anyway is not asked for.
func (b *backlog) reads() (list []queue.HeadsSpec) {
	for _, s := range b.scopes {
		if s.reading || !s.stale && len(s.pages) == 0 {
			continue
		}
		spec := queue.HeadsSpec{Batch: s.batch, Since: s.since, Each: someHeads}
		if s.since == 0 {
			spec.Each = firstHeads
		}
		for _, key := range s.pages {
			l := b.lanes[key]
			if l == nil {
				continue
			}
			if l.wanted = false; s.since > 0 {
				l.size, l.paging = max(l.size, firstHeads), true
				spec.Pages = append(spec.Pages, queue.Page{Lane: key, After: l.last, Max: l.size})
				l.size = min(2*l.size, maxPage)
			}
		}
		s.stale, s.reading, s.pages = false, true, nil
		list = append(list, spec)
	}
	return list
}

// resolve asks for the real path of a workspace. A file system may hang, so that the machine
// does not wait for the answer: heads of that workspace are passed over until it comes.
func (b *backlog) resolve(path string) {
	if i, found := slices.BinarySearch(b.unknown, path); !found {
		b.unknown = slices.Insert(b.unknown, i, path)
	}
}

// folderKnown gives the real path to the heads of a workspace, and tries them again.
func (b *backlog) folderKnown(e FolderKnown) {
	i, found := slices.BinarySearch(b.unknown, e.Path)
	if !found {
		return
	}
	b.unknown = slices.Delete(b.unknown, i, i+1)
	for _, l := range b.lanes {
		for n := range l.heads {
			if h := &l.heads[n]; h.Workspace.Path == e.Path {
				h.real, h.known = e.Real, true
			}
		}
	}
	b.again()
}

// sorted returns the ids of a map in an order that does not depend on the map's.
func sorted[V any](m map[job.ID]V) []job.ID { return slices.Sorted(maps.Keys(m)) }

// mayChoose reports whether enough is known of the store to choose: a job that went back
// to the queue must not lose its turn to those behind it, nor one that is not read yet to
// those of a lower priority. What changes while heads are read waits for the next read, so
// that a busy store does not hold up everything.
func (b *backlog) mayChoose() bool {
	return !slices.ContainsFunc(b.scopes, func(s *scope) bool {
		return s.reading || s.stale && !b.fresh || slices.ContainsFunc(s.pages, b.holdsUp)
	})
}

// holdsUp reports whether the next head of a lane has to be known before another is
// chosen. It has not behind very many that were passed over.
func (b *backlog) holdsUp(key job.Lane) bool {
	l := b.lanes[key]
	return l != nil && l.wanted && !l.trimmed
}

// usePolicy tells a new policy everything that an old one was told.
func (b *backlog) usePolicy(at time.Time, e UsePolicy) {
	b.policy, b.expect = e.Policy, e.Expect
	for _, id := range sorted(b.flights) {
		f := b.flights[id]
		b.policy.Start(f.lane.Tenant, f.ask, wall(at))
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.lanes), job.Lane.Compare) {
		b.tell(b.lanes[key])
	}
}

// scope returns a scope; nil if the machine does not work on that batch. There are few.
func (b *backlog) scope(batch job.BatchID) *scope {
	for _, s := range b.scopes {
		if s.batch == batch {
			return s
		}
	}
	return nil
}

// demand returns what a policy counts a job as until its use is known: what the job says of
// itself, else what the settings say of all.
func (b *backlog) demand(e job.Expectation) policy.Demand {
	if e.Tokens == 0 {
		e.Tokens = b.expect.Tokens
	}
	if e.CostUSD == 0 {
		e.CostUSD = b.expect.CostUSD
	}
	return policy.Demand{Tokens: float64(e.Tokens), CostUSD: e.CostUSD, Slots: 1}
}
