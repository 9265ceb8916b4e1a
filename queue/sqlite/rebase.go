package sqlite

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// selectLate finds, of a lane or of what waits for another entry, what is runnable
// only after a moment, see queue.Rebase.
const selectLate = ` AND runnable_at > ? AND (NOT ? OR created_at > ? OR dispatched_at IS NULL OR dispatched_at > ?
	OR EXISTS (SELECT 1 FROM attempts WHERE entry = e.seq AND ended_at > ?))`

const selectNextPool = `SELECT pool FROM entries INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = '' AND pool > ?
	ORDER BY pool LIMIT 1`

// rebase looks, in each lane, only at what is not yet runnable.
func (t *tx) rebase(op queue.Rebase) error {
	late := []any{op.After, op.Future, op.Now, op.Now, op.Now}
	var found []int64
	add := func(row scanner) error {
		var seq int64
		var text string
		if err := row.Scan(&seq, &text); err != nil {
			return err
		}
		var spec job.Spec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return fmt.Errorf("read the specification of entry %d: %w", seq, err)
		}
		if spec.RunnableAt == nil || !spec.RunnableAt.After(op.Now) {
			found = append(found, seq)
		}
		return nil
	}
	const which = `SELECT e.seq, (SELECT s.spec FROM specs s WHERE s.entry = e.seq)`
	err := t.eachPool(func(pool int64) error {
		lanes, err := scope{db: t.db, pool: pool}.lanes()
		for i := 0; err == nil && i < len(lanes); i++ {
			l := lanes[i].lane
			err = t.rows(which+ofLane+selectLate, append([]any{pool, string(l.Tenant), l.Priority}, late...), add)
		}
		return err
	})
	if err == nil {
		err = t.rows(which+` FROM entries e INDEXED BY entries_waiting WHERE waits_for <> ''`+selectLate, late, add)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	if err := t.protect(); err != nil {
		return err
	}
	for _, seq := range found {
		if err := t.exec(`UPDATE entries SET runnable_at = ? WHERE seq = ?`, op.Now, seq); err != nil {
			return err
		}
	}
	return nil
}

// eachPool calls do for each pool in which something can be claimed.
func (d *db) eachPool(do func(pool int64) error) error {
	for last := int64(math.MinInt64); ; {
		pool, found, err := d.number(selectNextPool, last)
		if err != nil || !found {
			return err
		}
		if err := do(pool); err != nil {
			return err
		}
		last = pool
	}
}
