package sqlite

import (
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// conn is a connection to the file for one goroutine at a time. It calls SQLite
// as C does, without database/sql in between, which would cost as much again as
// a small statement: values are bound without a copy for each, one lock less is
// taken for each call, and columns are read into their destination.
type conn struct {
	tls *libc.TLS
	db  uintptr
	out uintptr // room for the pointer that a call returns
	// pins are never used. The memory allocator gives memory back to the system as
	// soon as the last block of a size is free, and what SQLite needs to balance a
	// tree is often the only one: without these it would map, fault in and unmap
	// some pages each time, a tenth of all work.
	pins []uintptr
	// hook is called for each row that changes, see watch.
	hook func(tls *libc.TLS, arg uintptr, op int32, db, table uintptr, row int64)
}

// sqliteError is what SQLite says about a call that failed.
type sqliteError struct {
	code int32 // the extended result code
	text string
}

func (e *sqliteError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// connect opens an existing file by a URI as dsn makes it, and sets its pragmas.
func connect(uri string, pragmas []string) (_ *conn, err error) {
	c := &conn{tls: libc.NewTLS()}
	c.out = libc.Xcalloc(c.tls, 1, libc.Tsize_t(unsafe.Sizeof(uintptr(0))))
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for size := libc.Tsize_t(1 << 10); size <= 1<<14; size *= 2 {
		c.pins = append(c.pins, libc.Xmalloc(c.tls, size))
	}
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
		n := 0
		for *(*byte)(memory(table + uintptr(n))) != 0 {
			n++
		}
		changed(unsafe.String((*byte)(memory(table)), n), row, op == sqlite3.SQLITE_DELETE)
	}
	// What SQLite takes for the address of a C function is a Go function's value,
	// which lies on Go's heap: c.hook keeps it there.
	sqlite3.Xsqlite3_update_hook(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&c.hook)), 0)
}

// memory returns memory of SQLite's as a pointer. It lies outside of Go's heap
// and does not move.
func memory(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// exec executes one statement without arguments once.
func (c *conn) exec(query string) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.exec(nil)
	return errors.Join(err, s.close())
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
	for _, p := range append(c.pins, c.out) {
		libc.Xfree(c.tls, p)
	}
	c.tls.Close()
	return err
}
