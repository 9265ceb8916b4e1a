package postgres

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue/sqlite"
)

// statement is one for many rows: of a table, for a kind of change, of some columns. Of
// these same have one value in all of the rows: it is given once. What is given for each
// row has a price, an array that the server unpacks by itself, and of 42 columns most have
// their default.
type statement struct {
	table   *table
	op      byte
	columns uint64
	same    uint64
}

// place is where a statement stands among the others: what is removed may be added again.
func (s *statement) place() int {
	return slices.Index([]byte{remove, update, insert}, s.op)
}

// group returns what has changed by the statements that write it, in their order.
func (n *net) group() (list []statement, rows map[statement][]*change) {
	rows = map[statement][]*change{}
	add := func(s statement, c *change) {
		if rows[s] == nil {
			list = append(list, s)
		}
		rows[s] = append(rows[s], c)
	}
	for _, c := range n.order {
		all := uint64(1)<<len(c.table.Columns) - 1
		switch c.op {
		case insert:
			add(statement{c.table, insert, all, 0}, c)
		case remove:
			add(statement{c.table, remove, c.table.isKey, 0}, c)
		case replace:
			add(statement{c.table, remove, c.table.isKey, 0}, c)
			add(statement{c.table, insert, all, 0}, c)
		case update:
			if c.set != c.table.isKey {
				add(statement{c.table, update, c.set, 0}, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b statement) int { return cmp.Compare(a.place(), b.place()) })
	return list, rows
}

// queue adds the statements that write what has changed to a batch.
func (n *net) queue(b *pgx.Batch) error {
	list, rows := n.group()
	for _, s := range list {
		of := rows[s]
		s.same = s.sameIn(of)
		args, err := s.args(of)
		if err != nil {
			return err
		}
		b.Queue(s.sql(), args...)
	}
	return nil
}

// sameIn returns the columns, of those that are no keys, that have one value in all rows.
func (s *statement) sameIn(rows []*change) uint64 {
	same := s.columns &^ s.table.isKey
	for _, row := range rows[1:] {
		for left := same; left != 0; left &= left - 1 {
			if i := bits.TrailingZeros64(left); *row.at(i) != *rows[0].at(i) {
				same &^= 1 << i
			}
		}
	}
	return same
}

// sql returns the text, which takes a value or an array for each column.
func (s *statement) sql() string {
	var names, values, arrays, each, set, where []string
	for i, c := range s.table.Columns {
		if s.columns&(1<<i) == 0 {
			continue
		}
		name, param := `"`+c.Name+`"`, fmt.Sprintf("$%d::%s", len(names)+1, typeOf(c))
		value := param
		if s.same&(1<<i) == 0 {
			value = "u." + name
			arrays, each = append(arrays, param+"[]"), append(each, name)
		}
		names, values = append(names, name), append(values, value)
		if s.table.isKey&(1<<i) != 0 {
			where = append(where, "t."+name+" = "+value)
		} else {
			set = append(set, name+" = "+value)
		}
	}
	from := "unnest(" + strings.Join(arrays, ", ") + ") AS u (" + strings.Join(each, ", ") + ")"
	switch s.op {
	case insert:
		return "INSERT INTO " + s.table.Name + " (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM " + from
	case update:
		return "UPDATE " + s.table.Name + " AS t SET " + strings.Join(set, ", ") + " FROM " + from + " WHERE " + strings.Join(where, " AND ")
	}
	return "DELETE FROM " + s.table.Name + " AS t USING " + from + " WHERE " + strings.Join(where, " AND ")
}

// args returns the values and the arrays.
func (s *statement) args(rows []*change) (args []any, err error) {
	for i, c := range s.table.Columns {
		if s.columns&(1<<i) == 0 {
			continue
		}
		var arg any
		same := s.same&(1<<i) != 0
		switch typeOf(c) {
		case "bigint":
			arg, err = argOf(rows, i, c, same, func(v value) (int64, bool) { return v.n, v.kind == integer })
		case "text":
			arg, err = argOf(rows, i, c, same, func(v value) (string, bool) { return textOut(v.s), v.kind == text })
		default:
			arg, err = argOf(rows, i, c, same, func(v value) (float64, bool) {
				if v.kind == integer {
					return float64(v.n), true
				}
				return math.Float64frombits(uint64(v.n)), v.kind == float
			})
		}
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", s.table.Name, err)
		}
		args = append(args, arg)
	}
	return args, nil
}

// argOf returns the values of a column, or the one that all rows have.
func argOf[T any](rows []*change, i int, c sqlite.Column, same bool, as func(value) (T, bool)) (any, error) {
	switch {
	case !same:
		return arrayOf(rows, i, c, as)
	case rows[0].at(i).kind == null && c.Null:
		return nil, nil
	}
	v, ok := as(*rows[0].at(i))
	if !ok {
		return nil, wrongKind(c, *rows[0].at(i))
	}
	return v, nil
}

func wrongKind(c sqlite.Column, v value) error {
	return fmt.Errorf("%w: column %s has a value of kind %d", errPatch, c.Name, v.kind)
}

// arrayOf returns the values of a column, by pointers where one may be NULL.
func arrayOf[T any](rows []*change, i int, c sqlite.Column, as func(value) (T, bool)) (any, error) {
	values := make([]T, len(rows))
	var pointers []*T
	for n, row := range rows {
		v := *row.at(i)
		if v.kind == null && c.Null {
			if pointers == nil {
				pointers = make([]*T, len(rows))
				for k := range n {
					pointers[k] = &values[k]
				}
			}
			continue
		}
		var ok bool
		if values[n], ok = as(v); !ok {
			return nil, wrongKind(c, v)
		}
		if pointers != nil {
			pointers[n] = &values[n]
		}
	}
	if pointers != nil {
		return pointers, nil
	}
	return values, nil
}

// typeOf returns PostgreSQL's type of a column.
func typeOf(c sqlite.Column) string {
	switch c.Type {
	case "INTEGER":
		return "bigint"
	case "REAL":
		return "double precision"
	}
	return "text"
}

// create returns the statement that makes a table. Only the primary key is an index: what
// is asked of the queue is asked of a copy, and rows that are changed often are written
// without touching one.
func (t *table) create() string {
	var parts, keys []string
	for _, c := range t.Columns {
		part := `"` + c.Name + `" ` + typeOf(c)
		if !c.Null {
			part += " NOT NULL"
		}
		parts = append(parts, part)
	}
	for _, k := range slices.SortedFunc(slices.Values(t.keys), func(a, b int) int { return cmp.Compare(t.Columns[a].Key, t.Columns[b].Key) }) {
		keys = append(keys, `"`+t.Columns[k].Name+`"`)
	}
	return "CREATE TABLE " + t.Name + " (" + strings.Join(parts, ", ") + ", PRIMARY KEY (" + strings.Join(keys, ", ") + ")) WITH (fillfactor = 70)"
}
