package queuetest

import (
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// list returns the entries that f selects and their number without its limits.
func (m *memory) list(f queue.Filter) (entries []queue.Entry, total int) {
	for _, r := range m.records {
		if (f.Batch == "" || r.Batch == f.Batch) && (len(f.States) == 0 || slices.Contains(f.States, r.State)) &&
			(f.Tenant == "" || r.Spec.Tenant == f.Tenant) && (f.Agent == "" || r.Spec.Agent == f.Agent) &&
			(!f.External || r.Spec.Type == job.External) && (!f.DeadLetters || r.deadLetter()) && (f.ErrorClass == "" || r.ErrorClass == f.ErrorClass) && (f.Name == "" || r.Spec.Name == f.Name) &&
			len(r.ID) >= len(f.Prefix) && string(r.ID[:len(f.Prefix)]) == f.Prefix &&
			(f.Since.IsZero() || r.CompletedAt == nil || !r.CompletedAt.Before(f.Since)) &&
			(f.CoalescedWith == "" || r.CoalescedWith == f.CoalescedWith) && (f.SupersededBy == "" || r.SupersededBy == f.SupersededBy) &&
			(!f.Joined || r.Spec.Flow.Joined && !r.State.Terminal()) && (!f.CancelRequested || r.CancelRequested) && (len(f.Held) == 0 || r.Held != "" && slices.Contains(f.Held, r.Held)) {
			entries = append(entries, r.Entry)
		}
	}
	if f.Newest {
		slices.Reverse(entries)
	}
	total = len(entries)
	limit := f.Limit
	if limit == 0 {
		limit = 1000
	}
	from := min(f.Offset, total)
	return entries[from:min(from+limit, total)], total
}
