package queuetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (m *memory) claim(spec queue.ClaimSpec) (c queue.Claims) {
	before := m.clone()
	defer func() { m.raise(&before) }()
	own := func(r *record) bool { return r.State == job.Queued && m.poolOf(r) == scopeOf(spec) }
	scope := func(r *record) bool { return m.inScope(r, spec) }
	// A head is in scope as long as something of the batch waits for it.
	for m.expire(spec.Now, &c, own) || m.expire(spec.Now, &c, scope) {
		m.closeGaps(spec.Now)
	}
	admits := func(r *record) bool {
		candidate := r.Entry
		return spec.Admit == nil || spec.Admit(&candidate)
	}
	var due, claimed []*record
	for _, r := range m.records {
		if scope(r) && r.Held == "" && r.WaitsFor == "" && !r.RunnableAt.After(spec.Now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *record) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.RunnableAt.Compare(b.RunnableAt), cmp.Compare(a.ID, b.ID))
	})
	if len(spec.IDs) > 0 {
		for _, id := range spec.IDs {
			i := slices.IndexFunc(due, func(r *record) bool { return r.ID == id })
			if i >= 0 && !slices.Contains(claimed, due[i]) {
				claimed = append(claimed, due[i])
			}
		}
	} else {
		for _, r := range due {
			if len(claimed) < spec.Max && admits(r) {
				claimed = append(claimed, r)
			}
		}
	}
	if spec.Count {
		c.Ready = map[job.Class]queue.ClassReady{}
		for _, r := range due {
			if slices.Contains(claimed, r) {
				continue
			}
			ready := c.Ready[r.Spec.Class.Or()]
			if ready.Depth == 0 || r.RunnableAt.Before(ready.Oldest) {
				ready.Oldest = r.RunnableAt
			}
			ready.Depth++
			c.Ready[r.Spec.Class.Or()] = ready
		}
	}
	left := slices.DeleteFunc(slices.Clone(m.records), func(r *record) bool { return !scope(r) && !own(r) || slices.Contains(claimed, r) })
	for _, r := range claimed {
		m.fence++
		until := spec.Now.Add(spec.Lease)
		r.State, r.Holder, r.Fence, r.DispatchedAt, r.LeaseUntil, r.Waiting = job.Dispatched, spec.Holder, m.fence, &spec.Now, &until, ""
		c.Entries = append(c.Entries, r.Entry)
	}
	if len(spec.IDs) > 0 {
		return c
	}
	for _, r := range left {
		var next []time.Time
		if r.Held == "" && r.WaitsFor == "" {
			next = append(next, r.RunnableAt)
		}
		if r.Deadline != nil && !m.started(r) && r.Held != job.HeldForApproval {
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

// external is the pool of entries of that type.
const external job.BatchID = "external"

// poolOf returns the private batch that an entry belongs to, "" if it is shared.
func (s *memoryState) poolOf(r *record) job.BatchID {
	if r.Spec.Type == job.External {
		return external
	}
	for _, b := range s.batches {
		if b.ID == r.Batch && b.Private {
			return b.ID
		}
	}
	return ""
}

// scopeOf returns the pool that a claim is about.
func scopeOf(spec queue.ClaimSpec) job.BatchID {
	if spec.External {
		return external
	}
	return spec.Batch
}

// laneOf returns the lane of a claim that an entry is in, or was in until it
// expired, and whether it is.
func (s *memoryState) laneOf(r *record, spec queue.ClaimSpec) (job.Lane, bool) {
	lane := job.Lane{Batch: spec.Batch, Tenant: r.Spec.Tenant, Priority: r.Spec.Priority}
	if s.poolOf(r) != scopeOf(spec) {
		lane.Only = r.ID
	}
	return lane, s.inScope(r, spec)
}

// inScope reports whether a claim is about the queued entry: what is held it can
// only let expire.
func (s *memoryState) inScope(r *record, spec queue.ClaimSpec) bool {
	if r.State != job.Queued || r.Held != "" {
		return false
	}
	pool := s.poolOf(r)
	return pool == scopeOf(spec) || spec.Batch != "" && pool != external && s.heads(spec.Batch)[r.ID]
}

// expire moves what is past its deadline, and reports whether there was any.
func (s *memoryState) expire(now time.Time, c *queue.Claims, scope func(*record) bool) (any bool) {
	var overdue []*record
	for _, r := range s.records {
		if scope(r) && r.Deadline != nil && !r.Deadline.After(now) && !s.started(r) && r.Held != job.HeldForApproval {
			overdue = append(overdue, r)
		}
	}
	for _, r := range overdue {
		r.withdraw(job.Expired, now)
		c.Expired = append(c.Expired, r.ID)
	}
	return len(overdue) > 0
}
