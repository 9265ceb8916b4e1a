package sqlite

import (
	"fmt"

	"github.com/agentsched/agentsched/queue"
)

// spawning is a queue.Spawn whose entries are ready to be stored.
type spawning struct {
	queue.Spawn
	fresh []newEntry
}

func newSpawning(op queue.Spawn) (s spawning, err error) {
	s = spawning{op, make([]newEntry, len(op.Entries))}
	for i := range op.Entries {
		e := &op.Entries[i]
		if s.fresh[i], err = prepare(op.Batch, e); err != nil {
			return s, fmt.Errorf("spawn job %s (%q): %w", e.ID, e.Spec.Name, err)
		}
	}
	return s, nil
}

// spawn stores those entries whose names the batch does not have.
func (t *tx) spawn(op spawning) error {
	batch, pool, err := t.batches.poolOf(op.Batch)
	if err != nil {
		return err
	}
	if err := t.protect(); err != nil {
		return err
	}
	if len(op.fresh) > 1 { // a single one takes the place of another, or is the next turn
		if err := t.room.take(op.fresh); err != nil {
			return err
		}
	}
	for _, e := range op.fresh {
		_, there, err := t.number(`SELECT seq FROM entries WHERE batch = ? AND name = ? AND tenant = ?`, batch, string(e.Spec.Name), string(e.Spec.Tenant))
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if err := t.accounts.refuseDead([]newEntry{e}); err != nil {
			return err
		}
		if err := t.add(batch, pool, e); err != nil {
			return err
		}
	}
	return nil
}
