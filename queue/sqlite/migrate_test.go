package sqlite

import (
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
	_, d := emptyDB(t)
	defer d.close()
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
		if err := migrate(ctx, d, step.list, zerolog.Nop()); (err != nil) != step.wantErr {
			t.Errorf("migrate to %d: got error %v", len(step.list), err)
		}
		var version, rows, tables int
		_, err := d.row(`SELECT (SELECT user_version FROM pragma_user_version),
			(SELECT count(*) FROM one), (SELECT count(*) FROM sqlite_schema)`, nil, &version, &rows, &tables)
		if err != nil {
			t.Fatal(err)
		}
		if version != step.version || rows != step.rows || tables != step.tables {
			t.Errorf("after migrating to %d: version %d, %d rows, %d tables; want %d, %d, %d", len(step.list), version, rows, tables, step.version, step.rows, step.tables)
		}
	}
}

// emptyDB makes an empty file and opens it; the caller closes it.
func emptyDB(t *testing.T) (path string, d *db) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "queue.db")
	err := create(path)
	if err == nil {
		d, err = openDB(path, "rw", writePragmas())
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, d
}

// atVersion makes a file as the first n migrations leave it.
func atVersion(t *testing.T, n int) (path string, d *db) {
	t.Helper()
	list, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	path, d = emptyDB(t)
	if err := migrate(t.Context(), d, list[:n], zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	return path, d
}

// TestMigrateDuplicates opens a file of the version before lines were known:
// its entries are claimed in their order, count as standard and have no key.
func TestMigrateDuplicates(t *testing.T) {
	ctx := t.Context()
	path, d := atVersion(t, 1)
	err := d.conn.exec(`INSERT INTO batches VALUES (1, 'b', '', '', 0, NULL);
		INSERT INTO entries (id, batch, tenant, name, priority, created_at, runnable_at, spec, state, exit_kind, completed_at) VALUES
			('low', 1, 'default', 'low', 0, 0, 0, '{"id":"low","key":"k"}', 'queued', '', NULL),
			('high', 1, 'default', 'high', 1, 0, 0, '{"id":"high","priority":1}', 'queued', '', NULL),
			('done', 1, 'default', 'done', 0, 0, 0, '{"id":"done"}', 'completed', 'succeeded', 5)`)
	if err := errors.Join(err, d.close()); err != nil {
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
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Batch: "b", Max: 1, Now: time.Unix(1, 0), Lease: time.Hour, Count: true})
	if err != nil || len(c.Entries) != 1 || c.Entries[0].ID != "high" || c.Entries[0].Key != "" || c.Ready[job.Standard].Depth != 2 {
		t.Errorf("claimed %+v, %v; want high, and two more ready", c, err)
	}
	if ended, _, err := s.List(ctx, queue.Filter{Since: time.Unix(0, 6)}); err != nil || len(ended) != 3 {
		t.Errorf("listed %d entries, %v; want the three that are unfinished", len(ended), err)
	}
}

// TestMigrateLanes opens a file of the version before lanes were known: what it
// holds stays as it was, and is of private batches until it is shared.
func TestMigrateLanes(t *testing.T) {
	ctx := t.Context()
	path, d := atVersion(t, 2)
	err := d.conn.exec(`INSERT INTO batches VALUES (1, 'b', 'source', 'digest', 3, NULL), (7, 'c', '', '', 4, 9);
		UPDATE fence SET last = 4;
		INSERT INTO entries (seq, id, batch, tenant, name, priority, class, state, exit_kind, created_at, runnable_at, completed_at, fence, holder,
				lease_until, attempts, counted, spent, key, waits_for, coalesced_with, waiting, spec) VALUES
			(2, 'done', 1, 't', 'n', 0, 'standard', 'completed', 'succeeded', 1, 1, 5, 3, '', NULL, 1, 1, '{"input_tokens":3}', '', '', '', '', '{"id":"n","tenant":"t","payload":"\u00e9"}'),
			(3, 'runs', 1, 't', 'm', 2, 'batch', 'dispatched', '', 1, 1, NULL, 4, 'h', 99, 1, 1, '', 'k', '', '', '', '{"id":"m","tenant":"t","priority":2,"class":"batch"}'),
			(5, 'waits', 1, 't', 'o', 0, 'standard', 'queued', '', 1, 1, NULL, 0, '', NULL, 0, 0, '', 'k', 'runs', 'runs', 'w', '{"id":"o","tenant":"t"}'),
			(9, 'head', 7, 'u', 'n', -1, 'interactive', 'queued', '', 1, 2, NULL, 0, '', NULL, 0, 0, '', '', '', '', '', '{"id":"n","tenant":"u","priority":-1}');
		INSERT INTO attempts VALUES (2, 1, 3, 'shell', '', 'completed', '', 1, 5, 0, '{"state":"completed","usage":{"input_tokens":3}}'),
			(3, 1, 4, 'shell', '', 'running', '', 1, NULL, 0, '');
		INSERT INTO events (cursor, entry, attempt, seq, body) VALUES (11, 3, 1, 1, '{"job":"runs","attempt":1,"seq":1,"kind":"text","text":"hello"}')`)
	if err := errors.Join(err, d.close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
	batches, err := s.Batches(ctx, "")
	if err != nil || len(batches) != 2 || !batches[0].Private || batches[0].ClosedAt == nil || !batches[1].Private || batches[1].Source != "source" {
		t.Errorf("batches %+v, %v; want that of before as private ones", batches, err)
	}
	entries, total, err := s.List(ctx, queue.Filter{})
	if err != nil || total != 4 {
		t.Fatalf("%d entries, %v", total, err)
	}
	done, runs, waits := entries[0], entries[1], entries[2]
	if done.Spec.Name != "n" || string(done.Spec.Payload) != `"\u00e9"` || done.Spent.InputTokens != 3 || done.ExitKind != job.ExitSucceeded ||
		runs.Holder != "h" || runs.Fence != 4 || runs.Spec.Class != job.Batch || waits.WaitsFor != "runs" || waits.CoalescedWith != "runs" || waits.Waiting != "w" {
		t.Errorf("entries %+v", entries)
	}
	if attempts, err := s.Attempts(ctx, "runs"); err != nil || len(attempts) != 1 || attempts[0].State != job.Running {
		t.Errorf("attempts %+v, %v", attempts, err)
	}
	if events, err := s.Events(ctx, "runs", 0, 9); err != nil || len(events) != 1 || events[0].Cursor != 11 || events[0].Text != "hello" {
		t.Errorf("events %+v, %v", events, err)
	}
	claim := func(batch job.BatchID) queue.Claims {
		t.Helper()
		c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Batch: batch, Max: 9, Now: time.Unix(1, 0), Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := claim(""); len(c.Entries) != 0 {
		t.Errorf("claimed %v of what is shared", c.Entries)
	}
	if c := claim("c"); len(c.Entries) != 1 || c.Entries[0].ID != "head" || c.Entries[0].Fence != 5 {
		t.Errorf("claimed %+v of batch c", c.Entries)
	}
	finish := queue.Finish{ID: "runs", Fence: 4, Attempt: 1, Now: time.Unix(2, 0), Outcome: job.Outcome{State: job.RunFailed}, Retry: queue.Retry{RunnableAt: time.Unix(1, 0)}}
	if err := s.Apply(ctx, finish, queue.Adopt{}); err != nil {
		t.Fatal(err)
	}
	if c := claim(""); len(c.Entries) != 1 || c.Entries[0].ID != "runs" {
		t.Errorf("claimed %+v after all was shared", c.Entries)
	}
}

func TestEmbedded(t *testing.T) {
	list, err := embedded()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d migrations, %v", len(list), err)
	}
}
