package postgres

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/agentsched/agentsched/queue/sqlite"
)

// The kinds of a value, as a patchset has them.
const (
	unset   = 0
	integer = 1
	float   = 2
	text    = 3
	blob    = 4
	null    = 5
)

// value is one of a row: of a text s, of an integer or a float, as bits, n.
type value struct {
	kind byte
	n    int64
	s    string
}

// The kinds of a change, as a patchset has them, and one more: a row that was deleted
// and added again.
const (
	insert  = 18
	update  = 23
	remove  = 9
	replace = 0
)

// change is what became of a row. Most changes set a few of many columns.
type change struct {
	table  *table
	op     byte
	set    uint64  // the columns that it has values for: all, of a removed row the keys
	values []value // in the order of these
}

// at returns the value of a column that is set.
func (c *change) at(column int) *value { return &c.values[bits.OnesCount64(c.set&(1<<column-1))] }

// take sets what a later change sets.
func (c *change) take(later *change) {
	if all := c.set | later.set; all != c.set {
		wider := change{set: all, values: make([]value, bits.OnesCount64(all))}
		wider.take(c)
		c.set, c.values = all, wider.values
	}
	for left := later.set; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		*c.at(i) = *later.at(i)
	}
}

// table is one of the queue's tables, with what is needed to find and write its rows.
type table struct {
	sqlite.Table
	keys   []int // columns of the primary key
	isKey  uint64
	number int
}

func newTables(list []sqlite.Table) (map[string]*table, error) {
	all := map[string]*table{}
	for i, t := range list {
		if len(t.Columns) > 64 {
			return nil, fmt.Errorf("table %s has %d columns, and 64 are the most", t.Name, len(t.Columns))
		}
		x := &table{Table: t, number: i}
		for n, c := range t.Columns {
			if c.Key > 0 {
				x.keys, x.isKey = append(x.keys, n), x.isKey|1<<n
			}
		}
		all[t.Name] = x
	}
	return all, nil
}

var errPatch = errors.New("a patch cannot be read")

// patchReader reads a patchset of SQLite's session extension, whose format is described
// in sqlite3session.c.
type patchReader struct {
	tables map[string]*table
	rest   string
	room   []value // for the changes to come
}

// slab is for how many values room is made at once: for many times the columns of a table.
const slab = 1024

// read calls each with the changes of a patch, in its order.
func (r *patchReader) read(each func(change, string) error) error {
	var t *table
	for len(r.rest) > 0 {
		op := r.rest[0]
		r.rest = r.rest[1:]
		if op == 'P' {
			var err error
			if t, err = r.header(); err != nil {
				return err
			}
			continue
		}
		if t == nil || len(r.rest) == 0 || op != insert && op != update && op != remove {
			return fmt.Errorf("%w: change %d", errPatch, op)
		}
		r.rest = r.rest[1:] // whether a trigger did it
		c := change{table: t, op: op}
		if cap(r.room) < len(t.Columns) {
			r.room = make([]value, 0, slab)
		}
		c.values = r.room[:0]
		var key string
		for i := range t.Columns {
			isKey := t.isKey&(1<<i) != 0
			if op == remove && !isKey {
				continue
			}
			before := r.rest
			v, err := r.value()
			if err != nil {
				return err
			}
			if isKey {
				// Together they tell the row: each value says its own length.
				key += before[:len(before)-len(r.rest)]
			}
			if v.kind != unset {
				c.set, c.values = c.set|1<<i, append(c.values, v)
			} else if isKey || op == insert {
				return fmt.Errorf("%w: a row of %s without %s", errPatch, t.Name, t.Columns[i].Name)
			}
		}
		n := len(c.values)
		c.values, r.room = c.values[:n:n], c.values[n:n]
		if err := each(c, key); err != nil {
			return err
		}
	}
	return nil
}

func (r *patchReader) header() (*table, error) {
	n, err := r.varint()
	if err != nil {
		return nil, err
	}
	if n > len(r.rest) {
		return nil, errPatch
	}
	name, rest, found := strings.Cut(r.rest[n:], "\x00")
	t := r.tables[name]
	if !found || t == nil || len(t.Columns) != n {
		return nil, fmt.Errorf("%w: table %q with %d columns", errPatch, name, n)
	}
	r.rest = rest
	return t, nil
}

func (r *patchReader) value() (v value, err error) {
	if len(r.rest) == 0 {
		return v, errPatch
	}
	v.kind = r.rest[0]
	r.rest = r.rest[1:]
	switch v.kind {
	case unset, null:
		return v, nil
	case integer, float:
		if len(r.rest) < 8 {
			return v, errPatch
		}
		v.n = int64(binary.BigEndian.Uint64([]byte(r.rest[:8])))
		r.rest = r.rest[8:]
		return v, nil
	case text, blob:
		n, err := r.varint()
		if err != nil || n > len(r.rest) {
			return v, errPatch
		}
		v.s, r.rest = r.rest[:n], r.rest[n:]
		return v, nil
	}
	return v, fmt.Errorf("%w: a value of kind %d", errPatch, v.kind)
}

// varint reads an integer as SQLite writes it: 7 bits a byte, the highest first, and of
// the ninth byte all 8.
func (r *patchReader) varint() (int, error) {
	var n uint64
	for i := 0; i < len(r.rest) && i < 9; i++ {
		b := r.rest[i]
		if i == 8 {
			n = n<<8 | uint64(b)
		} else {
			n = n<<7 | uint64(b&0x7f)
		}
		if b < 0x80 || i == 8 {
			if n > math.MaxInt32 {
				break
			}
			r.rest = r.rest[i+1:]
			return int(n), nil
		}
	}
	return 0, errPatch
}

// net is what several patches change together: of each row what became of it in the end.
type net struct {
	rows  map[rowKey]*change
	order []*change
}

// rowKey tells a row.
type rowKey struct {
	table int
	key   string
}

// add adds a later change.
func (n *net) add(c change, key string) error {
	if n.rows == nil {
		n.rows = map[rowKey]*change{}
	}
	row := rowKey{c.table.number, key}
	old := n.rows[row]
	if old == nil {
		n.rows[row] = &c
		n.order = append(n.order, &c)
		return nil
	}
	switch {
	case old.op == remove && c.op == insert:
		old.op, old.set, old.values = replace, c.set, c.values
	case c.op == update && (old.op == insert || old.op == update || old.op == replace):
		old.take(&c)
	case c.op == remove && old.op == insert:
		old.op = gone
	case c.op == remove && (old.op == update || old.op == replace):
		old.op, old.set, old.values = remove, c.set, c.values
	case c.op == insert && old.op == gone:
		old.op, old.set, old.values = insert, c.set, c.values
	default:
		return fmt.Errorf("%w: change %d of a row of %s after change %d", errPatch, c.op, c.table.Name, old.op)
	}
	return nil
}

// gone is the change of a row that was added and deleted: none.
const gone = 1

// escaped begins a text that PostgreSQL takes in the place of one that it does not: with
// a zero byte, or with what is no UTF-8.
const escaped = "\x01"

// textOut returns a text as PostgreSQL takes it.
func textOut(s string) string {
	if strings.IndexByte(s, 0) < 0 && !strings.HasPrefix(s, escaped) && utf8.ValidString(s) {
		return s
	}
	return escaped + base64.StdEncoding.EncodeToString([]byte(s))
}

// textIn returns the text of which textOut has made s.
func textIn(s string) (string, error) {
	coded, found := strings.CutPrefix(s, escaped)
	if !found {
		return s, nil
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return "", fmt.Errorf("a text that was written for PostgreSQL cannot be read: %w", err)
	}
	return string(raw), nil
}
