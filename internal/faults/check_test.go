//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// check looks at what a scenario has left, when all its processes ended.
func (s *scene) check(ctx context.Context) []string {
	wrong := append(s.census.errors(), s.left()...)
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	store, err := sqlite.OpenReadOnly(ctx, filepath.Join(s.state, "queue.db"))
	if err != nil {
		say("open the store: %v", err)
		return wrong
	}
	defer store.Close()
	entries, total, err := store.List(ctx, queue.Filter{})
	if err != nil {
		say("list the jobs: %v", err)
	}
	if total != len(s.plan.Jobs) {
		say("%d jobs, want %d", total, len(s.plan.Jobs))
	}
	seen := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		name := string(e.Spec.Name)
		if seen[name] {
			say("%s is there twice", name)
		}
		seen[name] = true
		attempts, err := store.Attempts(ctx, e.ID)
		if err != nil {
			say("attempts of %s: %v", name, err)
			continue
		}
		s.attempts += len(attempts)
		for _, what := range append(append(s.checkEntry(e, attempts), s.checkAttempts(e, attempts)...), s.checkAccounts(ctx, store, e, attempts)...) {
			say("%s: %s", name, what)
		}
		if len(attempts) > 0 {
			for _, what := range s.checkNeeds(attempts[0].Fence, e, entries) {
				say("%s: %s", name, what)
			}
		}
	}
	return wrong
}

// checkNeeds: the first attempt of a job was claimed after the last claim of each
// job that it needs. Fences tell, whatever the clocks did.
func (s *scene) checkNeeds(first job.Fence, e *queue.Entry, all []queue.Entry) (wrong []string) {
	for _, need := range e.Spec.Flow.Needs {
		i := slices.IndexFunc(all, func(n queue.Entry) bool { return n.Spec.Name == need })
		if i < 0 || all[i].Fence > first {
			wrong = append(wrong, fmt.Sprintf("it was begun under fence %d, before %s had ended", first, need))
		}
	}
	return wrong
}

// checkEntry: the job has ended, as it was bound to.
func (s *scene) checkEntry(e *queue.Entry, attempts []job.Attempt) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	p := s.plan.job(string(e.Spec.Name))
	if !e.State.Terminal() {
		say("lost: it is %s (%s)", e.State, e.Waiting)
		return wrong
	}
	counted := 0
	for i := range attempts {
		if attempts[i].Counts() {
			counted++
		}
	}
	if e.Attempts != len(attempts) || e.Counted != counted {
		say("the entry has %d attempts, %d counted; there are %d, %d", e.Attempts, e.Counted, len(attempts), counted)
	}
	if counted > p.MaxAttempts {
		say("%d attempts count, the limit is %d", counted, p.MaxAttempts)
	}
	if e.Holder != "" && e.State != job.Completed && e.State != job.Cancelled {
		say("it is %s and held by %s", e.State, e.Holder)
	}
	cancelled := e.State == job.Cancelled || e.ExitKind == job.ExitCancelled
	if cancelled {
		if !s.cancelled[p.Name] {
			say("cancelled, and nobody asked for it")
		}
		return wrong
	}
	if e.State != job.Completed {
		say("it ended as %s", e.State)
		return wrong
	}
	switch p.Fate {
	case heals:
		if e.ExitKind != job.ExitSucceeded {
			say("it was bound to succeed and ended as %s: %s", e.ExitKind, e.DeadLetter)
		}
	case doomed:
		if e.ExitKind != job.ExitFailed || e.DeadLetter == "" || counted != p.MaxAttempts {
			say("it was bound to use up %d attempts and ended as %s after %d: %q\n%s", p.MaxAttempts, e.ExitKind, counted, e.DeadLetter, tellAttempts(attempts))
		}
	case broke:
		if e.ExitKind != job.ExitFailed || e.DeadLetter == "" || e.Spent.Tokens() < p.MaxTokens {
			say("it was bound to use up %d tokens and ended as %s with %d: %q", p.MaxTokens, e.ExitKind, e.Spent.Tokens(), e.DeadLetter)
		}
	}
	return wrong
}

// checkAttempts: each attempt is there once and ended once, at most the last
// one succeeded, and what is recorded of it is its own.
func (s *scene) checkAttempts(e *queue.Entry, attempts []job.Attempt) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var fence job.Fence
	for i, a := range attempts {
		run := s.run(e.ID, a.Number)
		last := i == len(attempts)-1
		if a.Number != i+1 {
			say("attempt %d of %d has number %d", i+1, len(attempts), a.Number)
		}
		if a.Ended == nil || a.Outcome == nil || !a.State.Terminal() {
			say("attempt %d has no end: %s", a.Number, a.State)
			continue
		}
		if a.Fence < fence {
			say("attempt %d has fence %d, an earlier one has %d", a.Number, a.Fence, fence)
		}
		fence = a.Fence
		if lapsed := strings.Contains(a.Outcome.Message, "the permit lapsed"); lapsed && (!s.plan.Lapse || !a.Lost || a.State != job.RunCancelled) {
			say("the permit of attempt %d lapsed, in a scenario in which they do: %t; it is %s, and lost: %t", a.Number, s.plan.Lapse, a.State, a.Lost)
		}
		succeeded := a.State == job.RunCompleted
		if succeeded && (!last || e.ExitKind != job.ExitSucceeded) {
			say("attempt %d of %d succeeded and the job ended as %s", a.Number, len(attempts), e.ExitKind)
		}
		if !succeeded && last && e.ExitKind == job.ExitSucceeded {
			say("the job succeeded and its last attempt is %s", a.State)
		}
		if !succeeded {
			continue
		}
		if n := s.census.done[run]; n != 1 {
			say("attempt %d succeeded, and its work was done %d times", a.Number, n)
		}
		if want := act.Answer(run); !strings.Contains(a.Outcome.Answer, want) {
			say("attempt %d succeeded with the answer %.100q, want %q", a.Number, a.Outcome.Answer, want)
		}
	}
	for run, name := range s.census.jobs {
		if name == string(e.Spec.Name) && !slices.ContainsFunc(attempts, func(a job.Attempt) bool { return s.run(e.ID, a.Number) == run }) {
			say("run %s is not recorded", run)
		}
	}
	return wrong
}

// checkAccounts: what the job has spent is the sum of its attempts', which is
// that of their events, which is what their workers said.
func (s *scene) checkAccounts(ctx context.Context, store *sqlite.Store, e *queue.Entry, attempts []job.Attempt) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	events, err := eventsOf(ctx, store, e.ID)
	if err != nil {
		say("%v", err)
		return wrong
	}
	var sum job.Usage
	for _, a := range attempts {
		if a.Outcome == nil {
			continue // told already
		}
		own := a.Outcome.Usage
		sum = sum.Add(own)
		told, whole := usageOf(events, a.Number)
		said := s.census.used[s.run(e.ID, a.Number)]
		if own.Tokens() > said {
			say("attempt %d is charged %d tokens; its worker said %d", a.Number, own.Tokens(), said)
		}
		if told.Tokens() > own.Tokens() {
			say("attempt %d is charged %d tokens; its events have %d", a.Number, own.Tokens(), told.Tokens())
		}
		// What a flood had no room for may be the last event, and show nowhere.
		if whole && !s.plan.floods() && told.Tokens() < own.Tokens() {
			say("attempt %d is charged %d tokens; its events, of which none is missing, have %d", a.Number, own.Tokens(), told.Tokens())
		}
		if a.State == job.RunCompleted && own.Tokens() != said {
			say("attempt %d succeeded, charged %d tokens; its worker said %d", a.Number, own.Tokens(), said)
		}
	}
	if sum.Tokens() != e.Spent.Tokens() || sum.Steps != e.Spent.Steps {
		say("spent %+v, and the attempts together %+v", e.Spent, sum)
	}
	return wrong
}

func eventsOf(ctx context.Context, store *sqlite.Store, id job.ID) (all []queue.StoredEvent, err error) {
	for after := int64(0); ; after = all[len(all)-1].Cursor {
		page, err := store.Events(ctx, id, after, 1000)
		if err != nil {
			return nil, fmt.Errorf("events: %w", err)
		}
		if len(page) == 0 {
			return all, nil
		}
		all = append(all, page...)
	}
}

// usageOf sums the usage events of an attempt; whole is false if some of its
// events are missing.
func usageOf(events []queue.StoredEvent, attempt int) (sum job.Usage, whole bool) {
	whole = true
	next := int64(1)
	for _, e := range events {
		if e.Attempt != attempt {
			continue
		}
		whole = whole && e.Seq == next
		next = e.Seq + 1
		if e.Kind == job.EventUsage && e.Usage != nil {
			sum = sum.Add(*e.Usage)
		}
	}
	return sum, whole
}

// run returns the tag of an attempt.
func (s *scene) run(id job.ID, attempt int) string {
	if s.runOf != nil {
		return s.runOf(id, attempt)
	}
	return fmt.Sprintf("%s/%s/%d", s.instance(), id, attempt)
}

// tellAttempts lists attempts, one a line.
func tellAttempts(attempts []job.Attempt) string {
	var b strings.Builder
	for _, a := range attempts {
		text, _ := json.Marshal(a)
		fmt.Fprintf(&b, "  %s\n", text)
	}
	return b.String()
}
