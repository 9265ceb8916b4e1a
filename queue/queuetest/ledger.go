package queuetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// account returns what was used in all by what f selects.
func (e *env) account(f queue.AccountFilter) queue.Account {
	e.Helper()
	list := e.accounts(f)
	if len(list) != 1 {
		e.Fatalf("%d accounts, want 1", len(list))
	}
	return list[0]
}

func (e *env) accounts(f queue.AccountFilter) []queue.Account {
	e.Helper()
	list, err := e.store.Accounts(e.ctx, f)
	if err != nil {
		e.Fatal(err)
	}
	return list
}

func agent(a job.AgentID) func(*queue.Entry) { return func(e *queue.Entry) { e.Spec.Agent = a } }

func usageEvent(id job.ID, attempt int, seq int64, at time.Time, tokens int64, cost float64) job.Event {
	return job.Event{Job: id, Attempt: attempt, Seq: seq, Time: at, Kind: job.EventUsage,
		Usage: &job.Usage{InputTokens: tokens, CostUSD: cost, CostKnown: cost > 0, Steps: 1}}
}

// ledgerOnce delivers events twice, in another order, before and after the end.
func ledgerOnce(e *env) {
	e.enqueueOne("a", agent("p1"))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	one, two, three := usageEvent(c.ID, n, 1, epoch, 100, 0.25), usageEvent(c.ID, n, 2, epoch.Add(time.Second), 10, 0.5), usageEvent(c.ID, n, 3, epoch, 1, 0.25)
	e.apply(queue.Append{Events: []job.Event{two, one, two}})
	e.apply(queue.Append{Events: []job.Event{one}}, queue.Append{Events: []job.Event{event(c.ID, n, 9)}})
	want := queue.Account{Usage: job.Usage{InputTokens: 110, CostUSD: 0.75, CostKnown: true, Steps: 2}}
	wantSame(e, "while it runs", e.account(queue.AccountFilter{}), want)
	e.reopen()
	e.apply(queue.Append{Events: []job.Event{two, one}})
	wantSame(e, "after a restart", e.account(queue.AccountFilter{}), want)

	// The outcome knows all three events, of which one comes late.
	done := succeed(c, n, epoch, epoch.Add(time.Minute))
	done.Outcome.Usage = job.Usage{InputTokens: 111, CostUSD: 1, CostKnown: true, Steps: 3}
	e.apply(done)
	want = queue.Account{Usage: done.Outcome.Usage, Wall: job.Duration(time.Minute), Attempts: 1, Completed: 1}
	wantSame(e, "at the end", e.account(queue.AccountFilter{}), want)
	e.refuse(queue.ErrFenced, done)
	e.apply(queue.Append{Events: []job.Event{three, one, two, three}})
	wantSame(e, "after the late event", e.account(queue.AccountFilter{Agent: "p1"}), want)
	if none := e.account(queue.AccountFilter{Agent: "p2"}); none != (queue.Account{}) {
		e.Errorf("an agent that has done nothing used %s", show(none))
	}
}

// ledgerOutcome: what the outcome says beyond the events is charged, what it
// says less is not given back, and an attempt without usage is an attempt.
func ledgerOutcome(e *env) {
	for _, tt := range []struct{ event, outcome, want int64 }{{100, 100, 100}, {100, 130, 130}, {100, 20, 100}, {0, 7, 7}, {0, 0, 0}} {
		id := e.enqueueOne("x")
		c := e.claimOne(epoch)
		n := e.begin(c, epoch)
		before := e.account(queue.AccountFilter{})
		if tt.event > 0 {
			e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, epoch, tt.event, 0)}})
		}
		done := succeed(c, n, epoch, epoch.Add(time.Second))
		done.Outcome.Usage.InputTokens = tt.outcome
		e.apply(done)
		after := e.account(queue.AccountFilter{})
		if got := after.Usage.InputTokens - before.Usage.InputTokens; got != tt.want {
			e.Errorf("events of %d and an outcome of %d tokens: charged %d, want %d", tt.event, tt.outcome, got, tt.want)
		}
		if after.Attempts != before.Attempts+1 || after.Completed != before.Completed+1 || after.Wall-before.Wall != job.Duration(time.Second) {
			e.Errorf("account %s after %s", show(after), show(before))
		}
		e.batch = newBatch("next")
	}
	// A permit that was refused is no attempt, and an end without success no completion.
	before := e.account(queue.AccountFilter{})
	e.enqueueOne("refused")
	c := e.claimOne(epoch)
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Exit: job.ExitFailed, DeadLetter: "no"})
	wantSame(e, "after a refusal", e.account(queue.AccountFilter{}), before)
	// Events of an attempt that has not begun are charged when it has.
	e.enqueueOne("early")
	c = e.claimOne(epoch)
	e.apply(queue.Append{Events: []job.Event{usageEvent(c.ID, 1, 1, epoch, 50, 0)}})
	wantSame(e, "before its begin", e.account(queue.AccountFilter{}), before)
	e.begin(c, epoch)
	if got := e.account(queue.AccountFilter{}).Usage.InputTokens - before.Usage.InputTokens; got != 50 {
		e.Errorf("charged %d tokens at the begin, want the 50 of before", got)
	}
}

// ledgerPrice: a cost is known as soon as all tokens have a price.
func ledgerPrice(e *env) {
	e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Append{Events: []job.Event{usageEvent(c.ID, n, 1, epoch, 10, 0.25), usageEvent(c.ID, n, 2, epoch.Add(time.Hour), 10, 0)}})
	if got := e.account(queue.AccountFilter{}).Usage; got.CostKnown || got.CostUSD != 0.25 {
		e.Errorf("half of the tokens have a price: %s", show(got))
	}
	if got := e.account(queue.AccountFilter{Until: epoch.Add(time.Hour)}).Usage; !got.CostKnown {
		e.Errorf("in the first hour all tokens have a price: %s", show(got))
	}
	// The price comes with the outcome, in another step.
	done := succeed(c, n, epoch, epoch.Add(2*time.Hour))
	done.Outcome.Usage = job.Usage{InputTokens: 20, CostUSD: 1, CostKnown: true}
	e.apply(done)
	for _, f := range []queue.AccountFilter{{}, {Since: epoch.Add(time.Hour)}, {Since: epoch.Add(time.Hour), Until: epoch.Add(2 * time.Hour)}} {
		if got := e.account(f).Usage; !got.CostKnown {
			e.Errorf("all is priced: %s", show(got))
		}
	}
	e.enqueueOne("b")
	c = e.claimOne(epoch)
	n = e.begin(c, epoch)
	done = succeed(c, n, epoch, epoch)
	done.Outcome.Usage = job.Usage{OutputTokens: 3}
	e.apply(done)
	if got := e.account(queue.AccountFilter{}).Usage; got.CostKnown || got.CostUSD != 1 || got.Tokens() != 23 {
		e.Errorf("the second has no price: %s", show(got))
	}
}

// ledgerLost: what a lost attempt used was used.
func ledgerLost(e *env) {
	id := e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, epoch, 5, 0.25)}})
	e.apply(queue.Reclaim{Now: epoch.Add(10 * time.Second), Holders: []string{"tester"}, Message: "killed"})
	want := queue.Account{Usage: job.Usage{InputTokens: 5, CostUSD: 0.25, CostKnown: true, Steps: 1}, Wall: job.Duration(10 * time.Second), Attempts: 1}
	wantSame(e, "after the crash", e.account(queue.AccountFilter{}), want)
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, epoch, 5, 0.25), usageEvent(id, n, 2, epoch, 2, 0.25)}}) // one was under way
	want.Usage = job.Usage{InputTokens: 7, CostUSD: 0.5, CostKnown: true, Steps: 2}
	wantSame(e, "after what was under way", e.account(queue.AccountFilter{}), want)
	// Nothing of a transaction that was refused is charged.
	e.refuse(queue.ErrNotFound, queue.Append{Events: []job.Event{usageEvent(id, n, 3, epoch, 1000, 1), event("nobody", 1, 1)}})
	wantSame(e, "after a refused write", e.account(queue.AccountFilter{}), want)
}

func ledgerDimensions(e *env) {
	for i, x := range []struct {
		tenant job.Tenant
		agent  job.AgentID
		choice job.Choice
	}{
		{"a", "p", job.Choice{Worker: "codex"}}, {"a", "p", job.Choice{Worker: "claude", Model: "large"}},
		{"a", "q", job.Choice{Worker: "claude", Model: "small"}}, {"b", "p", job.Choice{Worker: "codex", Model: "large"}},
	} {
		id := e.enqueueOne("x", tenant(x.tenant), agent(x.agent))
		c := e.claimOne(epoch)
		op := beginOp(c, 1, epoch)
		op.Attempt.Choice = x.choice
		e.apply(op, queue.Move{ID: id, Fence: c.Fence, Attempt: 1, To: job.Running}, queue.Append{Events: []job.Event{usageEvent(id, 1, 1, epoch, 1<<i, 0.25)}})
		e.batch = newBatch("next")
	}
	tokens := func(f queue.AccountFilter) (list []string) {
		for _, a := range e.accounts(f) {
			list = append(list, show([]any{a.Tenant, a.Agent, a.Worker, a.Model, a.Day, a.Usage.InputTokens}))
		}
		return list
	}
	for _, tt := range []struct {
		f    queue.AccountFilter
		want []string
	}{
		{queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}}, []string{`["a","","","","",7]`, `["b","","","","",8]`}},
		{queue.AccountFilter{By: []queue.Dimension{queue.ByAgent}}, []string{`["a","p","","","",3]`, `["a","q","","","",4]`, `["b","p","","","",8]`}},
		{queue.AccountFilter{By: []queue.Dimension{queue.ByModel}}, []string{`["","","","","",1]`, `["","","","large","",10]`, `["","","","small","",4]`}},
		{queue.AccountFilter{By: []queue.Dimension{queue.ByWorker, queue.ByTenant}},
			[]string{`["a","","claude","","",6]`, `["a","","codex","","",1]`, `["b","","codex","","",8]`}},
		{queue.AccountFilter{By: []queue.Dimension{queue.ByDay}, Tenant: "a"}, []string{`["","","","","2026-03-01",7]`}},
		{queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Model: "large", Worker: "codex"}, []string{`["b","","","","",8]`}},
		{queue.AccountFilter{Agent: "p"}, []string{`["","","","","",11]`}},
		{queue.AccountFilter{Since: epoch.Add(time.Hour)}, []string{`["","","","","",0]`}},
		{queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Until: epoch}, nil},
	} {
		wantSame(e, "accounts by "+show(tt.f), tokens(tt.f), tt.want)
	}
	if _, err := e.store.Accounts(e.ctx, queue.AccountFilter{By: []queue.Dimension{"colour"}}); err == nil {
		e.Error("accounts by a dimension that there is not")
	}
}

// ledgerDays: a day begins where the zone says, in parts of an hour as well,
// and when the clocks are changed it has other than 24 hours.
func ledgerDays(e *env) {
	kathmandu := time.FixedZone("+05:45", 5*3600+45*60)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		e.Skip(err)
	}
	id := e.enqueueOne("a")
	c := e.claimOne(epoch)
	e.begin(c, epoch)
	var events []job.Event
	seq := int64(0)
	use := func(at time.Time, tokens int64) {
		seq++
		events = append(events, usageEvent(id, 1, seq, at, tokens, 0.25))
	}
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, kathmandu)
	use(midnight.Add(-time.Millisecond), 1)
	use(midnight, 10)
	for at := time.Date(2026, 3, 29, 0, 30, 0, 0, berlin); at.Before(time.Date(2026, 3, 30, 0, 30, 0, 0, berlin)); at = at.Add(time.Hour) {
		use(at, 1)
	}
	e.apply(queue.Append{Events: events})
	days := func(zone *time.Location, since time.Time) map[string]int64 {
		got := map[string]int64{}
		for _, a := range e.accounts(queue.AccountFilter{By: []queue.Dimension{queue.ByDay}, Since: since, Zone: zone}) {
			got[a.Day] = a.Usage.InputTokens
		}
		return got
	}
	wantSame(e, "days at 5:45", days(kathmandu, time.Time{})["2026-03-01"], 1)
	wantSame(e, "days at 5:45", days(kathmandu, time.Time{})["2026-03-02"], 10)
	wantSame(e, "days in UTC", days(nil, time.Time{})["2026-03-01"], 11)
	wantSame(e, "the day of the change", days(berlin, midnight.Add(time.Hour)), map[string]int64{"2026-03-29": 23})
}

// ledgerShared: a coalesced entry counts as completed and uses nothing.
func ledgerShared(e *env) {
	e.enqueueOne("one", duplicate(job.Coalesce, "k"), agent("p"))
	e.enqueueOne("two", duplicate(job.Coalesce, "k"), agent("q"))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	done := succeed(c, n, epoch, epoch)
	done.Outcome.Usage.InputTokens = 4
	e.apply(done)
	got := e.accounts(queue.AccountFilter{By: []queue.Dimension{queue.ByAgent, queue.ByWorker}})
	wantSame(e, "accounts", got, []queue.Account{
		{Tenant: job.DefaultTenant, Agent: "p", Worker: "codex", Usage: job.Usage{InputTokens: 4}, Attempts: 1, Completed: 1},
		{Tenant: job.DefaultTenant, Agent: "q", Worker: "codex", Completed: 1},
	})
}

func compareOwners(a, b queue.Grant) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Agent, b.Agent))
}

func (e *env) grants() []queue.Grant {
	e.Helper()
	list, err := e.store.Grants(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	if !slices.IsSortedFunc(list, compareOwners) {
		e.Errorf("grants %s are not in order", show(list))
	}
	return list
}
