package server

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
)

// deadLetters answers about jobs that were given up.
type deadLetters struct {
	entries entries
	submit  func(context.Context, queue.Batch, []queue.Entry) error
	domains func() []string // Options.Domains
	parcels parcels
	maxBody int64
}

func (d deadLetters) routes(r *router) {
	get(r, route{id: "list-dead-letters", method: "GET", path: "/v1/dead-letters", role: read, answered: fromStore, tag: "dead letters",
		about: "List the dead letters: failed jobs that wait for a decision, the latest submission first."}, d.list)
	get(r, route{id: "get-dead-letter", method: "GET", path: "/v1/dead-letters/{job}", role: read, answered: fromStore, tag: "dead letters",
		about: "Return a dead letter, or a job that runs one again: its attempts, and what it was requeued from and as."}, d.get)
	post(r, route{id: "requeue-dead-letters", method: "POST", path: "/v1/dead-letters/requeue", role: operate, tag: "dead letters", body: d.maxBody,
		about: "Requeue dead letters, each by itself.\nrefused has a sentence for each that was not requeued."}, d.requeue)
	post(r, route{id: "drop-dead-letters", method: "POST", path: "/v1/dead-letters/drop", role: operate, tag: "dead letters", body: d.maxBody,
		about: "Drop dead letters, all or none: they need no decision any more."}, d.drop)
}

type lettersQuery struct {
	limit
	Offset int              `query:"offset" minimum:"0" doc:"how many to leave out at the beginning"`
	Tenant job.Tenant       `query:"tenant" doc:"only this tenant"`
	Worker job.WorkerKind   `query:"worker" doc:"only jobs whose latest worker is of this kind"`
	Class  []job.ErrorClass `query:"class,explode" doc:"only jobs whose latest failure is of one of these classes"`
	Older  string           `query:"older" doc:"only jobs that failed at least this long ago, e.g. 30m"`
	Newer  string           `query:"newer" doc:"only jobs that failed less than this long ago, e.g. 24h"`
	Grep   string           `query:"grep" maxLength:"1000" doc:"a regular expression that the name, the reason or the instructions match"`
}

func (d deadLetters) list(ctx context.Context, q *lettersQuery) (api.Jobs, error) {
	bad := &invalid{}
	f := scheduler.LetterFilter{Tenant: q.Tenant, Worker: q.Worker, Limit: q.Offset + q.Limit, Classes: q.Class}
	for _, class := range q.Class {
		checkOneOf(bad, "query.class", class, job.ErrorClasses())
	}
	now := time.Now().UTC().Round(0)
	f.Older, f.Newer = ago(bad, "query.older", q.Older, now), ago(bad, "query.newer", q.Newer, now)
	if q.Grep != "" {
		var err error
		if f.Grep, err = regexp.Compile(q.Grep); err != nil {
			bad.add("query.grep", "%v", err)
		}
	}
	if err := bad.or(); err != nil {
		return api.Jobs{}, err
	}
	entries, total, err := scheduler.DeadLetters(ctx, d.entries.store, f)
	return api.Jobs{Jobs: d.entries.list(ctx, entries[min(q.Offset, len(entries)):]), Total: total}, err
}

// ago returns the time that is so long ago; zero if none is given.
func ago(bad *invalid, location, text string, now time.Time) time.Time {
	if text == "" {
		return time.Time{}
	}
	age, err := time.ParseDuration(text)
	if err != nil {
		bad.add(location, "is %q, want an age such as 30m", text)
		return time.Time{}
	}
	return now.Add(-age)
}

// at names an element of a list.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (d deadLetters) requeue(ctx context.Context, _ *struct{}, in *api.Requeue) (api.Requeued, error) {
	bad := &invalid{}
	if len(in.Letters) == 0 {
		bad.add("body.letters", "is empty, want at least one")
	}
	var list []scheduler.Again
	for i, l := range in.Letters {
		if l.Spec != nil {
			for _, f := range l.Spec.Validate() {
				bad.add(at("body.letters", i)+".spec."+f.Field, "%s", f.Message)
			}
			for _, p := range workflow.CheckDomains([]job.Spec{*l.Spec}, nil, call(d.domains)) {
				bad.add(at("body.letters", i)+".spec."+p.Field, "%s", p.Message)
			}
		}
	}
	if err := bad.or(); err != nil {
		return api.Requeued{}, err
	}
	for _, l := range in.Letters {
		if l.Spec != nil {
			specs := []job.Spec{*l.Spec}
			if err := d.parcels.complete(ctx, specs); err != nil {
				return api.Requeued{}, err
			}
			*l.Spec = specs[0]
		}
		e, err := d.letter(ctx, l.ID)
		if err != nil {
			return api.Requeued{}, err
		}
		list = append(list, scheduler.Again{Letter: e, Spec: l.Spec, Fresh: in.ResetSession})
	}
	entries, err := scheduler.Requeue(ctx, d.submit, list, time.Now().UTC().Round(0))
	if errors.Is(err, scheduler.ErrEnding) {
		return api.Requeued{}, err
	}
	return api.Requeued{Jobs: d.entries.list(ctx, entries), Refused: Sentences(err)}, nil
}

// Sentences returns what errors.Join has joined, a text for each.
func Sentences(err error) []string {
	var list []string
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, one := range joined.Unwrap() {
			list = append(list, one.Error())
		}
	case err != nil:
		list = append(list, err.Error())
	}
	return list
}

func (d deadLetters) drop(ctx context.Context, _ *struct{}, in *api.Drop) (api.Jobs, error) {
	if len(in.IDs) == 0 {
		return api.Jobs{}, badField("body.ids", "is empty, want at least one")
	}
	now := time.Now().UTC().Round(0)
	var ops []queue.Op
	for _, id := range in.IDs {
		if _, err := d.letter(ctx, id); err != nil {
			return api.Jobs{}, err
		}
		ops = append(ops, queue.Drop{ID: id, Now: now})
	}
	if err := d.entries.store.Apply(ctx, ops...); err != nil {
		return api.Jobs{}, fmt.Errorf("drop dead letters: %w", err)
	}
	return d.entries.jobs(ctx, in.IDs)
}

// letter returns a dead letter that waits for a decision.
func (d deadLetters) letter(ctx context.Context, id job.ID) (queue.Entry, error) {
	e, err := d.entries.store.Get(ctx, id)
	if err != nil {
		return e, fmt.Errorf("dead letter %s: %w", id, err)
	}
	return e, scheduler.WaitsForSomebody(&e)
}
