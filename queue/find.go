package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// minPrefix is the least that Find takes for a part of an id: ids share their
// first digits with their neighbours in time, so a few do not tell them apart.
const minPrefix = 8

// Find returns the job that a user means by ref: its id, a beginning of its id
// of at least 8 characters, or its name, of which the newest is meant. The
// error wraps ErrNotFound, or names the candidates if several ids begin so.
func Find(ctx context.Context, s Store, ref string) (Entry, error) {
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
	if len(ref) >= minPrefix {
		byID, total, err := s.List(ctx, Filter{Prefix: ref, Limit: 5})
		switch {
		case err != nil:
			return Entry{}, err
		case total == 1:
			return byID[0], nil
		case total > 1:
			ids := make([]string, len(byID))
			for i, e := range byID {
				ids[i] = string(e.ID)
			}
			return Entry{}, fmt.Errorf("%d jobs have ids that begin with %q: %s …; give more of it", total, ref, strings.Join(ids, ", "))
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
