package postgres

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/agentsched/agentsched/queue/sqlite"
)

// statement is one for many rows: of a table, for a kind of change, of some columns.
type statement struct {
	table   *table
	op      byte
	columns uint64
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
			add(statement{c.table, insert, all}, c)
		case remove:
			add(statement{c.table, remove, c.table.isKey}, c)
		case replace:
			add(statement{c.table, remove, c.table.isKey}, c)
			add(statement{c.table, insert, all}, c)
		case update:
			columns := c.table.isKey
			for i, v := range c.values {
				if v.kind != unset {
					columns |= 1 << i
				}
			}
			if columns != c.table.isKey {
				add(statement{c.table, update, columns}, c)
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
		args, err := s.args(rows[s])
		if err != nil {
			return err
		}
		b.Queue(s.sql(), args...)
	}
	return nil
}

// sql returns the text, which takes an array for each column.
func (s *statement) sql() string {
	var names, arrays, set, where []string
	for i, c := range s.table.Columns {
		if s.columns&(1<<i) == 0 {
			continue
		}
		name := `"` + c.Name + `"`
		names, arrays = append(names, name), append(arrays, fmt.Sprintf("$%d::%s[]", len(names)+1, typeOf(c)))
		if s.table.isKey&(1<<i) != 0 {
			where = append(where, "t."+name+" = u."+name)
		} else {
			set = append(set, name+" = u."+name)
		}
	}
	from := "unnest(" + strings.Join(arrays, ", ") + ") AS u (" + strings.Join(names, ", ") + ")"
	switch s.op {
	case insert:
		return "INSERT INTO " + s.table.Name + " (" + strings.Join(names, ", ") + ") SELECT * FROM " + from
	case update:
		return "UPDATE " + s.table.Name + " AS t SET " + strings.Join(set, ", ") + " FROM " + from + " WHERE " + strings.Join(where, " AND ")
	}
	return "DELETE FROM " + s.table.Name + " AS t USING " + from + " WHERE " + strings.Join(where, " AND ")
}

// args returns the arrays of the rows.
func (s *statement) args(rows []*change) (args []any, err error) {
	for i, c := range s.table.Columns {
		if s.columns&(1<<i) == 0 {
			continue
		}
		var array any
		switch typeOf(c) {
		case "bigint":
			array, err = arrayOf(rows, i, c, func(v value) (int64, bool) { return v.n, v.kind == integer })
		case "text":
			array, err = arrayOf(rows, i, c, func(v value) (string, bool) { return textOut(v.s), v.kind == text })
		default:
			array, err = arrayOf(rows, i, c, func(v value) (float64, bool) {
				if v.kind == integer {
					return float64(v.n), true
				}
				return math.Float64frombits(uint64(v.n)), v.kind == float
			})
		}
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", s.table.Name, err)
		}
		args = append(args, array)
	}
	return args, nil
}

// arrayOf returns the values of a column, by pointers where one may be NULL.
func arrayOf[T any](rows []*change, i int, c sqlite.Column, as func(value) (T, bool)) (any, error) {
	values := make([]T, len(rows))
	var pointers []*T
	for n, row := range rows {
		v := row.values[i]
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
			return nil, fmt.Errorf("%w: column %s has a value of kind %d", errPatch, c.Name, v.kind)
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
