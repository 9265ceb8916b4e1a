package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
)

// This file is what a copy of a store needs whose truth is elsewhere, in a database
// that several hosts share (queue/postgres):
//
//	one that leads    group ──► patch ──► COMMIT ──► Truth.Ship ──► Commit.Done ──► answers
//	                  a read ──► Truth.Await ──► answer
//	one that follows  Merge ◄── patches, in their order
//
// A patch is a patchset, as SQLite's session extension merges it: the rows that were
// added, changed and deleted, by their primary keys (patchset.go). A copy need not survive a crash of the
// host, and is written without waiting for the disk.

// Commit is one commit of a store that leads.
type Commit struct {
	Number int64  // 1, 2, … since the store was opened
	Patch  []byte // what it has changed; nil: nothing
	// Done must be called once, by any goroutine and in the order of the commits: with
	// nil when the truth has it, else with why it never will.
	Done func(error)
}

// Truth keeps what a store that leads has committed.
type Truth interface {
	// Ship takes the next commit. The store writes nothing else until it returns.
	Ship(c Commit)
	// Busy returns nil if a commit would be sent at once, else a channel that is closed
	// when that may be so: until then, callers that come share the next commit.
	Busy() <-chan struct{}
	// Await returns when the truth has all commits up to a number, or why what was read
	// of them must not be told. The error wraps ctx's where that has ended.
	Await(ctx context.Context, number int64) error
}

// CopyOptions of a copy.
type CopyOptions struct {
	Log zerolog.Logger
	// Version of the tables; 0: the newest. Only the newest can be read and written
	// by the methods of queue.Store.
	Version int
	// Truth is where what the copy commits is kept; nil: it follows. Epoch is the
	// leader's.
	Truth Truth
	Epoch int64
}

// A Copied says of what a copy is one.
type Copied struct {
	Truth    string // a name of the other database; "": of nothing yet
	Revision int64  // of that, up to which it goes
	Boot     string // of this host, when it was written last
	// Leads is set while it may hold what the truth does not.
	Leads bool
}

const copyTable = `CREATE TABLE IF NOT EXISTS copy_of (
	id INTEGER PRIMARY KEY CHECK (id = 1), truth TEXT NOT NULL, revision INTEGER NOT NULL, boot TEXT NOT NULL, leads INTEGER NOT NULL)`

// copyPragmas are writePragmas of a file that is made anew where it is in doubt.
func copyPragmas() []string {
	pragmas := writePragmas()
	pragmas[slices.Index(pragmas, "synchronous(full)")] = "synchronous(off)"
	return pragmas
}

// OpenCopy opens the copy in the file at path, which nobody else may have open, and
// creates it if there is none.
func OpenCopy(ctx context.Context, path string, opts CopyOptions) (*Store, error) {
	s, err := openCopy(ctx, path, opts)
	if err != nil {
		return nil, fmt.Errorf("open copy %s: %w", path, err)
	}
	return s, nil
}

func openCopy(ctx context.Context, path string, opts CopyOptions) (*Store, error) {
	list, err := embedded()
	if err != nil {
		return nil, err
	}
	if opts.Version > 0 && opts.Version <= len(list) {
		list = list[:opts.Version]
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	d, err := openDB(path, "rw", copyPragmas())
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, d, list, opts.Log); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.conn.exec(copyTable); err != nil {
		return nil, errors.Join(err, d.close())
	}
	s := newStore(path, "rw")
	s.follows = opts.Truth == nil
	if !s.follows {
		if err := d.lead(opts.Epoch); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	w, err := newWriter(d, opts.Log, opts.Truth, opts.Epoch)
	if err != nil {
		return nil, err
	}
	s.writer = w
	s.writer.tx.credits.prices = &s.prices
	if opts.Truth != nil {
		await := func(ctx context.Context) error { return opts.Truth.Await(ctx, w.number.Load()) }
		s.reads.await, s.heads.await = await, await
	}
	return s, nil
}

// lead writes down that the copy may hold more than the truth from here on.
func (d *db) lead(epoch int64) error {
	return d.conn.exec(fmt.Sprintf("UPDATE copy_of SET leads = %d", max(epoch, 1)))
}

// Copied says of what the store is a copy.
func (s *Store) Copied(ctx context.Context) (c Copied, err error) {
	err = s.reads.do(ctx, func(d *db) error {
		_, err := d.row(`SELECT truth, revision, boot, leads FROM copy_of`, nil, &c.Truth, &c.Revision, &c.Boot, &c.Leads)
		return err
	})
	return c, err
}

// SetCopied writes that down, in a copy that follows, or leads and is about to be closed.
func (s *Store) SetCopied(ctx context.Context, c Copied) error {
	return s.writer.do(ctx, func(t *tx) error { return t.setCopied(c) })
}

func (t *tx) setCopied(c Copied) error {
	return t.exec(`INSERT INTO copy_of (id, truth, revision, boot, leads) VALUES (1, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET truth = excluded.truth, revision = excluded.revision, boot = excluded.boot, leads = excluded.leads`,
		c.Truth, c.Revision, c.Boot, c.Leads)
}

// CloseCopy closes a copy that leads, whose Truth takes nothing any more. If clean is
// set, all that it holds is in the truth, and it is what to says.
func (s *Store) CloseCopy(to Copied, clean bool) error {
	err := s.Close()
	if err != nil || !clean {
		return err
	}
	d, err := openDB(s.path, "rw", copyPragmas())
	if err != nil {
		return err
	}
	t := newTx(d)
	return errors.Join(t.setCopied(to), t.close())
}

// Merge applies patches in a copy that follows, in one transaction, which then is what
// to says. queue.ErrCorrupt if one does not fit: it is the copy of another store.
func (s *Store) Merge(ctx context.Context, patches [][]byte, to Copied) error {
	return s.writer.do(ctx, func(t *tx) error {
		t.changed = true // what does not fit is undone with the whole group
		for _, p := range patches {
			if err := t.conn.merge(p); err != nil {
				return fmt.Errorf("%w: the copy does not fit what was changed: %w", queue.ErrCorrupt, err)
			}
		}
		t.forgetAll()
		return t.setCopied(to)
	})
}

// forgetAll gives up what is known of the file, which changes without statements.
func (t *tx) forgetAll() {
	t.batches.forget()
	t.accounts.forget()
}

// A Table is one of a store's, in the order in which it can be filled.
type Table struct {
	Name    string
	Columns []Column
}

// A Column of a Table.
type Column struct {
	Name string
	Type string // INTEGER, TEXT or REAL
	Key  int    // its place in the primary key, from 1; 0: it is none
	Null bool   // it may be
}

// Tables returns those of a version of the store; 0: of the newest.
func Tables(ctx context.Context, version int) ([]Table, error) {
	list, err := embedded()
	if err != nil {
		return nil, err
	}
	if version == 0 {
		version = len(list)
	}
	if version < 0 || version > len(list) {
		return nil, fmt.Errorf("version %d of the tables: %w", version, queue.ErrNewerVersion)
	}
	c, err := connect(":memory:", nil)
	if err != nil {
		return nil, explain(err)
	}
	d := &db{c, map[string]*stmt{}}
	if err := migrate(ctx, d, list[:version], zerolog.Nop()); err != nil {
		return nil, errors.Join(err, d.close())
	}
	tables, err := d.tables()
	return tables, errors.Join(err, d.close())
}

// Newest is the version of the tables that this program writes.
func Newest() (int, error) {
	list, err := embedded()
	return len(list), err
}

func (d *db) tables() ([]Table, error) {
	names, err := collect(d, scanText, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'copy_of' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	var tables []Table
	for _, name := range names {
		columns, err := collect(d, func(row scanner) (c Column, err error) {
			err = row.Scan(&c.Name, &c.Type, &c.Key, &c.Null)
			return c, err
		}, `SELECT name, type, pk, NOT "notnull" AND pk = 0 FROM pragma_table_info(?) ORDER BY cid`, name)
		if err != nil {
			return nil, err
		}
		tables = append(tables, Table{name, columns})
	}
	return tables, nil
}

// A Filler puts rows into a table, whose values are int64, float64, string or nil in
// the order of its columns.
type Filler func(table Table, values []any) error

// Reload replaces all that a copy that follows holds by what fill puts into it, in one
// transaction, after which it is what to says. The numbers of its events go on after
// cursor.
func (s *Store) Reload(ctx context.Context, to Copied, cursor int64, fill func(Filler) error) error {
	return s.writer.do(ctx, func(t *tx) error {
		tables, err := t.tables()
		if err != nil {
			return err
		}
		for _, table := range tables {
			if err := t.exec(`DELETE FROM ` + table.Name); err != nil {
				return err
			}
		}
		insert := ""
		err = fill(func(table Table, values []any) error {
			if !strings.HasPrefix(insert, `INSERT INTO `+table.Name+` `) {
				insert = `INSERT INTO ` + table.Name + ` (` + table.columns() + `) VALUES (?` + strings.Repeat(", ?", len(table.Columns)-1) + `)`
			}
			if err := t.exec(insert, values...); err != nil {
				return fmt.Errorf("table %s: %w", table.Name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		changed, err := t.change(`UPDATE sqlite_sequence SET seq = CASE WHEN seq < ? THEN ? ELSE seq END WHERE name = 'events'`, cursor, cursor)
		if err == nil && changed == 0 {
			err = t.exec(`INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)`, cursor)
		}
		if err != nil {
			return err
		}
		t.forgetAll()
		t.touched = touched{deleted: true, moved: true}
		return t.setCopied(to)
	})
}

// columns returns the names of the columns as a statement has them.
func (t *Table) columns() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = `"` + c.Name + `"`
	}
	return strings.Join(names, ", ")
}

// EventCursor returns the highest number that was given to an event, of one that is gone
// too.
func (s *Store) EventCursor(ctx context.Context) (n int64, err error) {
	err = s.reads.do(ctx, func(d *db) error {
		n, _, err = d.number(`SELECT seq FROM sqlite_sequence WHERE name = 'events'`)
		return err
	})
	return n, err
}

// Rows calls row for each row of a table as it is at one moment, with values as a
// Filler takes them.
func (s *Store) Rows(ctx context.Context, table Table, row func([]any) error) error {
	return s.reads.do(ctx, func(d *db) error {
		return d.rows(`SELECT `+table.columns()+` FROM `+table.Name, nil, func(found scanner) error {
			values, into := make([]any, len(table.Columns)), make([]any, len(table.Columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := found.Scan(into...); err != nil {
				return err
			}
			return row(values)
		})
	})
}

// RemoveCopy removes a copy that nobody has open.
func RemoveCopy(path string) error {
	var errs []error
	for _, suffix := range storeSuffixes() {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
