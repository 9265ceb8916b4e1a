package sqlite

import "github.com/agentsched/agentsched/job"

// head is the first of a line (see duplicate.go) of another batch in which an
// entry of the claim's batch waits: unless it is claimed too, the batch could
// wait for ever.
type head struct {
	place
	seq      int64
	pool     int64
	tenant   job.Tenant
	priority int
	class    job.Class
	deadline *int64
}

// lane returns the head's lane: it is alone in it.
func (h head) lane(s scope) job.Lane {
	return job.Lane{Batch: s.batch, Tenant: h.tenant, Priority: h.priority, Only: job.ID(h.id)}
}

// selectWaiting finds whether anything of a batch waits. It rarely does, and
// then the heads cost no more than this.
const selectWaiting = `SELECT 1 FROM entries INDEXED BY entries_waiting_pool WHERE waits_for <> '' AND pool = ? LIMIT 1`

// selectHeads goes from line to line in which entries of a batch wait, each of
// them a seek, and takes what is at its head. The one with the lowest number
// is the head: who takes the place of another came before the next.
const selectHeads = `WITH RECURSIVE line (tenant, key) AS (
		SELECT * FROM (SELECT tenant, key FROM entries INDEXED BY entries_waiting_pool WHERE waits_for <> '' AND pool = ?1 ORDER BY tenant, key LIMIT 1) f
	UNION ALL
		SELECT n.tenant, n.key FROM line l, entries n WHERE n.seq = (SELECT w.seq FROM entries w INDEXED BY entries_waiting_pool
			WHERE w.waits_for <> '' AND w.pool = ?1 AND (w.tenant, w.key) > (l.tenant, l.key) ORDER BY w.tenant, w.key LIMIT 1)
	)
	SELECT h.seq, h.pool, h.id, h.tenant, h.priority, h.class, h.runnable_at, h.deadline FROM line l, entries h
	WHERE h.seq = (SELECT x.seq FROM entries x INDEXED BY entries_line WHERE x.key <> '' AND x.state IN ('queued', 'dispatched')
			AND x.tenant = l.tenant AND x.key = l.key AND x.coalesced_with = '' ORDER BY x.seq LIMIT 1)
		AND h.state = 'queued' AND h.pool <> ?1 AND h.pool >= 0`

// findHeads returns the queued heads of other batches that the scope's batch
// waits for, and those of them that are past their deadline.
func (s scope) findHeads(now int64) (heads []head, overdue []overdueEntry, err error) {
	if s.batch == "" {
		return nil, nil, nil
	}
	if _, waits, err := s.db.number(selectWaiting, s.pool); err != nil || !waits {
		return nil, nil, err
	}
	err = s.db.rows(selectHeads, []any{s.pool}, func(rows scanner) error {
		var h head
		err := rows.Scan(&h.seq, &h.pool, &h.id, &h.tenant, &h.priority, &h.class, &h.runnableAt, &h.deadline)
		if h.deadline != nil && *h.deadline <= now {
			overdue = append(overdue, overdueEntry{h.seq, job.ID(h.id)})
		}
		heads = append(heads, h)
		return err
	})
	return heads, overdue, err
}
