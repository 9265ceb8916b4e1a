package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
)

// TestMigrateSteps applies migrations one after the other; one that fails
// leaves the file at the version before it, with nothing of it.
func TestMigrateSteps(t *testing.T) {
	ctx := t.Context()
	db, err := sql.Open("sqlite", dsn(filepath.Join(t.TempDir(), "queue.db"), "rwc", writePragmas()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	good := []migration{{"1", `CREATE TABLE one (x INTEGER)`}, {"2", `CREATE TABLE two (x INTEGER); INSERT INTO one VALUES (2)`}}
	bad := append(good[:2:2], migration{"3", `CREATE TABLE three (x INTEGER); INSERT INTO one VALUES (3); INSERT INTO nowhere VALUES (1)`})
	fixed := append(good[:2:2], migration{"3", `INSERT INTO one VALUES (3)`})
	for _, step := range []struct {
		list    []migration
		wantErr bool
		version int
		rows    int
		tables  int
	}{
		{good[:1], false, 1, 0, 1},
		{bad, true, 2, 1, 2},
		{bad, true, 2, 1, 2},
		{fixed, false, 3, 2, 2},
		{fixed, false, 3, 2, 2},
		{good, true, 3, 2, 2}, // an older program
	} {
		if err := migrate(ctx, conn, step.list, zerolog.Nop()); (err != nil) != step.wantErr {
			t.Errorf("migrate to %d: got error %v", len(step.list), err)
		}
		var version, rows, tables int
		err := conn.QueryRowContext(context.Background(), `SELECT (SELECT user_version FROM pragma_user_version),
			(SELECT count(*) FROM one), (SELECT count(*) FROM sqlite_schema)`).Scan(&version, &rows, &tables)
		if err != nil {
			t.Fatal(err)
		}
		if version != step.version || rows != step.rows || tables != step.tables {
			t.Errorf("after migrating to %d: version %d, %d rows, %d tables; want %d, %d, %d", len(step.list), version, rows, tables, step.version, step.rows, step.tables)
		}
	}
}

func TestEmbedded(t *testing.T) {
	list, err := embedded()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d migrations, %v", len(list), err)
	}
}
