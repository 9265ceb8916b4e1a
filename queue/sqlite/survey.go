package sqlite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// What a census counts, each from an index. What waits for a person waits for no
// other job. Lanes are counted one by one, in which SQLite is three times as fast
// as in grouping them.
const (
	censusLane     = `SELECT count(*)` + ofLane
	censusWaiting  = `SELECT tenant, count(*) FROM entries INDEXED BY entries_waiting_pool WHERE waits_for <> '' GROUP BY pool, tenant`
	censusApproval = `SELECT tenant, count(*) FROM entries INDEXED BY entries_held WHERE held <> '' AND held = 'approval' GROUP BY tenant`
	censusRunning  = `SELECT tenant, count(*) FROM entries INDEXED BY entries_fence WHERE state = 'dispatched' GROUP BY tenant`
	censusDead     = `SELECT count(*) FROM entries INDEXED BY entries_dead WHERE ` + isDeadLetter
)

// Census implements queue.Reader.
func (s *Store) Census(ctx context.Context) (queue.Census, error) {
	return read(ctx, s, "take a census of the queue", (*db).census)
}

func (d *db) census() (c queue.Census, err error) {
	tenants := map[job.Tenant]*queue.TenantCensus{}
	of := func(name job.Tenant) *queue.TenantCensus {
		if tenants[name] == nil {
			tenants[name] = &queue.TenantCensus{Tenant: name}
		}
		return tenants[name]
	}
	err = d.eachLane(func(l lane, n int) {
		t := of(l.tenant)
		if l.pool < -1 { // what is held
			t.Held += n
			return
		}
		if first := moment(l.first); t.Queued == 0 || first.Before(t.Oldest) {
			t.Oldest = first
		}
		t.Queued += n
	})
	if err != nil {
		return c, err
	}
	for _, part := range []struct {
		query string
		add   func(t *queue.TenantCensus, n int)
	}{
		{censusWaiting, func(t *queue.TenantCensus, n int) { t.Held += n }},
		{censusApproval, func(t *queue.TenantCensus, n int) { t.Held, t.Approval = t.Held-n, n }},
		{censusRunning, func(t *queue.TenantCensus, n int) { t.Dispatched = n }},
	} {
		err := d.rows(part.query, nil, func(row scanner) error {
			var name job.Tenant
			var n int
			if err := row.Scan(&name, &n); err != nil {
				return err
			}
			part.add(of(name), n)
			return nil
		})
		if err != nil {
			return c, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		t := tenants[name]
		c.Tenants = append(c.Tenants, *t)
		c.Queued, c.Held, c.Approval, c.Dispatched = c.Queued+t.Queued, c.Held+t.Held, c.Approval+t.Approval, c.Dispatched+t.Dispatched
	}
	_, err = d.row(censusDead, nil, &c.DeadLetters)
	return c, err
}

// lane is a lane of any pool, that of what is held too.
type lane struct {
	pool   int64
	tenant job.Tenant
	first  int64 // the earliest runnable_at
}

// eachLane calls do with each lane and how many entries it has.
func (d *db) eachLane(do func(l lane, n int)) error {
	return d.eachPool(func(pool int64) error {
		lanes, err := scope{db: d, pool: pool}.lanes()
		for i := 0; err == nil && i < len(lanes); i++ {
			l := lane{pool, lanes[i].lane.Tenant, lanes[i].runnableAt}
			var n int64
			n, _, err = d.number(censusLane, pool, string(l.tenant), lanes[i].lane.Priority)
			do(l, int(n))
		}
		return err
	})
}

// One step's, since SQLite would sort what it groups.
const countEnded = `SELECT count(*), count(*) FILTER (WHERE exit_kind = 'succeeded'), count(*) FILTER (WHERE exit_kind = 'failed' OR state = 'expired')
	FROM entries INDEXED BY entries_ended WHERE completed_at IS NOT NULL AND completed_at >= ? AND completed_at < ?`

// Throughput implements queue.Reader.
func (s *Store) Throughput(ctx context.Context, since, until time.Time, step time.Duration) ([]queue.Throughput, error) {
	if step <= 0 {
		return nil, fmt.Errorf("count what ended: step is %s, want more than 0", step)
	}
	first, end := nanos(since), nanos(until)
	first -= (first%int64(step) + int64(step)) % int64(step)
	if end <= first {
		return nil, nil
	}
	if n := uint64(end-first-1)/uint64(step) + 1; end-first < 0 || n > queue.MaxSteps {
		return nil, fmt.Errorf("count what ended: from %s until %s are more than %d steps of %s", since, until, queue.MaxSteps, step)
	}
	return read(ctx, s, "count what ended", func(d *db) (steps []queue.Throughput, err error) {
		for at := first; at < end; at += int64(step) {
			n, t := 0, queue.Throughput{At: moment(at)}
			if _, err := d.row(countEnded, []any{at, min(at+int64(step), end)}, &n, &t.Succeeded, &t.Failed); err != nil {
				return nil, err
			}
			t.Cancelled = n - t.Succeeded - t.Failed
			steps = append(steps, t)
		}
		return steps, nil
	})
}

// The attempts that began within a span, those that began before it and ended
// within it or later, and those that have not ended: each at most as many as are
// asked for, from an index.
const (
	beganWithin = `SELECT entry, number, started_at FROM attempts INDEXED BY attempts_started
		WHERE ended_at IS NOT NULL AND started_at >= ?1 AND started_at <= ?2 AND ended_at >= ?1 ORDER BY started_at DESC, entry DESC, number DESC LIMIT ?3`
	endedWithin = `SELECT entry, number, started_at FROM attempts INDEXED BY attempts_ended
		WHERE ended_at IS NOT NULL AND ended_at >= ?1 AND started_at < ?1 AND started_at <= ?2 ORDER BY started_at DESC, entry DESC, number DESC LIMIT ?3`
	stillRunning = `SELECT a.entry, a.number, a.started_at FROM entries e INDEXED BY entries_fence CROSS JOIN attempts a
		WHERE e.state = 'dispatched' AND a.entry = e.seq AND a.number = e.attempts AND a.ended_at IS NULL AND a.started_at <= ?2`
	selectRuns = `SELECT e.id, e.name, e.tenant, a.worker, a.number, a.state, coalesce(CASE WHEN a.outcome <> '' THEN a.outcome ->> 'class' END, ''), a.started_at, a.ended_at
		FROM (SELECT * FROM (` + beganWithin + `) b UNION ALL SELECT * FROM (` + endedWithin + `) d UNION ALL ` + stillRunning + `
			ORDER BY started_at DESC, entry DESC, number DESC LIMIT ?3) r
		CROSS JOIN attempts a CROSS JOIN entries e WHERE a.entry = r.entry AND a.number = r.number AND e.seq = r.entry
		ORDER BY r.started_at DESC, r.entry DESC, r.number DESC`
)

// Runs implements queue.Reader.
func (s *Store) Runs(ctx context.Context, since, until time.Time, limit int) ([]queue.Running, error) {
	if until.IsZero() {
		until = moment(latest)
	}
	return read(ctx, s, "list runs", func(d *db) ([]queue.Running, error) {
		return collect(d, func(row scanner) (r queue.Running, err error) {
			err = row.Scan(&r.Job, &r.Name, &r.Tenant, &r.Worker, &r.Attempt, &r.State, &r.Class, &r.Began, &r.Ended)
			return r, err
		}, selectRuns, since, until, limitOf(limit))
	})
}
