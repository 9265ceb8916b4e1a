package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// A patchset is a list of changed rows as SQLite's session extension reads it
// (sqlite3session.c describes the format). It is not that extension which writes it here:
// that would read each row that has changed once more, and look up the columns of each
// table for each commit, a third of all work.
//
//	prepare   SQLite's authorizer ──► which columns a statement sets
//	step      SQLite's preupdate hook ──► the new values of those, by the row's key
//	take      what was noted, table by table
//
// The changes of a table stand in their order, and a row may have several of them. A
// column that was set to what it was is among them.

// recording notes which rows of some tables change. A nil one notes nothing.
type recording struct {
	c      *conn
	tables []recordedTable
	number map[string]int // of a table
	out    uintptr        // room for the pointer that a call returns

	text []byte // of what was noted
	rows []recordedRow
	sets columnSets // of the statement that is executed
	err  error      // why something was not noted

	prepared columnSets // of the statement that is prepared

	// What SQLite takes for addresses of C functions, as conn.hook.
	changes   func(tls *libc.TLS, arg, db uintptr, op int32, schema, table uintptr, before, after int64)
	authorize func(tls *libc.TLS, arg uintptr, action int32, a, b, schema, by uintptr) int32
}

type recordedTable struct {
	header  []byte
	columns int
	keys    uint64
	column  map[string]int // its number
}

// recordedRow is a change of a row, whose text begins at a place.
type recordedRow struct{ table, at int }

// recorded is how much has been noted.
type recorded struct{ text, rows int }

// columnSets are columns, a bit each, of the tables by their numbers; nil is all of them.
type columnSets []uint64

func (s columnSets) of(table int) uint64 {
	if s == nil {
		return math.MaxUint64
	}
	return s[table]
}

// record begins to note what changes in tables, each of which has a primary key and no
// more than 64 columns.
func (c *conn) record(tables []Table) error {
	r := &recording{c: c, number: map[string]int{}, out: libc.Xcalloc(c.tls, 1, libc.Tsize_t(unsafe.Sizeof(uintptr(0))))}
	for i, t := range tables {
		if len(t.Columns) > 64 {
			return fmt.Errorf("table %s has %d columns, and 64 are the most", t.Name, len(t.Columns))
		}
		x := recordedTable{columns: len(t.Columns), column: map[string]int{}}
		x.header = appendVarint([]byte{'P'}, len(t.Columns))
		for n, col := range t.Columns {
			x.header = append(x.header, byte(col.Key))
			x.column[col.Name] = n
			if col.Key > 0 {
				x.keys |= 1 << n
			}
		}
		x.header = append(append(x.header, t.Name...), 0)
		r.tables, r.number[t.Name] = append(r.tables, x), i
	}
	r.changes, r.authorize = r.note, r.sees
	c.recording = r
	sqlite3.Xsqlite3_preupdate_hook(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&r.changes)), 0)
	sqlite3.Xsqlite3_set_authorizer(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&r.authorize)), 0)
	return nil
}

// preparing returns what will be the columns that the statement sets which is prepared
// next; nil if nothing is noted.
func (r *recording) preparing() columnSets {
	if r == nil {
		return nil
	}
	r.prepared = make(columnSets, len(r.tables))
	return r.prepared
}

// sees is told what a statement that is prepared will do, and allows it.
func (r *recording) sees(_ *libc.TLS, _ uintptr, action int32, table, column, _, _ uintptr) int32 {
	if action == sqlite3.SQLITE_UPDATE && r.prepared != nil && table != 0 && column != 0 {
		if i, ok := r.number[textAt(table)]; ok {
			if n, ok := r.tables[i].column[textAt(column)]; ok {
				r.prepared[i] |= 1 << n
			} else { // it sets the row's number
				r.prepared[i] = math.MaxUint64
			}
		}
	}
	return sqlite3.SQLITE_OK
}

// begin says which columns the statement sets that is executed now, and how much has
// been noted before.
func (r *recording) begin(sets columnSets) recorded {
	r.sets = sets
	return r.now()
}

// now is how much has been noted.
func (r *recording) now() recorded {
	if r == nil {
		return recorded{}
	}
	return recorded{len(r.text), len(r.rows)}
}

// undo forgets what was noted after before.
func (r *recording) undo(before recorded) {
	if r != nil {
		r.text, r.rows = r.text[:before.text], r.rows[:before.rows]
	}
}

// forget forgets all that was noted.
func (r *recording) forget() {
	if r != nil {
		r.undo(recorded{})
		r.err = nil
	}
}

// note is told of a row before it changes.
func (r *recording) note(tls *libc.TLS, _, db uintptr, op int32, _, name uintptr, _, _ int64) {
	i, ok := r.number[textAt(name)]
	if !ok {
		return
	}
	t := &r.tables[i]
	sets := r.sets.of(i)
	switch {
	case op == sqlite3.SQLITE_DELETE:
		r.change(tls, db, i, sqlite3.SQLITE_DELETE, t.keys)
	case op == sqlite3.SQLITE_INSERT:
		r.change(tls, db, i, sqlite3.SQLITE_INSERT, math.MaxUint64)
	case sets&t.keys != 0: // to a patchset, it is another row then
		r.change(tls, db, i, sqlite3.SQLITE_DELETE, t.keys)
		r.change(tls, db, i, sqlite3.SQLITE_INSERT, math.MaxUint64)
	default:
		r.change(tls, db, i, sqlite3.SQLITE_UPDATE, t.keys|sets)
	}
}

// change notes a change with the values of some columns, of a row that is deleted as
// they were.
func (r *recording) change(tls *libc.TLS, db uintptr, table int, op byte, columns uint64) {
	r.rows = append(r.rows, recordedRow{table, len(r.text)})
	r.text = append(r.text, op, 0)
	for n := range r.tables[table].columns {
		if columns&(1<<n) == 0 {
			if op == sqlite3.SQLITE_UPDATE {
				r.text = append(r.text, 0) // not set
			}
			continue
		}
		var rc int32
		if op == sqlite3.SQLITE_DELETE {
			rc = sqlite3.Xsqlite3_preupdate_old(tls, db, int32(n), r.out)
		} else {
			rc = sqlite3.Xsqlite3_preupdate_new(tls, db, int32(n), r.out)
		}
		if rc != sqlite3.SQLITE_OK {
			r.err = errors.Join(r.err, fmt.Errorf("note what changes: %s (%d)", libc.GoString(sqlite3.Xsqlite3_errstr(tls, rc)), rc))
			return
		}
		r.value(tls, *(*uintptr)(memory(r.out)))
	}
}

func (r *recording) value(tls *libc.TLS, v uintptr) {
	kind := sqlite3.Xsqlite3_value_type(tls, v)
	r.text = append(r.text, byte(kind))
	var at uintptr
	switch kind {
	case sqlite3.SQLITE_INTEGER:
		r.text = binary.BigEndian.AppendUint64(r.text, uint64(sqlite3.Xsqlite3_value_int64(tls, v)))
		return
	case sqlite3.SQLITE_FLOAT:
		r.text = binary.BigEndian.AppendUint64(r.text, math.Float64bits(sqlite3.Xsqlite3_value_double(tls, v)))
		return
	case sqlite3.SQLITE_TEXT:
		at = sqlite3.Xsqlite3_value_text(tls, v)
	case sqlite3.SQLITE_BLOB:
		at = sqlite3.Xsqlite3_value_blob(tls, v)
	default:
		return // NULL
	}
	n := int(sqlite3.Xsqlite3_value_bytes(tls, v))
	r.text = appendVarint(r.text, n)
	switch {
	case n == 0:
	case at == 0:
		r.err = errors.Join(r.err, errors.New("note what changes: no memory for a text"))
	default:
		r.text = append(r.text, unsafe.Slice((*byte)(memory(at)), n)...)
	}
}

// take returns what has changed since the last take as a patchset, nil if nothing
// has, and begins anew.
func (r *recording) take() ([]byte, error) {
	defer r.forget()
	if r.err != nil || len(r.rows) == 0 {
		return nil, r.err
	}
	size := len(r.text)
	for _, t := range r.tables {
		size += len(t.header)
	}
	patch := make([]byte, 0, size)
	for i, t := range r.tables {
		empty := true
		for n, row := range r.rows {
			if row.table != i {
				continue
			}
			if empty {
				patch, empty = append(patch, t.header...), false
			}
			end := len(r.text)
			if n+1 < len(r.rows) {
				end = r.rows[n+1].at
			}
			patch = append(patch, r.text[row.at:end]...)
		}
	}
	return patch, nil
}

func (r *recording) close() {
	if r != nil {
		libc.Xfree(r.c.tls, r.out)
	}
}

// appendVarint adds an integer as SQLite writes one that is less than 2³¹: 7 bits a byte,
// the highest first.
func appendVarint(to []byte, n int) []byte {
	for shift := 28; shift > 0; shift -= 7 {
		if n>>shift != 0 {
			to = append(to, byte(n>>shift)|0x80)
		}
	}
	return append(to, byte(n&0x7f))
}

// textAt is a text of SQLite's, which ends with a zero byte.
func textAt(p uintptr) string {
	n := 0
	for *(*byte)(memory(p + uintptr(n))) != 0 {
		n++
	}
	return unsafe.String((*byte)(memory(p)), n)
}

// refuseConflict is called for a change that does not fit what is there: the copy is
// none of the store that the change comes from.
var refuseConflict = func(*libc.TLS, uintptr, int32, uintptr) int32 { return sqlite3.SQLITE_CHANGESET_ABORT }

// merge applies a patchset, all of it or nothing. A transaction must be open.
func (c *conn) merge(patch []byte) error {
	if len(patch) == 0 {
		return nil
	}
	at := libc.Xmalloc(c.tls, libc.Tsize_t(len(patch)))
	if at == 0 {
		return c.fault(sqlite3.SQLITE_NOMEM)
	}
	defer libc.Xfree(c.tls, at)
	copy(unsafe.Slice((*byte)(memory(at)), len(patch)), patch)
	rc := sqlite3.Xsqlite3changeset_apply(c.tls, c.db, int32(len(patch)), at, 0, *(*uintptr)(unsafe.Pointer(&refuseConflict)), 0)
	if rc != sqlite3.SQLITE_OK {
		return c.fault(rc)
	}
	return nil
}
