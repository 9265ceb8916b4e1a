package queuetest

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// laneVersions is what the oracle knows of changes: each write has a version, and the
// lanes that differ after it have that.
type laneVersions struct {
	version, floor uint64 // nothing is known of what had changed by floor
	changed        map[job.Lane]uint64
}

// inLane returns the lane of an entry, and whether it is in that.
func (s *memoryState) inLane(r *record) (job.Lane, bool) {
	pool := s.poolOf(r)
	in := r.State == job.Queued && r.Held == "" && r.WaitsFor == "" && pool != external
	return job.Lane{Batch: pool, Tenant: r.Spec.Tenant, Priority: r.Spec.Priority}, in
}

// raise notes how the lanes differ from what they were before a write.
func (m *memory) raise(before *memoryState) {
	m.version++
	if m.changed == nil {
		m.changed = map[job.Lane]uint64{}
	}
	for _, r := range m.records {
		lane, in := m.inLane(r)
		was, err := before.find(r.ID)
		there := err == nil
		var old job.Lane
		if there {
			old, there = before.inLane(was)
		}
		if in && !(there && reflect.DeepEqual(was.Entry, r.Entry)) {
			m.changed[lane] = m.version
		}
		if there && !in && r.State != job.Dispatched { // a claim tells by itself
			m.changed[old] = m.version
		}
	}
}

func (m *memory) heads(spec queue.HeadsSpec) (h queue.Heads) {
	scope := queue.ClaimSpec{Batch: spec.Batch, Now: spec.Now}
	c := m.claim(scope) // of none: what is overdue expires
	h.Expired, h.Version = c.Expired, m.version
	h.All = spec.Since == 0 || spec.Since < m.floor
	lanes := map[job.Lane]bool{}
	for _, r := range m.records {
		if l, in := m.laneOf(r, scope); in && r.WaitsFor == "" && (h.All || l.Only != "") {
			lanes[l] = true
		}
		if (m.poolOf(r) == spec.Batch && r.State == job.Queued || m.inScope(r, scope)) && r.Deadline != nil && !m.started(r) &&
			r.Held != job.HeldForApproval && (h.NextAt.IsZero() || r.Deadline.Before(h.NextAt)) {
			h.NextAt = *r.Deadline
		}
	}
	for l, at := range m.changed {
		if !h.All && l.Batch == spec.Batch && at > spec.Since {
			lanes[l] = true
		}
	}
	for l := range lanes {
		h.Lanes = append(h.Lanes, m.laneHeads(l, queue.Place{}, spec.Each))
	}
	slices.SortFunc(h.Lanes, func(a, b queue.LaneHeads) int { return a.Lane.Compare(b.Lane) })
	for _, p := range spec.Pages {
		h.Pages = append(h.Pages, m.laneHeads(p.Lane, p.After, p.Max))
	}
	return h
}

// laneHeads returns what stands in a lane behind a place, at most so much.
func (m *memory) laneHeads(l job.Lane, after queue.Place, most int) queue.LaneHeads {
	h := queue.LaneHeads{Lane: l}
	for _, r := range m.records {
		head := queue.HeadOf(&r.Entry)
		if lane, in := m.laneOf(r, queue.ClaimSpec{Batch: l.Batch}); in && lane == l && r.WaitsFor == "" && comparePlaces(head.Place(), after) > 0 {
			h.Heads = append(h.Heads, head)
		}
	}
	slices.SortFunc(h.Heads, func(a, b queue.Head) int { return comparePlaces(a.Place(), b.Place()) })
	if h.More = len(h.Heads) > most; h.More {
		h.Heads = h.Heads[:most]
	}
	return h
}

func comparePlaces(a, b queue.Place) int {
	return cmp.Or(a.RunnableAt.Compare(b.RunnableAt), cmp.Compare(a.ID, b.ID))
}
