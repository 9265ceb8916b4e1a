package sqlite

import (
	"database/sql"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// entryColumns are what entryRow.scan reads, of entries under the name e. The
// batch's id, the specification and the flow are look-ups by row number.
const entryColumns = `e.seq, e.id, (SELECT b.id FROM batches b WHERE b.seq = e.batch), (SELECT s.spec FROM specs s WHERE s.entry = e.seq), e.state, e.exit_kind,
	e.created_at, e.runnable_at, e.deadline, e.dispatched_at, e.completed_at, e.holder, e.fence, e.lease_until,
	e.choice, e.attempts, e.counted, e.spent, e.spent_time, e.session, e.session_worker, e.feedback,
	e.waiting, e.dead_letter, e.cancel_requested, e.key, e.waits_for, e.coalesced_with, e.superseded_by,
	e.error_class, e.requeued_from, e.requeued_as, e.dropped_at, e.held, coalesce((SELECT f.flow FROM flows f WHERE f.entry = e.seq), '')`

// entryRow is a row of entries.
type entryRow struct {
	queue.Entry
	seq               int64
	spec, spent, flow string // as they are stored, until decode
	decoded           bool
}

// scan reads the columns; decode must follow before the entry is given away.
func (r *entryRow) scan(rows interface{ Scan(...any) error }) error {
	var created, runnable, spentTime int64
	var deadline, dispatched, completed, lease, dropped sql.NullInt64
	e := &r.Entry
	err := rows.Scan(&r.seq, &e.ID, &e.Batch, &r.spec, &e.State, &e.ExitKind,
		&created, &runnable, &deadline, &dispatched, &completed, &e.Holder, &e.Fence, &lease,
		&e.Choice, &e.Attempts, &e.Counted, &r.spent, &spentTime, &e.Session, &e.SessionWorker, &e.Feedback,
		&e.Waiting, &e.DeadLetter, &e.CancelRequested,
		&e.Key, &e.WaitsFor, &e.CoalescedWith, &e.SupersededBy,
		&e.ErrorClass, &e.RequeuedFrom, &e.RequeuedAs, &dropped, &e.Held, &r.flow)
	if err != nil {
		return explain(err)
	}
	e.CreatedAt, e.RunnableAt = moment(created), moment(runnable)
	e.Deadline, e.DispatchedAt = momentOrNil(deadline), momentOrNil(dispatched)
	e.CompletedAt, e.LeaseUntil = momentOrNil(completed), momentOrNil(lease)
	e.DroppedAt = momentOrNil(dropped)
	e.SpentTime = job.Duration(spentTime)
	return nil
}

// decode reads the JSON columns. A walk over many candidates does it one by
// one, for those that it looks at.
func (r *entryRow) decode() error {
	if r.decoded {
		return nil
	}
	if err := decode(r.spec, &r.Spec); err != nil {
		return fmt.Errorf("job %s: %w: %w", r.ID, queue.ErrCorrupt, err)
	}
	if err := decode(r.spent, &r.Spent); err != nil {
		return fmt.Errorf("job %s: %w: %w", r.ID, queue.ErrCorrupt, err)
	}
	if r.flow != "" {
		var f flow
		if err := decode(r.flow, &f); err != nil {
			return fmt.Errorf("job %s: %w: %w", r.ID, queue.ErrCorrupt, err)
		}
		f.of(&r.Entry)
	}
	r.decoded = true
	return nil
}
