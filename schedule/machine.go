package schedule

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Machine decides what happens to jobs. Make it with New. It must not be used by two
// goroutines at once.
//
//	backlog    what is queued, and in which order the policy takes it
//	room       what may run at once, and what holds it
//	coreBooks  what each core is to be told of the others
//	flights    the jobs in flight, one Work after the other
//	verdicts   what follows from a refusal, a stop and an end
type Machine struct {
	backlog  backlog
	room     room
	cores    coreBooks
	flights  flights
	verdicts verdicts
	ready    Ready // what the next Step returns
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
	// Placement is how jobs are put on hosts; "" is Spread.
	Placement Placement
	Retry     *policy.Retry
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
	all := map[job.ID]*flight{}
	m := &Machine{}
	m.cores = coreBooks{flights: all, ready: &m.ready, hosts: hosts{named: map[string]*host{}, pack: c.Placement == Pack, classes: map[string]*class{}}}
	m.cores.spent.bound(c.Windows)
	m.room = newRoom(c.Bounds, all, &m.cores)
	m.backlog = backlog{policy: c.Policy, expect: c.Expect, lanes: map[job.Lane]*lane{}, flights: all, room: &m.room}
	for _, batch := range c.Scopes {
		m.backlog.scopes = append(m.backlog.scopes, &scope{batch: batch, stale: true})
	}
	m.verdicts = verdicts{
		retry: c.Retry, await: c.Await, with: c.With, room: &m.room, held: map[job.BatchID]string{},
		folderBusy: map[job.ID]time.Time{}, lateStarts: map[job.ID]int{},
	}
	m.flights = flights{all: all, unstored: map[job.ID]*flight{}, backlog: &m.backlog, room: &m.room, cores: &m.cores, verdicts: &m.verdicts, ready: &m.ready}
	return m
}

// Step takes events that happened, the last of them at the time, and returns what to
// do. at should carry a monotonic reading: ends of isolations are compared with it.
func (m *Machine) Step(at time.Time, events ...Event) Ready {
	m.Take(at, events...)
	m.pass(at)
	if m.backlog.mayChoose() {
		m.ready.Claims = m.choose(at)
	}
	m.flights.flush(at)
	m.ready.Reads = m.backlog.reads()
	m.ready.Resolve = slices.Clone(m.backlog.unknown)
	m.ready.Wake = m.wake(at)
	r := m.ready
	m.ready, m.backlog.fresh = Ready{}, false
	return r
}

// Take takes events that happened at the time. What follows from them is said by the next
// Step.
func (m *Machine) Take(at time.Time, events ...Event) {
	for _, e := range events {
		m.take(at, e)
	}
}

// pass looks at what is due by itself: deadlines of queued jobs, which the store finds when
// it is read; grants that may have been renewed; isolations that have ended.
func (m *Machine) pass(at time.Time) {
	for _, s := range m.backlog.scopes {
		if due(s.nextAt, wall(at)) {
			s.stale, s.nextAt = true, time.Time{}
		}
	}
	if due(m.backlog.overAt, at) {
		m.take(at, Forget{})
	}
	if due(m.cores.hosts.probeAt, at) {
		m.cores.hosts.mayProbe(at)
		m.tryHosts()
	}
	if due(m.room.sessionAt, at) {
		m.room.sessionAt = time.Time{}
		m.backlog.again()
	}
	in := len(m.room.isolations)
	m.room.isolations = slices.DeleteFunc(m.room.isolations, func(i isolation.Isolation) bool { return due(i.Until, at) })
	if len(m.room.isolations) < in {
		m.backlog.again()
	}
}

// tryHosts looks again at what was passed over, since a host may have room. One that nobody
// has described is looked at before any head, so that none was passed over for it.
func (m *Machine) tryHosts() {
	if m.cores.hosts.told {
		m.backlog.again()
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
		m.room.bounds = e
		m.cores.hosts.freed++
		m.backlog.again()
	case Cores:
		m.tryHosts()
		m.cores.coresAre(e)
		m.tryHosts()
	case LeftBehind:
		m.flights.leftBehind(at, e)
	case TakenOver:
		m.flights.takeOver(at, e)
	case Lapsed:
		m.flights.lapsed(at, e)
	case CoreGone:
		m.flights.coreGone(at, e)
	case Mode:
		m.modeIs(at, e)
	case Isolations:
		if m.room.isolations = e; len(e) == 0 {
			clear(m.room.parked)
		}
		m.backlog.again()
	case UsePolicy:
		m.backlog.usePolicy(at, e)
	case Reputation:
		if p, ok := m.backlog.policy.(policy.Reputed); ok {
			p.SetReputation(e.Tenant, e.Value)
		}
	case Changed:
		for _, s := range m.backlog.scopes {
			s.stale = true
		}
	case Forget:
		for _, s := range m.backlog.scopes {
			s.since, s.stale, s.void, s.nextAt = 0, true, s.reading, time.Time{}
		}
		m.backlog.overAt = time.Time{}
	case HeadsRead:
		m.backlog.headsRead(&e)
		m.backlog.fresh = true
	case FolderKnown:
		m.backlog.folderKnown(e)
	case Claimed:
		m.flights.claimed(at, &e)
	case Gone:
		m.flights.gone(at, e)
	case Dropped:
		m.flights.forget(e.ID)
	case Done:
		m.flights.done(at, &e)
	case RunEvent:
		m.flights.runEvent(at, e)
	case Ended:
		if f := m.flights.all[e.Job]; f != nil && f.run != nil && f.run.Attempt == e.Attempt && f.run.Core == e.Core {
			m.flights.settle(at, f, ending{outcome: e.Outcome})
		}
	case Stop:
		m.flights.stop(at, e)
	case Hold:
		if m.verdicts.held[e.Batch] = e.Why; e.Why == "" {
			delete(m.verdicts.held, e.Batch)
		}
	case Preempt:
		m.flights.preempt(at)
		m.flights.yield(at)
	case UsedUp:
		m.flights.usedUp(at, e)
	case UseRetry:
		m.verdicts.retry = e.Retry
	case Windows:
		m.cores.spent.bound(e)
	case Recall:
		m.cores.recall(at, e)
	case Tick:
	}
}

// choose takes jobs for free slots, in the policy's order. It stops where the next head of
// a lane is not in memory: which job that is decides who comes next.
func (m *Machine) choose(at time.Time) (claims []Claim) {
	for m.room.free(at) > 0 {
		h, ok := m.backlog.policy.Next(wall(at))
		if !ok {
			break
		}
		l := m.backlog.lanes[h.Lane]
		c := &l.heads[l.passed]
		where, refused := m.room.refuses(at, h.Lane.Tenant, c)
		if refused {
			if where.session {
				m.room.awaitSession(at, c.ID)
			}
			if m.backlog.passOver(at, l, where.waiting); m.backlog.holdsUp(l.key) {
				break
			}
			continue
		}
		f := &flight{lane: l.key, ask: h.Ask, uses: c.use(l.key.Tenant)}
		if !c.since.IsZero() {
			f.waited = max(at.Sub(c.since), 0)
		}
		delete(m.room.parked, c.ID)
		delete(m.room.sessions, c.ID)
		m.cores.hosts.take(where.host, f, int64(c.Memory))
		m.flights.all[c.ID] = f
		m.backlog.policy.Start(l.key.Tenant, f.ask, wall(at))
		m.room.take(f.uses)
		claims = with(claims, l.key.Batch, c.ID)
		l.heads = slices.Delete(l.heads, l.passed, l.passed+1)
		if m.backlog.tell(l); l.wanted {
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

// Slots returns how many more jobs may start now, and if none may, what they wait for.
func (m *Machine) Slots(at time.Time) (int, job.Waiting) { return m.room.slots(at) }

// Shares returns how the tenants stand, by their names: what of the whole each had and what
// it should have, both in [0, 1].
func (m *Machine) Shares(at time.Time) []policy.Share { return m.backlog.policy.Shares(wall(at)) }

// Refuses returns what a queued job would wait for if it were to start now, slots apart;
// false: nothing. folder is the real path of its workspace, if that is known.
func (m *Machine) Refuses(at time.Time, t job.Tenant, h queue.Head, folder string, known bool) (job.Waiting, bool) {
	where, refused := m.room.refuses(at, t, &head{Head: h, mirror: h.Workspace.Mirror(t), real: folder, known: known})
	return where.waiting, refused
}

// Yields says which of the runs are to give way, given how things stand; none as long as a
// slot is free, or nothing may start for another reason.
func (m *Machine) Yields(at time.Time, runs []Candidate) []Yield { return m.flights.yields(at, runs) }

// YieldNote says to whom a job in flight gives way at its next step; "" to nobody.
func (m *Machine) YieldNote(id job.ID) string { return m.flights.yieldNote(id) }

// Elsewhere returns what a core has to know of the others and of those that were before
// it, nil if there is nothing. What it returned once it does not return again: the
// caller tells the core, or calls Untold.
func (m *Machine) Elsewhere(id CoreID) *ipc.Elsewhere { return m.cores.elsewhere(id) }

// Untold takes back that a core was told of the others: the call has failed. What it may
// have heard all the same counts twice then, which is better than not at all.
func (m *Machine) Untold(id CoreID, e *ipc.Elsewhere) { m.cores.untold(id, e) }

// Charged returns what a job in flight has spent in its attempt, as told by Charged.
func (m *Machine) Charged(id job.ID) float64 {
	if f := m.flights.all[id]; f != nil {
		return f.charged
	}
	return 0
}

// Spent returns the cost windows with what counts in each, for a core that starts.
func (m *Machine) Spent(at time.Time, windows []ipc.CostWindow) []ipc.CostWindow {
	return m.cores.spent.fill(wall(at), windows)
}

// Remembers returns how far back spendings are kept; 0 means that none are.
func (m *Machine) Remembers() time.Duration { return m.cores.spent.keep }

// Leaving returns how many runs stop at the boundary of a step since the scheduler ends, or
// are being asked to.
func (m *Machine) Leaving() int { return m.flights.leaving() }

// Notes returns how much is remembered of jobs that are not in flight: those that an isolation
// has refused, that wait for the host of their session, that met a busy workspace or came too
// late.
func (m *Machine) Notes() int {
	return len(m.room.parked) + len(m.room.sessions) + len(m.verdicts.folderBusy) + len(m.verdicts.lateStarts)
}

// wake returns when something may be due by itself: what pass looks at, and when the policy
// would choose otherwise though nothing has happened, since its window has moved on.
func (m *Machine) wake(at time.Time) time.Time {
	wake := earlier(earlier(earlier(m.backlog.policy.Wake(wall(at)), m.backlog.overAt), m.cores.hosts.probeAt), m.flights.flushAt)
	wake = earlier(wake, m.room.sessionAt)
	for _, s := range m.backlog.scopes {
		wake = earlier(wake, s.nextAt)
	}
	for _, i := range m.room.isolations {
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

// Buffered returns how many events are not stored and not about to be. An owner that lets
// it grow without end runs out of memory.
func (m *Machine) Buffered() int { return m.flights.buffered }

// InFlight returns how many jobs are claimed or being claimed.
func (m *Machine) InFlight() int { return len(m.flights.all) }

// Lookup returns the run of a job in flight; nil if its claim is not committed, or it is not
// in flight.
func (m *Machine) Lookup(id job.ID) *Run {
	if f := m.flights.all[id]; f != nil {
		return f.run
	}
	return nil
}

// Runs returns what is in flight and claimed, by job.
func (m *Machine) Runs() (list []*Run) {
	for _, id := range sorted(m.flights.all) {
		if f := m.flights.all[id]; f.run != nil {
			list = append(list, f.run)
		}
	}
	return list
}

// Kept reports whether a run's claim is still its own: its end is not being recorded.
func (m *Machine) Kept(r *Run) bool {
	f := m.flights.all[r.Entry.ID]
	return f != nil && f.run != nil && f.run.Attempt == r.Attempt && f.phase < closing
}

// OnCore returns how many jobs were given to a core.
func (m *Machine) OnCore(id CoreID) int {
	if b := m.cores.book(id); b != nil {
		return b.flights
	}
	return 0
}
