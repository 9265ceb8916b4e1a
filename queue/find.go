package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// minPart is the least that Find takes for a part of an id: fewer characters do not
// tell ids apart.
const minPart = 8

// AmbiguousError says that a part of an id is that of several jobs.
type AmbiguousError struct {
	Ref   string
	Jobs  []Entry // the first of them
	Total int
}

func (e *AmbiguousError) Error() string {
	list := make([]string, len(e.Jobs))
	for i := range e.Jobs {
		list[i] = fmt.Sprintf("%s (%s)", e.Jobs[i].ID, e.Jobs[i].Spec.Name)
	}
	if e.Total > len(list) {
		list = append(list, "…")
	}
	return fmt.Sprintf("%q is part of the ids of %d jobs: %s; give more of it", e.Ref, e.Total, strings.Join(list, ", "))
}

// Find returns the job that a user means by ref: its id, at least 8 characters of
// the end of its id or of its beginning, or its name, of which the newest is meant.
// The error wraps ErrNotFound, or is an *AmbiguousError.
func Find(ctx context.Context, s Reader, ref string) (Entry, error) {
	if ref == "" {
		return Entry{}, fmt.Errorf("job %q: %w", ref, ErrNotFound)
	}
	e, err := s.Get(ctx, job.ID(ref))
	if err == nil || !errors.Is(err, ErrNotFound) {
		return e, err
	}
	byName, _, err := s.List(ctx, Filter{Name: job.Name(ref), Limit: 1, Newest: true})
	if err != nil {
		return Entry{}, err
	}
	if len(byName) > 0 {
		return byName[0], nil
	}
	if len(ref) >= minPart {
		const most = 5
		for _, f := range []Filter{{Prefix: ref, Limit: most}, {Suffix: ref, Limit: most}} {
			byID, total, err := s.List(ctx, f)
			switch {
			case err != nil:
				return Entry{}, err
			case total == 1:
				return byID[0], nil
			case total > 1:
				return Entry{}, &AmbiguousError{ref, byID, total}
			}
		}
	}
	return Entry{}, fmt.Errorf("job %q: %w; `scheduler ls` lists what there is", ref, ErrNotFound)
}

// CancelKey cancels the unfinished jobs of a tenant that have a key, all or none, and
// returns them as they were, the newest first. The error wraps ErrNotFound if there
// are none.
func CancelKey(ctx context.Context, s Store, tenant job.Tenant, key string, now time.Time) ([]Entry, error) {
	for {
		list, _, err := s.List(ctx, Filter{Tenant: tenant, Key: key, Newest: true, Limit: 1 << 30})
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("tenant %s has no unfinished job of the key %q: %w", tenant, key, ErrNotFound)
		}
		// The newest first: none of them has its turn by the end of another.
		ops := make([]Op, len(list))
		for i := range list {
			ops[i] = Cancel{ID: list[i].ID, Now: now}
		}
		err = s.Apply(ctx, ops...)
		if errors.Is(err, ErrIllegalTransition) && ctx.Err() == nil {
			continue // one has ended since the look
		}
		return list, err
	}
}
