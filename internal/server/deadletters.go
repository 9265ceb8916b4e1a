package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// deadLetters answers GET /v1/dead-letters.
func (s *Server) deadLetters(r *http.Request) (any, error) {
	limit, err := number(r, "limit", 100)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	f := scheduler.LetterFilter{Tenant: job.Tenant(q.Get("tenant")), Worker: job.WorkerKind(q.Get("worker")), Limit: int(min(max(limit, 1), 1000))}
	for _, class := range q["class"] {
		if !slices.Contains(job.ErrorClasses(), job.ErrorClass(class)) {
			return nil, fmt.Errorf("%w: class %q is unknown, want one of %v", errBadRequest, class, job.ErrorClasses())
		}
		f.Classes = append(f.Classes, job.ErrorClass(class))
	}
	now := time.Now().UTC().Round(0)
	for name, at := range map[string]*time.Time{"older": &f.Older, "newer": &f.Newer} {
		if text := q.Get(name); text != "" {
			age, err := time.ParseDuration(text)
			if err != nil {
				return nil, fmt.Errorf("%w: %s is %q, want an age such as 30m", errBadRequest, name, text)
			}
			*at = now.Add(-age)
		}
	}
	if text := q.Get("grep"); text != "" {
		if f.Grep, err = regexp.Compile(text); err != nil {
			return nil, fmt.Errorf("%w: grep: %w", errBadRequest, err)
		}
	}
	entries, total, err := scheduler.DeadLetters(r.Context(), s.store, f)
	return client.Jobs{Jobs: append([]queue.Entry{}, entries...), Total: total}, err
}

func (s *Server) requeue(r *http.Request) (any, error) {
	var in client.Requeue
	if err := decode(r, &in, maxSubmission); err != nil {
		return nil, err
	}
	if len(in.Letters) == 0 {
		return nil, fmt.Errorf("%w: letters is empty, want at least one", errBadRequest)
	}
	var list []scheduler.Again
	var bad []error
	for i, l := range in.Letters {
		if l.Spec != nil {
			for _, f := range l.Spec.Validate() {
				bad = append(bad, fmt.Errorf("%w: letters[%d].spec.%s: %s", errBadRequest, i, f.Field, f.Message))
			}
		}
		e, err := s.letter(r.Context(), l.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, scheduler.Again{Letter: e, Spec: l.Spec, Fresh: in.ResetSession})
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	entries, err := scheduler.Requeue(r.Context(), s.sched.Submit, list, time.Now().UTC().Round(0))
	if errors.Is(err, scheduler.ErrEnding) {
		return nil, err
	}
	out := client.Requeued{Jobs: append([]queue.Entry{}, entries...)}
	out.Refused = Sentences(err)
	return out, nil
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

func (s *Server) drop(r *http.Request) (any, error) {
	var in client.Drop
	if err := decode(r, &in, maxSubmission); err != nil {
		return nil, err
	}
	if len(in.IDs) == 0 {
		return nil, fmt.Errorf("%w: ids is empty, want at least one", errBadRequest)
	}
	now := time.Now().UTC().Round(0)
	var ops []queue.Op
	for _, id := range in.IDs {
		if _, err := s.letter(r.Context(), id); err != nil {
			return nil, err
		}
		ops = append(ops, queue.Drop{ID: id, Now: now})
	}
	if err := s.store.Apply(r.Context(), ops...); err != nil {
		return nil, fmt.Errorf("drop dead letters: %w", err)
	}
	out := client.Jobs{Total: len(in.IDs)}
	for _, id := range in.IDs {
		e, err := s.store.Get(r.Context(), id)
		if err != nil {
			return nil, err
		}
		out.Jobs = append(out.Jobs, e)
	}
	return out, nil
}

// letter returns a dead letter that waits for somebody.
func (s *Server) letter(ctx context.Context, id job.ID) (queue.Entry, error) {
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return e, fmt.Errorf("dead letter %s: %w", id, err)
	}
	return e, scheduler.WaitsForSomebody(&e)
}
