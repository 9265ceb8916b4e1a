package queuetest

import (
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// list returns the entries that f selects and their number without its limits.
func (m *memory) list(f queue.Filter) (entries []queue.Entry, total int) {
	for _, r := range m.records {
		if (f.Batch == "" || r.Batch == f.Batch) && (len(f.States) == 0 || slices.Contains(f.States, r.State)) && (len(f.Runs) == 0 || slices.Contains(f.Runs, r.RunState())) &&
			(f.Tenant == "" || r.Spec.Tenant == f.Tenant) && (f.Agent == "" || r.Spec.Agent == f.Agent) &&
			(!f.External || r.Spec.Type == job.External) && (!f.DeadLetters || r.deadLetter()) && (f.ErrorClass == "" || r.ErrorClass == f.ErrorClass) && (f.Name == "" || r.Spec.Name == f.Name) &&
			(f.Key == "" || r.Key == f.Key && !r.State.Terminal()) &&
			(f.Worker == "" || slices.Contains(r.workers(), f.Worker)) && (f.Search == "" || r.found(f.Search)) &&
			len(r.ID) >= len(f.Prefix) && string(r.ID[:len(f.Prefix)]) == f.Prefix && strings.HasSuffix(string(r.ID), f.Suffix) &&
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

// workers returns the first choice of an entry and its current one.
func (r *record) workers() []job.WorkerKind {
	return []job.WorkerKind{r.Spec.Worker, r.Spec.Choices()[min(r.Choice, len(r.Spec.Fallback))].Worker}
}

func (r *record) found(text string) bool {
	text = asciiLower(text)
	if id := asciiLower(string(r.ID)); strings.HasPrefix(id, text) || len(text) >= 8 && strings.HasSuffix(id, text) {
		return true
	}
	in := []string{string(r.Spec.Name), string(r.Spec.Tenant), r.Spec.Instructions}
	for _, w := range r.workers() {
		in = append(in, string(w))
	}
	return slices.ContainsFunc(in, func(s string) bool { return strings.Contains(asciiLower(s), text) })
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
