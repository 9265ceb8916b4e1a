package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// copied is what a copy is of when it has all up to a revision.
func (d *Database) copied(revision int64) sqlite.Copied {
	return sqlite.Copied{Truth: d.id, Revision: revision, Boot: bootID()}
}

// bootID names the time since this host was started; "" where nobody knows. What was
// written before that without waiting for the disk may be torn.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// load has a copy that follows hold what the database holds at one moment, and returns
// up to which revision that goes.
func (d *Database) load(ctx context.Context, into *sqlite.Store) (revision int64, err error) {
	var cursor int64
	err = d.snapshot(ctx, func(tx pgx.Tx, tables []*table) error {
		if err := tx.QueryRow(ctx, `SELECT revision, cursor FROM changes ORDER BY revision DESC LIMIT 1`).Scan(&revision, &cursor); err != nil {
			return err
		}
		return into.Reload(ctx, d.copied(revision), cursor, func(put sqlite.Filler) error {
			for _, t := range tables {
				if err := readTable(ctx, tx, t, put); err != nil {
					return fmt.Errorf("read table %s: %w", t.Name, err)
				}
			}
			return nil
		})
	})
	return revision, err
}

// snapshot has read look at the database as it is at one moment; tables are the
// queue's, in the version that they have there.
func (d *Database) snapshot(ctx context.Context, read func(pgx.Tx, []*table) error) error {
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var version int
		if err := tx.QueryRow(ctx, `SELECT version FROM meta`).Scan(&version); err != nil {
			return err
		}
		byName, err := tablesOf(ctx, version)
		if err != nil {
			return err
		}
		tables := make([]*table, len(byName))
		for _, t := range byName {
			tables[t.number] = t
		}
		return read(tx, tables)
	})
}

// readTable puts each row of a table.
func readTable(ctx context.Context, tx pgx.Tx, t *table, put sqlite.Filler) error {
	rows, err := tx.Query(ctx, `SELECT `+names(t)+` FROM `+t.Name)
	if err != nil {
		return err
	}
	defer rows.Close()
	texts, numbers, floats := make([]*string, len(t.Columns)), make([]*int64, len(t.Columns)), make([]*float64, len(t.Columns))
	into, values := make([]any, len(t.Columns)), make([]any, len(t.Columns))
	for i, c := range t.Columns {
		switch typeOf(c) {
		case "bigint":
			into[i] = &numbers[i]
		case "text":
			into[i] = &texts[i]
		default:
			into[i] = &floats[i]
		}
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i := range values {
			switch {
			case numbers[i] != nil:
				values[i] = *numbers[i]
			case floats[i] != nil:
				values[i] = *floats[i]
			case texts[i] != nil:
				if values[i], err = textIn(*texts[i]); err != nil {
					return err
				}
			default:
				values[i] = nil
			}
		}
		if err := put(t.Table, values); err != nil {
			return err
		}
	}
	return rows.Err()
}

// names returns the names of a table's columns as a statement has them.
func names(t *table) string {
	var list []string
	for _, c := range t.Columns {
		list = append(list, `"`+c.Name+`"`)
	}
	return strings.Join(list, ", ")
}

// rewrite has the database hold what a copy holds, with the tables of its version, in
// the name of a leader's epoch; from has those of the version before.
func (d *Database) rewrite(ctx context.Context, copied *sqlite.Store, version int, epoch int64) (revision int64, err error) {
	byName, err := tablesOf(ctx, version)
	if err != nil {
		return 0, err
	}
	cursor, err := copied.EventCursor(ctx)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		var before int
		if err := tx.QueryRow(ctx, `SELECT version FROM meta FOR UPDATE`).Scan(&before); err != nil {
			return err
		}
		old, err := tablesOf(ctx, before)
		if err != nil {
			return err
		}
		for _, t := range old {
			if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS `+t.Name); err != nil {
				return err
			}
		}
		for _, t := range byName {
			if _, err := tx.Exec(ctx, t.create()); err != nil {
				return err
			}
			if err := writeTable(ctx, tx, t, copied); err != nil {
				return fmt.Errorf("write table %s: %w", t.Name, err)
			}
		}
		if _, err := tx.Exec(ctx, `UPDATE meta SET version = $1`, version); err != nil {
			return err
		}
		// NOT NULL refuses it where another scheduler leads by now.
		return tx.QueryRow(ctx, `INSERT INTO changes (revision, epoch, cursor)
			SELECT max(revision) + 1, (SELECT epoch FROM leader WHERE epoch = $1 FOR KEY SHARE), $2 FROM changes RETURNING revision`, epoch, cursor).Scan(&revision)
	})
	if code(err) == notNull {
		err = fmt.Errorf("epoch %d: %w", epoch, queue.ErrDeposed)
	}
	return revision, err
}

// notNull is the SQLSTATE with which a commit of a deposed leader is refused.
const notNull = "23502"

// writeTable fills an empty table with what a copy has in it.
func writeTable(ctx context.Context, tx pgx.Tx, t *table, from *sqlite.Store) error {
	var columns []string
	for _, c := range t.Columns {
		columns = append(columns, c.Name)
	}
	rows, failed := make(chan []any, 256), make(chan error, 1)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(rows)
		failed <- from.Rows(reading, t.Table, func(values []any) error {
			row := slices.Clone(values)
			for i, v := range row {
				if s, ok := v.(string); ok {
					row[i] = textOut(s)
				} else if n, ok := v.(int64); ok && typeOf(t.Columns[i]) == "double precision" {
					row[i] = float64(n)
				}
			}
			select {
			case rows <- row:
				return nil
			case <-reading.Done():
				return context.Cause(reading)
			}
		})
	}()
	_, err := tx.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		row, ok := <-rows
		if !ok {
			return nil, nil
		}
		return row, nil
	}))
	stop()
	for range rows { //nolint:revive // the reader ends
	}
	if read := <-failed; err == nil { // then it was not stopped
		err = read
	}
	return err
}
