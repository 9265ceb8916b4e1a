package sqlite

import (
	"context"
	"embed"
	"errors"
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
func migrate(ctx context.Context, d *db, list []migration, log zerolog.Logger) error {
	for {
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		done, err := migrateOnce(d, list, log)
		if err != nil || done {
			return err
		}
	}
}

func migrateOnce(d *db, list []migration, log zerolog.Logger) (done bool, err error) {
	if err := d.beginWrite(); err != nil {
		return false, err
	}
	defer func() {
		if d.conn.inTransaction() {
			err = errors.Join(err, d.control("ROLLBACK"))
		}
	}()
	version, err := d.checkVersion(len(list))
	if err != nil {
		return false, err
	}
	if version == len(list) {
		return true, nil
	}
	m := list[version]
	err = d.conn.exec(fmt.Sprintf("%s;\nPRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", m.sql, applicationID, version+1))
	if err != nil {
		return false, fmt.Errorf("apply %s: %w", m.name, explain(err))
	}
	log.Debug().Str("migration", m.name).Int("version", version+1).Msg("store migrated")
	return false, nil
}

// checkVersion returns the file's version, 0 for an empty file. It refuses a
// file of a newer program and one of another program.
func (d *db) checkVersion(newest int) (version int, err error) {
	var application, objects int
	_, err = d.row(`SELECT
		(SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id),
		(SELECT count(*) FROM sqlite_schema)`, nil, &version, &application, &objects)
	switch {
	case err != nil:
		return 0, err
	case application != applicationID && (objects > 0 || version != 0 || application != 0):
		return 0, fmt.Errorf("%w: the file is a database of another program", queue.ErrCorrupt)
	case version > newest:
		return 0, fmt.Errorf("the store has version %d and this program knows versions up to %d: %w", version, newest, queue.ErrNewerVersion)
	}
	return version, nil
}
