package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// look calls do with a transaction, so that all that it reads is of one moment.
func (s *Store) look(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return readError(ctx, err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	if err := do(tx); err != nil {
		return readError(ctx, err)
	}
	return nil
}

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
	var c queue.Census
	err := s.look(ctx, func(tx *sql.Tx) (err error) {
		c, err = census(ctx, tx)
		return err
	})
	if err != nil {
		return queue.Census{}, fmt.Errorf("take a census of the queue: %w", err)
	}
	return c, nil
}

func census(ctx context.Context, tx *sql.Tx) (c queue.Census, err error) {
	tenants := map[job.Tenant]*queue.TenantCensus{}
	of := func(name job.Tenant) *queue.TenantCensus {
		if tenants[name] == nil {
			tenants[name] = &queue.TenantCensus{Tenant: name}
		}
		return tenants[name]
	}
	err = eachLane(ctx, tx, func(l lane, n int) {
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
		rows, err := tx.QueryContext(ctx, part.query)
		if err != nil {
			return c, err
		}
		err = eachRow(rows, func(rows *sql.Rows) error {
			var name job.Tenant
			var n int
			if err := rows.Scan(&name, &n); err != nil {
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
	return c, tx.QueryRowContext(ctx, censusDead).Scan(&c.DeadLetters)
}

// lane is a lane of any pool, that of what is held too.
type lane struct {
	pool     int64
	tenant   job.Tenant
	priority int
	first    int64 // the earliest runnable_at
}

// eachLane calls do with each lane and how many entries it has.
func eachLane(ctx context.Context, tx *sql.Tx, do func(l lane, n int)) error {
	var list [4]*sql.Stmt
	for i, query := range []string{selectNextPool, selectFirstLane, selectNextLane, censusLane} {
		s, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer s.Close()
		list[i] = s
	}
	nextPool, firstLane, nextLane, count := list[0], list[1], list[2], list[3]
	var id string
	l := lane{pool: math.MinInt64}
	err := nextPool.QueryRowContext(ctx, l.pool).Scan(&l.pool)
	for err == nil {
		err = firstLane.QueryRowContext(ctx, l.pool).Scan(&l.tenant, &l.priority, &l.first, &id)
		for err == nil {
			var n int
			if err := count.QueryRowContext(ctx, l.pool, string(l.tenant), l.priority).Scan(&n); err != nil {
				return err
			}
			do(l, n)
			err = nextLane.QueryRowContext(ctx, l.pool, string(l.tenant), l.priority, int64(latest)).Scan(&l.tenant, &l.priority, &l.first, &id)
		}
		if errors.Is(err, sql.ErrNoRows) {
			err = nextPool.QueryRowContext(ctx, l.pool).Scan(&l.pool)
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// One step's, since SQLite would sort what it groups.
const countEnded = `SELECT count(*), count(*) FILTER (WHERE exit_kind = 'succeeded'), count(*) FILTER (WHERE exit_kind = 'failed' OR state = 'expired')
	FROM entries INDEXED BY entries_ended WHERE completed_at IS NOT NULL AND completed_at >= ? AND completed_at < ?`

// Throughput implements queue.Reader.
func (s *Store) Throughput(ctx context.Context, since, until time.Time, step time.Duration) ([]queue.Throughput, error) {
	steps, err := s.throughput(ctx, since, until, step)
	if err != nil {
		return nil, fmt.Errorf("count what ended: %w", err)
	}
	return steps, nil
}

func (s *Store) throughput(ctx context.Context, since, until time.Time, step time.Duration) ([]queue.Throughput, error) {
	if step <= 0 {
		return nil, fmt.Errorf("step is %s, want more than 0", step)
	}
	first, end := nanos(since), nanos(until)
	first -= (first%int64(step) + int64(step)) % int64(step)
	if end <= first {
		return nil, nil
	}
	if n := uint64(end-first-1)/uint64(step) + 1; end-first < 0 || n > queue.MaxSteps {
		return nil, fmt.Errorf("from %s until %s are more than %d steps of %s", since, until, queue.MaxSteps, step)
	}
	var steps []queue.Throughput
	err := s.look(ctx, func(tx *sql.Tx) error {
		count, err := tx.PrepareContext(ctx, countEnded)
		if err != nil {
			return err
		}
		defer count.Close()
		for at := first; at < end; at += int64(step) {
			n, t := 0, queue.Throughput{At: moment(at)}
			if err := count.QueryRowContext(ctx, at, min(at+int64(step), end)).Scan(&n, &t.Succeeded, &t.Failed); err != nil {
				return err
			}
			t.Cancelled = n - t.Succeeded - t.Failed
			steps = append(steps, t)
		}
		return nil
	})
	return steps, err
}

// The attempts that began within a span, those that began before it and ended
// within it or later, and those that have not ended: each at most as many as are
// asked for, from an index.
const (
	beganWithin = `SELECT entry, number, started_at FROM attempts INDEXED BY attempts_started
		WHERE ended_at IS NOT NULL AND started_at >= :since AND started_at <= :until AND ended_at >= :since ORDER BY started_at DESC, entry DESC, number DESC LIMIT :limit`
	endedWithin = `SELECT entry, number, started_at FROM attempts INDEXED BY attempts_ended
		WHERE ended_at IS NOT NULL AND ended_at >= :since AND started_at < :since AND started_at <= :until ORDER BY started_at DESC, entry DESC, number DESC LIMIT :limit`
	stillRunning = `SELECT a.entry, a.number, a.started_at FROM entries e INDEXED BY entries_fence CROSS JOIN attempts a
		WHERE e.state = 'dispatched' AND a.entry = e.seq AND a.number = e.attempts AND a.ended_at IS NULL AND a.started_at <= :until`
	selectRuns = `SELECT e.id, e.name, e.tenant, a.worker, a.number, a.state, coalesce(CASE WHEN a.outcome <> '' THEN a.outcome ->> '$.class' END, ''), a.started_at, a.ended_at
		FROM (SELECT * FROM (` + beganWithin + `) UNION ALL SELECT * FROM (` + endedWithin + `) UNION ALL ` + stillRunning + `
			ORDER BY started_at DESC, entry DESC, number DESC LIMIT :limit) r
		CROSS JOIN attempts a ON a.entry = r.entry AND a.number = r.number CROSS JOIN entries e ON e.seq = r.entry
		ORDER BY r.started_at DESC, r.entry DESC, r.number DESC`
)

// Runs implements queue.Reader.
func (s *Store) Runs(ctx context.Context, since, until time.Time, limit int) ([]queue.Running, error) {
	end := int64(latest)
	if !until.IsZero() {
		end = nanos(until)
	}
	var runs []queue.Running
	err := s.look(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectRuns, sql.Named("since", nanos(since)), sql.Named("until", end), sql.Named("limit", limitOf(limit)))
		if err != nil {
			return err
		}
		return eachRow(rows, func(rows *sql.Rows) error {
			var r queue.Running
			var began int64
			var ended sql.NullInt64
			err := rows.Scan(&r.Job, &r.Name, &r.Tenant, &r.Worker, &r.Attempt, &r.State, &r.Class, &began, &ended)
			r.Began, r.Ended = moment(began), momentOrNil(ended)
			runs = append(runs, r)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}
