package queuetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/agentsched/agentsched/job"
)

// linearEntry is an entry of the sequential queue.
type linearEntry struct {
	id        job.ID
	state     job.EntryState
	priority  int
	runnable  int64
	deadline  int64 // 0 none
	lease     int64
	fence     job.Fence
	cancelled bool // asked for while it was dispatched
}

// linearState is the sequential queue: a value, which a step copies.
type linearState struct {
	entries []linearEntry
	last    job.Fence
}

// queueModel is the queue that does one thing after the other.
func queueModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return linearState{} },
		Step: func(state, in, out any) (bool, any) {
			s := state.(linearState)
			s.entries = slices.Clone(s.entries)
			want := s.do(in.(linearIn))
			got := out.(linearOut)
			ok := got.Pending || got.Error == want.Error && got.State == want.State && slices.Equal(got.Claimed, want.Claimed)
			return ok, s
		},
		Equal: func(a, b any) bool {
			x, y := a.(linearState), b.(linearState)
			return x.last == y.last && slices.Equal(x.entries, y.entries)
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
}

func (s *linearState) find(id job.ID) *linearEntry {
	for i := range s.entries {
		if s.entries[i].id == id {
			return &s.entries[i]
		}
	}
	return nil
}

// held returns the entry if it is dispatched under the fence.
func (s *linearState) held(in linearIn) (*linearEntry, string) {
	e := s.find(in.ID)
	switch {
	case e == nil:
		return nil, "unknown"
	case e.state != job.Dispatched || e.fence != in.Fence:
		return nil, "fenced"
	}
	return e, ""
}

func (s *linearState) do(in linearIn) (out linearOut) {
	switch in.Verb {
	case "enqueue":
		e := linearEntry{id: in.ID, state: job.Queued, priority: in.Priority, runnable: in.Runnable, deadline: in.Deadline}
		// In one order whatever came first, so that equal states are found equal.
		at, _ := slices.BinarySearchFunc(s.entries, e, func(a, b linearEntry) int { return cmp.Compare(a.id, b.id) })
		s.entries = slices.Insert(s.entries, at, e)
	case "claim":
		out.Claimed = s.claim(in)
	case "complete":
		e, refused := s.held(in)
		if out.Error = refused; refused == "" {
			e.state = job.Completed
		}
	case "release":
		e, refused := s.held(in)
		if out.Error = refused; refused == "" {
			e.state, e.runnable = job.Queued, in.Runnable
		}
	case "reclaim":
		for i := range s.entries {
			e := &s.entries[i]
			switch {
			case e.state != job.Dispatched || e.lease >= in.Now:
			case e.cancelled:
				e.state = job.Completed
			default:
				e.state, e.runnable = job.Queued, min(e.runnable, in.Now)
			}
		}
	case "cancel":
		e := s.find(in.ID)
		switch {
		case e == nil:
			out.Error = "unknown"
		case e.state == job.Queued:
			e.state = job.Cancelled
		case e.state == job.Dispatched:
			e.cancelled = true
		default:
			out.Error = "illegal"
		}
	case "get":
		if e := s.find(in.ID); e != nil {
			out.State = e.state
		} else {
			out.Error = "unknown"
		}
	}
	return out
}

func (s *linearState) claim(in linearIn) (claimed []linearClaim) {
	var can []*linearEntry
	for i := range s.entries {
		e := &s.entries[i]
		switch {
		case e.state != job.Queued:
		case e.deadline > 0 && e.deadline <= in.Now:
			e.state = job.Expired
		case e.runnable <= in.Now:
			can = append(can, e)
		}
	}
	slices.SortFunc(can, func(a, b *linearEntry) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.runnable, b.runnable), cmp.Compare(a.id, b.id))
	})
	if len(in.IDs) > 0 {
		can = slices.DeleteFunc(can, func(e *linearEntry) bool { return !slices.Contains(in.IDs, e.id) })
		slices.SortFunc(can, func(a, b *linearEntry) int {
			return cmp.Compare(slices.Index(in.IDs, a.id), slices.Index(in.IDs, b.id))
		})
		in.Max = len(can)
	}
	for _, e := range can[:min(in.Max, len(can))] {
		s.last++
		e.state, e.fence, e.lease = job.Dispatched, s.last, in.Now+linearLease
		claimed = append(claimed, linearClaim{e.id, e.fence})
	}
	return claimed
}
