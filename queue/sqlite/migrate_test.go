package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
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

// TestMigrateDuplicates opens a file of the version before lines were known:
// its entries are claimed in their order, count as standard and have no key.
func TestMigrateDuplicates(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "queue.db")
	list, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", dsn(path, "rwc", writePragmas()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(ctx, conn, list[:1], zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	_, err = conn.ExecContext(ctx, `INSERT INTO batches VALUES (1, 'b', '', '', 0, NULL);
		INSERT INTO entries (id, batch, tenant, name, priority, created_at, runnable_at, spec, state, exit_kind, completed_at) VALUES
			('low', 1, 'default', 'low', 0, 0, 0, '{"id":"low","key":"k"}', 'queued', '', NULL),
			('high', 1, 'default', 'high', 1, 0, 0, '{"id":"high","priority":1}', 'queued', '', NULL),
			('done', 1, 'default', 'done', 0, 0, 0, '{"id":"done"}', 'completed', 'succeeded', 5)`)
	if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fresh := queue.Entry{ID: "fresh", Spec: job.Spec{Name: "fresh", Tenant: "default", Key: "k", OnDuplicate: job.Reject}}
	if err := s.Enqueue(ctx, queue.Batch{ID: "b"}, []queue.Entry{fresh}); err != nil {
		t.Errorf("a key of before counts: %v", err)
	}
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 1, Now: time.Unix(1, 0), Lease: time.Hour, Count: true})
	if err != nil || len(c.Entries) != 1 || c.Entries[0].ID != "high" || c.Entries[0].Key != "" || c.Ready[job.Standard].Depth != 2 {
		t.Errorf("claimed %+v, %v; want high, and two more ready", c, err)
	}
	if ended, _, err := s.List(ctx, queue.Filter{Since: time.Unix(0, 6)}); err != nil || len(ended) != 3 {
		t.Errorf("listed %d entries, %v; want the three that are unfinished", len(ended), err)
	}
}

func TestEmbedded(t *testing.T) {
	list, err := embedded()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d migrations, %v", len(list), err)
	}
}
