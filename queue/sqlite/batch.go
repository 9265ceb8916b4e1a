package sqlite

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// batches are the batches of the store, within a transaction.
type batches struct {
	tx    *tx
	known map[job.BatchID]knownBatch
}

// knownBatch is a batch that the writer need not look up again.
type knownBatch struct{ seq, pool int64 }

// maxKnown is how many batches are known at once.
const maxKnown = 64

// add stores b. A single entry of a new batch can only fail by its id, so
// a look at that saves the savepoint.
func (bs *batches) add(b queue.Batch, workflow string, entries []newEntry) (seq, pool int64, err error) {
	if len(entries) == 1 {
		e := entries[0]
		_, found, err := bs.tx.number(`SELECT seq FROM entries WHERE id = ?`, string(e.ID))
		if err != nil {
			return 0, 0, err
		}
		if found {
			return 0, 0, fmt.Errorf("job %s (%q of tenant %s): %w", e.ID, e.Spec.Name, e.Spec.Tenant, queue.ErrDuplicate)
		}
	}
	err = bs.tx.exec(`INSERT INTO batches (id, source, digest, private, created_at, closed_at, workflow) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		string(b.ID), b.Source, b.Digest, b.Private, b.CreatedAt, b.ClosedAt, workflow)
	if err != nil {
		return 0, 0, err
	}
	return bs.poolOf(b.ID)
}

// poolOf returns a batch and the pool of its entries.
func (bs *batches) poolOf(id job.BatchID) (seq, pool int64, err error) {
	if b, ok := bs.known[id]; ok {
		return b.seq, b.pool, nil
	}
	found, err := bs.tx.row(`SELECT seq, CASE WHEN private THEN seq ELSE 0 END FROM batches WHERE id = ?`, []any{string(id)}, &seq, &pool)
	if err == nil && !found {
		err = fmt.Errorf("batch %s: %w", id, queue.ErrNotFound)
	}
	if err == nil {
		bs.remember(id, knownBatch{seq, pool})
	}
	return seq, pool, err
}

func (bs *batches) remember(id job.BatchID, b knownBatch) {
	if bs.known == nil || len(bs.known) == maxKnown {
		bs.known = map[job.BatchID]knownBatch{}
	}
	bs.known[id] = b
}

// forget must be called where batches may have gone or changed: whatever
// takes back what was written, and whatever deletes or shares them.
func (bs *batches) forget() { bs.known = nil }

// close marks a batch as closed; one that is so already keeps its time.
func (bs *batches) close(id job.BatchID, now time.Time) error {
	seq, _, err := bs.poolOf(id)
	if err != nil {
		return err
	}
	return bs.tx.exec(`UPDATE batches SET closed_at = ? WHERE seq = ? AND closed_at IS NULL`, now, seq)
}

// adopt shares what is left of all private batches. Of what has ended nobody
// asks any more in which pool it was.
func (bs *batches) adopt() error {
	if err := bs.tx.protect(); err != nil {
		return err
	}
	const queued, waiting, dispatched = `INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = ''`,
		`INDEXED BY entries_waiting_pool WHERE waits_for <> ''`, `INDEXED BY entries_fence WHERE state = 'dispatched'`
	for _, part := range []struct {
		which, pools string
		shared       int64
	}{
		{queued, `pool > 0`, sharedPool}, {waiting, `pool > 0`, sharedPool}, {dispatched, `pool > 0`, sharedPool},
		{queued, `pool < -3`, heldPool(sharedPool)}, {waiting, `pool < -3`, heldPool(sharedPool)},
	} {
		err := bs.tx.exec(`UPDATE entries SET pool = ? WHERE seq IN (SELECT seq FROM entries `+part.which+` AND `+part.pools+`)`, part.shared)
		if err != nil {
			return err
		}
	}
	bs.forget()
	bs.tx.touched.moved = true
	return bs.tx.exec(`UPDATE batches SET private = false WHERE private`)
}

// setPrivate moves what is left of a batch into the pool that is now its own, as
// adopt does: external work is in none of these pools and stays where it is.
func (bs *batches) setPrivate(op queue.SetPrivate) error {
	seq, from, err := bs.poolOf(op.ID)
	if err != nil {
		return err
	}
	if err := bs.tx.protect(); err != nil {
		return err
	}
	to := int64(sharedPool)
	if op.Private {
		to = seq
	}
	const left = ` WHERE batch = ? AND state IN ('queued', 'dispatched')`
	for _, move := range [][2]int64{{from, to}, {heldPool(from), heldPool(to)}} {
		if err := bs.tx.exec(`UPDATE entries SET pool = ?`+left+` AND pool = ?`, move[1], seq, move[0]); err != nil {
			return err
		}
	}
	if op.Waiting != "" {
		if err := bs.tx.exec(`UPDATE entries SET waiting = ?`+left+` AND state = 'queued' AND waits_for = '' AND pool = ?`, op.Waiting, seq, to); err != nil {
			return err
		}
	}
	bs.forget()
	bs.tx.touched.moved = true
	return bs.tx.exec(`UPDATE batches SET private = ? WHERE seq = ?`, op.Private, seq)
}
