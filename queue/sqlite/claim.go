package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

const (
	// maxTurn is how many candidates a claim looks at before it lets other
	// writers through: one that admits nothing must not stop the queue.
	maxTurn = 2000
	// maxPage is how many candidates are read at once.
	maxPage = 256
)

// Claim implements queue.Store. It works in turns of at most maxTurn
// candidates, each a transaction of its own, and ends with the first turn that
// claimed something or reached the end of the queue.
func (s *Store) Claim(ctx context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	if spec.Max < 1 {
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
		claims.Entries, claims.NextAt = turn.entries, turn.nextAt
		claims.Expired = append(claims.Expired, turn.expired...)
		if turn.end || len(turn.entries) > 0 {
			return claims, nil
		}
		from = turn.at
	}
}

// place is where a walk through the candidates stands: behind the entry with
// this RunnableAt and ID in the list of this priority.
type place struct {
	priority   int64
	runnableAt int64
	id         string
}

func start() place { return startOf(math.MaxInt64) }

func startOf(priority int64) place { return place{priority: priority, runnableAt: earliest} }

// claimTurn is one transaction's part of a claim.
//
// The candidates stand in an index by (priority, runnable_at, id), in which
// those that are not yet runnable lie between the runnable ones of two
// priorities. The walk therefore goes priority by priority and seeks, so that
// it costs what it looks at, whatever else is queued.
type claimTurn struct {
	*tx
	spec  queue.ClaimSpec
	scope scope
	at    place

	end     bool // nothing is left behind at
	entries []queue.Entry
	nextAt  time.Time
	expired []job.ID
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
	return c.findNextAt()
}

// expire moves the entries that are past their deadline.
func (c *claimTurn) expire() error {
	now := nanos(c.spec.Now)
	overdue, err := c.overdue(c.scope, now)
	if err != nil {
		return err
	}
	if len(overdue) > 0 {
		if err := c.protect(); err != nil {
			return err
		}
	}
	for _, o := range overdue {
		if err := job.Queued.CheckMove(job.Expired); err != nil {
			return err
		}
		err := c.exec(`UPDATE entries SET state = 'expired', completed_at = ? WHERE seq = ?`, now, o.seq)
		if err != nil {
			return fmt.Errorf("expire job %s: %w", o.id, err)
		}
		c.expired = append(c.expired, o.id)
	}
	return nil
}

// walk returns the entries to claim.
func (c *claimTurn) walk() (admitted []*entryRow, err error) {
	for looked := 0; looked < maxTurn; {
		priority, found, err := c.priority(c.scope, c.at.priority)
		if err != nil {
			return nil, err
		}
		if !found {
			c.end = true
			return admitted, nil
		}
		if priority != c.at.priority {
			c.at = startOf(priority)
		}
		// Pages grow, so that a claim of one entry reads one and a long search
		// does not read one at a time.
		for size := c.spec.Max - len(admitted); ; size *= 2 {
			size = min(size, maxPage)
			page, err := c.candidates(c.scope, c.at, nanos(c.spec.Now), size)
			if err != nil {
				return nil, err
			}
			for _, row := range page {
				if err := row.decode(); err != nil {
					return nil, err
				}
				c.at.runnableAt, c.at.id = nanos(row.RunnableAt), string(row.ID)
				looked++
				if c.spec.Admit == nil || c.spec.Admit(&row.Entry) {
					admitted = append(admitted, row)
				}
				if len(admitted) == c.spec.Max {
					c.end = true
					return admitted, nil
				}
			}
			if len(page) < size {
				break
			}
			if looked >= maxTurn {
				return admitted, nil
			}
		}
		if c.at.priority == math.MinInt64 {
			c.end = true
			return admitted, nil
		}
		c.at = startOf(c.at.priority - 1)
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

// findNextAt asks for the first event of a queued entry after now: the head of
// each priority's invisible part, and the next deadline.
func (c *claimTurn) findNextAt() error {
	next, now := int64(latest), nanos(c.spec.Now)
	for priority := int64(math.MaxInt64); ; priority-- {
		p, found, err := c.priority(c.scope, priority)
		if err != nil {
			return err
		}
		if !found {
			break
		}
		priority = p
		at, found, err := c.firstAfter(c.scope, priority, now)
		if err != nil {
			return err
		}
		if found {
			next = min(next, at)
		}
		if priority == math.MinInt64 {
			break
		}
	}
	at, found, err := c.firstDeadline(c.scope, now)
	if err != nil {
		return err
	}
	if found {
		next = min(next, at)
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
