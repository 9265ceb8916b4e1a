package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Store is what is used of a queue.Store to keep steps.
type Store interface {
	Apply(ctx context.Context, ops ...queue.Op) error
	queue.Journal
}

// Keep stores a step's result unless the step has one, and returns what is stored
// then, on disk: the first result, whoever brought it. Fresh reports whether that
// is this one. The error is a *CollisionError if the step is stored for other
// inputs; nothing changed then.
//
// Guard are ops that are applied before it in the same transaction, so that a
// refusal of theirs refuses the step, e.g. a queue.Move that changes nothing but
// carries the claim's fence. What is stored already needs none.
func Keep(ctx context.Context, store Store, space string, s Stored, guard ...queue.Op) (kept Stored, fresh bool, err error) {
	if err := job.ValidStepID(s.ID); err != nil {
		return Stored{}, false, err
	}
	if kept, found, err := lookup(ctx, store, space, s.ID, s.Inputs); found || err != nil {
		return kept, false, err
	}
	if s.Result, err = compact(s.Result); err != nil {
		return Stored{}, false, fmt.Errorf("store step %q: %w", s.ID, err)
	}
	text, err := json.Marshal(value{Inputs: s.Inputs, Result: s.Result, Attempt: s.Attempt})
	if err != nil {
		return Stored{}, false, fmt.Errorf("store step %q: %w", s.ID, err)
	}
	write := queue.Write{Once: true, Record: queue.Record{Space: space, Key: s.ID, Value: text, At: s.At}}
	err = store.Apply(ctx, append(guard[:len(guard):len(guard)], write)...)
	if errors.Is(err, queue.ErrExists) {
		// Somebody was faster since the look: his is the first.
		if kept, found, err := lookup(ctx, store, space, s.ID, s.Inputs); found || err != nil {
			return kept, false, err
		}
	}
	if err != nil {
		return Stored{}, false, fmt.Errorf("store step %q: %w", s.ID, err)
	}
	return s, true, nil
}

// lookup returns what is stored of a step, if there is something; a
// *CollisionError if it is of other inputs.
func lookup(ctx context.Context, j queue.Journal, space, id, inputs string) (s Stored, found bool, err error) {
	r, err := j.Record(ctx, space, id)
	if errors.Is(err, queue.ErrNotFound) {
		return Stored{}, false, nil
	}
	if err != nil {
		return Stored{}, false, fmt.Errorf("look for step %q: %w", id, err)
	}
	if s, err = read(r); err == nil {
		err = s.matches(inputs)
	}
	return s, err == nil, err
}

// compact returns a result as it is stored, or why it cannot be.
func compact(result json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 {
		return nil, errors.New("it has no result, want a JSON value")
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("its result is no JSON: %w", err)
	}
	if len(text) > job.MaxStepResult {
		return nil, fmt.Errorf("its result has %d bytes, at most %d are allowed: write the rest to a file and put its name into the result", len(text), job.MaxStepResult)
	}
	return text, nil
}

// pageRecords is how many records Page reads at a time.
const pageRecords = 100

// stepOverhead is what a step takes as JSON besides its parts, in bytes.
const stepOverhead = 64

// Page returns the steps of a space whose ids are larger than after, in the order
// of their ids, until they make more than max bytes as JSON (the last one may
// exceed it); all of them with a max of 0. More reports whether there are further
// ones.
func Page(ctx context.Context, j queue.Journal, space, after string, max int) (steps []Stored, more bool, err error) {
	size := 0
	for {
		records, err := j.Records(ctx, space, after, pageRecords)
		if err != nil {
			return nil, false, fmt.Errorf("read the steps of %s: %w", space, err)
		}
		for i, r := range records {
			s, err := read(r)
			if err != nil {
				return nil, false, err
			}
			steps, after = append(steps, s), s.ID
			size += 2*(len(s.ID)+len(s.Inputs)) + len(s.Result) + stepOverhead
			if max > 0 && size > max {
				return steps, i < len(records)-1 || len(records) == pageRecords, nil
			}
		}
		if len(records) < pageRecords {
			return steps, false, nil
		}
	}
}

// Forget returns the op that removes all steps of a space: what was done by them
// is not good enough and is to be done anew.
func Forget(space string) queue.Op {
	return queue.Erase{Space: space, UpTo: "\U0010FFFF"} // larger than any id: it is not printable
}

// Any reports whether a space has steps.
func Any(ctx context.Context, j queue.Journal, space string) (bool, error) {
	records, err := j.Records(ctx, space, "", 1)
	if err != nil {
		return false, fmt.Errorf("look for steps of %s: %w", space, err)
	}
	return len(records) > 0, nil
}
