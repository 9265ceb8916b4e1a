package sqlite

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// A dead letter is an entry that failed and of which nobody has yet said what
// is to become of it. The index entries_dead holds these and no others.
const isDeadLetter = `exit_kind = 'failed' AND requeued_as = '' AND dropped_at IS NULL`

const allDeadLetters = `SELECT seq FROM entries INDEXED BY entries_dead WHERE ` + isDeadLetter

// requeuedAs marks a dead letter as done again by another entry.
func (t *tx) requeuedAs(dead, by job.ID) error {
	return t.settleDeadLetter(dead, `UPDATE entries SET requeued_as = ? WHERE id = ? AND `+isDeadLetter, string(by))
}

// drop marks a dead letter as one of which nothing comes.
func (t *tx) drop(id job.ID, now time.Time) error {
	return t.settleDeadLetter(id, `UPDATE entries SET dropped_at = ? WHERE id = ? AND `+isDeadLetter, nanos(now))
}

func (t *tx) settleDeadLetter(id job.ID, update string, value any) error {
	n, err := t.change(update, value, string(id))
	if err != nil || n == 1 {
		return err
	}
	e, err := t.standing(id)
	if err != nil {
		return err
	}
	return fmt.Errorf("job %s is %s, and no dead letter that waits for somebody: %w", id, e.state, queue.ErrIllegalTransition)
}
