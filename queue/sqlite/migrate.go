package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
)

// migrations holds NNNN_what.sql, without gaps from 0001 on. Number n takes a
// file of user_version n-1 to n. A file that was released is never edited, and
// testdata keeps a store of each version before the newest.
//
//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks a SQLite file as a store of this program ("AgSq"), so
// that another program's database is not taken for an empty one of ours.
const applicationID = 0x41675371

// migration is one embedded file.
type migration struct {
	name string
	sql  string
}

// embedded returns the migrations in their order; index i leads to version i+1.
func embedded() ([]migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name
	if err != nil {
		return nil, err
	}
	list := make([]migration, 0, len(names))
	for i, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "migrations/%04d_", &n); err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s stands at place %d", name, i+1)
		}
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, migration{name, string(text)})
	}
	return list, nil
}

// migrate takes the file to the newest version, each step in a transaction of
// its own. Another process may do the same at once: the version is read again
// under the write lock.
func migrate(ctx context.Context, conn *sql.Conn, list []migration, log zerolog.Logger) error {
	for {
		done, err := migrateOnce(ctx, conn, list, log)
		if err != nil || done {
			return err
		}
	}
}

func migrateOnce(ctx context.Context, conn *sql.Conn, list []migration, log zerolog.Logger) (done bool, err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false, explain(err)
	}
	defer func() {
		if err != nil || done {
			conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") //nolint:errcheck // err says what went wrong
		}
	}()
	version, err := checkVersion(ctx, conn, len(list))
	if err != nil {
		return false, err
	}
	if version == len(list) {
		return true, nil
	}
	m := list[version]
	script := fmt.Sprintf("%s;\nPRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", m.sql, applicationID, version+1)
	if _, err := conn.ExecContext(ctx, script); err != nil {
		return false, fmt.Errorf("apply %s: %w", m.name, explain(err))
	}
	log.Debug().Str("migration", m.name).Int("version", version+1).Msg("store migrated")
	return false, nil
}

// querier is what a version can be read from.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// checkVersion returns the file's version, 0 for an empty file. It refuses a
// file of a newer program and one of another program.
func checkVersion(ctx context.Context, q querier, newest int) (int, error) {
	var version, application, objects int
	err := q.QueryRowContext(ctx, `SELECT
		(SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id),
		(SELECT count(*) FROM sqlite_schema)`).Scan(&version, &application, &objects)
	switch {
	case err != nil:
		return 0, explain(err)
	case application != applicationID && (objects > 0 || version != 0 || application != 0):
		return 0, fmt.Errorf("%w: the file is a database of another program", queue.ErrCorrupt)
	case version > newest:
		return 0, fmt.Errorf("the store has version %d and this program knows versions up to %d: %w", version, newest, queue.ErrNewerVersion)
	}
	return version, nil
}
