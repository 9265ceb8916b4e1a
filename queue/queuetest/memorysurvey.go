package queuetest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (m *memory) census() (c queue.Census) {
	for _, r := range m.records {
		if r.deadLetter() {
			c.DeadLetters++
		}
		if r.State.Terminal() {
			continue
		}
		i := slices.IndexFunc(c.Tenants, func(t queue.TenantCensus) bool { return t.Tenant == r.Spec.Tenant })
		if i < 0 {
			i = len(c.Tenants)
			c.Tenants = append(c.Tenants, queue.TenantCensus{Tenant: r.Spec.Tenant})
		}
		t := &c.Tenants[i]
		switch {
		case r.State == job.Dispatched:
			c.Dispatched, t.Dispatched = c.Dispatched+1, t.Dispatched+1
		case r.Held == job.HeldForApproval:
			c.Approval, t.Approval = c.Approval+1, t.Approval+1
		case r.Held != "" || r.WaitsFor != "":
			c.Held, t.Held = c.Held+1, t.Held+1
		default:
			c.Queued, t.Queued = c.Queued+1, t.Queued+1
			if t.Queued == 1 || r.RunnableAt.Before(t.Oldest) {
				t.Oldest = r.RunnableAt
			}
		}
	}
	slices.SortFunc(c.Tenants, func(a, b queue.TenantCensus) int { return strings.Compare(string(a.Tenant), string(b.Tenant)) })
	return c
}

func (m *memory) throughput(since, until time.Time, step time.Duration) (steps []queue.Throughput) {
	at := time.Unix(since.Unix()/int64(step/time.Second)*int64(step/time.Second), 0).UTC() // steps of whole seconds, times after 1970
	for ; at.Before(until); at = at.Add(step) {
		s := queue.Throughput{At: at}
		for _, r := range m.records {
			switch {
			case r.CompletedAt == nil || r.CompletedAt.Before(at) || !r.CompletedAt.Before(at.Add(step)) || !r.CompletedAt.Before(until):
			case r.State == job.Expired || r.ExitKind == job.ExitFailed:
				s.Failed++
			case r.State == job.Cancelled || r.ExitKind == job.ExitCancelled:
				s.Cancelled++
			default:
				s.Succeeded++
			}
		}
		steps = append(steps, s)
	}
	return steps
}

func (m *memory) runs(since, until time.Time, limit int) (runs []queue.Running) {
	type placed struct {
		queue.Running
		at int
	}
	var all []placed
	for i, r := range m.records {
		for _, a := range r.attempts {
			if a.Started.After(until) && !until.IsZero() || a.Ended != nil && a.Ended.Before(since) {
				continue
			}
			run := queue.Running{Job: r.ID, Name: r.Spec.Name, Tenant: r.Spec.Tenant, Worker: a.Choice.Worker, Attempt: a.Number, State: a.State, Began: a.Started, Ended: a.Ended}
			if a.Outcome != nil {
				run.Class = a.Outcome.Class
			}
			all = append(all, placed{run, i})
		}
	}
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(b.at, a.at), cmp.Compare(b.Attempt, a.Attempt))
	})
	for _, p := range all[:min(len(all), limit)] {
		runs = append(runs, p.Running)
	}
	return runs
}
