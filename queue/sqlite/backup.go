package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	driver "modernc.org/sqlite"
)

// backupPages is how many pages are copied before it is looked whether the
// caller has given up.
const backupPages = 1024

// Backup implements queue.Keeper, also of a store that is open for reading
// only. The error wraps fs.ErrExist if there is a file at path already, and
// ErrCorrupt if the store is damaged: then nothing is left at path.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := s.backup(ctx, path, nil); err != nil {
		return fmt.Errorf("back the store up to %s: %w", path, err)
	}
	return nil
}

func (s *Store) backup(ctx context.Context, path string, pragmas []string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	part := path + ".part-" + rand.Text()[:8]
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
			if e := os.Remove(part + suffix); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	if err := s.copyTo(ctx, part, pragmas); err != nil {
		return readError(ctx, err)
	}
	if err := verify(ctx, part); err != nil {
		return fmt.Errorf("the copy: %w", readError(ctx, err))
	}
	if err := syncPath(part); err != nil {
		return err
	}
	if err := giveName(part, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// copyTo copies the store, as it is at one moment, into the empty file at path.
func (s *Store) copyTo(ctx context.Context, path string, pragmas []string) error {
	conn, err := s.reads.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The steps copy what this transaction sees. Without it each would see the
	// newest, and a write in between would make the copy start over.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
		return err
	}
	return conn.Raw(func(c any) error {
		b, err := c.(interface {
			NewBackup(string) (*driver.Backup, error)
		}).NewBackup(dsn(path, "rw", pragmas))
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			if more, err = b.Step(backupPages); err == nil {
				err = ctx.Err()
			}
		}
		return errors.Join(err, b.Finish())
	})
}

// verify looks whether a copy that nobody else knows is a whole store.
func verify(ctx context.Context, path string) (err error) {
	list, err := embedded()
	if err != nil {
		return err
	}
	// Immutable: no log is made beside it.
	db, err := sql.Open("sqlite", dsn(path, "ro", readPragmas())+"&immutable=1")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := checkVersion(ctx, db, len(list)); err != nil {
		return err
	}
	return quickCheck(ctx, db)
}

// giveName gives the file at from the name to, at which there must be none. Both
// are in one folder.
func giveName(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file system without links: what comes to stand there this very moment would be lost.
	if _, statErr := os.Lstat(to); statErr == nil {
		return fs.ErrExist
	}
	return os.Rename(from, to)
}

// syncPath waits until a file or a folder is on disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
