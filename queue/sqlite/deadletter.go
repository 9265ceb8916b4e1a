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

// deadLetter is one that somebody decides about, within a transaction.
type deadLetter struct {
	tx *tx
	id job.ID
}

// requeuedAs marks it as done again by another entry.
func (d deadLetter) requeuedAs(by job.ID) error {
	return d.settle(`UPDATE entries SET requeued_as = ? WHERE id = ? AND `+isDeadLetter, string(by))
}

// drop marks it as one of which nothing comes.
func (d deadLetter) drop(now time.Time) error {
	return d.settle(`UPDATE entries SET dropped_at = ? WHERE id = ? AND `+isDeadLetter, now)
}

func (d deadLetter) settle(update string, value any) error {
	n, err := d.tx.change(update, value, string(d.id))
	if err != nil || n == 1 {
		return err
	}
	e, err := d.tx.standing(d.id)
	if err != nil {
		return err
	}
	return fmt.Errorf("job %s is %s, and no dead letter that waits for somebody: %w", d.id, e.state, queue.ErrIllegalTransition)
}
