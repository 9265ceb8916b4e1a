package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// stmt is a prepared statement of a conn. It must not be executed while it is
// being read from.
type stmt struct {
	c       *conn
	handle  uintptr
	takes   int // arguments
	columns int
	// texts holds the text arguments of the execution under way, size bytes of
	// SQLite's memory: they are bound as they lie there.
	texts uintptr
	size  int
	busy  bool
}

// scanner is a row that can be read: one of stmt, or of database/sql.
type scanner interface{ Scan(dest ...any) error }

func (c *conn) prepare(query string) (*stmt, error) {
	text, err := libc.CString(query)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, text)
	if rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(query)+1), sqlite3.SQLITE_PREPARE_PERSISTENT, c.out, 0); rc != sqlite3.SQLITE_OK {
		return nil, c.fault(rc)
	}
	s := &stmt{c: c, handle: *(*uintptr)(memory(c.out))}
	s.takes = int(sqlite3.Xsqlite3_bind_parameter_count(c.tls, s.handle))
	s.columns = int(sqlite3.Xsqlite3_column_count(c.tls, s.handle))
	return s, nil
}

// exec executes the statement to its end and returns how many rows it changed.
func (s *stmt) exec(args []any) (int64, error) {
	if err := s.query(args, nil); err != nil {
		return 0, err
	}
	return sqlite3.Xsqlite3_changes64(s.c.tls, s.c.db), nil
}

// query executes the statement and calls scan, if there is one, for each row,
// until it returns an error.
func (s *stmt) query(args []any, scan func(scanner) error) error {
	if s.busy {
		return fmt.Errorf("a statement is executed while it is being read from")
	}
	if err := s.bind(args); err != nil {
		return err
	}
	s.busy = true
	defer func() {
		s.busy = false
		// Its result repeats the error of the last step.
		sqlite3.Xsqlite3_reset(s.c.tls, s.handle)
	}()
	for {
		switch rc := sqlite3.Xsqlite3_step(s.c.tls, s.handle); rc {
		case sqlite3.SQLITE_DONE:
			return nil
		case sqlite3.SQLITE_ROW:
			if scan == nil {
				continue
			}
			if err := scan(s); err != nil {
				return err
			}
		default:
			return s.c.fault(rc)
		}
	}
}

// bind gives the statement its arguments, all of them.
func (s *stmt) bind(args []any) error {
	if len(args) != s.takes {
		return fmt.Errorf("%d arguments for a statement that takes %d", len(args), s.takes)
	}
	if err := s.makeRoom(args); err != nil {
		return err
	}
	used := 0
	for i, a := range args {
		var rc int32
		tls, n := s.c.tls, int32(i+1)
		switch v := a.(type) {
		case nil:
			rc = sqlite3.Xsqlite3_bind_null(tls, s.handle, n)
		case int64:
			rc = sqlite3.Xsqlite3_bind_int64(tls, s.handle, n, v)
		case int:
			rc = sqlite3.Xsqlite3_bind_int64(tls, s.handle, n, int64(v))
		case bool:
			var one int64
			if v {
				one = 1
			}
			rc = sqlite3.Xsqlite3_bind_int64(tls, s.handle, n, one)
		case float64:
			rc = sqlite3.Xsqlite3_bind_double(tls, s.handle, n, v)
		case string:
			copy(unsafe.Slice((*byte)(memory(s.texts)), s.size)[used:], v)
			rc = sqlite3.Xsqlite3_bind_text(tls, s.handle, n, s.texts+uintptr(used), int32(len(v)), sqlite3.SQLITE_STATIC)
			used += len(v)
		default:
			return fmt.Errorf("argument %d of a statement is a %T", n, a)
		}
		if rc != sqlite3.SQLITE_OK {
			return s.c.fault(rc)
		}
	}
	return nil
}

// makeRoom sees to it that the texts among args fit, and that even an empty one
// has an address: SQLite takes none for NULL.
func (s *stmt) makeRoom(args []any) error {
	need := 1
	for _, a := range args {
		if text, ok := a.(string); ok {
			need += len(text)
		}
	}
	if need <= s.size {
		return nil
	}
	libc.Xfree(s.c.tls, s.texts)
	s.size = 2 * need
	if s.texts = libc.Xmalloc(s.c.tls, libc.Tsize_t(s.size)); s.texts == 0 {
		s.size = 0
		return s.c.fault(sqlite3.SQLITE_NOMEM)
	}
	return nil
}

// Scan copies the columns of the row at which the statement stands.
func (s *stmt) Scan(dest ...any) error {
	if len(dest) != s.columns {
		return fmt.Errorf("scan %d columns into %d places", s.columns, len(dest))
	}
	for i, d := range dest {
		if err := s.column(int32(i), d); err != nil {
			return fmt.Errorf("scan column %d: %w", i, err)
		}
	}
	return nil
}

// column copies a column to where dest points: to a string, an integer, a bool
// or a float of any name, or to a sql.Scanner.
func (s *stmt) column(i int32, dest any) error {
	switch d := dest.(type) {
	case *int64:
		*d = s.int(i)
		return nil
	case *string:
		*d = s.text(i)
		return nil
	case *sql.NullInt64:
		*d = sql.NullInt64{Int64: s.int(i), Valid: !s.null(i)}
		return nil
	case sql.Scanner:
		return d.Scan(s.value(i))
	}
	v := reflect.ValueOf(dest)
	if v.Kind() != reflect.Pointer {
		return fmt.Errorf("into a %T", dest)
	}
	switch v = v.Elem(); v.Kind() {
	case reflect.String:
		v.SetString(s.text(i))
	case reflect.Bool:
		v.SetBool(s.int(i) != 0)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(s.int(i))
	case reflect.Float64:
		v.SetFloat(sqlite3.Xsqlite3_column_double(s.c.tls, s.handle, i))
	default:
		return fmt.Errorf("into a %T", dest)
	}
	return nil
}

func (s *stmt) int(i int32) int64 { return sqlite3.Xsqlite3_column_int64(s.c.tls, s.handle, i) }

func (s *stmt) null(i int32) bool {
	return sqlite3.Xsqlite3_column_type(s.c.tls, s.handle, i) == sqlite3.SQLITE_NULL
}

func (s *stmt) text(i int32) string {
	p := sqlite3.Xsqlite3_column_text(s.c.tls, s.handle, i)
	n := sqlite3.Xsqlite3_column_bytes(s.c.tls, s.handle, i)
	if n == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(memory(p)), n))
}

func (s *stmt) value(i int32) driver.Value {
	switch sqlite3.Xsqlite3_column_type(s.c.tls, s.handle, i) {
	case sqlite3.SQLITE_INTEGER:
		return s.int(i)
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_column_double(s.c.tls, s.handle, i)
	case sqlite3.SQLITE_NULL:
		return nil
	}
	return s.text(i)
}

func (s *stmt) close() error {
	rc := sqlite3.Xsqlite3_finalize(s.c.tls, s.handle)
	libc.Xfree(s.c.tls, s.texts)
	s.handle, s.texts, s.size = 0, 0, 0
	if rc != sqlite3.SQLITE_OK {
		return s.c.fault(rc)
	}
	return nil
}
