package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Heads implements queue.Store. The writer is asked only where something has passed
// its deadline. Through a store that is open for reading only, nothing can expire,
// and every answer has all lanes.
func (s *Store) Heads(ctx context.Context, spec queue.HeadsSpec) (queue.Heads, error) {
	if err := spec.Validate(); err != nil {
		return queue.Heads{}, err
	}
	var expired []job.ID
	for {
		r := headsRead{store: s, spec: &spec, now: nanos(spec.Now)}
		err := s.heads.do(ctx, r.run)
		if err == nil && !r.overdue {
			r.answer.Expired = expired
			return r.answer, nil
		}
		if err == nil {
			var gone []job.ID
			gone, err = s.expire(ctx, &spec)
			expired = append(expired, gone...)
		}
		if err != nil {
			return queue.Heads{Expired: expired}, fmt.Errorf("read heads: %w", err)
		}
	}
}

// expire lets expire what is past its deadline.
func (s *Store) expire(ctx context.Context, spec *queue.HeadsSpec) ([]job.ID, error) {
	c := claim{spec: queue.ClaimSpec{Batch: spec.Batch, Now: spec.Now}, now: nanos(spec.Now)}
	var turn claimTurn
	err := s.write(ctx, func(t *tx) (err error) {
		turn = claimTurn{claim: &c, tx: t}
		var found bool
		if turn.scope, found, err = t.scopeOf(&c.spec); err == nil && found {
			err = turn.expire()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return turn.expired, nil
}

// headsRead is one look for Heads, in a transaction of a reader.
type headsRead struct {
	store *Store
	spec  *queue.HeadsSpec
	now   int64
	scope scope

	*db
	full *map[queue.Owner]bool // see accounts
	over map[queue.Owner]bool  // what was asked of the ledger

	balances   map[job.Tenant]int64 // what is left of those that were asked for, see credit.go
	noBalances bool                 // nobody has one

	overdue bool // something has to expire first; there is no answer
	answer  queue.Heads
}

// noPool is that of a batch that is not private, or unknown: it is empty.
const noPool = 1 << 62

const (
	headColumns = `e.id, e.runnable_at, e.agent, e.worker, e.choice, e.joined, e.session, e.session_worker, e.session_node,
		(SELECT s.spec FROM specs s WHERE s.entry = e.seq)`
	selectLanePage = `SELECT ` + headColumns + ofLane + ` AND (runnable_at, id) > (?, ?) ORDER BY runnable_at, id LIMIT ?`
	selectHead     = `SELECT ` + headColumns + ` FROM entries e WHERE e.seq = ?`
)

func (r *headsRead) run(d *db) error {
	r.db = d
	var at queue.Mark
	w := r.store.writer
	if w != nil { // before the snapshot begins: what is committed meanwhile is told again
		at = w.tx.changes.now()
	}
	s, found, err := d.scopeOf(&queue.ClaimSpec{Batch: r.spec.Batch})
	if err != nil {
		return err
	}
	if !found {
		s = scope{db: d, pool: noPool, batch: r.spec.Batch}
	}
	r.scope, r.answer.Version = s, uint64(at)
	overdue, err := s.overdue(r.now)
	if err != nil {
		return err
	}
	if w != nil { // after it has begun: what it shows was published before
		r.full = w.tx.accounts.full.Load()
	}
	only, overdueToo, err := s.findHeads(r.now)
	if err != nil {
		return err
	}
	if r.overdue = len(overdue)+len(overdueToo) > 0; r.overdue {
		return nil
	}
	if err := r.readLanes(); err != nil {
		return err
	}
	for _, h := range only {
		if err := r.readOnly(h); err != nil {
			return err
		}
	}
	slices.SortFunc(r.answer.Lanes, func(a, b queue.LaneHeads) int { return a.Lane.Compare(b.Lane) })
	for _, p := range r.spec.Pages {
		l, err := r.read(p.Lane, place{nanos(p.After.RunnableAt), string(p.After.ID)}, p.Max)
		if err != nil {
			return err
		}
		r.answer.Pages = append(r.answer.Pages, l)
	}
	return r.findNextAt(only)
}

// readLanes reads the lanes that have changed, or all.
func (r *headsRead) readLanes() error {
	var changed []laneKey
	var known bool
	if w := r.store.writer; w != nil {
		changed, known = w.tx.changes.lanesSince(r.scope.pool, queue.Mark(r.spec.Since))
	}
	var lanes []job.Lane
	if r.answer.All = !known; r.answer.All {
		all, err := r.scope.lanes()
		if err != nil {
			return err
		}
		for _, l := range all {
			lanes = append(lanes, l.lane)
		}
	} else {
		for _, l := range changed {
			lanes = append(lanes, job.Lane{Batch: r.scope.batch, Tenant: l.tenant, Priority: l.priority})
		}
	}
	for _, l := range lanes {
		read, err := r.read(l, place{runnableAt: earliest}, r.spec.Each)
		if err != nil {
			return err
		}
		r.answer.Lanes = append(r.answer.Lanes, read)
	}
	return nil
}

// read reads the entries of a lane behind a place, at most so many.
func (r *headsRead) read(l job.Lane, after place, most int) (queue.LaneHeads, error) {
	read := queue.LaneHeads{Lane: l}
	heads, err := collect(r.db, scanHead, selectLanePage, r.scope.pool, string(l.Tenant), l.Priority, after.runnableAt, after.id, most+1)
	read.Heads, read.More = heads[:min(len(heads), most)], len(heads) > most
	if err == nil {
		err = r.setOver(&read)
	}
	if err != nil {
		return read, fmt.Errorf("tenant %s, priority %d: %w", l.Tenant, l.Priority, err)
	}
	return read, nil
}

// readOnly reads the head of a line of another batch.
func (r *headsRead) readOnly(h head) error {
	read := queue.LaneHeads{Lane: h.lane(r.scope)}
	var err error
	if read.Heads, err = collect(r.db, scanHead, selectHead, h.seq); err == nil {
		err = r.setOver(&read)
	}
	r.answer.Lanes = append(r.answer.Lanes, read)
	return err
}

// scanHead reads headColumns. Of the specification it takes what a head has: the
// instructions may be long.
func scanHead(row scanner) (queue.Head, error) {
	var e queue.Entry
	var text string
	err := row.Scan(&e.ID, &e.RunnableAt, &e.Spec.Agent, &e.Spec.Worker, &e.Choice, &e.Spec.Flow.Joined,
		&e.Session, &e.SessionWorker, &e.SessionNode, &text)
	if err != nil {
		return queue.Head{}, err
	}
	var spec struct {
		Type      job.Type        `json:"type"`
		Fallback  []job.Choice    `json:"fallback"`
		Workspace job.Workspace   `json:"workspace"`
		Expect    job.Expectation `json:"expect"`
		Node      job.Node        `json:"node"`
		Limits    struct {
			Memory job.Size `json:"memory"`
		} `json:"limits"`
		Sandbox struct {
			Level job.SandboxLevel `json:"level"`
		} `json:"sandbox"`
	}
	if err := decode(text, &spec); err != nil {
		return queue.Head{}, fmt.Errorf("job %s: %w: %w", e.ID, queue.ErrCorrupt, err)
	}
	e.Spec.Type, e.Spec.Fallback, e.Spec.Workspace, e.Spec.Expect = spec.Type, spec.Fallback, spec.Workspace, spec.Expect
	e.Spec.Node, e.Spec.Limits.Memory = spec.Node, spec.Limits.Memory
	e.Spec.Sandbox.Level = spec.Sandbox.Level
	return queue.HeadOf(&e), nil
}

// setOver says of each head whether its owner has used up a grant or a balance.
func (r *headsRead) setOver(l *queue.LaneHeads) error {
	for i := range l.Heads {
		h := &l.Heads[i]
		over, err := r.usedUp(queue.Owner{Tenant: l.Lane.Tenant})
		if err == nil && !over && h.Agent != "" {
			over, err = r.usedUp(queue.Owner{Tenant: l.Lane.Tenant, Agent: h.Agent})
		}
		if err == nil && !over {
			over, err = r.poor(l.Lane.Tenant, h.Agent)
		}
		if err != nil {
			return err
		}
		h.Over = over
	}
	return nil
}

// usedUp reports whether an owner has used up its own grant.
func (r *headsRead) usedUp(o queue.Owner) (bool, error) {
	if r.full != nil && !(*r.full)[o] {
		return false, nil
	}
	over, asked := r.over[o]
	if asked {
		return over, nil
	}
	var u use
	grants, err := collect(r.db, scanGrant, selectGrant, string(o.Tenant), string(o.Agent))
	if err == nil && len(grants) > 0 && bounds(&grants[0]) {
		u.grant = grants[0]
		err = u.read(r.db, u.since(r.spec.Now))
	}
	if err != nil {
		return false, fmt.Errorf("read what %s has used: %w", o, err)
	}
	if r.over == nil {
		r.over = map[queue.Owner]bool{}
	}
	r.over[o] = u.full()
	return u.full(), nil
}

// findNextAt looks for the first deadline after now.
func (r *headsRead) findNextAt(only []head) error {
	at, found, err := r.scope.firstDeadline(r.now)
	for _, h := range only {
		if h.deadline != nil && (!found || *h.deadline < at) {
			at, found = *h.deadline, true
		}
	}
	if found {
		r.answer.NextAt = moment(at)
	}
	return err
}
