package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/queue"
)

// tx is what a request works with: the writer's connection inside its
// transaction, and its statements, prepared at their first use. A reader has one,
// too.
type tx struct {
	conn      *conn
	stmts     map[string]*stmt
	version   int64 // of the file, which changes when another connection writes
	epoch     int64 // of this writer, see takeOver
	changed   bool  // the request under way has changed something
	protected bool  // and has a savepoint, see protect
	touched   touched
	changes   changes
	accounts  accounts
	batches   batches
	credits   credits
	room      room
}

func newTx(c *conn) *tx {
	t := &tx{conn: c, stmts: map[string]*stmt{}}
	t.accounts.tx, t.batches.tx, t.credits.tx, t.room.tx = t, t, t, t
	return t
}

// takeOver raises the epoch in the file, which deposes the writer before.
func (t *tx) takeOver() error {
	if err := t.control("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := t.exec(`UPDATE fence SET epoch = epoch + 1`)
	if err == nil {
		err = t.row(`SELECT epoch FROM fence`, nil, &t.epoch)
	}
	if err == nil {
		err = t.look()
	}
	if err != nil {
		return errors.Join(err, t.control("ROLLBACK"))
	}
	return t.control("COMMIT")
}

// look must be called when a transaction has begun: nobody else has opened the
// store for writing unless another connection has written to the file.
func (t *tx) look() error {
	var version, epoch int64
	if err := t.row(`PRAGMA data_version`, nil, &version); err != nil || version == t.version {
		return err
	}
	if err := t.row(`SELECT epoch FROM fence`, nil, &epoch); err != nil {
		return err
	}
	if epoch != t.epoch {
		return fmt.Errorf("its epoch is %d and this writer's is %d: %w", epoch, t.epoch, queue.ErrDeposed)
	}
	t.version = version
	t.batches.forget() // somebody has written who opened no store
	t.changes.forget()
	return nil
}

// protect must be called before the first change of a request that may find,
// after a change, that it has to fail. It may be called again.
func (t *tx) protect() error {
	if t.protected {
		return nil
	}
	if err := t.control("SAVEPOINT caller"); err != nil {
		return err
	}
	t.protected = true
	return nil
}

// exec executes a statement that changes rows.
func (t *tx) exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change executes a statement and returns how many rows it changed. A
// statement that fails has changed nothing. None should have a RETURNING, for
// which SQLite makes a table each time: a look before or after costs less.
func (t *tx) change(query string, args ...any) (int64, error) {
	s, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	n, err := s.exec(args)
	if err != nil {
		return 0, explain(err)
	}
	t.changed = true
	return n, nil
}

// control executes a statement that begins or ends something.
func (t *tx) control(query string) error {
	s, err := t.prepare(query)
	if err != nil {
		return err
	}
	if _, err := s.exec(nil); err != nil {
		return fmt.Errorf("%s: %w", query, explain(err))
	}
	return nil
}

// row scans the first row into dest; sql.ErrNoRows if there is none.
func (t *tx) row(query string, args []any, dest ...any) error {
	found := false
	err := t.rows(query, args, func(row scanner) error {
		if found {
			return nil
		}
		found = true
		return row.Scan(dest...)
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// rows calls scan for each row.
func (t *tx) rows(query string, args []any, scan func(scanner) error) error {
	s, err := t.prepare(query)
	if err != nil {
		return err
	}
	return explain(s.query(args, scan))
}

// eachRow calls scan for each row and closes rows.
func eachRow(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return explain(rows.Err())
}

func (t *tx) prepare(query string) (*stmt, error) {
	if s := t.stmts[query]; s != nil {
		return s, nil
	}
	s, err := t.conn.prepare(query)
	if err != nil {
		return nil, explain(err)
	}
	t.stmts[query] = s
	return s, nil
}

// close gives up the statements and the connection.
func (t *tx) close() error {
	var errs []error
	for _, s := range t.stmts {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, t.conn.close())...)
}
