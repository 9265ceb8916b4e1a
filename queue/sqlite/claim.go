package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// maxTurn is how many candidates a claim looks at before it lets other
// writers through: one that admits nothing must not stop the queue.
const maxTurn = 2000

// Claim implements queue.Store. It works in turns of at most maxTurn
// candidates, each a transaction of its own, and ends with the first turn that
// claimed something or reached the end of the queue.
func (s *Store) Claim(ctx context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	if spec.Max < 1 && !(spec.Max == 0 && spec.Count) {
		return queue.Claims{}, fmt.Errorf("claim at most %d entries, want 1 or more", spec.Max)
	}
	var claims queue.Claims
	for from := start(); ; {
		var turn claimTurn
		err := s.write(ctx, func(t *tx) error {
			turn = claimTurn{tx: t, spec: spec, at: from}
			return turn.run()
		})
		if err != nil && len(claims.Expired) > 0 {
			// An earlier turn's expiries are on disk and must be told; the next
			// claim, asked for at once, meets the error again.
			claims.NextAt = spec.Now.Add(time.Millisecond)
			return claims, nil
		}
		if err != nil {
			return queue.Claims{}, fmt.Errorf("claim: %w", err)
		}
		claims.Entries, claims.NextAt, claims.Ready = turn.entries, turn.nextAt, turn.ready
		claims.Expired = append(claims.Expired, turn.expired...)
		if turn.end || len(turn.entries) > 0 {
			return claims, nil
		}
		from = turn.at
	}
}

// claimTurn is one transaction's part of a claim.
type claimTurn struct {
	*tx
	spec  queue.ClaimSpec
	scope scope
	heads []head // of other batches, see heads.go
	at    place

	end     bool // nothing is left behind at
	entries []queue.Entry
	nextAt  time.Time
	expired []job.ID
	ready   map[job.Class]queue.ClassReady
}

func (c *claimTurn) run() error {
	var err error
	if c.scope, err = c.scopeOf(c.spec.Batch); errors.Is(err, queue.ErrNotFound) {
		c.end = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.expire(); err != nil {
		return err
	}
	rows, err := c.walk()
	if err != nil {
		return err
	}
	if err := c.dispatch(rows); err != nil {
		return err
	}
	if c.spec.Count && (c.end || len(rows) > 0) {
		if err := c.count(); err != nil {
			return err
		}
	}
	return c.findNextAt()
}

// expire moves the entries that are past their deadline, and finds the heads
// that are left.
func (c *claimTurn) expire() error {
	now := nanos(c.spec.Now)
	overdue, err := c.overdue(c.scope, now)
	if err != nil {
		return err
	}
	for {
		if len(overdue) > 0 {
			if err := c.protect(); err != nil {
				return err
			}
		}
		// The last first: it is not given its turn for the moment until it goes too.
		slices.SortFunc(overdue, func(a, b overdueEntry) int { return cmp.Compare(b.seq, a.seq) })
		for _, o := range overdue {
			e, err := c.standing(o.id)
			if err != nil {
				return err
			}
			if err := c.withdraw(e, job.Expired, c.spec.Now); err != nil {
				return fmt.Errorf("expire: %w", err)
			}
			c.expired = append(c.expired, o.id)
		}
		// Where a head has gone, the next one may be overdue too.
		if c.heads, overdue, err = c.findHeads(now); err != nil || len(overdue) == 0 {
			return err
		}
	}
}

// walk returns the entries to claim.
func (c *claimTurn) walk() (admitted []*entryRow, err error) {
	if c.spec.Max == 0 {
		c.end = true
		return nil, nil
	}
	w := newWalk(c)
	for range maxTurn {
		row, at, err := w.next()
		if err != nil {
			return nil, err
		}
		if row == nil {
			c.end = true
			return admitted, nil
		}
		if err := row.decode(); err != nil {
			return nil, err
		}
		c.at = at
		if c.spec.Admit == nil || c.spec.Admit(&row.Entry) {
			admitted = append(admitted, row)
		}
		if len(admitted) == c.spec.Max {
			c.end = true
			return admitted, nil
		}
	}
	return admitted, nil
}

// dispatch gives each entry a fence and to the holder.
func (c *claimTurn) dispatch(rows []*entryRow) error {
	if len(rows) == 0 {
		return nil
	}
	var last job.Fence
	if err := c.returning(`UPDATE fence SET last = last + ? RETURNING last`, []any{len(rows)}, &last); err != nil {
		return fmt.Errorf("next fence: %w", err)
	}
	now, lease := c.spec.Now.UTC().Round(0), c.spec.Now.Add(c.spec.Lease).UTC().Round(0)
	for i, row := range rows {
		if err := row.State.CheckMove(job.Dispatched); err != nil {
			return fmt.Errorf("job %s: %w", row.ID, err)
		}
		e := &row.Entry
		e.State, e.Holder, e.Waiting = job.Dispatched, c.spec.Holder, ""
		e.Fence = last - job.Fence(len(rows)-1-i)
		e.DispatchedAt, e.LeaseUntil = new(now), new(lease)
		err := c.exec(`UPDATE entries SET state = 'dispatched', holder = ?, fence = ?, dispatched_at = ?, lease_until = ?, waiting = ''
			WHERE seq = ?`, e.Holder, int64(e.Fence), nanos(now), nanos(lease), row.seq)
		if err != nil {
			return fmt.Errorf("dispatch job %s: %w", e.ID, err)
		}
		c.entries = append(c.entries, *e)
	}
	return nil
}

// count counts by class what could still be claimed.
func (c *claimTurn) count() error {
	c.ready = map[job.Class]queue.ClassReady{}
	left, now := queue.MaxCount, nanos(c.spec.Now)
	add := func(class job.Class, depth int, oldest int64) {
		r := c.ready[class]
		if at := moment(oldest); r.Depth == 0 || at.Before(r.Oldest) {
			r.Oldest = at
		}
		r.Depth += depth
		c.ready[class] = r
		left -= depth
	}
	for _, h := range c.heads {
		if h.runnableAt <= now && left > 0 && !c.claimed(h.id) {
			add(h.class, 1, h.runnableAt)
		}
	}
	return c.eachPriority(func(priority int64) (more bool, err error) {
		if left <= 0 {
			return false, nil
		}
		return true, c.rows(c.scope.readyQuery, c.scope.with(priority, now, left), func(rows *sql.Rows) error {
			var class job.Class
			var depth int
			var oldest int64
			err := rows.Scan(&class, &depth, &oldest)
			add(class, depth, oldest)
			return err
		})
	})
}

func (c *claimTurn) claimed(id string) bool {
	return slices.ContainsFunc(c.entries, func(e queue.Entry) bool { return string(e.ID) == id })
}

// eachPriority calls do for each priority of the scope's candidates, the
// highest first, until it returns false.
func (c *claimTurn) eachPriority(do func(priority int64) (more bool, err error)) error {
	for most := int64(math.MaxInt64); ; most-- {
		priority, found, err := c.priority(c.scope, most)
		if err != nil || !found {
			return err
		}
		if more, err := do(priority); err != nil || !more || priority == math.MinInt64 {
			return err
		}
		most = priority
	}
}

// findNextAt asks for the first event of a queued entry after now: the head of
// each priority's invisible part, and the next deadline.
func (c *claimTurn) findNextAt() error {
	next, now := int64(latest), nanos(c.spec.Now)
	err := c.eachPriority(func(priority int64) (bool, error) {
		at, found, err := c.firstAfter(c.scope, priority, now)
		if found {
			next = min(next, at)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	at, found, err := c.firstDeadline(c.scope, now)
	if err != nil {
		return err
	}
	if found {
		next = min(next, at)
	}
	for _, h := range c.heads {
		if h.runnableAt > now {
			next = min(next, h.runnableAt)
		}
		if h.deadline.Valid && !c.claimed(h.id) {
			next = min(next, h.deadline.Int64)
		}
	}
	if next != latest {
		c.nextAt = moment(next)
	}
	return nil
}

// Extend implements queue.Store.
func (s *Store) Extend(ctx context.Context, fences []job.Fence, until time.Time) ([]job.Fence, error) {
	var lost []job.Fence
	err := s.write(ctx, func(t *tx) error {
		for _, f := range fences {
			n, err := t.change(`UPDATE entries INDEXED BY entries_fence SET lease_until = ? WHERE fence = ? AND state = 'dispatched'`, nanos(until), int64(f))
			if err != nil {
				return fmt.Errorf("claim %d: %w", f, err)
			}
			if n == 0 {
				lost = append(lost, f)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("extend %d claims: %w", len(fences), err)
	}
	return lost, nil
}
