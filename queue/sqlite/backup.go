package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
		return err
	}
	if err := verify(ctx, part); err != nil {
		return fmt.Errorf("the copy: %w", err)
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
	to, err := openDB(path, "rw", pragmas)
	if err != nil {
		return err
	}
	err = s.reads.do(ctx, func(d *db) error {
		// The steps copy what the transaction sees from here on. Without it each would
		// see the newest, and a write in between would make the copy start over.
		if _, _, err := d.number(`SELECT count(*) FROM sqlite_schema`); err != nil {
			return err
		}
		if err := d.conn.copyTo(ctx, to.conn, backupPages); err != nil {
			return explain(err)
		}
		return explain(to.conn.exec(`DROP TABLE IF EXISTS copy_of`)) // see copy.go: it is a store of its own
	})
	return errors.Join(err, to.close())
}

// verify looks whether a copy that nobody else knows is a whole store.
func verify(ctx context.Context, path string) error {
	list, err := embedded()
	if err != nil {
		return err
	}
	s := newStore(path, immutable)
	err = s.reads.do(ctx, func(d *db) error {
		if _, err := d.checkVersion(len(list)); err != nil {
			return err
		}
		return d.quickCheck()
	})
	return errors.Join(err, s.Close())
}

// immutable is the mode of a store that nobody writes to: no log is made beside it.
const immutable = "ro&immutable=1"

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
