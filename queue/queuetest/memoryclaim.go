package queuetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (m *memory) claim(spec queue.ClaimSpec) (c queue.Claims) {
	own := func(r *record) bool { return r.State == job.Queued && (spec.Batch == "" || r.Batch == spec.Batch) }
	scope := func(r *record) bool { return m.inScope(r, spec.Batch) }
	// A head is in scope as long as something of the batch waits for it.
	for m.expire(spec.Now, &c, own) || m.expire(spec.Now, &c, scope) {
		m.closeGaps(spec.Now)
	}
	var due []*record
	for _, r := range m.records {
		if scope(r) && r.WaitsFor == "" && !r.RunnableAt.After(spec.Now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *record) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.RunnableAt.Compare(b.RunnableAt), cmp.Compare(a.ID, b.ID))
	})
	if spec.Count {
		c.Ready = map[job.Class]queue.ClassReady{}
	}
	var claimed []*record
	for _, r := range due {
		candidate := r.Entry
		if len(claimed) < spec.Max && (spec.Admit == nil || spec.Admit(&candidate)) {
			claimed = append(claimed, r)
		} else if spec.Count {
			ready := c.Ready[r.Spec.Class.Or()]
			if ready.Depth == 0 || r.RunnableAt.Before(ready.Oldest) {
				ready.Oldest = r.RunnableAt
			}
			ready.Depth++
			c.Ready[r.Spec.Class.Or()] = ready
		}
	}
	left := slices.DeleteFunc(slices.Clone(m.records), func(r *record) bool { return !scope(r) || slices.Contains(claimed, r) })
	for _, r := range claimed {
		m.fence++
		until := spec.Now.Add(spec.Lease)
		r.State, r.Holder, r.Fence, r.DispatchedAt, r.LeaseUntil, r.Waiting = job.Dispatched, spec.Holder, m.fence, &spec.Now, &until, ""
		c.Entries = append(c.Entries, r.Entry)
	}
	for _, r := range left {
		var next []time.Time
		if r.WaitsFor == "" {
			next = append(next, r.RunnableAt)
		}
		if r.Deadline != nil && !m.started(r) {
			next = append(next, *r.Deadline)
		}
		for _, at := range next {
			if at.After(spec.Now) && (c.NextAt.IsZero() || at.Before(c.NextAt)) {
				c.NextAt = at
			}
		}
	}
	return c
}

// inScope reports whether a claim from the batch is about the queued entry.
func (s *memoryState) inScope(r *record, batch job.BatchID) bool {
	return r.State == job.Queued && (batch == "" || r.Batch == batch || s.heads(batch)[r.ID])
}

// expire moves what is past its deadline, and reports whether there was any.
func (s *memoryState) expire(now time.Time, c *queue.Claims, scope func(*record) bool) (any bool) {
	var overdue []*record
	for _, r := range s.records {
		if scope(r) && r.Deadline != nil && !r.Deadline.After(now) && !s.started(r) {
			overdue = append(overdue, r)
		}
	}
	for _, r := range overdue {
		r.withdraw(job.Expired, now)
		c.Expired = append(c.Expired, r.ID)
	}
	return len(overdue) > 0
}
