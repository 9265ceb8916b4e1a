package queuetest

import (
	"errors"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (e *env) grant(g queue.Grant) {
	e.Helper()
	e.apply(queue.SetGrant{Grant: g})
}

// claimable returns the names of what a claim at now would get, and gives it back.
func (e *env) claimable(now time.Time) []string {
	e.Helper()
	c := e.claim(100, now)
	for _, x := range c.Entries {
		e.apply(queue.Release{ID: x.ID, Fence: x.Fence, Now: now, RunnableAt: x.RunnableAt})
	}
	return names(c.Entries)
}

// work lets an entry of the owner run at now and use something.
func (e *env) work(o queue.Owner, now time.Time, u job.Usage, wall time.Duration) {
	e.Helper()
	id := e.enqueueOne("work", tenant(o.Tenant), agent(o.Agent), priority(math.MaxInt32))
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 1, Now: now, Lease: lease, Admit: func(x *queue.Entry) bool { return x.ID == id }})
	if len(c.Entries) != 1 {
		e.Fatalf("the work of %v cannot be claimed", o)
	}
	n := e.begin(c.Entries[0], now)
	done := succeed(c.Entries[0], n, now.Add(-wall), now)
	done.Outcome.Usage = u
	e.apply(done)
	e.batch = newBatch("next")
}

// grantBounds: each bound stops the claims of its owner as soon as that much was
// used, by events of what still runs as well, and those of nobody else.
func grantBounds(e *env) {
	a, ap := queue.Owner{Tenant: "a"}, queue.Owner{Tenant: "a", Agent: "p"}
	for _, x := range []queue.Owner{a, ap, {Tenant: "a", Agent: "q"}, {Tenant: "b", Agent: "p"}} {
		e.enqueueOne(string(x.Tenant)+"."+string(x.Agent)+".", tenant(x.Tenant), agent(x.Agent))
	}
	all := []string{"a..", "a.p.", "a.q.", "b.p."}
	want := func(what string, names ...string) {
		e.Helper()
		got := map[string]bool{}
		for _, n := range e.claimable(epoch) {
			got[n] = true
		}
		for _, n := range all {
			expected := false
			for _, w := range names {
				expected = expected || w == n
			}
			if got[n] != expected {
				e.Errorf("%s: %s claimed: %v, want %v", what, n, got[n], expected)
			}
		}
	}
	before := e.get(e.enqueueOne("later", tenant("a"), agent("p"), runnableAt(epoch.Add(time.Hour))))
	want("without grants", all...)
	for _, tt := range []struct {
		grant queue.Grant
		less  job.Usage
		wall  time.Duration
		more  job.Usage
		ends  time.Duration
	}{
		{queue.Grant{Tokens: 100}, job.Usage{InputTokens: 90, OutputTokens: 9}, 0, job.Usage{OutputTokens: 1}, 0},
		{queue.Grant{CostUSD: 1}, job.Usage{CostUSD: 0.75, CostKnown: true}, 0, job.Usage{CostUSD: 0.25, CostKnown: true}, 0},
		{queue.Grant{Wall: job.Duration(time.Minute)}, job.Usage{}, 59 * time.Second, job.Usage{}, time.Second},
	} {
		what := show(tt.grant)
		fresh := queue.Owner{Tenant: "t" + job.Tenant(rune('0'+len(e.grants()))), Agent: "p"}
		all = append(all, string(fresh.Tenant))
		e.enqueueOne(string(fresh.Tenant), tenant(fresh.Tenant), agent(fresh.Agent))
		tt.grant.Owner = fresh
		e.grant(tt.grant)
		e.work(fresh, epoch, tt.less, tt.wall)
		want(what+" nearly used up", all...)
		e.work(fresh, epoch, tt.more, tt.ends)
		want(what+" used up", all[:len(all)-1]...)
		e.reopen()
		want(what+" used up, after a restart", all[:len(all)-1]...)
		tt.grant.Tokens, tt.grant.CostUSD, tt.grant.Wall = tt.grant.Tokens*2, tt.grant.CostUSD*2, tt.grant.Wall*2
		e.grant(tt.grant)
		want(what+" raised", all...)
	}
	// An agent's use counts for its tenant; one agent's bound is not another's.
	e.grant(queue.Grant{Owner: ap, Tokens: 10})
	e.grant(queue.Grant{Owner: a, Tokens: 20})
	e.work(ap, epoch, job.Usage{InputTokens: 10}, 0)
	want("an agent's", append([]string{"a..", "a.q.", "b.p."}, all[4:]...)...)
	e.work(queue.Owner{Tenant: "a", Agent: "q"}, epoch, job.Usage{InputTokens: 9}, 0)
	id := e.enqueueOne("running", tenant("a"), agent("q"), priority(1))
	c := e.claimOne(epoch)
	if c.ID != id {
		e.Fatalf("claimed %s", c.Spec.Name)
	}
	n := e.begin(c, epoch)
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, epoch, 1, 0)}})
	want("a tenant's, by what runs", append([]string{"b.p."}, all[4:]...)...)
	after := e.get(before.ID)
	wantSame(e, "what was passed over", after, before)
}

// grantWindow: use counts as far back as the window says.
func grantWindow(e *env) {
	e.grant(queue.Grant{Owner: queue.Owner{Tenant: "a"}, Tokens: 10, Window: job.Duration(time.Hour)})
	e.work(queue.Owner{Tenant: "a"}, epoch, job.Usage{InputTokens: 6}, 0)
	e.work(queue.Owner{Tenant: "a"}, epoch.Add(30*time.Minute), job.Usage{InputTokens: 6}, 0)
	e.enqueueOne("waits", tenant("a"))
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{
		{30 * time.Minute, 0}, {time.Hour, 0},
		{time.Hour + queue.AccountStep, 1}, // the first has left the window, and its step too
		{30 * time.Minute, 0},              // the clock was put back
		{24 * time.Hour, 1},
	} {
		if got := e.claimable(epoch.Add(tt.after)); len(got) != tt.want {
			e.Errorf("after %s %v can be claimed, want %d", tt.after, got, tt.want)
		}
	}
	e.work(queue.Owner{Tenant: "a"}, epoch.Add(25*time.Hour), job.Usage{InputTokens: 10}, 0)
	if got := e.claimable(epoch.Add(25 * time.Hour)); len(got) != 0 {
		e.Errorf("used up again, and %v can be claimed", got)
	}
}

// grantDead: nothing is enqueued for the dead; what is queued stays.
func grantDead(e *env) {
	e.enqueueOne("before", tenant("a"), agent("p"))
	for _, dead := range []queue.Owner{{Tenant: "a", Agent: "p"}, {Tenant: "b"}} {
		e.grant(queue.Grant{Owner: dead, Dead: true})
	}
	for _, tt := range []struct {
		owner queue.Owner
		dead  bool
	}{
		{queue.Owner{Tenant: "a", Agent: "p"}, true}, {queue.Owner{Tenant: "a"}, false}, {queue.Owner{Tenant: "a", Agent: "q"}, false},
		{queue.Owner{Tenant: "b"}, true}, {queue.Owner{Tenant: "b", Agent: "p"}, true}, {queue.Owner{Tenant: "c", Agent: "p"}, false},
	} {
		b := newBatch("x")
		pair := []queue.Entry{newEntry("fine", tenant("d")), newEntry("x", tenant(tt.owner.Tenant), agent(tt.owner.Agent))}
		err := e.store.Enqueue(e.ctx, b, pair)
		if errors.Is(err, queue.ErrDeadOwner) != tt.dead || err != nil != tt.dead {
			e.Errorf("enqueue for %v: %v", tt.owner, err)
		}
		if _, total := e.list(queue.Filter{Batch: b.ID}); tt.dead && total != 0 || !tt.dead && total != 2 {
			e.Errorf("enqueue for %v left %d entries", tt.owner, total)
		}
	}
	batches, err := e.store.Batches(e.ctx, "x")
	if err != nil || len(batches) != 3 {
		e.Errorf("%d batches, want 3: a refused one is not stored (%v)", len(batches), err)
	}
	if c := e.claimOne(epoch); c.Spec.Name != "before" {
		e.Errorf("claimed %s", c.Spec.Name)
	}
	// Back to life.
	e.grant(queue.Grant{Owner: queue.Owner{Tenant: "b"}, Tokens: 5})
	e.enqueueOne("alive", tenant("b"))
}

func grantRules(e *env) {
	one := queue.Grant{Owner: queue.Owner{Tenant: "b", Agent: "p"}, Dead: true, Tokens: 1, CostUSD: 0.125, Wall: job.Duration(time.Second), Window: job.Duration(time.Hour)}
	two := queue.Grant{Owner: queue.Owner{Tenant: "b"}, Tokens: 2}
	three := queue.Grant{Owner: queue.Owner{Tenant: "a", Agent: "z"}, Dead: true}
	for _, g := range []queue.Grant{one, two, three, {Owner: queue.Owner{Tenant: "b"}, CostUSD: 9}, two} {
		e.grant(g)
	}
	wantSame(e, "grants", e.grants(), []queue.Grant{three, two, one})
	e.reopen()
	wantSame(e, "grants after a restart", e.grants(), []queue.Grant{three, two, one})
	e.grant(queue.Grant{Owner: two.Owner, Window: job.Duration(time.Hour)}) // bounds nothing
	wantSame(e, "grants", e.grants(), []queue.Grant{three, one})
	for _, bad := range []queue.Grant{
		{Tokens: 1}, {Owner: queue.Owner{Agent: "p"}, Tokens: 1}, {Owner: two.Owner, Tokens: -1}, {Owner: two.Owner, CostUSD: -1},
		{Owner: two.Owner, CostUSD: math.NaN()}, {Owner: two.Owner, CostUSD: math.Inf(1)}, {Owner: two.Owner, Wall: -1}, {Owner: two.Owner, Tokens: 1, Window: -1},
	} {
		if err := e.store.Apply(e.ctx, queue.SetGrant{Grant: bad}); err == nil {
			e.Errorf("the grant %+v was stored", bad)
		}
	}
	wantSame(e, "grants", e.grants(), []queue.Grant{three, one})
}
