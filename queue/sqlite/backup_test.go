package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left is %v, %v; want nothing", left, err)
	}
}

// TestBackupDiskFull lets the disk fill up under a backup: there is no half
// file, and the store goes on.
func TestBackupDiskFull(t *testing.T) {
	s := openAt(t, written(t, 2000))
	dir := t.TempDir()
	path := filepath.Join(dir, "backup.db")
	for _, pages := range []int{1, 20} {
		if err := s.BackupLimited(t.Context(), path, pages); err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("with room for %d pages: %v, want an error that says that the disk is full", pages, err)
		}
		wantEmpty(t, dir)
	}
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named("after")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	copied := openAt(t, path)
	if _, total, err := copied.List(t.Context(), queue.Filter{}); err != nil || total != 2001 {
		t.Errorf("the backup has %d jobs, %v; want 2001", total, err)
	}
}

// TestBackupReadOnly takes a backup as another process does: with the store
// open for reading only, while somebody else has it open to write.
func TestBackupReadOnly(t *testing.T) {
	path := written(t, 10)
	s := openAt(t, path)
	reader, err := sqlite.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named("in the log")}); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "backup.db")
	if err := reader.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Examine(t.Context(), copied); err != nil {
		t.Error(err)
	}
	if _, total, err := openAt(t, copied).List(t.Context(), queue.Filter{}); err != nil || total != 11 {
		t.Errorf("the backup has %d jobs, %v; want 11", total, err)
	}
	if _, err := reader.Prune(t.Context(), queue.PruneSpec{Before: time.Now(), Max: 1}); err == nil {
		t.Error("a store that is open for reading only has forgotten")
	}
}

// TestBackupDamaged takes no backup of a store that is damaged.
func TestBackupDamaged(t *testing.T) {
	path := written(t, 500)
	s, err := sqlite.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spoil(t, path, 10, 3)
	dir := t.TempDir()
	if err := s.Backup(t.Context(), filepath.Join(dir, "backup.db")); !errors.Is(err, queue.ErrCorrupt) {
		t.Errorf("backup of a damaged store: %v, want %v", err, queue.ErrCorrupt)
	}
	wantEmpty(t, dir)
}

// spoil overwrites pages of a file.
func spoil(t *testing.T, path string, from, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, n*4096), int64(from)*4096)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRestore puts a backup back, with the log of the store before set aside.
func TestRestore(t *testing.T) {
	path := written(t, 3)
	s := openAt(t, path)
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup.db")
	if err := s.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named("after")}); err != nil {
		t.Fatal(err)
	}
	// What a killed scheduler leaves: its last writes are in the log alone.
	killed := filepath.Join(t.TempDir(), "queue.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + suffix)
		if err := errors.Join(err, os.WriteFile(killed+suffix, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := os.WriteFile(filepath.Join(dir, "no backup"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"no backup": queue.ErrCorrupt, "nothing": fs.ErrNotExist} {
		if _, err := sqlite.Restore(t.Context(), filepath.Join(dir, name), killed, now); !errors.Is(err, want) {
			t.Errorf("restore %s: %v, want %v", name, err, want)
		}
	}
	aside, err := sqlite.Restore(t.Context(), backup, killed, now)
	if err != nil {
		t.Fatal(err)
	}
	if want := killed + ".replaced-20260301T120000.000Z"; aside != want {
		t.Errorf("the old store is %s, want %s", aside, want)
	}
	for path, want := range map[string]int{killed: 3, aside: 4} {
		if _, total, err := openAt(t, path).List(t.Context(), queue.Filter{}); err != nil || total != want {
			t.Errorf("%s has %d jobs, %v; want %d", path, total, err, want)
		}
	}
	left, err := filepath.Glob(killed + ".part*")
	if err != nil || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
	// Where there is no store, the backup becomes one.
	fresh := filepath.Join(t.TempDir(), "queue.db")
	if aside, err := sqlite.Restore(t.Context(), backup, fresh, now); err != nil || aside != "" {
		t.Errorf("restore where there is none: %q, %v", aside, err)
	}
	if _, total, err := openAt(t, fresh).List(t.Context(), queue.Filter{}); err != nil || total != 3 {
		t.Errorf("%d jobs, %v", total, err)
	}
}

// TestCheckFinds breaks what holds of every store, one thing at a time.
func TestCheckFinds(t *testing.T) {
	for what, script := range map[string]string{
		"unknown state":                   `UPDATE entries SET state = 'asleep' WHERE name = 'j1'`,
		"claim's number":                  `UPDATE entries SET fence = 99 WHERE name = 'j1'`,
		"end without its time":            `UPDATE entries SET state = 'completed' WHERE name = 'j1'`,
		"latest attempt":                  `UPDATE entries SET attempts = 1 WHERE name = 'j1'`,
		"attempt goes on":                 `INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at) VALUES (1, 1, 0, '', '', 'running', '', 0); UPDATE entries SET attempts = 1 WHERE seq = 1`,
		"waits for one":                   `UPDATE entries SET waits_for = 'nobody', key = 'k' WHERE name = 'j1'`,
		"result of one that is not there": `UPDATE entries SET coalesced_with = 'nobody' WHERE name = 'j1'`,
		"held that is not queued":         `UPDATE entries SET held = 'lunch', pool = -3 - pool WHERE name = 'j1'`,
		"where it can be claimed":         `UPDATE entries SET held = 'needs' WHERE name = 'j1'`,
		"a person who was not asked":      `UPDATE entries SET held = 'approval', pool = -3 - pool WHERE name = 'j1'`,
		"its job does not":                `INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at, ended_at) VALUES (1, 1, 0, '', '', 'waiting_approval', '', 0, 1); UPDATE entries SET attempts = 1 WHERE seq = 1`,
		"has of its workflow":             `INSERT INTO flows VALUES (1, '{')`,
		"workflow cannot be read":         `UPDATE batches SET workflow = '{'`,
		"a record cannot be read":         `INSERT INTO records (space, key, value, at) VALUES ('s', 'k', '{', 0)`,
		"specification cannot be read":    `UPDATE specs SET spec = '{' WHERE entry = 1`,
		"missing in the ledger":           `INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at, ended_at) VALUES (1, 1, 0, '', '', 'failed', '', 0, 1); UPDATE entries SET attempts = 1 WHERE seq = 1`,
		"more than one job of a key":      `UPDATE entries SET state = 'dispatched', key = 'k', fence = seq WHERE seq < 3; UPDATE fence SET last = 5`,
		"points nowhere":                  `INSERT INTO events (entry, attempt, seq, body) VALUES (99, 1, 1, '{}')`,
	} {
		t.Run(what, func(t *testing.T) {
			path := written(t, 3)
			if err := sqlite.Examine(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			execIn(t, path, script)
			if err := sqlite.Examine(t.Context(), path); !errors.Is(err, queue.ErrCorrupt) || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want an error about %q", err, what)
			}
			if err := openAt(t, path).Check(t.Context()); !errors.Is(err, queue.ErrCorrupt) {
				t.Errorf("got %v, want %v", err, queue.ErrCorrupt)
			}
		})
	}
}

// TestCompactShrinks: what was forgotten is given back to the disk.
func TestCompactShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	s := openAt(t, path)
	ctx := t.Context()
	var entries []queue.Entry
	for i := range 1000 {
		entries = append(entries, named(fmt.Sprint("j", i)))
		entries[i].Spec.Instructions = strings.Repeat("long ", 200)
	}
	if err := s.Enqueue(ctx, queue.Batch{ID: "b"}, entries); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	full := size(t, path)
	var ops []queue.Op
	for _, e := range entries[1:] {
		ops = append(ops, queue.Cancel{ID: e.ID, Now: time.Unix(1, 0)})
	}
	if err := s.Apply(ctx, ops...); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.Prune(ctx, queue.PruneSpec{Before: time.Unix(2, 0), Max: 5000}); err != nil || len(ids) != 999 {
		t.Fatalf("forgot %d, %v", len(ids), err)
	}
	if err := s.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	if got := size(t, path); got > full/4 {
		t.Errorf("the file has %d bytes, and had %d when it was full", got, full)
	}
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
