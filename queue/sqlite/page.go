package sqlite

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

var errOffset = errors.New("page of jobs: it is asked for by cursor and by Offset, want one of them")

// Page implements queue.Reader.
func (s *Store) Page(ctx context.Context, f queue.Filter, cursor string) (entries []queue.Entry, next string, total int, err error) {
	if f.Offset != 0 {
		return nil, "", 0, errOffset
	}
	return s.page(ctx, f, cursor, few)
}

func (s *Store) page(ctx context.Context, f queue.Filter, text string, few int) (entries []queue.Entry, next string, total int, err error) {
	after, err := readCursor(text, f.Newest)
	if err != nil {
		return nil, "", 0, fmt.Errorf("page of jobs: %w", err)
	}
	limit := limitOf(f.Limit)
	total = -1
	var last int64
	entries, err = read(ctx, s, "page of jobs", func(d *db) (entries []queue.Entry, err error) {
		p := pager{db: d, filter: f, after: after, few: few}
		if text == "" {
			if total, err = p.total(); err != nil {
				return nil, err
			}
		}
		query, args, err := p.query(limit + 1)
		if err != nil {
			return nil, err
		}
		err = d.rows(query, args, func(r scanner) error {
			if len(entries) == limit {
				next = writeCursor(last, f.Newest)
				return nil
			}
			var row entryRow
			if err := row.scan(r); err != nil {
				return err
			}
			if err := row.decode(); err != nil {
				return err
			}
			entries, last = append(entries, row.Entry), row.seq
			return nil
		})
		return entries, err
	})
	if err != nil {
		return nil, "", 0, err
	}
	return entries, next, total, nil
}

// A cursor is, in base64url, a byte for the order of the pages and the number of
// the last row that was given: as a uvarint.
const (
	cursorOldest = 1
	cursorNewest = 2
)

func writeCursor(seq int64, newest bool) string {
	order := byte(cursorOldest)
	if newest {
		order = cursorNewest
	}
	return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint([]byte{order}, uint64(seq)))
}

// readCursor returns the number of the row that a page begins behind.
func readCursor(text string, newest bool) (seq int64, err error) {
	if text == "" {
		if newest {
			return math.MaxInt64, nil
		}
		return math.MinInt64, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(raw) > 1 {
		n, size := binary.Uvarint(raw[1:])
		if size == len(raw)-1 && n <= math.MaxInt64 && writeCursor(int64(n), newest) == text {
			return int64(n), nil
		}
		if size == len(raw)-1 && n <= math.MaxInt64 && writeCursor(int64(n), !newest) == text {
			return 0, fmt.Errorf("cursor %q was returned for the other order: %w", text, queue.ErrBadCursor)
		}
	}
	return 0, fmt.Errorf("cursor %.40q, want one that was returned with a page: %w", text, queue.ErrBadCursor)
}

// few is up to how many rows of a state are looked up one by one to bring them
// into the order of submission. Where there are more, the table is read in that
// order, until the page is full.
const few = 5000

// pager reads one page.
type pager struct {
	*db
	filter queue.Filter
	after  int64
	few    int
}

// parts returns the filter divided by states, where indexes know these; else the
// filter itself. Within a batch its own index is better than any of those.
func (p *pager) parts() []part {
	f := p.filter
	if f.Batch != "" || f.Prefix != "" || f.Suffix != "" || f.Name != "" || len(f.States) == 0 && f.Tenant == "" {
		return []part{{filter: f}}
	}
	states := slices.Compact(slices.Sorted(slices.Values(f.States)))
	if len(states) == 0 {
		states = job.EntryStates()
	}
	var parts []part
	for _, state := range states {
		parts = append(parts, partOf(f, state))
	}
	return parts
}

// part is what a filter selects of one state, or all of it.
type part struct {
	filter queue.Filter
	state  job.EntryState
	set    string // selects the rows of the state, by its index; "" for all states
	args   []any
	sorted bool // the set is in the order of submission
}

func partOf(f queue.Filter, state job.EntryState) part {
	p := part{filter: f, state: state}
	tenant := ``
	if f.Tenant != "" {
		tenant, p.args = ` AND tenant = ?`, []any{string(f.Tenant)}
	}
	switch {
	case state == job.Queued:
		p.set = `SELECT seq FROM entries INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = ''` + tenant +
			` UNION ALL SELECT seq FROM entries INDEXED BY entries_waiting_pool WHERE waits_for <> ''` + tenant
		p.args = append(p.args, p.args...)
	case state == job.Dispatched:
		p.set = allDispatched + tenant
	default:
		p.set, p.sorted = ofEnded+tenant, f.Tenant != ""
		p.args = append([]any{string(state)}, p.args...)
	}
	p.filter.States, p.filter.Tenant = nil, ""
	return p
}

const ofEnded = `SELECT seq FROM entries INDEXED BY entries_done WHERE completed_at IS NOT NULL AND state = ?`

// total counts what the filter selects.
func (p *pager) total() (total int, err error) {
	for _, part := range p.parts() {
		where, args := conditions(part.filter)
		query := `SELECT count(*) FROM entries e` + where
		switch {
		case part.set != "" && where == "":
			query, args = `SELECT count(*) FROM (`+part.set+`) p`, part.args
		case part.set != "":
			query, args = query+` AND e.seq IN (`+part.set+`)`, append(args, part.args...)
		}
		n, _, err := p.number(query, args...)
		if err != nil {
			return 0, err
		}
		total += int(n)
	}
	return total, nil
}

// query returns what reads the page, at most limit rows of it.
func (p *pager) query(limit int) (query string, args []any, err error) {
	behind, order := `e.seq > ?`, ` ORDER BY e.seq LIMIT ?`
	if p.filter.Newest {
		behind, order = `e.seq < ?`, ` ORDER BY e.seq DESC LIMIT ?`
	}
	var selects []string
	for _, part := range p.parts() {
		where, values := conditions(part.filter)
		if where == "" {
			where = ` WHERE true`
		}
		from := `SELECT e.seq FROM entries e`
		if part.set != "" {
			term, more, index, err := p.ofState(part)
			if err != nil {
				return "", nil, err
			}
			from, where, values = from+index, where+term, append(values, more...)
		}
		selects = append(selects, `SELECT * FROM (`+from+where+` AND `+behind+order+`) p`)
		args = append(append(args, values...), p.after, limit)
	}
	return `SELECT ` + entryColumns + ` FROM entries e WHERE e.seq IN (` + strings.Join(selects, ` UNION ALL `) + `)` + order, append(args, limit), nil
}

// ofState returns what restricts a query to a part's state: few rows are looked up
// by the state's own index.
func (p *pager) ofState(part part) (term string, args []any, index string, err error) {
	tenant := ``
	if p.filter.Tenant != "" {
		tenant, args = ` AND e.tenant = ?`, []any{string(p.filter.Tenant)}
	}
	args = append([]any{string(part.state)}, args...)
	term = ` AND e.state = ?` + tenant
	if part.sorted {
		return ` AND e.completed_at IS NOT NULL` + term, args, ` INDEXED BY entries_done`, nil
	}
	n, _, err := p.number(`SELECT count(*) FROM (SELECT 1 FROM (`+part.set+`) p LIMIT ?) q`, append(slices.Clone(part.args), p.few+1)...)
	if err != nil {
		return "", nil, "", err
	}
	if int(n) <= p.few {
		return ` AND e.seq IN (` + part.set + `)`, part.args, "", nil
	}
	return term, args, ` NOT INDEXED`, nil
}
