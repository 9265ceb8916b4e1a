package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// changes knows which entries have changed lately, of the batches that somebody
// asks about. It is of this process's memory alone, and bounded: when there are too
// many it forgets all, and whoever asks gets whole batches once.
//
//	writer   statements, SQLite's hook ──► touch ──► note ──► COMMIT ──► committed
//	reader                          last ──► its snapshot begins ──► since
//
// A change is noted before it can be seen, and the mark that a reader gets is of
// what could be seen before it looked. So it is told of all that its snapshot
// shows, perhaps of more, and of what that does not show when it asks again.
type changes struct {
	mu sync.Mutex // guards what follows
	// last is the mark of the newest commit, noted that of the newest note: the
	// same, or the next while a commit is under way.
	last, noted queue.Mark
	batches     map[int64]*batchChanges // by row number
	rows        map[job.BatchID]int64   // of these
	size        int
	lanes       laneChanges
}

// batchChanges are the changes of one batch.
type batchChanges struct {
	since queue.Mark // after which all are in list
	list  []change   // the oldest first
}

type change struct {
	at    queue.Mark
	entry int64
}

// maxListed is how many changed entries of a batch are read one by one; of more, the
// whole batch is.
const maxListed = 5000

// maxNoted is how many changes and batches are known at once: 4 MiB.
const maxNoted = 1 << 18

// begin makes marks of another opening of the store mean nothing.
func (c *changes) begin() {
	c.last = queue.Mark(1 + rand.Int64N(1<<62))
	c.lanes.max = maxLanes
	c.forget()
}

// forget must be called where something may have changed that was not noted.
func (c *changes) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, c.noted) + 1
	c.drop()
	c.lanes.forget(c.last)
}

// drop forgets all; c.mu is held.
func (c *changes) drop() {
	c.noted = max(c.last, c.noted)
	c.batches, c.rows, c.size = map[int64]*batchChanges{}, map[job.BatchID]int64{}, 0
}

// committed says that what was noted last is in the file.
func (c *changes) committed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = c.noted
	c.lanes.signal()
}

// failed must be called when a transaction was not committed. If its changes were
// noted, something may be in the file or not.
func (c *changes) failed() {
	c.mu.Lock()
	noted := c.noted > c.last
	c.mu.Unlock()
	if noted {
		c.forget()
	}
}

// touched is what the transaction under way has changed so far.
type touched struct {
	rows    []int64        // of entries
	kept    map[int64]bool // of them those that were held back by queue.Keep
	deleted bool           // entries are gone
	moved   bool           // entries are in other lanes, or their owners' grants are others
}

// touch notes that the transaction under way has changed a row.
func (t *tx) touch(table string, row int64, deleted bool) {
	switch {
	case table != "entries" && table != "flows":
	case deleted:
		t.touched.deleted = true
	default:
		t.touched.rows = append(t.touched.rows, row)
	}
}

// changedEntry is what a change of an entry is told by.
type changedEntry struct {
	seq, batch int64
	lane       laneKey // in the pool that the entry is in
	state      job.EntryState
}

// noteChanges notes what the transaction has changed, which is about to be
// committed.
func (t *tx) noteChanges() error {
	slices.Sort(t.touched.rows)
	t.touched.rows = slices.Compact(t.touched.rows)
	c := &t.changes
	c.mu.Lock()
	c.noted = c.last + 1
	if t.touched.deleted { // what is gone belongs to no batch
		c.drop()
	}
	if t.touched.moved {
		c.lanes.forget(c.noted)
	}
	asked := len(c.batches) > 0 || c.lanes.on
	c.mu.Unlock()
	if !asked { // what somebody asks about from here on is known since c.noted
		return nil
	}
	var found []changedEntry
	for rest := t.touched.rows; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n] == rest[n-1]+1 {
			n++
		}
		err := t.rows(`SELECT seq, batch, state, pool, tenant, priority FROM entries WHERE seq BETWEEN ? AND ?`, []any{rest[0], rest[n-1]}, func(row scanner) error {
			var e changedEntry
			err := row.Scan(&e.seq, &e.batch, &e.state, &e.lane.pool, &e.lane.tenant, &e.lane.priority)
			found = append(found, e)
			return err
		})
		if err != nil {
			return fmt.Errorf("look for the batches of changed jobs: %w", err)
		}
		rest = rest[n:]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(found) < len(t.touched.rows) { // changed and then deleted: in which lane is not known
		c.lanes.forget(c.noted)
	}
	for _, e := range found {
		c.noteLane(e, t.touched.kept[e.seq])
		if b := c.batches[e.batch]; b != nil {
			b.list = append(b.list, change{c.noted, e.seq})
			c.size++
		}
	}
	if c.size > maxNoted {
		c.drop()
	}
	return nil
}

// unchanged returns the mark of the newest commit, and whether nothing of a batch
// has changed between another mark and that.
func (c *changes) unchanged(id job.BatchID, since queue.Mark) (queue.Mark, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.batches[c.rows[id]]
	if b == nil || since < b.since || since > c.last {
		return c.last, false
	}
	later := b.after(since)
	return c.last, len(later) == 0 || later[0].at > c.last
}

// since returns which entries of a batch have changed after a mark, and whether
// these are known to be all. From now on the batch's changes are noted.
func (c *changes) since(batch int64, id job.BatchID, since queue.Mark) (entries []int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.batches[batch]
	if b == nil {
		if c.size++; c.size > maxNoted {
			c.drop()
		}
		c.batches[batch], c.rows[id] = &batchChanges{since: c.noted}, batch
		return nil, false
	}
	if since < b.since || since > c.last {
		return nil, false
	}
	for _, x := range b.after(since) {
		entries = append(entries, x.entry)
	}
	slices.Sort(entries)
	return slices.Compact(entries), true
}

func (b *batchChanges) after(m queue.Mark) []change {
	return b.list[sort.Search(len(b.list), func(i int) bool { return b.list[i].at > m }):]
}

// BatchSince implements queue.Store.
func (s *Store) BatchSince(ctx context.Context, id job.BatchID, since queue.Mark) (queue.Changes, error) {
	what := "changes of batch " + string(id)
	if s.writer == nil { // nobody knows what other processes write
		return read(ctx, s, what, func(d *db) (c queue.Changes, err error) {
			c.Whole = true
			c.Entries, err = collect(d, scanEntry, selectBatch, string(id))
			return c, err
		})
	}
	known := &s.writer.tx.changes
	mark, unchanged := known.unchanged(id, since)
	if unchanged {
		return queue.Changes{Mark: mark}, contextError(ctx)
	}
	return read(ctx, s, what, func(d *db) (queue.Changes, error) {
		c := queue.Changes{Mark: mark}
		batch, found, err := d.number(`SELECT seq FROM batches WHERE id = ?`, string(id)) // the snapshot begins
		if err != nil || !found {
			c.Whole = true
			return c, err
		}
		changed, all := known.since(batch, id, since)
		if c.Whole = !all || len(changed) > maxListed; c.Whole {
			c.Entries, err = collect(d, scanEntry, selectBatch, string(id))
			return c, err
		}
		for _, seq := range changed {
			one, err := collect(d, scanEntry, selectEntry, seq)
			if err != nil {
				return c, err
			}
			c.Entries = append(c.Entries, one...)
		}
		return c, nil
	})
}
