package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// tx is what a request works with: the writer's connection inside its
// transaction, and its statements, prepared at their first use.
type tx struct {
	conn      *sql.Conn
	stmts     map[string]*sql.Stmt
	changed   bool // the request under way has changed something
	protected bool // and has a savepoint, see protect
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
// statement that fails has changed nothing.
func (t *tx) change(query string, args ...any) (int64, error) {
	s, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := s.Exec(args...)
	if err != nil {
		return 0, explain(err)
	}
	t.changed = true
	n, err := res.RowsAffected()
	return n, explain(err)
}

// returning executes a statement that changes one row and scans what it returns.
func (t *tx) returning(query string, args []any, dest ...any) error {
	t.changed = true
	return t.row(query, args, dest...)
}

// control executes a statement that begins or ends something.
func (t *tx) control(query string) error {
	s, err := t.prepare(query)
	if err != nil {
		return err
	}
	if _, err := s.Exec(); err != nil {
		return fmt.Errorf("%s: %w", query, explain(err))
	}
	return nil
}

// row scans the first row into dest; sql.ErrNoRows if there is none.
func (t *tx) row(query string, args []any, dest ...any) error {
	s, err := t.prepare(query)
	if err != nil {
		return err
	}
	return explain(s.QueryRow(args...).Scan(dest...))
}

// rows calls scan for each row.
func (t *tx) rows(query string, args []any, scan func(*sql.Rows) error) error {
	s, err := t.prepare(query)
	if err != nil {
		return err
	}
	rows, err := s.Query(args...)
	if err != nil {
		return explain(err)
	}
	return eachRow(rows, scan)
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

func (t *tx) prepare(query string) (*sql.Stmt, error) {
	if s := t.stmts[query]; s != nil {
		return s, nil
	}
	s, err := t.conn.PrepareContext(context.Background(), query)
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
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, t.conn.Close())...)
}
