package sqlite

import (
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// An attempt that waits for a person has ended as far as its work goes: it has
// its outcome and its time, and is charged; only how it ended is open. Its entry
// is queued and held meanwhile, so that no claim need be kept alive:
//
//	entry    dispatched ── Await ──► queued, held ── Decide ──► completed, or queued again
//	attempt  running    ──────────► waiting_approval ────────► completed or failed

func (t *tx) await(op queue.Await, bodies []string) error {
	e, err := t.held(op.ID, op.Fence)
	if err != nil {
		return err
	}
	r, err := e.run(op.Attempt)
	if err != nil {
		return fmt.Errorf("job %s: %w", op.ID, err)
	}
	if !op.Outcome.State.Terminal() {
		return fmt.Errorf("job %s: attempt %d: %q is no state to end in: %w", op.ID, r.number, op.Outcome.State, queue.ErrIllegalTransition)
	}
	if err := r.moveTo(job.WaitingApproval); err != nil {
		return fmt.Errorf("job %s: %w", op.ID, err)
	}
	f, err := e.flow()
	if err != nil {
		return err
	}
	unwanted := e.supersededBy != "" || e.cancelRequested
	state := job.WaitingApproval
	if unwanted { // as with Finish: it ends as it did, and nobody is asked
		state = op.Outcome.State
		if err := r.moveTo(state); err != nil {
			return fmt.Errorf("job %s: %w", op.ID, err)
		}
	} else if err := e.moveTo(job.Queued); err != nil {
		return err
	}
	if err := e.endRun(r, state, &op.Outcome, bodies[0], false, op.Now); err != nil {
		return fmt.Errorf("job %s: %w", op.ID, err)
	}
	if unwanted {
		return e.complete(job.ExitCancelled, "", op.Now)
	}
	a := op.Approval
	f.Approval = &queue.Approval{Attempt: op.Attempt, Why: a.Why, AskedAt: timeOr(a.AskedAt, op.Now).UTC().Round(0), Default: a.Default, Draw: a.Draw}
	if a.Until != nil {
		f.Approval.Until = new(a.Until.UTC().Round(0))
	}
	if err := e.setFlow(f); err != nil {
		return err
	}
	return t.exec(`UPDATE entries SET `+setBill+`, state = ?, `+hold+`, waiting = ?, holder = '', lease_until = NULL WHERE seq = ?`,
		e.with(string(job.Queued), string(job.HeldForApproval), op.Waiting, e.seq)...)
}

func (t *tx) decide(op queue.Decide) error {
	e, err := t.standing(op.ID)
	if err != nil {
		return err
	}
	if err := e.mustBe(job.HeldForApproval); err != nil {
		return err
	}
	f, err := e.flow()
	if err != nil {
		return err
	}
	if f.Approval == nil || f.Approval.Attempt != op.Attempt {
		return fmt.Errorf("job %s: nothing is asked about attempt %d, its latest is %d: %w", op.ID, op.Attempt, e.attempts, queue.ErrIllegalTransition)
	}
	v := verdict{state: job.RunCompleted, through: job.Running}
	if !op.Approved {
		v = verdict{state: job.RunFailed, class: job.HumanRejected, message: op.Comment}
		f.Rejections++
	}
	r, err := e.settle(v)
	if err != nil {
		return err
	}
	at := op.Now.UTC().Round(0)
	f.Approval.Approved, f.Approval.DecidedAt, f.Approval.By, f.Approval.Comment = op.Approved, &at, op.By, op.Comment
	if err := e.setFlow(f); err != nil {
		return err
	}
	switch {
	case op.Approved:
		if err := e.chargeSuccess(r, op.Now); err != nil {
			return err
		}
		return e.concludeAs(job.ExitSucceeded, "", op.Now)
	case op.Retry == nil:
		return e.concludeAs(job.ExitFailed, op.DeadLetter, op.Now)
	}
	return e.retryHeld(op.Retry)
}

// retryHeld lets a held entry go as r says. It is queued already.
func (e *standing) retryHeld(r *queue.Retry) error {
	return e.tx.exec(`UPDATE entries SET `+letGo+`, error_class = ?, runnable_at = ?, choice = ?, session = ?, session_worker = ?, session_node = ?, feedback = ?, waiting = ? WHERE seq = ?`,
		string(e.errorClass), r.RunnableAt, r.Choice, r.Session, string(r.SessionWorker), r.SessionNode, r.Feedback, r.Waiting, e.seq)
}

// verdict is how an attempt that waited for a person has ended.
type verdict struct {
	through, state job.RunState // through is "" if it goes to state at once
	class          job.ErrorClass
	message        string // "" leaves that of the outcome
}

// settle ends the attempt that waits for a person. What it has used was charged
// when it began to wait.
func (e *standing) settle(v verdict) (run, error) {
	r, err := e.run(e.attempts)
	if err != nil {
		return r, err
	}
	for _, next := range []job.RunState{v.through, v.state} {
		if next == "" {
			continue
		}
		if err := r.moveTo(next); err != nil {
			return r, fmt.Errorf("job %s: %w", e.id, err)
		}
		r.state = next
	}
	var text string
	if _, err := e.tx.row(`SELECT outcome FROM attempts WHERE entry = ? AND number = ?`, []any{e.seq, r.number}, &text); err != nil {
		return r, err
	}
	var o job.Outcome
	if err := decode(text, &o); err != nil {
		return r, fmt.Errorf("job %s: attempt %d: %w", e.id, r.number, err)
	}
	o.State, o.Class = v.state, v.class
	if v.message != "" {
		o.Message = v.message
	}
	if text, err = encode(&o); err != nil {
		return r, err
	}
	e.errorClass = v.class
	return r, e.tx.exec(`UPDATE attempts SET state = ?, outcome = ? WHERE entry = ? AND number = ?`, string(v.state), text, e.seq, r.number)
}

// stopAsking ends the attempt of an entry that is withdrawn while a person is asked.
func (e *standing) stopAsking() error {
	_, err := e.settle(verdict{state: job.RunCancelled, class: job.CancelledClass})
	return err
}

// stopAsking does so for the queued entries of a line.
func (l line) stopAsking() error {
	asked, err := collect(l.tx.db, l.tx.scanStanding, `SELECT `+standingColumns+` FROM entries`+ofLine+` AND state = 'queued' AND held = 'approval'`, string(l.tenant), l.key)
	for i := range asked {
		if err == nil {
			err = asked[i].stopAsking()
		}
		if err == nil {
			err = l.tx.exec(`UPDATE entries SET error_class = ? WHERE seq = ?`, string(asked[i].errorClass), asked[i].seq)
		}
	}
	return err
}
