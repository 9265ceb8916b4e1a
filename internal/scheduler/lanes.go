package scheduler

import (
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// lanes keeps the policy informed of what the queue holds: it is told which
// lanes may have changed, has their heads read with the next claim, and lets the
// policy choose among them.
//
//	submit, release, retry, cancel ──► stale ──► Claim reads the heads ──► policy
//	                                             Claim ◄── Next ── policy
//
// It may be used by several goroutines at once.
type lanes struct {
	mu       sync.Mutex
	policy   policy.Policy
	expect   job.Expectation      // of a job that does not say
	all      map[job.BatchID]bool // scopes of which everything is stale
	stale    map[job.Lane]bool
	skipped  []job.Lane             // in this round: their heads are stale in the next
	known    map[job.Lane]time.Time // to the policy: when the head of each is runnable
	inFlight map[job.ID]started
}

// started is what the policy was told of a job in flight.
type started struct {
	tenant job.Tenant
	ask    policy.Demand
}

func newLanes(p policy.Policy, expect job.Expectation, scopes []job.BatchID) *lanes {
	l := &lanes{all: map[job.BatchID]bool{}, stale: map[job.Lane]bool{}, known: map[job.Lane]time.Time{}, inFlight: map[job.ID]started{}}
	l.use(p, expect, scopes, time.Time{})
	return l
}

// use makes p the policy from now on. What is in flight counts for it too.
func (l *lanes) use(p policy.Policy, expect job.Expectation, scopes []job.BatchID, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policy, l.expect = p, expect
	clear(l.known)
	for _, s := range l.inFlight {
		p.Start(s.tenant, s.ask, at)
	}
	l.allStale(scopes)
}

func (l *lanes) allStale(scopes []job.BatchID) {
	clear(l.stale)
	for _, b := range scopes {
		l.all[b] = true
	}
}

// forget makes everything of the scopes be read again.
func (l *lanes) forget(scopes []job.BatchID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allStale(scopes)
}

// touch makes the lane of an entry be read again; scopes are those that exist.
// An entry with a key may have let others have their turn: everything is then.
func (l *lanes) touch(e *queue.Entry, scopes []job.BatchID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Key != "" {
		l.allStale(scopes)
		return
	}
	lane := job.Lane{Tenant: e.Spec.Tenant, Priority: e.Spec.Priority}
	if slices.Contains(scopes, e.Batch) {
		lane.Batch = e.Batch
	}
	if !l.all[lane.Batch] {
		l.stale[lane] = true
	}
}

// next returns the scope to claim from: the one of whose lanes the policy wants
// the first, or one that has something stale. False: there is nothing to claim.
func (l *lanes) next(at time.Time) (job.BatchID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range l.all {
		return b, true
	}
	for lane := range l.stale {
		return lane.Batch, true
	}
	h, ok := l.policy.Next(at)
	return h.Lane.Batch, ok
}

// wake returns when the policy may want something else by itself; zero: never.
func (l *lanes) wake(at time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.Wake(at)
}

// skip notes lanes whose heads were passed over in this round.
func (l *lanes) skip(list []job.Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skipped = append(l.skipped, list...)
}

// endRound makes the heads that were passed over be read again with the next claim.
func (l *lanes) endRound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.skipped {
		if !l.all[lane.Batch] {
			l.stale[lane] = true
		}
	}
	l.skipped = l.skipped[:0]
}

// landed tells the policy that a job is no longer in flight.
func (l *lanes) landed(id job.ID, used job.Usage, completed bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.inFlight[id]
	if !ok {
		return
	}
	delete(l.inFlight, id)
	l.policy.End(s.tenant, s.ask, policy.Demand{Tokens: float64(used.Tokens()), CostUSD: used.CostUSD}, completed, at)
}

// reputation tells the policy of a tenant's reputation, if it asks for it.
func (l *lanes) reputation(t job.Tenant, r float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.policy.(policy.Reputed); ok {
		p.SetReputation(t, r)
	}
}

// shares returns how the tenants stand.
func (l *lanes) shares(at time.Time) []policy.Share {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.Shares(at)
}

func (l *lanes) ask(e *queue.Entry) policy.Demand {
	tokens, cost := e.Spec.Expect.Tokens, e.Spec.Expect.CostUSD
	if tokens == 0 {
		tokens = l.expect.Tokens
	}
	if cost == 0 {
		cost = l.expect.CostUSD
	}
	return policy.Demand{Tokens: float64(tokens), CostUSD: cost, Slots: 1}
}

// chooser is the queue.Chooser of one claim from one scope.
type chooser struct {
	*lanes
	scope job.BatchID
	now   time.Time
}

func (l *lanes) in(scope job.BatchID, at time.Time) *chooser {
	return &chooser{lanes: l, scope: scope, now: at}
}

// Stale implements queue.Chooser.
func (c *chooser) Stale() (all bool, list []job.Lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[c.scope] {
		delete(c.all, c.scope)
		for lane := range c.stale {
			if lane.Batch == c.scope {
				delete(c.stale, lane)
			}
		}
		for lane := range c.known {
			if lane.Batch == c.scope {
				c.remove(lane)
			}
		}
		return true, nil
	}
	for lane := range c.stale {
		if lane.Batch == c.scope {
			list = append(list, lane)
			delete(c.stale, lane)
		}
	}
	return false, list
}

// Head implements queue.Chooser.
func (c *chooser) Head(lane job.Lane, e *queue.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e == nil {
		c.remove(lane)
		return
	}
	c.known[lane] = e.RunnableAt
	c.policy.Add(policy.Head{Lane: lane, ID: e.ID, RunnableAt: e.RunnableAt, Ask: c.ask(e)})
}

func (l *lanes) remove(lane job.Lane) {
	delete(l.known, lane)
	l.policy.Remove(lane)
}

// Next implements queue.Chooser.
func (c *chooser) Next() (job.Lane, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.policy.Next(c.now)
	if !ok || h.Lane.Batch != c.scope {
		return job.Lane{}, false
	}
	return h.Lane, true
}

// Taken implements queue.Chooser.
func (c *chooser) Taken(e *queue.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := started{e.Spec.Tenant, c.ask(e)}
	c.inFlight[e.ID] = s
	c.policy.Start(s.tenant, s.ask, c.now)
}
