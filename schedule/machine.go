package schedule

import (
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Machine decides which queued job runs next. Make it with New. It must not be used by
// two goroutines at once.
type Machine struct {
	policy policy.Policy
	expect job.Expectation

	scopes []*scope
	lanes  map[job.Lane]*lane
	behind []*lane // lanes in which heads were passed over; each once

	bounds     Bounds
	mode       Mode
	isolations Isolations
	retry      *policy.Retry
	await      func(time.Time, *Run, *job.Outcome, *policy.Decision) queue.Op
	with       func(*Run, queue.Op) []queue.Op

	books    []*book // of the cores that are up or starting, by their places
	asked    []asked // permits, of the last minute, the oldest first
	spent    spendings
	held     map[job.BatchID]string // why batches do not go on
	flights  map[job.ID]*flight
	room     room
	buffered int       // events of flights that are not stored
	flushAt  time.Time // when they are to be stored; zero: there are none

	parked     map[job.ID]bool      // refused by an isolation when they were asked for last
	folderBusy map[job.ID]time.Time // since when jobs wait for a workspace that others have
	lateStarts map[job.ID]int       // how often in a row jobs came too late for their permits

	unknown []string  // workspaces of heads whose real path is not known, sorted
	ready   Ready     // what the next Step returns
	fresh   bool      // heads were read since the last Step
	probeAt time.Time // when to probe again after a core has refused that; zero: at once
	overAt  time.Time // when to read again what was passed over for a used up grant; zero: nothing was
}

// overEvery is how often heads are read again that were passed over for a grant: it moves
// on with the time, which no event tells.
const overEvery = time.Minute

// probePause is how long no job is probed with after a core has refused one. The cores
// know more: what began since they throttle and before the machine heard of it is old to
// the machine alone. Without a pause each queued job would be refused in turn.
const probePause = 5 * time.Second

// Config says what a Machine begins with.
type Config struct {
	// Scopes are the private batches to work on; "" is what is shared.
	Scopes []job.BatchID
	Policy policy.Policy
	Expect job.Expectation // of a job that does not say
	Bounds Bounds
	Retry  *policy.Retry
	// Windows are the cost windows that the cores enforce.
	Windows Windows

	// The rest are pure functions about the end of an attempt. Await returns the op that has a
	// person look at what an attempt made before anything follows from it, or nil. With
	// returns what else is to be stored with the op that ends a claim. nil: nothing.
	Await func(at time.Time, r *Run, o *job.Outcome, d *policy.Decision) queue.Op
	With  func(*Run, queue.Op) []queue.Op
}

// New returns a machine that knows of no core and has read nothing.
func New(c Config) *Machine {
	m := &Machine{
		policy: c.Policy, expect: c.Expect, bounds: c.Bounds, lanes: map[job.Lane]*lane{},
		retry: c.Retry, await: c.Await, with: c.With, room: newRoom(),
		held: map[job.BatchID]string{}, flights: map[job.ID]*flight{},
		parked: map[job.ID]bool{}, folderBusy: map[job.ID]time.Time{}, lateStarts: map[job.ID]int{},
	}
	m.spent.bound(c.Windows)
	for _, batch := range c.Scopes {
		m.scopes = append(m.scopes, &scope{batch: batch, stale: true})
	}
	return m
}

// Step takes events that happened, the last of them at the time, and returns what to
// do. at should carry a monotonic reading: ends of isolations are compared with it.
func (m *Machine) Step(at time.Time, events ...Event) Ready {
	m.Take(at, events...)
	m.pass(at)
	if m.mayChoose() {
		m.ready.Claims = m.choose(at)
	}
	m.flush(at)
	m.ready.Reads = m.reads()
	m.ready.Resolve = slices.Clone(m.unknown)
	m.ready.Wake = m.wake(at)
	r := m.ready
	m.ready, m.fresh = Ready{}, false
	return r
}

// Take takes events that happened at the time. What follows from them is said by the next
// Step.
func (m *Machine) Take(at time.Time, events ...Event) {
	for _, e := range events {
		m.take(at, e)
	}
}

// mayChoose reports whether enough is known of the store to choose: a job that went back
// to the queue must not lose its turn to those behind it, nor one that is not read yet to
// those of a lower priority. What changes while heads are read waits for the next read, so
// that a busy store does not hold up everything.
func (m *Machine) mayChoose() bool {
	return !slices.ContainsFunc(m.scopes, func(s *scope) bool {
		return s.reading || s.stale && !m.fresh || slices.ContainsFunc(s.pages, m.holdsUp)
	})
}

// holdsUp reports whether the next head of a lane has to be known before another is
// chosen. It has not behind very many that were passed over.
func (m *Machine) holdsUp(key job.Lane) bool {
	l := m.lanes[key]
	return l != nil && l.wanted && !l.trimmed
}

// pass looks at what is due by itself: deadlines of queued jobs, which the store finds when
// it is read; grants that may have been renewed; isolations that have ended.
func (m *Machine) pass(at time.Time) {
	for _, s := range m.scopes {
		if due(s.nextAt, wall(at)) {
			s.stale, s.nextAt = true, time.Time{}
		}
	}
	if due(m.overAt, at) {
		m.take(at, Forget{})
	}
	if due(m.probeAt, at) {
		m.probeAt = time.Time{}
	}
	in := len(m.isolations)
	m.isolations = slices.DeleteFunc(m.isolations, func(i isolation.Isolation) bool { return due(i.Until, at) })
	if len(m.isolations) < in {
		m.again()
	}
}

// wall returns the time as what is stored tells it. Ends of isolations are compared with the
// monotonic clock instead.
func wall(t time.Time) time.Time { return t.UTC().Round(0) }

// due reports whether a time, of which zero is never, has come.
func due(t, at time.Time) bool { return !t.IsZero() && !t.After(at) }

// take changes what the machine knows by an event. It decides nothing: Step does when all
// events of a batch were taken, so that a batch is one moment.
func (m *Machine) take(at time.Time, e Event) {
	switch e := e.(type) {
	case Bounds:
		m.bounds = e
		m.again()
	case Cores:
		m.coresAre(at, e)
	case CoreGone:
		m.coreGone(at, e)
	case Mode:
		m.modeIs(at, e)
	case Isolations:
		if m.isolations = e; len(e) == 0 {
			clear(m.parked)
		}
		m.again()
	case UsePolicy:
		m.usePolicy(at, e)
	case Reputation:
		if p, ok := m.policy.(policy.Reputed); ok {
			p.SetReputation(e.Tenant, e.Value)
		}
	case Changed:
		for _, s := range m.scopes {
			s.stale = true
		}
	case Forget:
		for _, s := range m.scopes {
			s.since, s.stale, s.void, s.nextAt = 0, true, s.reading, time.Time{}
		}
		m.overAt = time.Time{}
	case HeadsRead:
		m.headsRead(&e)
		m.fresh = true
	case FolderKnown:
		m.folderKnown(e)
	case Claimed:
		m.claimed(at, &e)
	case Landed:
		m.landed(at, e)
	case Dropped:
		m.forget(e.ID)
	case Done:
		m.done(at, &e)
	case RunEvent:
		m.runEvent(at, e)
	case Ended:
		if f := m.flights[e.Job]; f != nil && f.run != nil && f.run.Attempt == e.Attempt && f.run.Core == e.Core {
			m.settle(at, f, ending{outcome: e.Outcome})
		}
	case Stop:
		m.stop(at, e)
	case Hold:
		if m.held[e.Batch] = e.Why; e.Why == "" {
			delete(m.held, e.Batch)
		}
	case Preempt:
		m.preempt(at)
		m.yield(at)
	case UsedUp:
		m.usedUp(at, e)
	case UseRetry:
		m.retry = e.Retry
	case Windows:
		m.spent.bound(e)
	case Recall:
		m.recall(at, e)
	case Tick:
	}
}

// usePolicy tells a new policy everything that an old one was told.
func (m *Machine) usePolicy(at time.Time, e UsePolicy) {
	m.policy, m.expect = e.Policy, e.Expect
	for _, id := range sorted(m.flights) {
		f := m.flights[id]
		m.policy.Start(f.lane.Tenant, f.ask, wall(at))
	}
	for _, key := range slices.SortedFunc(maps.Keys(m.lanes), job.Lane.Compare) {
		m.tell(m.lanes[key])
	}
}

// choose takes jobs for free slots, in the policy's order. It stops where the next head of
// a lane is not in memory: which job that is decides who comes next.
func (m *Machine) choose(at time.Time) (claims []Claim) {
	for m.free(at) > 0 {
		h, ok := m.policy.Next(wall(at))
		if !ok {
			break
		}
		l := m.lanes[h.Lane]
		c := &l.heads[l.passed]
		if w, refused := m.refuses(at, h.Lane.Tenant, c); refused {
			if m.passOver(at, l, w); m.holdsUp(l.key) {
				break
			}
			continue
		}
		f := &flight{lane: l.key, ask: h.Ask, uses: c.use(l.key.Tenant)}
		if !c.since.IsZero() {
			f.waited = max(at.Sub(c.since), 0)
		}
		delete(m.parked, c.ID)
		n := m.throttle()
		f.probe = n > 0 && len(m.flights) >= n
		m.flights[c.ID] = f
		m.policy.Start(l.key.Tenant, f.ask, wall(at))
		m.room.take(f.uses)
		claims = with(claims, l.key.Batch, c.ID)
		l.heads = slices.Delete(l.heads, l.passed, l.passed+1)
		if m.tell(l); l.wanted {
			break
		}
	}
	return claims
}

// with adds an id to the claim of its batch.
func with(claims []Claim, batch job.BatchID, id job.ID) []Claim {
	for i := range claims {
		if claims[i].Batch == batch {
			claims[i].IDs = append(claims[i].IDs, id)
			return claims
		}
	}
	return append(claims, Claim{batch, []job.ID{id}})
}

// Shares returns how the tenants stand, by their names: what of the whole each had and what
// it should have, both in [0, 1].
func (m *Machine) Shares(at time.Time) []policy.Share { return m.policy.Shares(wall(at)) }

// Urgent returns, of each tenant that has a runnable job, the highest priority of these: for
// whom a run of the same tenant and a lower priority may stop between two steps. Jobs that
// were passed over count, those that are not read yet do not.
func (m *Machine) Urgent(at time.Time) map[job.Tenant]int {
	most := map[job.Tenant]int{}
	for key, l := range m.lanes {
		i := slices.IndexFunc(l.heads, func(h head) bool { return m.flights[h.ID] == nil })
		if i < 0 || l.heads[i].RunnableAt.After(wall(at)) {
			continue
		}
		if p, has := most[key.Tenant]; !has || key.Priority > p {
			most[key.Tenant] = key.Priority
		}
	}
	return most
}

// Refuses returns what a queued job would wait for if it were to start now, slots apart;
// false: nothing. folder is the real path of its workspace, if that is known.
func (m *Machine) Refuses(at time.Time, t job.Tenant, h queue.Head, folder string, known bool) (job.Waiting, bool) {
	return m.refuses(at, t, &head{Head: h, real: folder, known: known})
}

// Notes returns how much is remembered of jobs that are not in flight: those that an isolation
// has refused, that met a busy workspace or came too late.
func (m *Machine) Notes() int { return len(m.parked) + len(m.folderBusy) + len(m.lateStarts) }

// claimed takes what became of a claim. A flight of which nothing came is ended as if it had
// used nothing, and its lane is read again from the beginning.
func (m *Machine) claimed(at time.Time, e *Claimed) {
	got := make(map[job.ID]*queue.Entry, len(e.Entries))
	for i := range e.Entries {
		got[e.Entries[i].ID] = &e.Entries[i]
	}
	for _, id := range e.Asked {
		f := m.flights[id]
		if f == nil || f.flies() {
			continue
		}
		if entry := got[id]; entry != nil {
			m.board(at, f, entry)
			continue
		}
		// It was withdrawn, has expired, or its owner has used up a grant: its lane tells.
		m.end(at, id, f, policy.Demand{}, false)
		m.reload(m.laneOf(f.lane))
	}
}

// end gives back what a flight holds, tells the policy what was used instead of what was
// expected, and looks again at what was passed over.
func (m *Machine) end(at time.Time, id job.ID, f *flight, used policy.Demand, over bool) {
	delete(m.flights, id)
	m.room.give(f.uses)
	m.policy.End(f.lane.Tenant, f.ask, used, over, wall(at))
	m.again()
}

// wake returns when something may be due by itself: what pass looks at, and when the policy
// would choose otherwise though nothing has happened, since its window has moved on.
func (m *Machine) wake(at time.Time) time.Time {
	wake := earlier(earlier(earlier(m.policy.Wake(wall(at)), m.overAt), m.probeAt), m.flushAt)
	for _, s := range m.scopes {
		wake = earlier(wake, s.nextAt)
	}
	for _, i := range m.isolations {
		wake = earlier(wake, i.Until)
	}
	return wake
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// blocked returns the isolation that keeps r from running at the time.
func (m *Machine) blocked(at time.Time, r isolation.Run) (isolation.Isolation, bool) {
	for _, i := range m.isolations {
		if !due(i.Until, at) && i.Scope.Touches(r) {
			return i, true
		}
	}
	return isolation.Isolation{}, false
}

// scope returns a scope; nil if the machine does not work on that batch. There are few.
func (m *Machine) scope(batch job.BatchID) *scope {
	for _, s := range m.scopes {
		if s.batch == batch {
			return s
		}
	}
	return nil
}

// demand returns what a policy counts a job as until its use is known: what the job says of
// itself, else what the settings say of all.
func (m *Machine) demand(e job.Expectation) policy.Demand {
	if e.Tokens == 0 {
		e.Tokens = m.expect.Tokens
	}
	if e.CostUSD == 0 {
		e.CostUSD = m.expect.CostUSD
	}
	return policy.Demand{Tokens: float64(e.Tokens), CostUSD: e.CostUSD, Slots: 1}
}
