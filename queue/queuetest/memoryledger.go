package queuetest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// dead reports whether an owner is not enqueued for.
func (s *memoryState) dead(tenant job.Tenant, agent job.AgentID) bool {
	return slices.ContainsFunc(s.grants, func(g queue.Grant) bool {
		return g.Dead && g.Tenant == tenant && (g.Agent == "" || g.Agent == agent)
	})
}

func (s *memoryState) setGrant(g queue.Grant) {
	s.grants = slices.DeleteFunc(s.grants, func(x queue.Grant) bool { return x.Owner == g.Owner })
	if g.Dead || g.Tokens > 0 || g.CostUSD > 0 || g.Wall > 0 {
		s.grants = append(s.grants, g)
	}
}

// deadLetter reports whether somebody should look at r.
func (r *record) deadLetter() bool {
	return r.ExitKind == job.ExitFailed && r.RequeuedAs == "" && r.DroppedAt == nil
}

func (s *memoryState) deadLetter(id job.ID) (*record, error) {
	r, err := s.find(id)
	if err == nil && !r.deadLetter() {
		err = queue.ErrIllegalTransition
	}
	return r, err
}

// requeue marks the dead letter that a new entry does again.
func (s *memoryState) requeue(e *queue.Entry) error {
	if e.RequeuedFrom == "" {
		return nil
	}
	r, err := s.deadLetter(e.RequeuedFrom)
	if err == nil {
		r.RequeuedAs = e.ID
	}
	return err
}

// goOn marks the entry that a new one goes on from.
func (s *memoryState) goOn(e *queue.Entry) error {
	if e.Continues == "" {
		return nil
	}
	r, err := s.find(e.Continues)
	switch {
	case err != nil:
		return err
	case !r.State.Terminal() || r.ContinuedAs != "":
		return queue.ErrIllegalTransition
	}
	if r.deadLetter() {
		r.RequeuedAs = e.ID
	}
	r.ContinuedAs = e.ID
	return nil
}

// accounts sums by tenant, agent, worker and model what attempts have used: of
// each the events that are stored, or its outcome, whichever says more.
func (s *memoryState) accounts() map[queue.Account]queue.Account {
	all := map[queue.Account]queue.Account{}
	add := func(r *record, a *job.Attempt, what queue.Account) {
		key := queue.Account{Tenant: r.Spec.Tenant, Agent: r.Spec.Agent}
		if a != nil {
			key.Worker, key.Model = a.Choice.Worker, a.Choice.Model
		}
		sum := all[key]
		sum.Tenant, sum.Agent, sum.Worker, sum.Model = key.Tenant, key.Agent, key.Worker, key.Model
		sum.Usage = sum.Usage.Add(what.Usage)
		sum.Wall, sum.Attempts, sum.Completed = sum.Wall+what.Wall, sum.Attempts+what.Attempts, sum.Completed+what.Completed
		if sum.Usage == (job.Usage{CostKnown: sum.Usage.CostKnown}) {
			sum.Usage.CostKnown = false // of nothing
		}
		all[key] = sum
	}
	for _, r := range s.records {
		for i := range r.attempts {
			a := &r.attempts[i]
			var what queue.Account
			if a.Ended != nil {
				started := a.Outcome.StartedAt
				if started.IsZero() {
					started = a.Started
				}
				what.Wall, what.Attempts = job.Duration(max(0, a.Ended.Sub(started))), 1
			}
			what.Usage = consumed(a, r.events)
			if what != (queue.Account{}) {
				add(r, a, what)
			}
		}
		if r.ExitKind == job.ExitSucceeded {
			by, _ := s.find(r.CoalescedWith)
			if by == nil {
				by = r
			}
			add(r, by.succeeded, queue.Account{Completed: 1})
		}
	}
	return all
}

// consumed is what an attempt has used.
func consumed(a *job.Attempt, events []job.Event) job.Usage {
	var seen job.Usage
	for _, ev := range events {
		if ev.Attempt == a.Number && ev.Usage != nil {
			seen = seen.Add(*ev.Usage)
		}
	}
	if a.Outcome == nil {
		return seen
	}
	o := a.Outcome.Usage
	unknown := !seen.CostKnown && (seen.Tokens() > 0 || seen.CostUSD > 0)
	switch covers := o.InputTokens >= seen.InputTokens && o.OutputTokens >= seen.OutputTokens; {
	case o.CostKnown && covers:
		unknown = false
	case !o.CostKnown && (o.InputTokens > seen.InputTokens || o.OutputTokens > seen.OutputTokens || o.CostUSD > seen.CostUSD):
		unknown = true
	}
	u := job.Usage{InputTokens: max(seen.InputTokens, o.InputTokens), OutputTokens: max(seen.OutputTokens, o.OutputTokens),
		CostUSD: max(seen.CostUSD, o.CostUSD), Steps: max(seen.Steps, o.Steps)}
	u.CostKnown = !unknown && (u.Tokens() > 0 || u.CostUSD > 0)
	return u
}

// compareAccounts compares the ledger with what the oracle's attempts add up to.
func (m *machine) compareAccounts(r *rapid.T) {
	got, err := m.real.Accounts(m.ctx, queue.AccountFilter{By: []queue.Dimension{queue.ByAgent, queue.ByWorker, queue.ByModel}})
	if err != nil {
		r.Fatalf("accounts: %v", err)
	}
	want := m.oracle.accounts()
	for _, a := range got {
		key := queue.Account{Tenant: a.Tenant, Agent: a.Agent, Worker: a.Worker, Model: a.Model}
		wantSame(r, "account", a, want[key])
		delete(want, key)
	}
	if len(want) > 0 {
		r.Fatalf("accounts: not there: %s", show(want))
	}
	grants, err := m.real.Grants(m.ctx)
	if err != nil {
		r.Fatalf("grants: %v", err)
	}
	wantGrants := slices.SortedFunc(slices.Values(m.oracle.grants), compareOwners)
	wantSame(r, "grants", grants, wantGrants)
}

// someDeadLetter draws a dead letter if there is one, now and then any entry.
func (m *machine) someDeadLetter(r *rapid.T) job.ID {
	list, _ := m.oracle.list(queue.Filter{DeadLetters: true})
	if len(list) == 0 || rapid.IntRange(0, 3).Draw(r, "none") == 0 {
		list, _ = m.oracle.list(queue.Filter{})
	}
	if len(list) == 0 {
		return ""
	}
	return rapid.SampledFrom(list).Draw(r, "dead letter").ID
}

// grant draws a grant that bounds no claim: that is for tests of its own.
func (m *machine) grant(r *rapid.T) queue.Grant {
	return queue.Grant{
		Owner: queue.Owner{Tenant: rapid.SampledFrom([]job.Tenant{"a", "b"}).Draw(r, "owner"), Agent: rapid.SampledFrom([]job.AgentID{"", "p"}).Draw(r, "owning agent")},
		Dead:  rapid.IntRange(0, 3).Draw(r, "dead") == 0, Tokens: int64(rapid.IntRange(0, 1).Draw(r, "bound")) * 1_000_000,
	}
}

func (m *machine) usage(r *rapid.T) *job.Usage {
	return &job.Usage{
		InputTokens: int64(rapid.IntRange(0, 9).Draw(r, "tokens")), OutputTokens: int64(rapid.IntRange(0, 2).Draw(r, "output")),
		CostUSD: float64(rapid.IntRange(0, 2).Draw(r, "quarters")) / 4, CostKnown: rapid.Bool().Draw(r, "known"),
	}
}
