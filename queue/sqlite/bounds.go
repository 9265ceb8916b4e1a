package sqlite

import (
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// SetBounds says how much the store takes from now on; without it there are no
// bounds. What is queued stays.
func (s *Store) SetBounds(b queue.Bounds) {
	if s.writer != nil {
		s.writer.tx.room.bounds.Store(&b)
	}
}

// queued is how many entries a tenant has queued, at most but for those that went
// back to the queue: what has left the queue since it was counted is counted in.
type queued struct {
	n       int
	counted time.Time
}

// recountAfter is how long a count holds: one that finds no room reads an index,
// which whoever keeps asking must not have the writer do all the time.
const recountAfter = time.Second

// maxCounts bounds how many tenants' counts are kept.
const maxCounts = 10_000

// room is what is left of the bounds.
type room struct {
	tx     *tx
	bounds atomic.Pointer[queue.Bounds] // nil: none
	queued map[job.Tenant]queued        // of tenants that were counted
}

// take refuses entries for which there is no room.
func (m *room) take(entries []newEntry) error {
	b := m.bounds.Load()
	if b == nil || b.Tenant == 0 {
		return nil
	}
	more := map[job.Tenant]int{}
	for _, e := range entries {
		more[e.Spec.Tenant]++
	}
	for tenant, n := range more {
		q, known := m.queued[tenant]
		if !known || b.CheckTenant(tenant, q.n, n) != nil && time.Since(q.counted) >= recountAfter {
			counted, err := m.count(tenant)
			if err != nil {
				return err
			}
			q = queued{counted, time.Now()}
		}
		if m.queued == nil || len(m.queued) > maxCounts {
			m.queued = map[job.Tenant]queued{}
		}
		err := b.CheckTenant(tenant, q.n, n)
		if err == nil {
			q.n += n
		}
		if m.queued[tenant] = q; err != nil {
			return err
		}
	}
	return nil
}

// What is queued, each from an index.
const (
	queuedFree  = `SELECT count(*) FROM entries INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = '' AND tenant = ?`
	queuedWaits = `SELECT count(*) FROM entries INDEXED BY entries_waiting_pool WHERE waits_for <> '' AND tenant = ?`
)

func (m *room) count(tenant job.Tenant) (int, error) {
	free, _, err := m.tx.number(queuedFree, string(tenant))
	if err != nil {
		return 0, err
	}
	waits, _, err := m.tx.number(queuedWaits, string(tenant))
	return int(free + waits), err
}
