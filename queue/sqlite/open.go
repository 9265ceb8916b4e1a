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
)

// Pragmas of every connection that writes. The log is copied back into the
// file every 10,000 pages (40 MiB), since each such copy costs two syncs and a
// burst of writes of pages that soon change again; the log file is cut back to
// that size. The cache, 48 MiB, is most of what a store takes of memory, however
// much is queued. Foreign keys are not enforced: each would be one more look-up
// for a row that was just looked up, and the migrations replace tables.
func writePragmas() []string {
	return []string{
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(0)", "temp_store(memory)",
		"cache_size(-24576)", "wal_autocheckpoint(10000)", "journal_size_limit(41943040)",
	}
}

func readPragmas() []string {
	return []string{"busy_timeout(10000)", "query_only(1)", "temp_store(memory)"}
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
	if err := create(path); err != nil {
		return nil, err
	}
	fresh, err := isEmpty(path)
	if err != nil {
		return nil, err
	}
	if err := inspect(ctx, path, len(list)); err != nil {
		return nil, err
	}
	if err := bringUp(ctx, path, list, fresh, opts.Log); err != nil {
		return nil, err
	}
	writes, err := connect(dsn(path, "rw", nil), writePragmas())
	if err != nil {
		return nil, explain(err)
	}
	reads, err := openReads(path, "rw")
	if err != nil {
		return nil, errors.Join(err, writes.close())
	}
	w, err := startWriter(writes, opts.Log)
	if err != nil {
		return nil, errors.Join(err, reads.Close())
	}
	s := &Store{path: path, reads: reads, writer: w}
	w.tx.prices = &s.prices
	return s, nil
}

// bringUp takes the file to the newest version.
func bringUp(ctx context.Context, path string, list []migration, fresh bool, log zerolog.Logger) (err error) {
	pragmas := writePragmas()
	if fresh {
		// Only an empty file takes it; see Compact.
		pragmas = append(pragmas, "auto_vacuum(incremental)")
	}
	db, err := sql.Open("sqlite", dsn(path, "rw", pragmas))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return migrate(ctx, conn, list, log)
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

func isEmpty(path string) (bool, error) {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0, err
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
	return quickCheck(ctx, db)
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
