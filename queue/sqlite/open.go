package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

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
)

// Pragmas of every connection that writes. The log is copied back into the
// file every 4,000 pages (16 MiB), since each such copy costs two syncs and a
// burst of writes, and the log file is cut back to that size.
func writePragmas() []string {
	return []string{
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)", "temp_store(memory)",
		"cache_size(-65536)", "wal_autocheckpoint(4000)", "journal_size_limit(16777216)",
	}
}

func readPragmas() []string {
	return []string{"busy_timeout(10000)", "query_only(1)", "temp_store(memory)"}
}

func open(ctx context.Context, path string, opts Options) (_ *Store, err error) {
	list, err := embedded()
	if err != nil {
		return nil, err
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	if err := inspect(ctx, path, len(list)); err != nil {
		return nil, err
	}
	s := &Store{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(s.reads, s.writes))
		}
	}()
	if s.writes, err = sql.Open("sqlite", dsn(path, "rw", writePragmas())); err != nil {
		return nil, err
	}
	s.writes.SetMaxOpenConns(1)
	conn, err := s.writes.Conn(ctx)
	if err != nil {
		return nil, explain(err)
	}
	if err := migrate(ctx, conn, list, opts.Log); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if s.reads, err = openReads(path, "rw"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.writer = startWriter(conn, opts.Log)
	return s, nil
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
	reads, err := openReads(path, "ro")
	if err != nil {
		return nil, err
	}
	version, err := checkVersion(ctx, reads, len(list))
	if err == nil && version < len(list) {
		err = fmt.Errorf("the store has version %d and this program reads version %d; start the scheduler on it once to bring it up to date", version, len(list))
	}
	if err != nil {
		return nil, errors.Join(err, reads.Close())
	}
	return &Store{path: path, reads: reads}, nil
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

// inspect looks at the file without changing it, before anything that could
// change it does: whether it is a store, of a version that is known, and whole.
func inspect(ctx context.Context, path string, newest int) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case info.Size() == 0:
		return nil
	case info.Size() < minPage: // SQLite would take it for empty and overwrite it
		return fmt.Errorf("%w: the file has only %d bytes", queue.ErrCorrupt, info.Size())
	}
	db, err := openReads(path, "ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := checkVersion(ctx, db, newest); err != nil {
		return err
	}
	if info.Size() > maxQuickCheck {
		return nil
	}
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return explain(err)
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", queue.ErrCorrupt, strings.Join(strings.Fields(verdict), " "))
	}
	return nil
}

func openReads(path, mode string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(path, mode, readPragmas()))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(maxReaders)
	return db, nil
}

// dsn names the file as a URI, in which any character of a path is safe.
func dsn(path, mode string, pragmas []string) string {
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	query := url.Values{"mode": {mode}, "_pragma": pragmas}
	return "file:" + file.EscapedPath() + "?" + query.Encode()
}

// closeAll closes what is open.
func closeAll(dbs ...*sql.DB) error {
	var errs []error
	for _, db := range dbs {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}
