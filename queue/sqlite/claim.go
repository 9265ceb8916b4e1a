package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// maxTurn is how many candidates a claim looks at before it lets other
// writers through: one that admits nothing must not stop the queue.
const maxTurn = 2000

// Claim implements queue.Store. It works in turns of at most maxTurn
// candidates, each a transaction of its own, and ends with the first turn that
// claimed something or reached the end of the queue. Where it stands in each
// lane holds from turn to turn.
func (s *Store) Claim(ctx context.Context, spec queue.ClaimSpec) (queue.Claims, error) {
	switch {
	case spec.Max < 0:
		return queue.Claims{}, fmt.Errorf("claim at most %d entries", spec.Max)
	case len(spec.IDs) > 0 && (spec.Max > 0 || spec.Admit != nil):
		return queue.Claims{}, errors.New("a claim by ids has no Max and no Admit")
	}
	c := claim{spec: spec, now: nanos(spec.Now), cursors: map[job.Lane]*cursor{}}
	var claims queue.Claims
	for {
		var turn claimTurn
		var decoding sync.WaitGroup
		err := s.write(ctx, func(t *tx) error {
			turn = claimTurn{claim: &c, tx: t}
			if err := turn.run(); err != nil {
				return err
			}
			rows := turn.taken
			decoding.Go(func() { // while they are being committed
				for _, row := range rows {
					row.decode() //nolint:errcheck // decoded meets the error again
				}
			})
			return nil
		})
		decoding.Wait()
		if err != nil && len(claims.Expired) > 0 {
			// An earlier turn's expiries are on disk and must be told; the next
			// claim, asked for at once, meets the error again.
			claims.NextAt = spec.Now.Add(time.Millisecond)
			return claims, nil
		}
		if err != nil {
			return claims, fmt.Errorf("claim: %w", err)
		}
		if claims.Entries, err = s.decoded(ctx, turn.taken, &spec); err != nil {
			return claims, fmt.Errorf("claim: %w", err)
		}
		claims.NextAt, claims.Ready = turn.nextAt, turn.ready
		claims.Expired = append(claims.Expired, turn.expired...)
		if turn.end || len(turn.taken) > 0 {
			s.writer.leases.hold(claims.Entries)
			return claims, nil
		}
	}
}

// decoded returns what was claimed. Where nobody had to look into the entries
// during the claim, their specifications are read beside the writer and not by it; if
// one is damaged, the claim is taken back.
func (s *Store) decoded(ctx context.Context, rows []*entryRow, spec *queue.ClaimSpec) ([]queue.Entry, error) {
	entries := slices.Grow([]queue.Entry(nil), len(rows))
	for _, row := range rows {
		if err := row.decode(); err != nil {
			back := queue.Reclaim{Now: spec.Now, Message: "what is stored of a job is damaged"}
			for _, r := range rows {
				back.Fences = append(back.Fences, r.Fence)
			}
			return nil, errors.Join(err, s.Apply(context.WithoutCancel(ctx), back))
		}
		entries = append(entries, row.Entry)
	}
	return entries, nil
}

// claim is what its turns have in common.
type claim struct {
	spec    queue.ClaimSpec
	now     int64
	order   merged
	cursors map[job.Lane]*cursor
}

// claimTurn is one transaction's part of a claim.
type claimTurn struct {
	*claim
	*tx
	scope scope
	heads []head // of other batches, see heads.go
	over  func(job.Tenant, job.AgentID) bool
	purse *purse

	end     bool        // nothing is left to look at
	taken   []*entryRow // claimed
	nextAt  time.Time
	expired []job.ID
	ready   map[job.Class]queue.ClassReady
}

func (c *claimTurn) run() error {
	for _, k := range c.cursors {
		k.forget()
	}
	var found bool
	var err error
	if c.scope, found, err = c.scopeOf(&c.spec); err != nil {
		return err
	}
	if !found {
		c.end = true
		return nil
	}
	if err := c.expire(); err != nil {
		return err
	}
	if !c.spec.OverGrants {
		if c.over, err = c.accounts.overGrants(c.spec.Now); err != nil {
			return err
		}
	}
	if c.purse, err = c.tx.credits.purse(&c.spec); err != nil {
		return err
	}
	var rows []*entryRow
	if len(c.spec.IDs) > 0 {
		rows, err = c.named()
	} else {
		rows, err = c.walk()
	}
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

// named returns those of the entries asked for by id that can be claimed, each once.
func (c *claimTurn) named() (rows []*entryRow, err error) {
	c.end = true
	asked := make(map[job.ID]bool, len(c.spec.IDs))
	for _, id := range c.spec.IDs {
		if asked[id] {
			continue
		}
		asked[id] = true
		pool := c.scope.pool
		for _, h := range c.heads {
			if h.id == string(id) {
				pool = h.pool
			}
		}
		found, err := collect(c.db, scanRow, selectNamed, string(id), pool, c.now)
		if err == nil && len(found) > 0 && c.looksInto() {
			err = found[0].decode()
		}
		admitted := false
		if err == nil && len(found) > 0 {
			admitted, err = c.admits(found[0])
		}
		if err != nil {
			return nil, err
		}
		if admitted {
			rows = append(rows, found[0])
		}
	}
	return rows, nil
}

// expire moves the entries that are past their deadline, and finds the heads
// that are left.
func (c *claimTurn) expire() error {
	overdue, err := c.scope.overdue(c.now)
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
			if err := e.withdraw(job.Expired, c.spec.Now); err != nil {
				return fmt.Errorf("expire: %w", err)
			}
			c.expired = append(c.expired, o.id)
		}
		// Where a head has gone, the next one may be overdue too.
		if c.heads, overdue, err = c.scope.findHeads(c.now); err != nil || len(overdue) == 0 {
			return err
		}
	}
}

const selectFence = `SELECT last FROM fence`

// dispatch gives each entry a fence and to the holder.
func (c *claimTurn) dispatch(rows []*entryRow) error {
	if len(rows) == 0 {
		return nil
	}
	n, _, err := c.number(selectFence)
	last := job.Fence(n) + job.Fence(len(rows))
	if err == nil {
		err = c.exec(`UPDATE fence SET last = ?`, int64(last))
	}
	if err != nil {
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
			WHERE seq = ?`, e.Holder, int64(e.Fence), now, lease, row.seq)
		if err != nil {
			return fmt.Errorf("dispatch job %s: %w", e.ID, err)
		}
	}
	c.taken = rows
	return c.purse.take(rows, c.spec.Now)
}

// count counts by class what could still be claimed.
func (c *claimTurn) count() error {
	c.ready = map[job.Class]queue.ClassReady{}
	left := queue.MaxCount
	add := func(class job.Class, depth int, oldest int64) {
		class = class.Or()
		r := c.ready[class]
		if at := moment(oldest); r.Depth == 0 || at.Before(r.Oldest) {
			r.Oldest = at
		}
		r.Depth += depth
		c.ready[class] = r
		left -= depth
	}
	for _, h := range c.heads {
		if h.runnableAt <= c.now && left > 0 && !c.claimed(h.id) {
			add(h.class, 1, h.runnableAt)
		}
	}
	lanes, err := c.scope.lanes()
	for i := 0; err == nil && i < len(lanes) && left > 0; i++ {
		l := lanes[i].lane
		err = c.rows(selectReady, []any{c.scope.pool, string(l.Tenant), l.Priority, c.now, left}, func(row scanner) error {
			var class job.Class
			var depth int
			var oldest int64
			err := row.Scan(&class, &depth, &oldest)
			add(class, depth, oldest)
			return err
		})
	}
	return err
}

func (c *claimTurn) claimed(id string) bool {
	return slices.ContainsFunc(c.taken, func(r *entryRow) bool { return string(r.ID) == id })
}

// findNextAt asks for the first event of a queued entry after now.
func (c *claimTurn) findNextAt() error {
	if len(c.spec.IDs) > 0 {
		return nil
	}
	next, err := c.order.nextAt(c)
	if err != nil {
		return err
	}
	at, found, err := c.scope.firstDeadline(c.now)
	if err != nil {
		return err
	}
	if found {
		next = min(next, at)
	}
	for _, h := range c.heads {
		if h.deadline != nil && !c.claimed(h.id) {
			next = min(next, *h.deadline)
		}
	}
	if next != latest {
		c.nextAt = moment(next)
	}
	return nil
}

// Extend implements queue.Store.
func (s *Store) Extend(ctx context.Context, fences []job.Fence, until time.Time) ([]job.Fence, error) {
	if s.writer == nil {
		return nil, errReadOnly
	}
	l := &s.writer.leases
	l.renewing.RLock()
	defer l.renewing.RUnlock()
	var lost []job.Fence
	err := s.write(ctx, func(t *tx) error {
		for _, f := range fences {
			n, err := t.change(`UPDATE entries INDEXED BY entries_fence SET lease_until = ? WHERE fence = ? AND state = 'dispatched'`, until, int64(f))
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
		l.extend(fences, nil, until) // their holder is alive, which is what a lease asks
		return nil, fmt.Errorf("extend %d claims: %w", len(fences), err)
	}
	l.extend(fences, lost, until)
	return lost, nil
}
