package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file and patchset.go are the only ones that call SQLite's C functions, in their
// translation to Go. A kept binding was measured in its place (zombiezen.com/go/sqlite v1.4.2, nine
// rounds in turns on two processors, medians): a durable enqueue by 64 callers costs
// 45 µs of CPU here and 54 there, a job's way through claim, start and end 112 and
// 136, and of such jobs a second sees 24 % fewer there. It also gives no access to
// sqlite3_update_hook (conn.watch), nor to SQLITE_DBCONFIG_ENABLE_QPSG (conn.keepPlans).
// database/sql over modernc.org/sqlite would cost as much again as a small statement.

// conn is a connection to the file for one goroutine at a time. Values are bound
// without a copy for each, and columns are read into their destination.
type conn struct {
	tls *libc.TLS
	db  uintptr
	out uintptr // room for the pointer that a call returns
	// hook is called for each row that changes, see watch.
	hook func(tls *libc.TLS, arg uintptr, op int32, db, table uintptr, row int64)
	// recording notes what changes; nil does not.
	recording *recording
}

// sqliteError is what SQLite says about a call that failed.
type sqliteError struct {
	code int32 // the extended result code
	text string
}

func (e *sqliteError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// patch does what modernc.org/sqlite needs on some systems before its first use.
var patch = sync.OnceFunc(sqlite3.PatchIssue199)

// pin keeps memory for blocks of 1 to 16 KiB, for all connections and for good. The
// allocator cuts pages of 64 KiB into blocks of one size each and gives a page back to the
// system as soon as its last block is free. What SQLite needs to balance a tree is often
// the only one: it would map, fault in and unmap a page each time, a fifth of all work.
// So of some pages of each size one block is never free.
func pin(tls *libc.TLS) {
	const page, spare = 1 << 16, 16
	for size := libc.Tsize_t(1 << 10); size <= page/4; size *= 2 {
		var free []uintptr
		kept := map[uintptr]bool{}
		for len(free) < spare {
			block := libc.Xmalloc(tls, size)
			if block == 0 {
				break
			}
			if in := block / page; kept[in] {
				free = append(free, block)
			} else {
				kept[in] = true
			}
		}
		for _, block := range free {
			libc.Xfree(tls, block)
		}
	}
}

var pinned sync.Once

// connect opens an existing file by a URI as dsn makes it, and sets its pragmas.
func connect(uri string, pragmas []string) (_ *conn, err error) {
	patch()
	c := &conn{tls: libc.NewTLS()}
	pinned.Do(func() { pin(c.tls) })
	c.out = libc.Xcalloc(c.tls, 1, libc.Tsize_t(unsafe.Sizeof(uintptr(0))))
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	name, err := libc.CString(uri)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, name)
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, c.out, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_NOMUTEX|sqlite3.SQLITE_OPEN_URI, 0)
	c.db = *(*uintptr)(memory(c.out)) // there is one even after most errors
	if rc != sqlite3.SQLITE_OK {
		return nil, c.fault(rc)
	}
	sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	if err := c.keepPlans(); err != nil {
		return nil, err
	}
	for _, p := range pragmas {
		if err := c.exec("PRAGMA " + p); err != nil {
			return nil, fmt.Errorf("pragma %s: %w", p, err)
		}
	}
	return c, nil
}

// keepPlans makes SQLite plan a statement once. Else it does so anew whenever an
// argument changes that statistics could say something about, for each
// execution: it is built with SQLITE_ENABLE_STAT4. There are no statistics here.
func (c *conn) keepPlans() error {
	args := libc.NewVaList(int32(1), uintptr(0))
	defer libc.Xfree(c.tls, args)
	if rc := sqlite3.Xsqlite3_db_config(c.tls, c.db, sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, args); rc != sqlite3.SQLITE_OK {
		return c.fault(rc)
	}
	return nil
}

// watch has changed called for each row that a statement adds, changes or deletes in
// a table whose rows have numbers. It must not use the connection.
func (c *conn) watch(changed func(table string, row int64, deleted bool)) {
	c.hook = func(_ *libc.TLS, _ uintptr, op int32, _, table uintptr, row int64) {
		changed(textAt(table), row, op == sqlite3.SQLITE_DELETE)
	}
	// What SQLite takes for the address of a C function is a Go function's value,
	// which lies on Go's heap: c.hook keeps it there.
	sqlite3.Xsqlite3_update_hook(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&c.hook)), 0)
}

// mainName is the name of a connection's own file, in SQLite's memory, for good.
var mainName = sync.OnceValue(func() uintptr {
	text, err := libc.CString("main")
	if err != nil {
		panic(err) // no memory for five bytes
	}
	return text
})

// memory returns memory of SQLite's as a pointer. It lies outside of Go's heap
// and does not move.
func memory(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// exec executes statements without arguments once, up to the first that fails.
func (c *conn) exec(script string) error {
	text, err := libc.CString(script)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, text)
	if rc := sqlite3.Xsqlite3_exec(c.tls, c.db, text, 0, 0, 0); rc != sqlite3.SQLITE_OK {
		return c.fault(rc)
	}
	return nil
}

// interruptAt has the statement under way fail when ctx ends, until release is called.
func (c *conn) interruptAt(ctx context.Context) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		sqlite3.Xsqlite3_interrupt(c.tls, c.db) // sets a flag of the connection
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

func (c *conn) inTransaction() bool { return sqlite3.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// lastRow returns the number of the row that was added last.
func (c *conn) lastRow() int64 { return sqlite3.Xsqlite3_last_insert_rowid(c.tls, c.db) }

// copyTo copies the file into another connection's, so many pages at a time, until ctx
// ends.
func (c *conn) copyTo(ctx context.Context, to *conn, pages int) error {
	name := mainName()
	b := sqlite3.Xsqlite3_backup_init(to.tls, to.db, name, c.db, name)
	if b == 0 {
		return to.fault(sqlite3.Xsqlite3_errcode(to.tls, to.db))
	}
	rc := int32(sqlite3.SQLITE_OK)
	for rc == sqlite3.SQLITE_OK && ctx.Err() == nil {
		rc = sqlite3.Xsqlite3_backup_step(to.tls, b, int32(pages))
	}
	if end := sqlite3.Xsqlite3_backup_finish(to.tls, b); end != sqlite3.SQLITE_OK {
		return to.fault(end)
	}
	return ctx.Err()
}

// fault returns the error of a call that returned rc.
func (c *conn) fault(rc int32) error {
	text := libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))
	if c.db != 0 {
		if more := libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)); more != text {
			text += ": " + more
		}
	}
	return &sqliteError{code: rc, text: text}
}

// close closes the connection, whose statements must have been closed.
func (c *conn) close() error {
	var err error
	if c.db != 0 {
		if rc := sqlite3.Xsqlite3_close_v2(c.tls, c.db); rc != sqlite3.SQLITE_OK {
			err = c.fault(rc)
		}
	}
	c.recording.close()
	libc.Xfree(c.tls, c.out)
	c.tls.Close()
	return err
}

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
	// sets are the columns that it sets in rows that are there, by table; nil: not known.
	sets columnSets
}

// scanner is a row that can be read.
type scanner interface{ Scan(dest ...any) error }

func (c *conn) prepare(query string) (*stmt, error) {
	text, err := libc.CString(query)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, text)
	sets := c.recording.preparing()
	if rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(query)+1), sqlite3.SQLITE_PREPARE_PERSISTENT, c.out, 0); rc != sqlite3.SQLITE_OK {
		return nil, c.fault(rc)
	}
	s := &stmt{c: c, handle: *(*uintptr)(memory(c.out)), sets: sets}
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
		rc := s.step()
		switch rc {
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

// step executes the statement up to its next row, or its end.
func (s *stmt) step() int32 {
	r := s.c.recording
	if r == nil {
		return sqlite3.Xsqlite3_step(s.c.tls, s.handle)
	}
	before := r.begin(s.sets)
	rc := sqlite3.Xsqlite3_step(s.c.tls, s.handle)
	if rc != sqlite3.SQLITE_ROW && rc != sqlite3.SQLITE_DONE {
		r.undo(before) // SQLite has taken back what it did
	}
	return rc
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
		case time.Time:
			rc = sqlite3.Xsqlite3_bind_int64(tls, s.handle, n, nanos(v))
		case *time.Time:
			if v == nil {
				rc = sqlite3.Xsqlite3_bind_null(tls, s.handle, n)
			} else {
				rc = sqlite3.Xsqlite3_bind_int64(tls, s.handle, n, nanos(*v))
			}
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
// or a float of any name, or to a time. What may be NULL goes to a pointer or an any.
func (s *stmt) column(i int32, dest any) error {
	switch d := dest.(type) {
	case *int64:
		*d = s.int(i)
		return nil
	case *string:
		*d = s.text(i)
		return nil
	case *time.Time:
		*d = moment(s.int(i))
		return nil
	case **time.Time:
		if *d = nil; !s.null(i) {
			*d = new(moment(s.int(i)))
		}
		return nil
	case **int64:
		if *d = nil; !s.null(i) {
			*d = new(s.int(i))
		}
		return nil
	case *json.RawMessage:
		*d = json.RawMessage(s.text(i))
		return nil
	case *any:
		*d = s.value(i)
		return nil
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

func (s *stmt) value(i int32) any {
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
