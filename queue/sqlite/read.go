package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// defaultLimit is how many rows a query without a limit returns.
const defaultLimit = 1000

// Get implements queue.Store.
func (s *Store) Get(ctx context.Context, id job.ID) (queue.Entry, error) {
	var row entryRow
	err := row.scan(s.reads.QueryRowContext(ctx, `SELECT `+entryColumns+` FROM entries e WHERE e.id = ?`, string(id)))
	if err == nil {
		err = row.decode()
	}
	if err != nil {
		return queue.Entry{}, fmt.Errorf("job %s: %w", id, readError(ctx, err))
	}
	return row.Entry, nil
}

// List implements queue.Store.
func (s *Store) List(ctx context.Context, f queue.Filter) ([]queue.Entry, int, error) {
	entries, total, err := s.list(ctx, f)
	if err != nil {
		return nil, 0, fmt.Errorf("list jobs: %w", readError(ctx, err))
	}
	return entries, total, nil
}

func (s *Store) list(ctx context.Context, f queue.Filter) (entries []queue.Entry, total int, err error) {
	// One transaction, so that the page and the total are of the same moment.
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	where, args := conditions(f)
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM entries e`+where, args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	order := ` ORDER BY e.seq LIMIT ? OFFSET ?`
	if f.Newest {
		order = ` ORDER BY e.seq DESC LIMIT ? OFFSET ?`
	}
	entries, err = scanEntries(tx.QueryContext(ctx, `SELECT `+entryColumns+` FROM entries e`+where+order, append(args, limitOf(f.Limit), max(0, f.Offset))...))
	return entries, total, err
}

// scanEntries reads the rows of a query for entryColumns.
func scanEntries(rows *sql.Rows, err error) (entries []queue.Entry, _ error) {
	if err != nil {
		return nil, err
	}
	err = eachRow(rows, func(rows *sql.Rows) error {
		var row entryRow
		if err := row.scan(rows); err != nil {
			return err
		}
		if err := row.decode(); err != nil {
			return err
		}
		entries = append(entries, row.Entry)
		return nil
	})
	return entries, err
}

// The small indexes over what is queued or dispatched, as a list of rows: what
// runs or waits is soon found among a million jobs that have ended.
const (
	allQueued = `SELECT seq FROM entries INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = ''
		UNION ALL SELECT seq FROM entries INDEXED BY entries_waiting WHERE waits_for <> ''`
	allDispatched = `SELECT seq FROM entries INDEXED BY entries_fence WHERE state = 'dispatched'`
	allSince      = `SELECT seq FROM entries INDEXED BY entries_ended WHERE completed_at IS NOT NULL AND completed_at >= ?`
)

// laterChoice is the worker of an entry's current choice, if that is not the first.
const laterChoice = `CASE WHEN e.choice > 0 THEN (SELECT s.spec ->> ('$.fallback[' || (e.choice - 1) || '].worker') FROM specs s WHERE s.entry = e.seq) END`

// unquoted returns text as it stands within a JSON string that encode has written.
func unquoted(text string) string {
	quoted, _ := json.Marshal(text) // of a string there is always one
	return string(quoted[1 : len(quoted)-1])
}

// asciiLower is SQLite's lower.
func asciiLower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

// runStates are the states of queue.Entry.RunState as SQL.
var runStates = map[job.RunState]string{
	job.Pending:         `e.state = 'queued' AND e.held <> 'approval' AND NOT ` + isCheckpointed,
	job.Checkpointed:    `e.state = 'queued' AND ` + isCheckpointed,
	job.WaitingApproval: `e.state = 'queued' AND e.held = 'approval'`,
	job.Running:         `e.state = 'dispatched'`,
	job.RunCompleted:    `e.state = 'completed' AND e.exit_kind = 'succeeded'`,
	job.RunFailed:       `e.state = 'expired' OR e.state = 'completed' AND e.exit_kind NOT IN ('succeeded', 'cancelled')`,
	job.RunCancelled:    `e.state = 'cancelled' OR e.state = 'completed' AND e.exit_kind = 'cancelled'`,
}

const isCheckpointed = `(e.held = '' AND (substr(e.waiting, 1, 14) = '` + queue.CheckpointedText + `' OR
	substr(e.waiting, 1, 12) = 'waiting for ' AND substr(e.waiting, instr(e.waiting, ': ') + 2, 14) = '` + queue.CheckpointedText + `'))`

// conditions returns f as SQL.
func conditions(f queue.Filter) (where string, args []any) {
	var terms []string
	add := func(term string, values ...any) {
		terms, args = append(terms, term), append(args, values...)
	}
	if f.Batch != "" {
		add(`e.batch = (SELECT seq FROM batches WHERE id = ?)`, string(f.Batch))
	}
	// Within a batch its own index is better than any of these.
	switch {
	case len(f.States) == 1 && f.States[0] == job.Queued && f.Batch == "":
		add(`e.seq IN (` + allQueued + `)`)
	case len(f.States) == 1 && f.States[0] == job.Dispatched && f.Batch == "":
		add(`e.seq IN (` + allDispatched + `)`)
	case len(f.States) > 0:
		values := make([]any, len(f.States))
		for i, state := range f.States {
			values[i] = string(state)
		}
		add(`e.state IN (?`+strings.Repeat(`, ?`, len(values)-1)+`)`, values...)
	}
	if f.Tenant != "" {
		add(`e.tenant = ?`, string(f.Tenant))
	}
	if f.Agent != "" {
		add(`e.agent = ?`, string(f.Agent))
	}
	switch {
	case !f.DeadLetters:
	case f.Batch == "":
		add(`e.seq IN (` + allDeadLetters + `)`)
	default:
		add(isDeadLetter)
	}
	if f.External {
		add(`e.pool IN (?, ?)`, externalPool, heldPool(externalPool))
	}
	if len(f.Held) > 0 {
		values := make([]any, len(f.Held))
		for i, held := range f.Held {
			values[i] = string(held)
		}
		in := `held <> '' AND held IN (?` + strings.Repeat(`, ?`, len(values)-1) + `)`
		if f.Batch == "" {
			in = `e.seq IN (SELECT seq FROM entries INDEXED BY entries_held WHERE ` + in + `)`
		}
		add(in, values...)
	}
	if len(f.Runs) > 0 {
		var states []string
		for _, run := range f.Runs {
			states = append(states, cmp.Or(runStates[run], `false`))
		}
		add(`(` + strings.Join(states, ` OR `) + `)`)
	}
	switch unfinished := `joined AND state IN ('queued', 'dispatched')`; {
	case !f.Joined:
	case f.Batch == "":
		add(`e.seq IN (SELECT seq FROM entries INDEXED BY entries_joined WHERE ` + unfinished + `)`)
	default:
		add(unfinished)
	}
	if f.ErrorClass != "" {
		add(`e.error_class = ?`, string(f.ErrorClass))
	}
	if f.Key != "" {
		line, of := `key <> '' AND state IN ('queued', 'dispatched')`, []any{f.Key}
		if f.Tenant != "" {
			line, of = line+` AND tenant = ?`, []any{string(f.Tenant), f.Key}
		}
		add(`e.seq IN (SELECT seq FROM entries INDEXED BY entries_line WHERE `+line+` AND key = ?)`, of...)
	}
	if f.Name != "" {
		add(`e.name = ?`, string(f.Name))
	}
	if f.Prefix != "" {
		add(`e.id >= ? AND e.id < ?`, f.Prefix, behind(f.Prefix))
	}
	if f.Suffix != "" {
		add(`substr(e.id, -length(?)) = ?`, f.Suffix, f.Suffix)
	}
	if f.Worker != "" {
		add(`(e.worker = ? OR `+laterChoice+` = ?)`, string(f.Worker), string(f.Worker))
	}
	if f.Search != "" {
		// Only where the text stands in a specification's JSON is it worth reading that.
		text, quoted := asciiLower(f.Search), asciiLower(unquoted(f.Search))
		add(`(instr(lower(e.name), ?) OR instr(lower(e.tenant), ?) OR instr(lower(e.worker), ?) OR instr(lower(coalesce(`+laterChoice+`, '')), ?)
			OR substr(lower(e.id), 1, length(?)) = ? OR length(?) >= 8 AND substr(lower(e.id), -length(?)) = ? OR (SELECT CASE WHEN instr(lower(s.spec), ?) THEN instr(lower(s.spec ->> '$.instructions'), ?) END
				FROM specs s WHERE s.entry = e.seq))`,
			text, text, text, text, text, text, text, text, text, quoted, text)
	}
	switch {
	case f.Since.IsZero():
	case f.Batch == "":
		add(`e.seq IN (`+allQueued+` UNION ALL `+allDispatched+` UNION ALL `+allSince+`)`, nanos(f.Since))
	default:
		add(`(e.completed_at IS NULL OR e.completed_at >= ?)`, nanos(f.Since))
	}
	if f.CoalescedWith != "" {
		add(`e.coalesced_with <> '' AND e.coalesced_with = ?`, string(f.CoalescedWith))
	}
	if f.SupersededBy != "" {
		add(`e.superseded_by <> '' AND e.superseded_by = ?`, string(f.SupersededBy))
	}
	if f.CancelRequested {
		add(`e.cancel_requested`)
	}
	if len(terms) == 0 {
		return "", nil
	}
	return ` WHERE ` + strings.Join(terms, ` AND `), args
}

// Attempts implements queue.Store.
func (s *Store) Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error) {
	attempts, err := s.attempts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("attempts of job %s: %w", id, readError(ctx, err))
	}
	return attempts, nil
}

func (s *Store) attempts(ctx context.Context, id job.ID) (attempts []job.Attempt, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var outcomes []string
	err = s.snapshot(func(t *tx) error { // a summary asks for those of every job
		const find = `SELECT seq, coalesced_with FROM entries WHERE id = ?`
		var entry int64
		var leader job.ID
		err := t.row(find, []any{string(id)}, &entry, &leader)
		if err == nil && leader != "" {
			id = leader
			err = t.row(find, []any{string(id)}, &entry, &leader)
		}
		if err != nil {
			return err
		}
		return t.rows(`SELECT number, fence, worker, model, state, session, started_at, ended_at, lost, outcome
			FROM attempts WHERE entry = ? ORDER BY number`, []any{entry}, func(row scanner) error {
			a := job.Attempt{Job: id}
			var started int64
			var ended sql.NullInt64
			var outcome string
			err := row.Scan(&a.Number, &a.Fence, &a.Choice.Worker, &a.Choice.Model, &a.State, &a.Session, &started, &ended, &a.Lost, &outcome)
			a.Started, a.Ended = moment(started), momentOrNil(ended)
			attempts, outcomes = append(attempts, a), append(outcomes, outcome)
			return err
		})
	})
	for i := range attempts {
		if err == nil && outcomes[i] != "" {
			attempts[i].Outcome = new(job.Outcome)
			err = decode(outcomes[i], attempts[i].Outcome)
		}
	}
	return attempts, err
}

// Events implements queue.Store. A limit below 1 means 1000.
func (s *Store) Events(ctx context.Context, id job.ID, after int64, limit int) ([]queue.StoredEvent, error) {
	events, err := s.events(ctx, id, after, limit)
	if err != nil {
		return nil, fmt.Errorf("events of job %s: %w", id, readError(ctx, err))
	}
	return events, nil
}

func (s *Store) events(ctx context.Context, id job.ID, after int64, limit int) (events []queue.StoredEvent, err error) {
	entry, _, err := s.entry(ctx, id)
	if err != nil {
		return nil, err
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT cursor, body FROM events INDEXED BY events_entry
		WHERE entry = ? AND cursor > ? ORDER BY cursor LIMIT ?`, entry, after, limitOf(limit))
	if err != nil {
		return nil, err
	}
	err = eachRow(rows, func(rows *sql.Rows) error {
		var e queue.StoredEvent
		var body string
		if err := rows.Scan(&e.Cursor, &body); err != nil {
			return err
		}
		err := decode(body, &e.Event)
		events = append(events, e)
		return err
	})
	return events, err
}

// Batches implements queue.Store.
func (s *Store) Batches(ctx context.Context, source string) ([]queue.Batch, error) {
	batches, err := s.batches(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("list batches: %w", readError(ctx, err))
	}
	return batches, nil
}

func (s *Store) batches(ctx context.Context, source string) (batches []queue.Batch, err error) {
	query, args := `SELECT id, source, digest, workflow, private, created_at, closed_at FROM batches`, []any(nil)
	if source != "" {
		query, args = query+` WHERE source = ?`, []any{source}
	}
	rows, err := s.reads.QueryContext(ctx, query+` ORDER BY seq DESC`, args...)
	if err != nil {
		return nil, err
	}
	err = eachRow(rows, func(rows *sql.Rows) error {
		var b queue.Batch
		var created int64
		var closed sql.NullInt64
		var workflow string
		if err := rows.Scan(&b.ID, &b.Source, &b.Digest, &workflow, &b.Private, &created, &closed); err != nil {
			return err
		}
		if err := decode(workflow, &b.Workflow); err != nil {
			return fmt.Errorf("batch %s: %w: %w", b.ID, queue.ErrCorrupt, err)
		}
		b.CreatedAt, b.ClosedAt = moment(created), momentOrNil(closed)
		batches = append(batches, b)
		return nil
	})
	return batches, err
}

// entry returns the row number of a job, and the job whose result it gets.
func (s *Store) entry(ctx context.Context, id job.ID) (seq int64, coalescedWith job.ID, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT seq, coalesced_with FROM entries WHERE id = ?`, string(id)).Scan(&seq, &coalescedWith)
	return seq, coalescedWith, err
}

func limitOf(n int) int {
	if n < 1 {
		return defaultLimit
	}
	return n
}

// readError says in the package's words why a read failed.
func readError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return queue.ErrNotFound
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return explain(err)
}
