package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Salvaged is what could be read of a damaged store.
type Salvaged struct {
	Jobs int // that are in the new store
	// Lost are the jobs that an index names and that could not be read. There may
	// have been more.
	Lost []job.ID
	// Wrong is what Check still finds in the new store; nil if it is whole.
	Wrong error
}

// Salvage makes a new store at to, where there must be none, of what can still
// be read of the damaged one at from, row by row; that is only read. The error
// wraps queue.ErrCorrupt if nothing at all can be read.
func Salvage(ctx context.Context, from, to string, opts Options) (Salvaged, error) {
	s, err := salvage(ctx, from, to, opts)
	if err != nil {
		for _, suffix := range storeSuffixes() {
			os.Remove(to + suffix) //nolint:errcheck // what is left is of no use to anybody
		}
		return s, fmt.Errorf("salvage store %s: %w", from, err)
	}
	return s, nil
}

func salvage(ctx context.Context, from, to string, opts Options) (done Salvaged, err error) {
	list, err := embedded()
	if err != nil {
		return done, err
	}
	// Without the last of these SQLite refuses a file that was cut off.
	damaged, err := openDB(from, "ro", append(readPragmas(), "writable_schema(1)"))
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, damaged.close()) }()
	version, err := damaged.checkVersion(len(list))
	if err == nil && version == 0 {
		err = fmt.Errorf("%w: it is empty", queue.ErrCorrupt)
	}
	if err != nil {
		return done, err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return done, err
	}
	if err := f.Close(); err != nil {
		return done, err
	}
	// Without foreign keys, until everything is there.
	target, err := openDB(to, "rw", []string{"auto_vacuum(incremental)", waitFor(time.Second)})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, target.close()) }()
	// The rows are those of the damaged store's version; what is newer is made of
	// them by the migrations, as of every store.
	if err := migrate(ctx, target, list[:version], opts.Log); err != nil {
		return done, err
	}
	r := &rescue{ctx: ctx, from: damaged, to: &tx{db: target}}
	if err := r.run(); err != nil {
		return done, err
	}
	done.Jobs, done.Lost = r.jobs, r.lost
	if err := migrate(ctx, target, list, opts.Log); err != nil {
		return done, err
	}
	if err := r.fillLedger(); err != nil {
		return done, err
	}
	done.Wrong = target.check()
	return done, ctx.Err()
}

// rescue copies rows out of a damaged store.
type rescue struct {
	ctx  context.Context
	from *db
	to   *tx
	jobs int
	lost []job.ID
}

func (r *rescue) run() error {
	if err := r.to.control(`BEGIN`); err != nil {
		return err
	}
	tables, err := collect(r.to.db, scanText, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := r.table(table); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	if err := r.mend(); err != nil {
		return err
	}
	return r.to.control(`COMMIT`)
}

// maxMisses is how often in a row it is tried in vain to go on behind a place
// that cannot be read, before a table is taken to have ended. The steps grow, so
// that this is behind some 800,000 rows.
const maxMisses = 5000

// table copies what can be read of a table.
func (r *rescue) table(name string) error {
	columns, err := collect(r.to.db, scanText, `SELECT name FROM pragma_table_info(?)`, name)
	if err != nil {
		return err
	}
	key, err := collect(r.to.db, scanText, `SELECT i.name FROM pragma_table_list t, pragma_table_info(t.name) i
		WHERE t.schema = 'main' AND t.name = ? AND NOT t.wr AND i.pk = 1 AND i.type = 'INTEGER'`, name)
	if err != nil {
		return err
	}
	insert := `INSERT OR IGNORE INTO ` + name + ` (` + strings.Join(columns, ", ") + `) VALUES (?` + strings.Repeat(", ?", len(columns)-1) + `)`
	query := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + name
	first := true
	add := func(row []any) error {
		if first { // what a new store has in it
			first = false
			if err := r.to.exec(`DELETE FROM ` + name); err != nil {
				return err
			}
		}
		return r.to.exec(insert, row...)
	}
	if len(key) == 0 {
		return r.copy(query, nil, add, new(bool))
	}
	at := slices.Index(columns, key[0])
	last, misses := int64(0), 0
	for whole := false; !whole && misses < maxMisses; {
		before := last
		err := r.copy(query+` WHERE `+key[0]+` > ? ORDER BY `+key[0], []any{last}, func(row []any) error {
			last, _ = row[at].(int64)
			return add(row)
		}, &whole)
		if err != nil {
			return err
		}
		if misses++; last > before {
			misses = 0
		}
		last += 1 + int64(misses/16) // over what cannot be read
	}
	return nil
}

// copy calls put for each row of the damaged store's answer, as long as it can
// be read; whole says whether it was read to its end.
func (r *rescue) copy(query string, args []any, put func([]any) error, whole *bool) error {
	if r.ctx.Err() != nil {
		return contextError(r.ctx)
	}
	var failed error
	err := r.from.rows(query, args, func(damaged scanner) error {
		row := make([]any, r.from.stmts[query].columns)
		dest := make([]any, len(row))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := damaged.Scan(dest...); err != nil {
			return err
		}
		failed = put(row)
		return failed
	})
	*whole = err == nil
	return failed
}

// mend removes what points to rows that are lost, and gives a batch to the jobs
// whose own is.
func (r *rescue) mend() error {
	version, _, err := r.to.number(`PRAGMA user_version`)
	if err != nil {
		return err
	}
	spec := `spec`
	if version >= 3 {
		spec = `coalesce((SELECT spec FROM specs WHERE entry = seq), '')`
	}
	script := []string{
		`DELETE FROM entries WHERE NOT json_valid(` + spec + `) OR id = '' OR state NOT IN ('queued', 'dispatched', 'completed', 'expired', 'cancelled')`,
		`UPDATE entries SET completed_at = CASE WHEN state IN ('queued', 'dispatched') THEN NULL ELSE coalesce(completed_at, dispatched_at, created_at) END
			WHERE (state IN ('queued', 'dispatched')) = (completed_at IS NOT NULL)`,
		`INSERT INTO batches (seq, id, source, digest, created_at)
			SELECT DISTINCT batch, 'recovered-' || batch, 'recovered', '', 0 FROM entries WHERE batch NOT IN (SELECT seq FROM batches)`,
		`DELETE FROM attempts WHERE entry NOT IN (SELECT seq FROM entries) OR outcome <> '' AND NOT json_valid(outcome)`,
		`DELETE FROM attempts WHERE ended_at IS NULL AND entry NOT IN (SELECT seq FROM entries WHERE state = 'dispatched')`,
		`DELETE FROM attempts WHERE ended_at IS NULL AND number < (SELECT max(number) FROM attempts l WHERE l.entry = attempts.entry)`,
		`DELETE FROM events WHERE entry NOT IN (SELECT seq FROM entries) OR NOT json_valid(body)`,
		`UPDATE entries SET attempts = coalesce((SELECT max(number) FROM attempts WHERE entry = entries.seq), 0)`,
		`INSERT INTO fence (last) SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM fence)`,
		`UPDATE fence SET last = max(last, coalesce((SELECT max(fence) FROM entries), 0), coalesce((SELECT max(fence) FROM attempts), 0))`,
	}
	if version >= 2 {
		script = append(script,
			// Who waits for one that is lost comes next; who was to get its result has none to get.
			`UPDATE entries SET waits_for = '', waiting = '' WHERE waits_for <> '' AND NOT EXISTS
				(SELECT 1 FROM entries w WHERE w.id = entries.waits_for AND w.tenant = entries.tenant AND w.key = entries.key AND w.state IN ('queued', 'dispatched'))`,
			`UPDATE entries SET key = '' WHERE key <> '' AND state = 'dispatched' AND EXISTS
				(SELECT 1 FROM entries o WHERE o.tenant = entries.tenant AND o.key = entries.key AND o.state = 'dispatched' AND o.seq < entries.seq)`,
			`UPDATE entries SET coalesced_with = '' WHERE coalesced_with <> '' AND coalesced_with NOT IN (SELECT id FROM entries)`)
	}
	if version >= 3 {
		script = append(script, `DELETE FROM specs WHERE entry NOT IN (SELECT seq FROM entries)`)
	}
	if version >= 4 {
		script = append(script, `UPDATE entries SET requeued_as = '' WHERE requeued_as <> '' AND requeued_as NOT IN (SELECT id FROM entries)`)
	}
	if version >= 5 {
		script = append(script, mendWorkflows()...)
	}
	if version >= 10 {
		script = append(script, `UPDATE entries SET continued_as = '' WHERE continued_as <> '' AND continued_as NOT IN (SELECT id FROM entries)`)
	}
	for _, statement := range script {
		if err := r.to.exec(statement); err != nil {
			return err
		}
	}
	there, err := collect(r.to.db, scanText, `SELECT id FROM entries`)
	if err != nil {
		return err
	}
	r.jobs = len(there)
	known := map[string]bool{}
	for _, id := range there {
		known[id] = true
	}
	return r.copy(`SELECT id FROM entries INDEXED BY sqlite_autoindex_entries_1`, nil, func(row []any) error {
		if id, ok := row[0].(string); ok && !known[id] {
			r.lost = append(r.lost, job.ID(id))
		}
		return nil
	}, new(bool))
}

// mendWorkflows returns what mends what version 5 has brought.
func mendWorkflows() []string {
	return []string{
		`UPDATE batches SET workflow = '' WHERE workflow <> '' AND NOT json_valid(workflow)`,
		`DELETE FROM records WHERE NOT json_valid(value)`,
		`DELETE FROM flows WHERE entry NOT IN (SELECT seq FROM entries) OR NOT json_valid(flow)`,
		`UPDATE entries SET held = '' WHERE held <> '' AND state <> 'queued'`,
		`UPDATE entries SET held = 'needs' WHERE held NOT IN ('', 'needs', 'parts', 'approval', 'team', 'words', 'person')`,
		// Where the question to a person is lost, or what it was about, the job is run again.
		`UPDATE entries SET held = '' WHERE held = 'approval' AND NOT (
			EXISTS (SELECT 1 FROM attempts WHERE entry = seq AND number = attempts AND state = 'waiting_approval' AND outcome <> '')
			AND EXISTS (SELECT 1 FROM flows WHERE entry = seq AND flow ->> '$.approval.attempt' = attempts))`,
		`UPDATE attempts SET state = 'failed' WHERE state = 'waiting_approval' AND ended_at IS NOT NULL
			AND NOT EXISTS (SELECT 1 FROM entries WHERE seq = entry AND held = 'approval' AND attempts = number)`,
		// With which words a job is run that refers to others is found out again.
		`UPDATE entries SET held = 'needs' WHERE held = '' AND state = 'queued' AND joined AND seq NOT IN (SELECT entry FROM flows)
			AND EXISTS (SELECT 1 FROM specs WHERE entry = seq AND coalesce(spec ->> '$.flow.needs', spec ->> '$.flow.if',
				spec ->> '$.flow.input', spec ->> '$.flow.for_each', spec ->> '$.flow.loop', spec ->> '$.flow.node') IS NOT NULL)`,
		`UPDATE entries SET pool = -3 - pool WHERE (held <> '') <> (pool < -1)`,
	}
}

// fillLedger makes the ledger anew from the attempts, as when there was none,
// if it is not whole.
func (r *rescue) fillLedger() error {
	lacks, _, err := r.to.number(`SELECT (SELECT coalesce(sum(attempts), 0) FROM ledger) < (SELECT count(*) FROM attempts WHERE ended_at IS NOT NULL)`)
	if err != nil || lacks == 0 {
		return err
	}
	text, err := migrations.ReadFile("migrations/0004_accounts.sql")
	if err != nil {
		return err
	}
	_, fill, _ := strings.Cut(string(text), "\nINSERT INTO ledger")
	fill, _, _ = strings.Cut(fill, ";")
	return explain(r.to.conn.exec(`DELETE FROM ledger; INSERT INTO ledger` + fill))
}
