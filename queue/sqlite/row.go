package sqlite

import (
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/queue"
)

// entryColumns are what entryRow.scan reads, of entries under the name e. The
// batch's id, the specification and the flow are look-ups by row number.
const entryColumns = `e.seq, e.id, (SELECT b.id FROM batches b WHERE b.seq = e.batch), (SELECT s.spec FROM specs s WHERE s.entry = e.seq), e.state, e.exit_kind,
	e.created_at, e.runnable_at, e.deadline, e.dispatched_at, e.completed_at, e.holder, e.fence, e.lease_until,
	e.choice, e.attempts, e.counted, e.spent, e.spent_time, e.session, e.session_worker, e.session_node, e.feedback,
	e.waiting, e.dead_letter, e.cancel_requested, e.key, e.waits_for, e.coalesced_with, e.superseded_by,
	e.error_class, e.requeued_from, e.requeued_as, e.dropped_at, e.held,
	e.continues, e.continued_as, e.folder, e.forked_from, coalesce((SELECT f.flow FROM flows f WHERE f.entry = e.seq), '')`

const (
	selectEntry = `SELECT ` + entryColumns + ` FROM entries e WHERE e.seq = ?`
	selectBatch = `SELECT ` + entryColumns + ` FROM entries e WHERE e.batch = (SELECT seq FROM batches WHERE id = ?) ORDER BY e.seq`
)

// entryRow is a row of entries.
type entryRow struct {
	queue.Entry
	seq               int64
	spec, spent, flow string // as they are stored, until decode
	decoded           bool
}

// scanEntry reads an entry.
func scanEntry(row scanner) (queue.Entry, error) {
	var r entryRow
	err := r.scan(row)
	if err == nil {
		err = r.decode()
	}
	return r.Entry, err
}

// scanRow reads an entry up to decode.
func scanRow(row scanner) (*entryRow, error) {
	r := &entryRow{}
	return r, r.scan(row)
}

// scan reads the columns; decode must follow before the entry is given away.
func (r *entryRow) scan(row scanner) error {
	e := &r.Entry
	return row.Scan(&r.seq, &e.ID, &e.Batch, &r.spec, &e.State, &e.ExitKind,
		&e.CreatedAt, &e.RunnableAt, &e.Deadline, &e.DispatchedAt, &e.CompletedAt, &e.Holder, &e.Fence, &e.LeaseUntil,
		&e.Choice, &e.Attempts, &e.Counted, &r.spent, &e.SpentTime, &e.Session, &e.SessionWorker, &e.SessionNode, &e.Feedback,
		&e.Waiting, &e.DeadLetter, &e.CancelRequested,
		&e.Key, &e.WaitsFor, &e.CoalescedWith, &e.SupersededBy,
		&e.ErrorClass, &e.RequeuedFrom, &e.RequeuedAs, &e.DroppedAt, &e.Held,
		&e.Continues, &e.ContinuedAs, &e.Folder, &e.ForkedFrom, &r.flow)
}

// decode reads the JSON columns. A walk over many candidates does it one by
// one, for those that it looks at.
func (r *entryRow) decode() error {
	if r.decoded {
		return nil
	}
	var f flow
	err := decode(r.spec, &r.Spec)
	if r.spec == "" {
		err = errors.New("its specification is not there")
	}
	if err == nil {
		err = decode(r.spent, &r.Spent)
	}
	if err == nil {
		err = decode(r.flow, &f)
	}
	if err != nil {
		return fmt.Errorf("job %s: %w: %w", r.ID, queue.ErrCorrupt, err)
	}
	f.of(&r.Entry)
	r.decoded = true
	return nil
}
