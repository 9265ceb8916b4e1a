package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// ErrInUse is wrapped where a queue is moved that a scheduler works on.
var ErrInUse = errors.New("a scheduler works on it")

// ErrNotEmpty is wrapped where a queue is moved to where one is already.
var ErrNotEmpty = errors.New("there is a queue already")

// Moved says what was moved.
type Moved struct {
	Jobs, Batches, Rows int64
	Documents, Parcels  int
}

// Import has the database hold what a store in a file holds, which nobody else may have
// open, the documents, and the parcels that its jobs name. The database must hold none. It
// is read back and compared.
func (d *Database) Import(ctx context.Context, from *sqlite.Store, docs statedir.Documents, parcels parcel.Store) (m Moved, err error) {
	t, err := d.alone(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, t.Release(context.WithoutCancel(ctx))) }()
	var there bool
	err = d.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM batches) OR EXISTS (SELECT 1 FROM records) OR EXISTS (SELECT 1 FROM documents)`).Scan(&there)
	if err != nil {
		return m, err
	}
	if there {
		return m, fmt.Errorf("%s: %w", d.cfg.Where, ErrNotEmpty)
	}
	if _, err := d.rewrite(ctx, from, d.newest, t.epoch); err != nil {
		return m, err
	}
	if m.Documents, err = moveDocuments(ctx, docs, d.Documents()); err != nil {
		return m, err
	}
	if m.Parcels, err = moveParcels(ctx, from, parcels, d.Parcels()); err != nil {
		return m, err
	}
	err = d.loaded(ctx, func(read *sqlite.Store) error {
		m, err = sameRows(ctx, from, read, m)
		return err
	})
	return m, err
}

// Export makes the store in the file at path, at which there must be none, of what the
// database holds, the documents, and the parcels that its jobs name. It is compared with a
// second reading.
func (d *Database) Export(ctx context.Context, path string, docs statedir.Documents, parcels parcel.Store) (m Moved, err error) {
	if _, err := os.Lstat(path); err == nil {
		return m, fmt.Errorf("%s: %w", path, ErrNotEmpty)
	}
	t, err := d.alone(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, t.Release(context.WithoutCancel(ctx))) }()
	err = d.loaded(ctx, func(read *sqlite.Store) error {
		if err := read.Backup(ctx, path); err != nil {
			return err
		}
		s, err := sqlite.Open(ctx, path, sqlite.Options{Log: d.cfg.Log})
		if err != nil {
			return err
		}
		m, err = sameRows(ctx, read, s, m)
		if err == nil {
			m.Parcels, err = moveParcels(ctx, s, d.Parcels(), parcels)
		}
		return errors.Join(err, s.Check(ctx), s.Close())
	})
	if err != nil {
		return m, err
	}
	m.Documents, err = moveDocuments(ctx, d.Documents(), docs)
	return m, err
}

// alone takes the lead where nobody has it.
func (d *Database) alone(ctx context.Context) (*Term, error) {
	var leader Leader
	t, err := d.seize(ctx, d.cfg.Lease, func(l Leader) string {
		leader = l
		if why := d.vacant(l); why == "" {
			return ""
		}
		return "the queue was moved"
	})
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, fmt.Errorf("scheduler %s leads since %s: %w", leader.Instance, leader.Since.Format("2006-01-02 15:04:05Z07:00"), ErrInUse)
	}
	t.begin()
	return t, nil
}

// loaded calls use with a copy of what the database holds, which is gone after that.
func (d *Database) loaded(ctx context.Context, use func(*sqlite.Store) error) (err error) {
	var version int
	if err := d.pool.QueryRow(ctx, `SELECT version FROM meta`).Scan(&version); err != nil {
		return err
	}
	if version != d.newest {
		return fmt.Errorf("its tables have version %d and this program moves version %d; let `scheduler serve` of this program lead once: %w", version, d.newest, queue.ErrNewerVersion)
	}
	if err := os.MkdirAll(d.cfg.Folder, 0o700); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(d.cfg.Folder, "move")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	s, err := sqlite.OpenCopy(ctx, filepath.Join(folder, "copy.db"), sqlite.CopyOptions{Log: d.cfg.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := d.load(ctx, s); err != nil {
		return err
	}
	return use(s)
}

// sameRows compares two stores row by row; m is completed by how many there are. The
// epoch is each store's own.
func sameRows(ctx context.Context, a, b *sqlite.Store, m Moved) (Moved, error) {
	tables, err := sqlite.Tables(ctx, 0)
	if err != nil {
		return m, err
	}
	for _, table := range tables {
		var sums [2][sha256.Size]byte
		var counts [2]int64
		for i, s := range []*sqlite.Store{a, b} {
			sum := sha256.New()
			err := s.Rows(ctx, table, func(row []any) error {
				counts[i]++
				for k, v := range row {
					if table.Name != "fence" || table.Columns[k].Name != "epoch" {
						fmt.Fprintf(sum, "%T %v\x00", v, v)
					}
				}
				return nil
			})
			if err != nil {
				return m, fmt.Errorf("compare table %s: %w", table.Name, err)
			}
			sum.Sum(sums[i][:0])
		}
		if counts[0] != counts[1] || sums[0] != sums[1] {
			return m, fmt.Errorf("table %s has %d rows, and %d after it was copied, or others: nothing was moved", table.Name, counts[0], counts[1])
		}
		m.Rows += counts[0]
		switch table.Name {
		case "entries":
			m.Jobs = counts[0]
		case "batches":
			m.Batches = counts[0]
		}
	}
	return m, nil
}

// moveParcels copies those that the jobs of a store name.
func moveParcels(ctx context.Context, of *sqlite.Store, from, to parcel.Store) (int, error) {
	named, err := of.Parcels(ctx)
	if err != nil {
		return 0, err
	}
	return parcel.Copy(ctx, from, to, named)
}

// moveDocuments copies those that there are.
func moveDocuments(ctx context.Context, from, to statedir.Documents) (n int, err error) {
	for _, name := range []string{statedir.TokensFile, statedir.SessionsFile, statedir.IsolationsFile, statedir.NodesFile, statedir.TriggersFile} {
		text, version, err := from.Read(ctx, name)
		if err != nil {
			return n, err
		}
		if version == "" {
			continue
		}
		if err := statedir.Change(ctx, to, name, func([]byte) ([]byte, error) { return text, nil }); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
