package sqlite

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (t *tx) finish(op endAs, bodies []string) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	switch op.Exit {
	case "", job.ExitSucceeded, job.ExitFailed, job.ExitCancelled:
	default:
		return fmt.Errorf("job %s: unknown exit kind %q", op.ID, op.Exit)
	}
	if err := e.finishRun(op, bodies); err != nil {
		return fmt.Errorf("job %s: %w", op.ID, err)
	}
	if op.Attempt == 0 || op.Lost {
		if err := e.giveBack(op.Now); err != nil {
			return err
		}
	}
	if op.Exit == "" && e.supersededBy == "" {
		return e.requeue(&op.Retry)
	}
	exit := op.Exit
	if exit == "" {
		exit = job.ExitCancelled // a newer entry has its place: there is no other attempt
	}
	return e.complete(exit, op.DeadLetter, op.Now)
}

// finishRun ends the attempt that op names; 0 names none, and then none may be open.
func (e *standing) finishRun(op endAs, bodies []string) error {
	if op.Attempt == 0 {
		if op.Exit == job.ExitSucceeded {
			if err := e.chargeSuccess(run{}, op.Now); err != nil {
				return err
			}
		}
		e.errorClass = cmp.Or(op.Outcome.Class, e.errorClass)
		return e.noOpenRun()
	}
	r, err := e.run(op.Attempt)
	if err != nil {
		return err
	}
	if op.state != "" {
		if err := r.moveTo(op.state); err != nil {
			return err
		}
		r.state = op.state
	}
	if !op.Outcome.State.Terminal() {
		return fmt.Errorf("attempt %d: %q is no state to end in: %w", r.number, op.Outcome.State, queue.ErrIllegalTransition)
	}
	if err := r.moveTo(op.Outcome.State); err != nil {
		return err
	}
	for i := range op.events {
		if err := e.append(&op.events[i], bodies[i]); err != nil {
			return err
		}
	}
	if op.Exit == job.ExitSucceeded {
		if err := e.chargeSuccess(r, timeOr(op.Outcome.EndedAt, op.Now)); err != nil {
			return err
		}
	}
	return e.endRun(r, op.Outcome.State, &op.Outcome, bodies[len(op.events)], op.Lost, op.Now)
}

// endRun records the outcome of an attempt, with its JSON and the state in which it is
// then, and puts what it took on the entry's bill. Where the outcome does not say when
// it started or ended, the attempt's own start and now are taken.
func (e *standing) endRun(r run, state job.RunState, o *job.Outcome, body string, lost bool, now time.Time) error {
	started, ended := timeOr(o.StartedAt, r.started), timeOr(o.EndedAt, now)
	err := e.tx.exec(`UPDATE attempts SET state = ?, session = ?, ended_at = ?, lost = ?, outcome = ? WHERE entry = ? AND number = ?`,
		string(state), cmp.Or(o.Session, r.session), ended, lost, body, e.seq, r.number)
	if err != nil {
		return err
	}
	took := max(0, ended.Sub(started)-time.Duration(o.AskedMillis)*time.Millisecond)
	if err := e.chargeOutcome(r, o.Usage, took, ended); err != nil {
		return err
	}
	return e.charge(o, took, lost)
}

// charge puts an attempt on the entry's bill, and takes back the count of a lost
// one.
func (e *standing) charge(o *job.Outcome, took time.Duration, lost bool) error {
	e.errorClass = o.Class
	e.bill.took += took
	if lost {
		e.bill.uncounted++
	}
	if o.Usage == (job.Usage{}) {
		return nil
	}
	var spent job.Usage
	err := decode(e.spent, &spent)
	if err == nil {
		e.spent, err = encode(spent.Add(o.Usage))
	}
	return err
}

// setBill sets what an op has changed of the entry's sums.
const setBill = `spent = ?, spent_time = spent_time + ?, counted = counted - ?, error_class = ?`

// with returns the arguments of setBill followed by more.
func (e *standing) with(more ...any) []any {
	return append([]any{e.spent, int64(e.bill.took), e.bill.uncounted, string(e.errorClass)}, more...)
}

func (e *standing) complete(exit job.ExitKind, deadLetter string, now time.Time) error {
	if err := e.moveTo(job.Completed); err != nil {
		return err
	}
	if exit != job.ExitFailed {
		deadLetter = ""
	}
	err := e.tx.exec(`UPDATE entries SET `+setBill+`, state = ?, exit_kind = ?, dead_letter = ?, completed_at = ?, holder = '', lease_until = NULL,
		waiting = CASE ? WHEN 'cancelled' THEN waiting ELSE '' END WHERE seq = ?`,
		e.with(string(job.Completed), string(exit), deadLetter, now, string(exit), e.seq)...)
	switch {
	case err != nil || e.key == "":
		return err
	case exit == job.ExitCancelled:
		return e.leave(now)
	}
	return e.share(exit, deadLetter, now)
}

func (e *standing) requeue(r *queue.Retry) error {
	if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	if r.Hold != "" && r.Hold != job.HeldForWords {
		return fmt.Errorf("job %s: an attempt that has ended is not held for %q: %w", e.id, r.Hold, queue.ErrIllegalTransition)
	}
	if r.Hold != "" {
		if err := e.tx.exec(`UPDATE entries SET `+hold+` WHERE seq = ?`, string(r.Hold), e.seq); err != nil {
			return err
		}
	}
	return e.tx.exec(`UPDATE entries SET `+setBill+`, state = ?, runnable_at = ?, choice = ?, session = ?, session_worker = ?, session_node = ?,
		feedback = ?, waiting = ?,
		holder = '', lease_until = NULL WHERE seq = ?`,
		e.with(string(job.Queued), r.RunnableAt, r.Choice, r.Session, string(r.SessionWorker), r.SessionNode, r.Feedback, r.Waiting, e.seq)...)
}

func (t *tx) release(op queue.Release) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	if err := e.noOpenRun(); err != nil {
		return err
	}
	now := timeOr(op.Now, op.RunnableAt)
	if err := e.giveBack(now); err != nil {
		return err
	}
	if e.supersededBy != "" {
		return e.complete(job.ExitCancelled, "", now)
	}
	if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	return t.exec(`UPDATE entries SET state = ?, runnable_at = ?, choice = ?, waiting = ?, holder = '', lease_until = NULL WHERE seq = ?`,
		string(job.Queued), op.RunnableAt, op.Choice, op.Waiting, e.seq)
}

func (t *tx) reclaim(op queue.Reclaim) error {
	gone, err := t.abandoned(op)
	if err != nil || len(gone) == 0 {
		return err
	}
	if err := t.protect(); err != nil {
		return err
	}
	for _, e := range gone {
		if err := e.takeBack(op); err != nil {
			return fmt.Errorf("job %s: %w", e.id, err)
		}
	}
	return nil
}

// abandoned returns the entries that a Reclaim takes back, in the order of their
// claims. The index holds only dispatched entries, which are as few as there is
// work under way.
func (t *tx) abandoned(op queue.Reclaim) (gone []*standing, err error) {
	const dispatched = `SELECT ` + standingColumns + ` FROM entries INDEXED BY entries_fence WHERE state = 'dispatched'`
	find := func(which string, arg any) {
		if err == nil {
			var more []*standing
			more, err = collect(t.db, t.scanStanding, dispatched+which, arg)
			gone = append(gone, more...)
		}
	}
	for _, h := range op.Holders {
		find(` AND pool >= 0 AND holder = ?`, h)
	}
	for _, f := range op.Fences {
		find(` AND fence = ?`, int64(f))
	}
	if op.Lapsed {
		find(` AND lease_until < ?`, op.Now)
	}
	slices.SortFunc(gone, func(a, b *standing) int { return cmp.Compare(a.fence, b.fence) })
	return slices.CompactFunc(gone, func(a, b *standing) bool { return a.fence == b.fence }), err
}

// takeBack ends what the entry's holder left open and gives the entry back to
// the queue, or completes it if somebody asked to cancel it.
func (e *standing) takeBack(op queue.Reclaim) error {
	r, open, err := e.openRun()
	if err != nil {
		return err
	}
	if open {
		if err := e.loseRun(r, op); err != nil {
			return err
		}
	}
	if err := e.giveBack(op.Now); err != nil {
		return err
	}
	if e.cancelRequested {
		return e.complete(job.ExitCancelled, "", op.Now)
	}
	if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	err = e.tx.exec(`UPDATE entries SET `+setBill+`, state = ?, runnable_at = CASE WHEN runnable_at > ? THEN ? ELSE runnable_at END, waiting = ?, holder = '', lease_until = NULL WHERE seq = ?`,
		e.with(string(job.Queued), op.Now, op.Now, op.Message, e.seq)...)
	if err != nil || !open || r.session == "" {
		return err
	}
	return e.tx.exec(`UPDATE entries SET session = ?, session_worker = ?, session_node = ? WHERE seq = ?`, r.session, string(r.worker), r.node, e.seq)
}

// loseRun ends an attempt whose holder is gone.
func (e *standing) loseRun(r run, op queue.Reclaim) error {
	o := job.Outcome{
		State: job.RunFailed, Class: job.Crash, Message: op.Message, Session: r.session, ExitCode: -1,
		StartedAt: r.started, EndedAt: lastAlive(e, r, op.Now),
	}
	if e.cancelRequested {
		o.State, o.Class = job.RunCancelled, job.CancelledClass
	}
	// Nobody is left to report the total: it is what the events say.
	if err := e.usageEvents(r.number, func(ev *job.Event) { o.Usage = o.Usage.Add(*ev.Usage) }); err != nil {
		return err
	}
	// The table knows no way from pending or checkpointed straight to failed: a
	// run fails only while it runs. Whether the lost worker had been started is
	// not known, so the run is taken through running.
	if r.state.CheckMove(o.State) != nil {
		if err := r.moveTo(job.Running); err != nil {
			return err
		}
		r.state = job.Running
	}
	if err := r.moveTo(o.State); err != nil {
		return err
	}
	body, err := encode(&o)
	if err != nil {
		return err
	}
	return e.endRun(r, o.State, &o, body, true, op.Now)
}

// usageEvents calls each for the events of an attempt that tell of usage.
func (e *standing) usageEvents(attempt int, each func(*job.Event)) error {
	return e.tx.rows(`SELECT body FROM events WHERE entry = ? AND attempt = ? AND body LIKE '%"usage"%' ORDER BY seq`,
		[]any{e.seq, attempt}, func(rows scanner) error {
			var body string
			if err := rows.Scan(&body); err != nil {
				return err
			}
			var ev job.Event
			if err := json.Unmarshal([]byte(body), &ev); err != nil {
				return fmt.Errorf("read event: %w", err)
			}
			if ev.Usage != nil {
				each(&ev)
			}
			return nil
		})
}

// lastAlive returns the latest moment at which the holder of the claim can
// have worked: the end of its lease. The hours until somebody noticed are not
// charged to the job.
func lastAlive(e *standing, r run, now time.Time) time.Time {
	if e.leaseUntil != nil && e.leaseUntil.Before(now) {
		now = *e.leaseUntil
	}
	if now.Before(r.started) {
		return r.started
	}
	return now.UTC().Round(0)
}
