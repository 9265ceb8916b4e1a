package sqlite

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// heldPool returns the pool in which entries of a pool are while they are held,
// and of that the pool to which they go back.
func heldPool(pool int64) int64 { return -3 - pool }

// What sets an entry's pool together with its hold. The second takes the hold.
const (
	letGo = `pool = CASE held WHEN '' THEN pool ELSE -3 - pool END, held = ''`
	hold  = `pool = CASE held WHEN '' THEN -3 - pool ELSE pool END, held = ?`
)

// holds are what somebody can hold an entry for. For an approval it is held by
// Await alone.
func holds() []job.Hold {
	return []job.Hold{job.HeldForNeeds, job.HeldForParts, job.HeldForTeam, job.HeldForWords, job.HeldByPerson}
}

func checkHold(h job.Hold) error {
	switch {
	case slices.Contains(holds(), h):
		return nil
	case h == job.HeldForApproval:
		return fmt.Errorf("held for %s without an attempt to look at: %w", h, queue.ErrIllegalTransition)
	}
	return fmt.Errorf("unknown hold %q, want one of %q", h, holds())
}

// mustBe returns an error unless the entry is queued and held for one of these.
func (e *standing) mustBe(held ...job.Hold) error {
	if e.state == job.Queued && slices.Contains(held, e.held) {
		return nil
	}
	what := string(e.state)
	if e.held != "" {
		what += ", held for " + string(e.held)
	}
	return fmt.Errorf("job %s is %s, want it to be held for one of %q: %w", e.id, what, held, queue.ErrIllegalTransition)
}

func (t *tx) ready(op queue.Ready) error {
	e, err := t.standing(op.ID)
	if err != nil {
		return err
	}
	if err := e.mustBe(job.HeldForNeeds, job.HeldForTeam, job.HeldForWords, job.HeldByPerson); err != nil {
		return err
	}
	if op.Resolved != nil {
		f, err := e.flow()
		if err != nil {
			return err
		}
		f.Resolved = op.Resolved
		if err := e.setFlow(f); err != nil {
			return err
		}
	}
	waiting, err := e.waitingInLine()
	if err != nil {
		return err
	}
	return t.exec(`UPDATE entries SET `+letGo+`, `+notBefore+`, waiting = ? WHERE seq = ?`, op.Now, op.Now, waiting, e.seq)
}

// waitingInLine says what an entry waits for in the line of its key, "" if for none.
func (e *standing) waitingInLine() (string, error) {
	before, err := e.before()
	if err != nil || before.id == "" {
		return "", err
	}
	return queue.WaitingFor(before.id, before.name, e.key), nil
}

func (t *tx) keep(op queue.Keep) error {
	e, err := t.standing(op.ID)
	if err != nil {
		return err
	}
	if err := checkHold(op.For); err != nil {
		return fmt.Errorf("job %s: %w", op.ID, err)
	}
	if err := e.mustBe(append(holds(), "")...); err != nil {
		return err
	}
	if t.touched.kept == nil {
		t.touched.kept = map[int64]bool{}
	}
	t.touched.kept[e.seq] = true
	return t.exec(`UPDATE entries SET `+hold+`, waiting = ? WHERE seq = ?`, string(op.For), op.Waiting, e.seq)
}

func (t *tx) skip(op queue.Skip) error {
	e, err := t.standing(op.ID)
	if err != nil {
		return err
	}
	if op.Why == "" {
		return fmt.Errorf("job %s is skipped without a reason", op.ID)
	}
	f, err := e.flow()
	if err != nil {
		return err
	}
	if err := e.withdraw(job.Cancelled, op.Now); err != nil {
		return err
	}
	f.Skipped = op.Why
	return e.setFlow(f)
}

func (t *tx) conclude(op queue.Conclude) error {
	e, err := t.standing(op.ID)
	if err != nil {
		return err
	}
	if err := e.mustBe(job.HeldForParts, job.HeldForTeam); err != nil {
		return err
	}
	switch op.Exit {
	case job.ExitSucceeded:
		e.errorClass = job.NoError
	case job.ExitFailed:
		e.errorClass = cmp.Or(op.Class, e.errorClass)
	case job.ExitCancelled:
	default:
		return fmt.Errorf("job %s: unknown exit kind %q", op.ID, op.Exit)
	}
	if len(op.Result) > 0 && !json.Valid(op.Result) {
		return fmt.Errorf("job %s: its result is no JSON", op.ID)
	}
	f, err := e.flow()
	if err != nil {
		return err
	}
	if op.Exit == job.ExitSucceeded {
		if err := e.chargeSuccess(run{}, op.Now); err != nil {
			return err
		}
		if len(op.Result) > 0 {
			f.Result = op.Result
			if err := e.setFlow(f); err != nil {
				return err
			}
		}
	}
	return e.concludeAs(op.Exit, op.DeadLetter, op.Now)
}

// concludeAs completes a held entry, which nobody has claimed: it is taken
// through Dispatched. In the line of its key it may still wait for another.
func (e *standing) concludeAs(exit job.ExitKind, deadLetter string, now time.Time) error {
	if err := errors.Join(e.moveTo(job.Dispatched), job.Dispatched.CheckMove(job.Completed)); err != nil {
		return err
	}
	err := e.tx.exec(`UPDATE entries SET `+letGo+`, state = 'dispatched', waiting = '', waits_for = '', coalesced_with = '' WHERE seq = ?`, e.seq)
	if err != nil {
		return err
	}
	e.state, e.held = job.Dispatched, ""
	return e.complete(exit, deadLetter, now)
}
