package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (t *tx) finish(op queue.Finish) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	switch op.Exit {
	case "", job.ExitSucceeded, job.ExitFailed, job.ExitCancelled:
	default:
		return fmt.Errorf("job %s: unknown exit kind %q", op.ID, op.Exit)
	}
	if err := t.finishRun(e, op); err != nil {
		return fmt.Errorf("job %s: %w", op.ID, err)
	}
	if op.Exit == "" && e.supersededBy == "" {
		r := op.Retry
		return t.requeue(e, requeued{r.RunnableAt, r.Choice, r.Session, r.SessionWorker, r.Feedback, r.Waiting})
	}
	exit := op.Exit
	if exit == "" {
		exit = job.ExitCancelled // a newer entry has its place: there is no other attempt
	}
	return t.complete(e, exit, op.DeadLetter, op.Now)
}

// finishRun ends the attempt that op names; 0 names none, and then none may be open.
func (t *tx) finishRun(e standing, op queue.Finish) error {
	if op.Attempt == 0 {
		return t.noOpenRun(e)
	}
	r, err := t.run(e, op.Attempt)
	if err != nil {
		return err
	}
	if !op.Outcome.State.Terminal() {
		return fmt.Errorf("attempt %d: %q is no state to end in: %w", r.number, op.Outcome.State, queue.ErrIllegalTransition)
	}
	if err := r.moveTo(op.Outcome.State); err != nil {
		return err
	}
	return t.endRun(e, r, op.Outcome, op.Lost, op.Now)
}

// endRun records the outcome of an attempt and adds what it took to the
// entry's sums. Where the outcome does not say when it started or ended, the
// attempt's own start and now are taken.
func (t *tx) endRun(e standing, r run, o job.Outcome, lost bool, now time.Time) error {
	started, ended := o.StartedAt, o.EndedAt
	if started.IsZero() {
		started = r.started
	}
	if ended.IsZero() {
		ended = now
	}
	body, err := encode(&o)
	if err != nil {
		return err
	}
	session := r.session
	if o.Session != "" {
		session = o.Session
	}
	err = t.exec(`UPDATE attempts SET state = ?, session = ?, ended_at = ?, lost = ?, outcome = ? WHERE entry = ? AND number = ?`,
		string(o.State), session, nanos(ended), lost, body, e.seq, r.number)
	if err != nil {
		return err
	}
	return t.charge(e, o.Usage, max(0, ended.Sub(started)), lost)
}

// charge adds to the entry's sums and takes back the count of a lost attempt.
func (t *tx) charge(e standing, usage job.Usage, took time.Duration, lost bool) error {
	var text string
	if err := t.row(`SELECT spent FROM entries WHERE seq = ?`, []any{e.seq}, &text); err != nil {
		return err
	}
	var spent job.Usage
	if err := decode(text, &spent); err != nil {
		return err
	}
	text, err := encode(spent.Add(usage))
	if err != nil {
		return err
	}
	uncounted := 0
	if lost {
		uncounted = 1
	}
	return t.exec(`UPDATE entries SET spent = ?, spent_time = spent_time + ?, counted = counted - ? WHERE seq = ?`,
		text, int64(took), uncounted, e.seq)
}

func (t *tx) complete(e standing, exit job.ExitKind, deadLetter string, now time.Time) error {
	if err := e.moveTo(job.Completed); err != nil {
		return err
	}
	if exit != job.ExitFailed {
		deadLetter = ""
	}
	err := t.exec(`UPDATE entries SET state = ?, exit_kind = ?, dead_letter = ?, completed_at = ?, holder = '', lease_until = NULL,
		waiting = CASE ? WHEN 'cancelled' THEN waiting ELSE '' END WHERE seq = ?`,
		string(job.Completed), string(exit), deadLetter, nanos(now), string(exit), e.seq)
	switch {
	case err != nil || e.key == "":
		return err
	case exit == job.ExitCancelled:
		return t.leave(e, now)
	}
	return t.share(e, exit, deadLetter, now)
}

// requeued is how an entry waits for its next claim.
type requeued struct {
	runnableAt    time.Time
	choice        int
	session       string
	sessionWorker job.WorkerKind
	feedback      string
	waiting       string
}

func (t *tx) requeue(e standing, r requeued) error {
	if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	return t.exec(`UPDATE entries SET state = ?, runnable_at = ?, choice = ?, session = ?, session_worker = ?, feedback = ?, waiting = ?,
		holder = '', lease_until = NULL WHERE seq = ?`,
		string(job.Queued), nanos(r.runnableAt), r.choice, r.session, string(r.sessionWorker), r.feedback, r.waiting, e.seq)
}

func (t *tx) release(op queue.Release) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	if err := t.noOpenRun(e); err != nil {
		return err
	}
	if e.supersededBy != "" {
		now := op.Now
		if now.IsZero() {
			now = op.RunnableAt
		}
		return t.complete(e, job.ExitCancelled, "", now)
	}
	if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	return t.exec(`UPDATE entries SET state = ?, runnable_at = ?, choice = ?, waiting = ?, holder = '', lease_until = NULL WHERE seq = ?`,
		string(job.Queued), nanos(op.RunnableAt), op.Choice, op.Waiting, e.seq)
}

func (t *tx) reclaim(op queue.Reclaim) error {
	before := nanos(op.Now)
	if op.All {
		before = latest
	}
	var gone []standing
	// The index holds only dispatched entries, which are as few as there is work under way.
	err := t.rows(`SELECT `+standingColumns+` FROM entries INDEXED BY entries_fence
		WHERE state = 'dispatched' AND (? OR lease_until < ?) ORDER BY fence`, []any{op.All, before}, func(rows *sql.Rows) error {
		var e standing
		err := rows.Scan(e.dest()...)
		gone = append(gone, e)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.protect(); err != nil {
		return err
	}
	for _, e := range gone {
		if err := t.takeBack(e, op); err != nil {
			return fmt.Errorf("job %s: %w", e.id, err)
		}
	}
	return nil
}

// takeBack ends what the entry's holder left open and gives the entry back to
// the queue, or completes it if somebody asked to cancel it.
func (t *tx) takeBack(e standing, op queue.Reclaim) error {
	r, open, err := t.openRun(e)
	if err != nil {
		return err
	}
	if open {
		if err := t.loseRun(e, r, op); err != nil {
			return err
		}
	}
	if e.cancelRequested {
		return t.complete(e, job.ExitCancelled, "", op.Now)
	}
	if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	err = t.exec(`UPDATE entries SET state = ?, runnable_at = ?, waiting = ?, holder = '', lease_until = NULL WHERE seq = ?`,
		string(job.Queued), nanos(op.Now), op.Message, e.seq)
	if err != nil || !open || r.session == "" {
		return err
	}
	return t.exec(`UPDATE entries SET session = ?, session_worker = ? WHERE seq = ?`, r.session, string(r.worker), e.seq)
}

// loseRun ends an attempt whose holder is gone.
func (t *tx) loseRun(e standing, r run, op queue.Reclaim) error {
	o := job.Outcome{
		State: job.RunFailed, Class: job.Crash, Message: op.Message, Session: r.session, ExitCode: -1,
		StartedAt: r.started, EndedAt: lastAlive(e, r, op.Now),
	}
	if e.cancelRequested {
		o.State, o.Class = job.RunCancelled, job.CancelledClass
	}
	var err error
	if o.Usage, err = t.usageSeen(e, r); err != nil {
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
	return t.endRun(e, r, o, true, op.Now)
}

// usageSeen returns what a run is known to have used, from its events: nobody
// is left to report the total.
func (t *tx) usageSeen(e standing, r run) (total job.Usage, err error) {
	err = t.rows(`SELECT body FROM events WHERE entry = ? AND attempt = ? AND instr(body, '"usage"') ORDER BY seq`,
		[]any{e.seq, r.number}, func(rows *sql.Rows) error {
			var body string
			if err := rows.Scan(&body); err != nil {
				return err
			}
			var ev job.Event
			if err := json.Unmarshal([]byte(body), &ev); err != nil {
				return fmt.Errorf("read event: %w", err)
			}
			if ev.Usage != nil {
				total = total.Add(*ev.Usage)
			}
			return nil
		})
	return total, err
}

// lastAlive returns the latest moment at which the holder of the claim can
// have worked: the end of its lease. The hours until somebody noticed are not
// charged to the job.
func lastAlive(e standing, r run, now time.Time) time.Time {
	if lease := momentOrNil(e.leaseUntil); lease != nil && lease.Before(now) {
		now = *lease
	}
	if now.Before(r.started) {
		return r.started
	}
	return now.UTC().Round(0)
}
