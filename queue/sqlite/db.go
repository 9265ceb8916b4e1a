package sqlite

import (
	"errors"
	"fmt"
)

// db is a connection with its statements, which are prepared at their first use. It is
// for one goroutine at a time.
type db struct {
	conn  *conn
	stmts map[string]*stmt
}

// maxStmts is how many statements are kept: more than the package has, so that only
// those that are put together for a filter come and go.
const maxStmts = 128

// openDB opens an existing file; mode is SQLite's: "ro", "rw".
func openDB(path, mode string, pragmas []string) (*db, error) {
	c, err := connect(dsn(path, mode), pragmas)
	if err != nil {
		return nil, explain(err)
	}
	return &db{c, map[string]*stmt{}}, nil
}

// beginWrite begins a transaction that writes.
func (d *db) beginWrite() error { return d.control("BEGIN IMMEDIATE") }

// control executes a statement that begins or ends something.
func (d *db) control(query string) error {
	s, err := d.prepare(query)
	if err != nil {
		return err
	}
	if _, err := s.exec(nil); err != nil {
		return fmt.Errorf("%s: %w", query, explain(err))
	}
	return nil
}

// row scans the first row into dest, if there is one.
func (d *db) row(query string, args []any, dest ...any) (found bool, err error) {
	err = d.rows(query, args, func(row scanner) error {
		if found {
			return nil
		}
		found = true
		return row.Scan(dest...)
	})
	return found && err == nil, err
}

// number returns what a query for at most one integer found.
func (d *db) number(query string, args ...any) (n int64, found bool, err error) {
	found, err = d.row(query, args, &n)
	return n, found, err
}

// rows calls scan for each row.
func (d *db) rows(query string, args []any, scan func(scanner) error) error {
	s, err := d.prepare(query)
	if err != nil {
		return err
	}
	return explain(s.query(args, scan))
}

// dataVersion returns a number that changes when another connection writes to the file.
func (d *db) dataVersion() (int64, error) {
	n, _, err := d.number(`PRAGMA data_version`)
	return n, err
}

// collect returns what scan makes of each row.
func collect[T any](d *db, scan func(scanner) (T, error), query string, args ...any) (found []T, err error) {
	err = d.rows(query, args, func(row scanner) error {
		one, err := scan(row)
		found = append(found, one)
		return err
	})
	return found, err
}

func (d *db) prepare(query string) (*stmt, error) {
	if s := d.stmts[query]; s != nil {
		return s, nil
	}
	if len(d.stmts) >= maxStmts {
		for text, s := range d.stmts {
			if s.busy {
				continue
			}
			if err := s.close(); err != nil {
				return nil, explain(err)
			}
			delete(d.stmts, text)
		}
	}
	s, err := d.conn.prepare(query)
	if err != nil {
		return nil, explain(err)
	}
	d.stmts[query] = s
	return s, nil
}

// close gives up the statements and the connection.
func (d *db) close() error {
	var errs []error
	for _, s := range d.stmts {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, d.conn.close())...)
}
