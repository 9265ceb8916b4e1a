package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// defaultLimit is how many rows a query without a limit returns.
const defaultLimit = 1000

// Get implements queue.Store.
func (s *Store) Get(ctx context.Context, id job.ID) (queue.Entry, error) {
	return read(ctx, s, "job "+string(id), func(d *db) (queue.Entry, error) {
		found, err := collect(d, scanEntry, `SELECT `+entryColumns+` FROM entries e WHERE e.id = ?`, string(id))
		if err == nil && len(found) == 0 {
			err = queue.ErrNotFound
		}
		if err != nil {
			return queue.Entry{}, err
		}
		return found[0], nil
	})
}

// List implements queue.Store.
func (s *Store) List(ctx context.Context, f queue.Filter) (entries []queue.Entry, total int, err error) {
	entries, err = read(ctx, s, "list jobs", func(d *db) ([]queue.Entry, error) {
		where, args := conditions(f)
		if _, err := d.row(`SELECT count(*) FROM entries e`+where, args, &total); err != nil {
			return nil, err
		}
		order := ` ORDER BY e.seq LIMIT ? OFFSET ?`
		if f.Newest {
			order = ` ORDER BY e.seq DESC LIMIT ? OFFSET ?`
		}
		return collect(d, scanEntry, `SELECT `+entryColumns+` FROM entries e`+where+order, append(args, limitOf(f.Limit), max(0, f.Offset))...)
	})
	if err != nil {
		return nil, 0, err
	}
	return entries, total, nil
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
const laterChoice = `CASE WHEN e.choice > 0 THEN (SELECT s.spec -> 'fallback' -> (e.choice - 1) ->> 'worker' FROM specs s WHERE s.entry = e.seq) END`

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
	job.WaitingApproval: `(e.state = 'queued' AND e.held = 'approval' OR e.state = 'dispatched' AND ` + isAsking + `)`,
	job.Running:         `e.state = 'dispatched' AND NOT ` + isAsking,
	job.RunCompleted:    `e.state = 'completed' AND e.exit_kind = 'succeeded'`,
	job.RunFailed:       `e.state = 'expired' OR e.state = 'completed' AND e.exit_kind NOT IN ('succeeded', 'cancelled')`,
	job.RunCancelled:    `e.state = 'cancelled' OR e.state = 'completed' AND e.exit_kind = 'cancelled'`,
}

const isCheckpointed = `(e.held = '' AND (substr(e.waiting, 1, 14) = '` + queue.CheckpointedText + `' OR
	substr(e.waiting, 1, 12) = 'waiting for ' AND substr(e.waiting, instr(e.waiting, ': ') + 2, 14) = '` + queue.CheckpointedText + `'))`

const isAsking = `(e.waiting = 'waiting for approval' OR substr(e.waiting, 1, 22) = 'waiting for approval: ')`

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
		add(`substr(e.id, length(e.id) - length(?) + 1) = ?`, f.Suffix, f.Suffix)
	}
	if f.Worker != "" {
		add(`(e.worker = ? OR `+laterChoice+` = ?)`, string(f.Worker), string(f.Worker))
	}
	if f.Search != "" {
		// Only where the text stands in a specification's JSON is it worth reading that.
		text, quoted := asciiLower(f.Search), asciiLower(unquoted(f.Search))
		add(`(instr(lower(e.name), ?) > 0 OR instr(lower(e.tenant), ?) > 0 OR instr(lower(e.worker), ?) > 0 OR instr(lower(coalesce(`+laterChoice+`, '')), ?) > 0
			OR substr(lower(e.id), 1, length(?)) = ? OR length(?) >= 8 AND substr(lower(e.id), length(e.id) - length(?) + 1) = ? OR (SELECT CASE WHEN instr(lower(s.spec), ?) > 0 THEN instr(lower(s.spec ->> 'instructions'), ?) > 0 END
				FROM specs s WHERE s.entry = e.seq))`,
			text, text, text, text, text, text, text, text, text, quoted, text)
	}
	switch {
	case f.Since.IsZero():
	case f.Batch == "":
		add(`e.seq IN (`+allQueued+` UNION ALL `+allDispatched+` UNION ALL `+allSince+`)`, f.Since)
	default:
		add(`(e.completed_at IS NULL OR e.completed_at >= ?)`, f.Since)
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
	return read(ctx, s, "attempts of job "+string(id), func(d *db) ([]job.Attempt, error) {
		entry, leader, err := d.entry(id)
		if err == nil && leader != "" {
			id = leader
			entry, _, err = d.entry(id)
		}
		if err != nil {
			return nil, err
		}
		return collect(d, func(row scanner) (job.Attempt, error) {
			a := job.Attempt{Job: id}
			var outcome string
			err := row.Scan(&a.Number, &a.Fence, &a.Choice.Worker, &a.Choice.Model, &a.State, &a.Node, &a.Session, &a.Started, &a.Ended, &a.Lost, &outcome)
			if err != nil || outcome == "" {
				return a, err
			}
			a.Outcome = new(job.Outcome)
			return a, decode(outcome, a.Outcome)
		}, `SELECT number, fence, worker, model, state, node, session, started_at, ended_at, lost, outcome
			FROM attempts WHERE entry = ? ORDER BY number`, entry)
	})
}

// Events implements queue.Store. A limit below 1 means 1000.
func (s *Store) Events(ctx context.Context, id job.ID, after int64, limit int) ([]queue.StoredEvent, error) {
	return s.events(ctx, id, ` AND cursor > ? ORDER BY cursor LIMIT ?`, after, limitOf(limit))
}

// LastEvents implements queue.Store.
func (s *Store) LastEvents(ctx context.Context, id job.ID, n int) ([]queue.StoredEvent, error) {
	list, err := s.events(ctx, id, ` ORDER BY cursor DESC LIMIT ?`, n)
	slices.Reverse(list)
	return list, err
}

// events reads events of a job.
func (s *Store) events(ctx context.Context, id job.ID, which string, args ...any) ([]queue.StoredEvent, error) {
	return read(ctx, s, "events of job "+string(id), func(d *db) ([]queue.StoredEvent, error) {
		entry, _, err := d.entry(id)
		if err != nil {
			return nil, err
		}
		return collect(d, func(row scanner) (e queue.StoredEvent, err error) {
			var body string
			if err = row.Scan(&e.Cursor, &body); err == nil {
				err = decode(body, &e.Event)
			}
			return e, err
		}, `SELECT cursor, body FROM events INDEXED BY events_entry WHERE entry = ?`+which, append([]any{entry}, args...)...)
	})
}

// Batches implements queue.Store.
func (s *Store) Batches(ctx context.Context, source string) ([]queue.Batch, error) {
	where, args := ``, []any(nil)
	if source != "" {
		where, args = ` WHERE source = ?`, []any{source}
	}
	return read(ctx, s, "list batches", func(d *db) ([]queue.Batch, error) {
		return collect(d, scanBatch, `SELECT id, source, digest, workflow, private, created_at, closed_at FROM batches`+where+` ORDER BY seq DESC`, args...)
	})
}

func scanBatch(row scanner) (b queue.Batch, err error) {
	var workflow string
	if err := row.Scan(&b.ID, &b.Source, &b.Digest, &workflow, &b.Private, &b.CreatedAt, &b.ClosedAt); err != nil {
		return b, err
	}
	if err := decode(workflow, &b.Workflow); err != nil {
		return b, fmt.Errorf("batch %s: %w: %w", b.ID, queue.ErrCorrupt, err)
	}
	return b, nil
}

// entry returns the row number of a job, and the job whose result it gets.
func (d *db) entry(id job.ID) (seq int64, coalescedWith job.ID, err error) {
	found, err := d.row(`SELECT seq, coalesced_with FROM entries WHERE id = ?`, []any{string(id)}, &seq, &coalescedWith)
	if err == nil && !found {
		err = queue.ErrNotFound
	}
	return seq, coalescedWith, err
}

func limitOf(n int) int {
	if n < 1 {
		return defaultLimit
	}
	return n
}
