package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agentsched/agentsched/queue"
)

// storeSuffixes are the names of a store's files after its own: the log, its
// index, and the journal of one that was never opened by a scheduler.
func storeSuffixes() []string { return []string{"", "-wal", "-shm", "-journal"} }

// Examine reads a store that nobody writes to, of this or an older version, and
// returns what is wrong with it; the error wraps queue.ErrCorrupt if it is damaged.
func Examine(ctx context.Context, path string) error {
	if err := examine(ctx, path); err != nil {
		return fmt.Errorf("examine store %s: %w", path, err)
	}
	return nil
}

func examine(ctx context.Context, path string) (err error) {
	list, err := embedded()
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > 0 && info.Size() < minPage {
		return fmt.Errorf("%w: the file has only %d bytes", queue.ErrCorrupt, info.Size())
	}
	s, err := openStill(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.reads.do(ctx, func(d *db) error {
		version, err := d.checkVersion(len(list))
		switch {
		case err != nil:
			return err
		case version < len(list):
			return d.quickCheck()
		}
		return d.check()
	})
}

// openStill opens a store that nobody writes to. Without a log beside it nothing
// is made there, so that it may lie where nothing can be written.
func openStill(path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		return newStore(path, "ro"), nil
	}
	return newStore(path, immutable), nil
}

// Restore puts a copy of a backup in the place of the store at path, which
// nobody may have open and which is kept: the name of that is returned, "" if
// there was none.
func Restore(ctx context.Context, backup, path string, now time.Time) (aside string, err error) {
	aside, err = restore(ctx, backup, path, now)
	if err != nil {
		return "", fmt.Errorf("restore store %s from %s: %w", path, backup, err)
	}
	return aside, nil
}

func restore(ctx context.Context, backup, path string, now time.Time) (aside string, err error) {
	if err := examine(ctx, backup); err != nil {
		return "", fmt.Errorf("the backup: %w", err)
	}
	s, err := openStill(backup)
	if err != nil {
		return "", err
	}
	part := path + ".part-" + rand.Text()[:8]
	err = s.backup(ctx, part, nil)
	if err := errors.Join(err, s.Close()); err != nil {
		return "", err
	}
	if aside, err = Replace(path, part, "replaced", now); err != nil {
		os.Remove(part) //nolint:errcheck // err says what went wrong
	}
	return aside, err
}

// Replace gives the store at path, which nobody may have open, another name that
// tells why and when, and puts the closed store in the file at with in its place. It
// returns the new name of the old store, "" if there was none.
func Replace(path, with, why string, now time.Time) (aside string, err error) {
	aside, err = setAside(path, why, now)
	if err != nil {
		return "", err
	}
	if err := os.Rename(with, path); err != nil {
		return "", fmt.Errorf("the old store is %s; put the new one in its place: %w", aside, err)
	}
	return aside, syncPath(filepath.Dir(path))
}

// SetAside gives the store at path, which nobody may have open, another name that tells
// why and when, and returns that, "" if there was none.
func SetAside(path, why string, now time.Time) (aside string, err error) {
	if aside, err = setAside(path, why, now); err != nil || aside == "" {
		return "", err
	}
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("set the store aside as %s: %w", aside, err)
	}
	return aside, syncPath(filepath.Dir(path))
}

// setAside gives the store at path a second name, and leaves it the first.
func setAside(path, why string, now time.Time) (aside string, err error) {
	aside = fmt.Sprintf("%s.%s-%s", path, why, now.UTC().Format("20060102T150405.000Z"))
	found := false
	for _, suffix := range storeSuffixes() {
		// First all have both names: whenever this is cut short, nothing is lost.
		switch err := os.Link(path+suffix, aside+suffix); {
		case err == nil:
			found = true
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("set the store aside: %w", err)
		}
	}
	for _, suffix := range storeSuffixes()[1:] {
		// A log of the old store would be taken for the new one's.
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set the store aside as %s: %w", aside, err)
		}
	}
	if !found {
		aside = ""
	}
	return aside, nil
}
