package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Apply implements queue.Store.
func (s *Store) Apply(ctx context.Context, ops ...queue.Op) error {
	folded, err := looked(fold(ops))
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	bodies, err := encodeBodies(folded)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	err = s.write(ctx, func(t *tx) error {
		if len(folded) > 1 {
			if err := t.protect(); err != nil {
				return err
			}
		}
		for i, op := range folded {
			if err := t.apply(op, bodies[i]); err != nil {
				return fmt.Errorf("apply %T: %w", op, err)
			}
		}
		return nil
	})
	if err == nil {
		s.writer.leases.applied(ops)
	}
	return err
}

func (t *tx) apply(op queue.Op, bodies []string) error {
	switch op := op.(type) {
	case queue.Begin:
		return t.begin(op, queue.Move{})
	case beginAs:
		return t.begin(op.Begin, op.move)
	case queue.Move:
		return t.move(op)
	case queue.Append:
		return t.append(op, bodies)
	case queue.Finish:
		return t.finish(endAs{Finish: op}, bodies)
	case endAs:
		return t.finish(op, bodies)
	case queue.Release:
		return t.release(op)
	case queue.Cancel:
		return t.cancel(op)
	case queue.Reclaim:
		return t.reclaim(op)
	case queue.Rebase:
		return t.rebase(op)
	case queue.Adopt:
		return t.batches.adopt()
	case queue.SetPrivate:
		return t.batches.setPrivate(op)
	case queue.CloseBatch:
		return t.batches.close(op.ID, op.Now)
	case queue.Drop:
		return deadLetter{t, op.ID}.drop(op.Now)
	case queue.SetGrant:
		return t.accounts.setGrant(op.Grant)
	case queue.TopUp:
		return t.credits.topUp(op)
	case queue.DropBalance:
		return t.credits.dropBalance(op)
	case queue.Ready:
		return t.ready(op)
	case queue.Keep:
		return t.keep(op)
	case queue.Skip:
		return t.skip(op)
	case spawning:
		return t.spawn(op)
	case adding:
		return t.enqueue(op)
	case queue.Conclude:
		return t.conclude(op)
	case queue.Await:
		return t.await(op, bodies)
	case queue.Decide:
		return t.decide(op)
	case writing:
		return t.write(op)
	case queue.Erase:
		return t.erase(op)
	default:
		return errors.New("unknown op")
	}
}

// standing is an entry within a transaction: what an op has to know of it, and
// what can be done to it.
type standing struct {
	tx              *tx
	seq             int64
	id              job.ID
	state           job.EntryState
	fence           job.Fence
	leaseUntil      *time.Time
	attempts        int
	cancelRequested bool
	key             string
	waitsFor        job.ID
	supersededBy    job.ID
	tenant          job.Tenant
	agent           job.AgentID
	errorClass      job.ErrorClass
	held            job.Hold
	spent           string // as it is stored
	bill            bill
}

// bill is what an op that ends an attempt adds to the entry's sums, together
// with the entry's next state.
type bill struct {
	took      time.Duration
	uncounted int
}

const standingColumns = `seq, id, state, fence, lease_until, attempts, cancel_requested, key, waits_for, superseded_by, tenant, agent,
	error_class, held, spent`

// dest returns where standingColumns go.
func (e *standing) dest() []any {
	return []any{&e.seq, &e.id, &e.state, &e.fence, &e.leaseUntil, &e.attempts, &e.cancelRequested,
		&e.key, &e.waitsFor, &e.supersededBy, &e.tenant, &e.agent, &e.errorClass, &e.held, &e.spent}
}

func (t *tx) scanStanding(row scanner) (*standing, error) {
	e := &standing{tx: t}
	return e, row.Scan(e.dest()...)
}

func (t *tx) standing(id job.ID) (*standing, error) {
	e := &standing{tx: t}
	found, err := t.row(`SELECT `+standingColumns+` FROM entries WHERE id = ?`, []any{string(id)}, e.dest()...)
	if err == nil && !found {
		err = queue.ErrNotFound
	}
	if err != nil {
		return e, fmt.Errorf("job %s: %w", id, err)
	}
	return e, nil
}

// held returns the entry if it is dispatched under fence, else ErrFenced.
func (t *tx) held(id job.ID, fence job.Fence) (*standing, error) {
	e, err := t.standing(id)
	if err != nil {
		return e, err
	}
	if e.state != job.Dispatched || e.fence != fence {
		return e, fmt.Errorf("job %s: write with fence %d, its latest is %d and it is %s: %w", id, fence, e.fence, e.state, queue.ErrFenced)
	}
	return e, nil
}

// moveTo checks that the entry may go to next. Each statement that writes
// another state is preceded by it.
func (e *standing) moveTo(next job.EntryState) error {
	if err := e.state.CheckMove(next); err != nil {
		return fmt.Errorf("job %s: %w", e.id, err)
	}
	return nil
}

// run is what an op has to know of an attempt.
type run struct {
	number  int
	state   job.RunState
	worker  job.WorkerKind
	session string
	started time.Time
	model   string
	node    string
	charged string // see ledger.go
}

// moveTo checks that the attempt's run may go to next.
func (r *run) moveTo(next job.RunState) error {
	if err := r.state.CheckMove(next); err != nil {
		return fmt.Errorf("attempt %d: %w", r.number, err)
	}
	return nil
}

func (e *standing) run(number int) (run, error) {
	r := run{number: number}
	found, err := e.tx.row(`SELECT state, worker, session, started_at, model, charged, node FROM attempts WHERE entry = ? AND number = ?`,
		[]any{e.seq, number}, &r.state, &r.worker, &r.session, &r.started, &r.model, &r.charged, &r.node)
	if err == nil && !found {
		err = queue.ErrNotFound
	}
	if err != nil {
		return r, fmt.Errorf("job %s: attempt %d: %w", e.id, number, err)
	}
	return r, nil
}

// openRun returns the attempt that has begun under the entry's claim and not
// ended, if there is one: it can only be the latest.
func (e *standing) openRun() (r run, open bool, err error) {
	if e.attempts == 0 {
		return run{}, false, nil
	}
	r, err = e.run(e.attempts)
	return r, err == nil && !r.state.Terminal(), err
}

// noOpenRun gives an error if an attempt has begun and not ended.
func (e *standing) noOpenRun() error {
	r, open, err := e.openRun()
	if err == nil && open {
		err = fmt.Errorf("job %s: attempt %d is still %s: %w", e.id, r.number, r.state, queue.ErrIllegalTransition)
	}
	return err
}

// begin records an attempt, at once in the state and with the session to which
// it moves, if it does.
func (t *tx) begin(op queue.Begin, move queue.Move) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	a := op.Attempt
	switch {
	case a.Number != e.attempts+1:
		return fmt.Errorf("job %s: attempt %d begins after %d attempts: %w", op.ID, a.Number, e.attempts, queue.ErrIllegalTransition)
	case a.State != job.Pending:
		return fmt.Errorf("job %s: attempt %d begins as %q, want %s: %w", op.ID, a.Number, a.State, job.Pending, queue.ErrIllegalTransition)
	}
	if err := e.noOpenRun(); err != nil {
		return err
	}
	r := run{number: a.Number, worker: a.Choice.Worker, model: a.Choice.Model, started: a.Started}
	_, told, err := t.number(`SELECT 1 FROM events WHERE entry = ? AND attempt = ? LIMIT 1`, e.seq, a.Number)
	if err != nil {
		return err
	}
	if told {
		r.charged = early
	}
	err = t.exec(`INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at, charged, node) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.seq, a.Number, int64(op.Fence), string(a.Choice.Worker), a.Choice.Model,
		string(cmp.Or(move.To, a.State)), cmp.Or(move.Session, a.Session), a.Started, r.charged, a.Node)
	if err == nil && r.charged == early {
		err = e.chargeEarly(r)
	}
	if err != nil {
		return fmt.Errorf("job %s: attempt %d: %w", op.ID, a.Number, err)
	}
	if move.Session != "" {
		return t.exec(`UPDATE entries SET attempts = attempts + 1, counted = counted + 1, session = ?, session_worker = ?, session_node = ? WHERE seq = ?`,
			move.Session, string(a.Choice.Worker), a.Node, e.seq)
	}
	return t.exec(`UPDATE entries SET attempts = attempts + 1, counted = counted + 1 WHERE seq = ?`, e.seq)
}

func (t *tx) move(op queue.Move) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	r, err := e.run(op.Attempt)
	if err != nil {
		return err
	}
	to := op.To
	switch {
	case to == "" && r.state.Terminal():
		return fmt.Errorf("job %s: attempt %d is %s already: %w", op.ID, op.Attempt, r.state, queue.ErrIllegalTransition)
	case to == "":
		to = r.state
	case to.Terminal():
		return fmt.Errorf("job %s: attempt %d: a run ends as %s with its outcome, by Finish: %w", op.ID, op.Attempt, to, queue.ErrIllegalTransition)
	default:
		if err := r.moveTo(to); err != nil {
			return fmt.Errorf("job %s: %w", op.ID, err)
		}
	}
	if to != r.state && (to == job.WaitingApproval || r.state == job.WaitingApproval) {
		waiting := ""
		if to == job.WaitingApproval {
			waiting = op.Waiting
		}
		if err := t.exec(`UPDATE entries SET waiting = ? WHERE seq = ?`, waiting, e.seq); err != nil {
			return err
		}
	}
	if op.Session == "" {
		return t.exec(`UPDATE attempts SET state = ? WHERE entry = ? AND number = ?`, string(to), e.seq, op.Attempt)
	}
	err = t.exec(`UPDATE attempts SET state = ?, session = ? WHERE entry = ? AND number = ?`, string(to), op.Session, e.seq, op.Attempt)
	if err != nil {
		return err
	}
	return t.exec(`UPDATE entries SET session = ?, session_worker = ?, session_node = ? WHERE seq = ?`, op.Session, string(r.worker), r.node, e.seq)
}

func (t *tx) append(op queue.Append, bodies []string) error {
	if len(op.Events) > 1 {
		if err := t.protect(); err != nil {
			return err
		}
	}
	var e *standing
	for i := range op.Events {
		ev := &op.Events[i]
		if e == nil || e.id != ev.Job {
			var err error
			if e, err = t.standing(ev.Job); err != nil {
				return err
			}
		}
		if err := e.append(ev, bodies[i]); err != nil {
			return err
		}
	}
	return nil
}

// append stores an event that is not stored yet.
func (e *standing) append(ev *job.Event, body string) error {
	stored, err := e.tx.change(`INSERT INTO events (entry, attempt, seq, body) VALUES (?, ?, ?, ?) ON CONFLICT (entry, attempt, seq) DO NOTHING`,
		e.seq, ev.Attempt, ev.Seq, body)
	if err == nil && stored > 0 && ev.Usage != nil {
		err = e.chargeEvent(ev)
	}
	if err != nil {
		return fmt.Errorf("event %d of job %s, attempt %d: %w", ev.Seq, ev.Job, ev.Attempt, err)
	}
	return nil
}

func (t *tx) cancel(op queue.Cancel) error {
	e, err := t.standing(op.ID)
	if err != nil {
		return err
	}
	if e.state == job.Dispatched {
		return t.exec(`UPDATE entries SET cancel_requested = true WHERE seq = ?`, e.seq)
	}
	return e.withdraw(job.Cancelled, op.Now)
}

// withdraw ends a queued entry that was never run to its end.
func (e *standing) withdraw(to job.EntryState, now time.Time) error {
	if err := e.moveTo(to); err != nil {
		return err
	}
	if e.held == job.HeldForApproval {
		if err := e.stopAsking(); err != nil {
			return err
		}
	}
	if e.key == "" && e.held == "" {
		return e.tx.exec(`UPDATE entries SET state = ?, completed_at = ? WHERE seq = ?`, string(to), now, e.seq)
	}
	err := e.tx.exec(`UPDATE entries SET `+letGo+`, state = ?, completed_at = ?, coalesced_with = '', error_class = ?,
		waiting = CASE WHEN waits_for = '' AND held = '' THEN waiting ELSE '' END, waits_for = '' WHERE seq = ?`,
		string(to), now, string(e.errorClass), e.seq)
	if err != nil || e.key == "" {
		return err
	}
	return e.leave(now)
}
