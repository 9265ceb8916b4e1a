package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// IsDeadLetter reports whether the job was given up, also if it was requeued or
// dropped since.
func IsDeadLetter(e *queue.Entry) bool {
	return e.State == job.Completed && e.ExitKind == job.ExitFailed
}

// WaitsForSomebody returns nil for a dead letter that was neither requeued nor
// dropped, and otherwise an error that names the job, says how it stands and
// wraps queue.ErrIllegalTransition.
func WaitsForSomebody(e *queue.Entry) error {
	var how string
	switch {
	case e.State == job.Expired:
		how = "expired before it began, and is not a dead letter"
	case !IsDeadLetter(e):
		how = fmt.Sprintf("is %s, not a dead letter", StateOf(e))
	case e.RequeuedAs != "" && e.RequeuedAs == e.ContinuedAs:
		how = fmt.Sprintf("was told something since: job %s goes on from it", e.ContinuedAs)
	case e.RequeuedAs != "":
		how = fmt.Sprintf("was requeued as %s already", e.RequeuedAs)
	case e.DroppedAt != nil:
		how = fmt.Sprintf("was dropped on %s already", e.DroppedAt.Local().Format(time.DateTime))
	default:
		return nil
	}
	return queue.Refuse("job %s (%s) %s", e.ID, e.Spec.Name, how)
}

// LetterFilter selects dead letters that wait for somebody; zero fields select
// everything.
type LetterFilter struct {
	Classes []job.ErrorClass // any of these
	Tenant  job.Tenant
	Worker  job.WorkerKind // that the job ran on last
	// Older and Newer are by when it was given up: at or before, after.
	Older, Newer time.Time
	// Grep must match the job's name, the reason or the instructions.
	Grep  *regexp.Regexp
	Limit int // at most so many; 0: all
}

// letterPage is how many entries are read at once.
const letterPage = 1000

// DeadLetters returns what f selects, submitted last first, and how many there
// are without its Limit.
func DeadLetters(ctx context.Context, store queue.Reader, f LetterFilter) ([]queue.Entry, int, error) {
	var list []queue.Entry
	total := 0
	for offset := 0; ; offset += letterPage {
		q := queue.Filter{DeadLetters: true, Tenant: f.Tenant, Newest: true, Limit: letterPage, Offset: offset}
		if len(f.Classes) == 1 {
			q.ErrorClass = f.Classes[0]
		}
		page, _, err := store.List(ctx, q)
		if err != nil {
			return nil, 0, fmt.Errorf("list dead letters: %w", err)
		}
		for i := range page {
			if !f.matches(&page[i]) {
				continue
			}
			if total++; f.Limit == 0 || len(list) < f.Limit {
				list = append(list, page[i])
			}
		}
		if len(page) < letterPage {
			return list, total, nil
		}
	}
}

func (f *LetterFilter) matches(e *queue.Entry) bool {
	given := givenUp(e)
	switch {
	case len(f.Classes) > 0 && !slices.Contains(f.Classes, e.ErrorClass),
		f.Worker != "" && f.Worker != LastWorker(e),
		!f.Older.IsZero() && given.After(f.Older),
		!f.Newer.IsZero() && !given.After(f.Newer):
		return false
	}
	return f.Grep == nil || f.Grep.MatchString(string(e.Spec.Name)) || f.Grep.MatchString(e.DeadLetter) || f.Grep.MatchString(e.Spec.Instructions)
}

// LastWorker is the kind of worker that the job ran on last, or was to run on.
func LastWorker(e *queue.Entry) job.WorkerKind {
	choices := e.Spec.Choices()
	return choices[min(e.Choice, len(choices)-1)].Worker
}

func givenUp(e *queue.Entry) time.Time {
	if e.CompletedAt == nil {
		return e.CreatedAt
	}
	return *e.CompletedAt
}

// Again is a dead letter to be done again.
type Again struct {
	Letter queue.Entry
	// Spec is what is to be done; nil: what the letter says.
	Spec *job.Spec
	// Fresh lets the agent begin without its session, and without hearing why the
	// last attempt was not good enough. So does a Spec.
	Fresh bool
}

// entry returns what is queued. A point in time that has passed is forgotten: a
// deadline would let the job expire at once.
func (a *Again) entry(at time.Time) queue.Entry {
	l := &a.Letter
	spec := l.Spec
	if a.Spec != nil {
		spec = *a.Spec
	}
	spec.Trigger, spec.Lead = job.ByResume, job.Lead{} // a person's from now on
	if spec.Deadline != nil && !spec.Deadline.After(at) {
		spec.Deadline = nil
	}
	if spec.RunnableAt != nil && !spec.RunnableAt.After(at) {
		spec.RunnableAt = nil
	}
	// Of a workflow it is this job alone that is done again, with what its needs
	// have given it.
	f := &spec.Flow
	if a.Spec != nil {
		kept := &l.Spec.Flow // an edited job file says nothing of these, unless they are to be others
		f.Oversight, f.Evaluation, f.Best = cmp.Or(f.Oversight, kept.Oversight), cmp.Or(f.Evaluation, kept.Evaluation), cmp.Or(f.Best, kept.Best)
		if f.OnConflict == "" {
			f.OnConflict = kept.OnConflict
		}
		if len(f.From) == 0 {
			f.From = kept.From
		}
	}
	spec.Flow = job.Flow{From: f.From, OnConflict: f.OnConflict, Oversight: f.Oversight, Evaluation: f.Evaluation, Best: f.Best}
	e := queue.Entry{ID: job.NewID(), Spec: spec, State: job.Queued, CreatedAt: at, RunnableAt: at, Deadline: spec.Deadline, RequeuedFrom: l.ID}
	if a.Spec == nil || a.Spec.Instructions == l.Spec.Instructions {
		e.Resolved = l.Resolved
	}
	if spec.RunnableAt != nil {
		e.RunnableAt = *spec.RunnableAt
	}
	if a.Spec != nil || a.Fresh {
		return e
	}
	e.Feedback = l.Feedback
	if l.Continues != "" { // it began with another's work, which is no part of its words
		e.Continues, e.Folder = l.ID, l.WorksIn()
		e.Session, e.SessionWorker, e.SessionNode = l.Session, l.SessionWorker, l.SessionNode
		return e
	}
	// A session knows what lies in its folder. Only there does another job find it.
	if spec.Workspace.Isolation == job.Direct {
		e.Session, e.SessionWorker, e.SessionNode = l.Session, l.SessionWorker, l.SessionNode
	}
	return e
}

// requeuedSource is where batches of requeued jobs come from.
const requeuedSource = "submitted: dead letters"

// Requeue puts new entries into the queue that do the letters again, in shared
// batches, by enqueue: Store.Enqueue, or Scheduler.Submit of a running one. It
// returns the entries that are durable. What is refused (the letter was requeued
// by somebody else, a job with its key is unfinished, its owner is dead) keeps
// the others from nothing; the error joins one for each.
func Requeue(ctx context.Context, enqueue func(context.Context, queue.Batch, []queue.Entry) error, list []Again, at time.Time) ([]queue.Entry, error) {
	r := requeuer{ctx: ctx, enqueue: enqueue}
	list = slices.DeleteFunc(slices.Clone(list), func(a Again) bool {
		f := &a.Letter.Spec.Flow
		node := f.Node == "" && (f.ForEach != nil || f.Loop != nil)
		if node {
			r.errs = append(r.errs, fmt.Errorf("requeue job %s (%s): it stood for its parts: requeue those that failed, or submit the workflow again", a.Letter.ID, a.Letter.Spec.Name))
		}
		return node
	})
	for _, entries := range byName(list, at) {
		b := queue.Batch{ID: job.NewBatchID(), Source: requeuedSource, CreatedAt: at}
		for i := range entries {
			entries[i].Batch = b.ID
		}
		r.put(b, entries)
	}
	return r.done, errors.Join(r.errs...)
}

// byName returns the new entries, each name of a tenant once in a batch.
func byName(list []Again, at time.Time) [][]queue.Entry {
	type name struct {
		job.Tenant
		job.Name
	}
	var batches [][]queue.Entry
	seen := map[name]int{}
	for i := range list {
		e := list[i].entry(at)
		n := name{e.Spec.Tenant, e.Spec.Name}
		if seen[n] == len(batches) {
			batches = append(batches, nil)
		}
		batches[seen[n]] = append(batches[seen[n]], e)
		seen[n]++
	}
	return batches
}

type requeuer struct {
	ctx     context.Context
	enqueue func(context.Context, queue.Batch, []queue.Entry) error
	done    []queue.Entry
	errs    []error
}

// put enqueues all of the entries, or, if one is refused, each half by itself.
func (r *requeuer) put(b queue.Batch, entries []queue.Entry) {
	err := r.enqueue(r.ctx, b, entries)
	refused := errors.Is(err, queue.ErrIllegalTransition) || errors.Is(err, queue.ErrDuplicate) || errors.Is(err, queue.ErrDeadOwner)
	switch {
	case err == nil:
		r.done = append(r.done, entries...)
	case refused && len(entries) > 1:
		r.put(b, entries[:len(entries)/2])
		r.put(b, entries[len(entries)/2:])
	case refused:
		r.errs = append(r.errs, fmt.Errorf("requeue job %s (%s): %w", entries[0].RequeuedFrom, entries[0].Spec.Name, err))
	default:
		r.errs = append(r.errs, fmt.Errorf("requeue %s: %w", letterIDs(entries), err))
	}
}

func letterIDs(entries []queue.Entry) string {
	var ids []string
	for i := range entries {
		ids = append(ids, string(entries[i].RequeuedFrom))
	}
	if len(ids) > 5 {
		ids = append(ids[:5], fmt.Sprintf("and %d others", len(ids)-5))
	}
	return strings.Join(ids, ", ")
}

// Chain returns the jobs before e that were requeued, or gone on from, one as the next
// and at last as e, the first one first. What was pruned is left out with all
// before it.
func Chain(ctx context.Context, store queue.Reader, e *queue.Entry) ([]queue.Entry, error) {
	var chain []queue.Entry
	for from := cmp.Or(e.RequeuedFrom, e.Continues); from != ""; {
		l, err := store.Get(ctx, from)
		if errors.Is(err, queue.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("look for what job %s was requeued from: %w", e.ID, err)
		}
		chain = append(chain, l)
		from = cmp.Or(l.RequeuedFrom, l.Continues)
	}
	slices.Reverse(chain)
	return chain, nil
}

// Redrive requeues what the rules say at the time (policy.Redrive), by enqueue
// as Requeue does, and returns the new entries and what is to be passed in as
// lately next time. A letter whose deadline has passed is left to a person, and so is
// one that an agent has submitted: it would spend what its lead has not, and outlive it.
func Redrive(ctx context.Context, store queue.Reader, enqueue func(context.Context, queue.Batch, []queue.Entry) error, rules []policy.RedriveRule, lately policy.Redrives, at time.Time) ([]queue.Entry, policy.Redrives, error) {
	f := LetterFilter{}
	for _, r := range rules {
		f.Classes = append(f.Classes, r.Classes...)
	}
	if len(f.Classes) == 0 {
		return nil, nil, nil
	}
	found, _, err := DeadLetters(ctx, store, f)
	if err != nil {
		return nil, lately, err
	}
	byID := map[job.ID]*queue.Entry{}
	var letters []policy.Letter
	for i := range found {
		e := &found[i]
		if e.Deadline != nil && !e.Deadline.After(at) || e.Spec.Lead.Job != "" {
			continue
		}
		chain, err := Chain(ctx, store, e)
		if err != nil {
			return nil, lately, err
		}
		requeues := 0
		for _, x := range append(chain, *e) {
			if x.RequeuedFrom != "" {
				requeues++
			}
		}
		byID[e.ID] = e
		letters = append(letters, policy.Letter{ID: e.ID, Tenant: e.Spec.Tenant, Worker: LastWorker(e), Class: e.ErrorClass, Since: givenUp(e), Requeues: requeues})
	}
	ids, next := policy.Redrive(rules, lately, letters, at)
	var list []Again
	for _, id := range ids {
		list = append(list, Again{Letter: *byID[id]})
	}
	entries, err := Requeue(ctx, enqueue, list, at)
	return entries, next, err
}
