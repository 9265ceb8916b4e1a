package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// letterPath is the part of a path that names a dead letter.
type letterPath struct {
	Job string `path:"job" doc:"an id, 8 or more characters of its end or its beginning, or a name, of which the newest dead letter is meant"`
}

// get returns all that is known of a dead letter, or of a job that does one again.
func (d deadLetters) get(ctx context.Context, in *letterPath) (out api.DeadLetter, err error) {
	e, err := d.find(ctx, in.Job)
	if err != nil {
		return out, err
	}
	if !scheduler.IsDeadLetter(&e) && e.RequeuedFrom == "" {
		return out, newProblem("no_dead_letter", 409, "job %s (%s) is %s, not a dead letter", e.ID, e.Spec.Name, stateWord(&e))
	}
	attempts, err := d.entries.store.Attempts(ctx, e.ID)
	if err != nil {
		return out, err
	}
	chain, err := scheduler.Chain(ctx, d.entries.store, &e)
	if err != nil {
		return out, err
	}
	var next []queue.Entry
	for id := e.RequeuedAs; id != ""; id = next[len(next)-1].RequeuedAs {
		n, err := d.entries.store.Get(ctx, id)
		if err != nil {
			return out, fmt.Errorf("look for what job %s was requeued as: %w", e.ID, err)
		}
		next = append(next, n)
	}
	if err := scheduler.WaitsForSomebody(&e); err != nil {
		out.Settled = err.Error()
	}
	out.Job, out.Attempts, out.Chain, out.Next = d.entries.one(ctx, e), some(attempts), d.entries.list(ctx, chain), d.entries.list(ctx, next)
	return out, nil
}

// find returns the newest dead letter of the name ref, or else the job that ref
// names, which may be none.
func (d deadLetters) find(ctx context.Context, ref string) (queue.Entry, error) {
	named, _, err := d.entries.store.List(ctx, queue.Filter{Name: job.Name(ref), DeadLetters: true, Limit: 1, Newest: true})
	if err != nil {
		return queue.Entry{}, err
	}
	if len(named) > 0 {
		return named[0], nil
	}
	e, err := d.entries.find(ctx, ref)
	if errors.Is(err, queue.ErrNotFound) {
		err = fmt.Errorf("dead letter %q: %w", ref, queue.ErrNotFound)
	}
	return e, err
}
