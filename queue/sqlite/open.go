package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
)

const (
	// maxReaders is how many reads run at once; more wait.
	maxReaders = 8
	// minPage is the smallest page, in bytes, that a SQLite file can have.
	minPage = 512
	// maxQuickCheck is the size, in bytes, up to which a file is checked whole
	// when it is opened (about a second). Damage in a larger one shows when it
	// is met, as the same error.
	maxQuickCheck = 256 << 20
	// busyTimeout is how long a connection waits for a lock of another one.
	busyTimeout = 10 * time.Second
)

// waitFor is the pragma with which a connection waits for locks so long.
func waitFor(d time.Duration) string { return fmt.Sprintf("busy_timeout(%d)", d.Milliseconds()) }

// Pragmas of every connection that writes. The log is copied back into the
// file every 10,000 pages (40 MiB), since each such copy costs two syncs and a
// burst of writes of pages that soon change again; the log file is cut back to
// that size. The cache, 48 MiB, is most of what a store takes of memory, however
// much is queued. Foreign keys are not enforced: each would be one more look-up
// for a row that was just looked up, and the migrations replace tables.
func writePragmas() []string {
	return []string{
		waitFor(busyTimeout), "journal_mode(wal)", "synchronous(full)", "foreign_keys(0)", "temp_store(memory)",
		"cache_size(-24576)", "wal_autocheckpoint(10000)", "journal_size_limit(41943040)",
	}
}

func readPragmas() []string {
	return []string{waitFor(busyTimeout), "query_only(1)", "temp_store(memory)"}
}

func open(ctx context.Context, path string, opts Options) (*Store, error) {
	list, err := embedded()
	if err != nil {
		return nil, err
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	turn, err := takeTurn(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer turn.Close() //nolint:errcheck // nothing was written
	if err := create(path); err != nil {
		return nil, err
	}
	fresh, err := isEmpty(path)
	if err != nil {
		return nil, err
	}
	version, err := inspect(ctx, path, len(list))
	if err != nil {
		return nil, err
	}
	if !fresh && version < len(list) {
		if err := keepOld(ctx, path, version, opts.Log); err != nil {
			return nil, fmt.Errorf("keep a copy of version %d before it is brought up to date: %w", version, err)
		}
	}
	if err := bringUp(ctx, path, list, fresh, opts.Log); err != nil {
		return nil, err
	}
	d, err := openDB(path, "rw", writePragmas())
	if err != nil {
		return nil, err
	}
	s := newStore(path, "rw")
	if s.writer, err = newWriter(d, opts.Log, nil, 0); err != nil {
		return nil, err
	}
	s.writer.tx.credits.prices = &s.prices
	return s, nil
}

// turnTime is how long an opener waits for others at most. The lock only keeps two that
// begin at once from meeting a store that is half made; whoever holds it for longer (any
// process that may read the folder can) must not keep the scheduler from starting.
const turnTime = 10 * time.Second

// takeTurn waits until nobody else opens a store in the folder. Closing what it returns ends
// the turn. The lock is the folder's own, by flock(2): a descriptor of the file itself would,
// when it is closed, drop the locks that SQLite holds on it.
func takeTurn(ctx context.Context, folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return f, nil // also where a file system has no such locks
		}
		select {
		case <-ctx.Done():
			return f, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// bringUp takes the file to the newest version.
func bringUp(ctx context.Context, path string, list []migration, fresh bool, log zerolog.Logger) (err error) {
	pragmas := writePragmas()
	if fresh {
		// Only an empty file takes it, which a log makes it no more; see Compact.
		pragmas = slices.Insert(pragmas, 0, "auto_vacuum(incremental)")
	}
	d, err := openDB(path, "rw", pragmas)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return migrate(ctx, d, list, log)
}

func openReadOnly(ctx context.Context, path string) (*Store, error) {
	list, err := embedded()
	if err != nil {
		return nil, err
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	s := newStore(path, "ro")
	var version int
	err = s.reads.do(ctx, func(d *db) (err error) {
		version, err = d.checkVersion(len(list))
		return err
	})
	if err == nil && version < len(list) {
		err = fmt.Errorf("the store has version %d and this program reads version %d; start the scheduler on it once to bring it up to date", version, len(list))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// create makes an empty file, readable by its owner only since it will hold
// prompts, unless there is one. An existing file must not even be opened here:
// closing it again would drop, by the rules of POSIX, all locks that SQLite
// holds on it in this process.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		return f.Close()
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file but %s", queue.ErrCorrupt, info.Mode().Type())
	}
	return nil
}

func isEmpty(path string) (bool, error) {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0, err
}

// inspect looks at the file without changing it, before anything that could
// change it does: whether it is a store, of a version that is known, and whole.
func inspect(ctx context.Context, path string, newest int) (version int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	switch {
	case info.Size() == 0:
		return 0, nil
	case info.Size() < minPage: // SQLite would take it for empty and overwrite it
		return 0, fmt.Errorf("%w: the file has only %d bytes", queue.ErrCorrupt, info.Size())
	}
	s := newStore(path, "ro")
	defer func() { err = errors.Join(err, s.Close()) }()
	err = s.reads.do(ctx, func(d *db) error {
		if version, err = d.checkVersion(newest); err != nil || info.Size() > maxQuickCheck {
			return err
		}
		return d.quickCheck()
	})
	return version, err
}

// keepOld writes a copy of a store that an older program wrote beside it, which that
// program opens: once migrated the store is refused by it.
func keepOld(ctx context.Context, path string, version int, log zerolog.Logger) (err error) {
	if version == 0 {
		return nil // SQLite has written to the file, and nobody else
	}
	s := newStore(path, "ro")
	defer func() { err = errors.Join(err, s.Close()) }()
	kept := fmt.Sprintf("%s.version%d-%s", path, version, time.Now().UTC().Format("20060102T150405.000Z"))
	if err := s.Backup(ctx, kept); err != nil {
		return err
	}
	log.Info().Str("copy", kept).Int("version", version).Msg("the store was copied before it is brought up to date; docs/daemon.md says how to go back")
	return nil
}

// dsn names the file as a URI, in which any character of a path is safe.
func dsn(path, mode string) string {
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	return "file:" + file.EscapedPath() + "?mode=" + mode
}
