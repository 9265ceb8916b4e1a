package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/queue"
)

// older is a member whose program knows the tables up to a version.
func older(t *testing.T, cfg Config, newest int) *member {
	t.Helper()
	d, err := connect(t.Context(), cfg, newest)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.OpenCopy(t.Context())
	if err != nil {
		d.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		d.Close()
	})
	return &member{d, c}
}

// TestVersions: a newer program brings the tables up to date when it leads; others of it
// follow, an older one neither follows nor leads any more.
func TestVersions(t *testing.T) {
	address := newDatabase(t)
	ctx := t.Context()
	d, err := Connect(ctx, config(t, address, "maker"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, x := range []string{ // what versions 8 and 9 have changed
		`ALTER TABLE attempts DROP COLUMN node`, `ALTER TABLE entries DROP COLUMN session_node`,
		`ALTER TABLE fence DROP COLUMN id`, `UPDATE fence SET last = 41`, `UPDATE meta SET version = 7`,
		`INSERT INTO batches (seq, id, source, digest, created_at, private, workflow) VALUES (1, 'b', 'x', '', 0, 0, '')`,
	} {
		if _, err := d.pool.Exec(ctx, x); err != nil {
			t.Fatal(err)
		}
	}
	old := older(t, config(t, address, "old"), 7)
	if old.copy.Store() == nil {
		t.Error("an older program does not read tables of its version")
	}
	first, second := join(t, config(t, address, "first")), join(t, config(t, address, "second"))
	if first.copy.Store() != nil {
		t.Error("a newer program reads tables of an older version")
	}
	second.copy.Follow()
	l, term := first.lead(t)
	defer first.resign(t, l, term)
	if list, err := l.Batches(ctx, "x"); err != nil || len(list) != 1 {
		t.Errorf("batches %+v, %v", list, err)
	}
	if err := l.Enqueue(ctx, queue.Batch{ID: "c", Source: "y", CreatedAt: at}, []queue.Entry{newEntry("one")}); err != nil {
		t.Fatal(err)
	}
	c, err := l.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 1, Now: at, Lease: 1})
	if err != nil || len(c.Entries) != 1 || c.Entries[0].Fence != 42 {
		t.Errorf("claimed %+v, %v; want fence 42", c.Entries, err)
	}
	if err := second.copy.Await(ctx, l.Revision()); err != nil {
		t.Fatal(err)
	}
	wantSameRows(t, l.Store, second.copy.Store())
	if err := old.copy.renew(ctx); !errors.Is(err, queue.ErrNewerVersion) {
		t.Errorf("an older program follows: %v", err)
	}
	if term, err := old.seize(ctx, MinLease, func(Leader) string { return "test" }); term != nil || err != nil {
		t.Errorf("an older program leads: %v, %v", term, err)
	}
	if _, err := old.OpenCopy(ctx); !errors.Is(err, queue.ErrNewerVersion) {
		t.Errorf("an older program copies: %v", err)
	}
}

// TestParseWhere: no address that others can read has a password, and none is shown.
func TestParseWhere(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private := write("private", "postgres://u:hush@db/agents\n", 0o600)
	open := write("open", "postgres://u:hush@db/agents\n", 0o644)
	odd := write("odd", "hush", 0o600)
	env := map[string]string{"STORE": "postgres://u:hush@db/agents"}
	getenv := func(name string) string { return env[name] }
	for given, want := range map[string]string{
		"postgres://u@db/agents?sslmode=require": "",
		"postgresql:///agents":                   "",
		"file:" + private:                        "",
		"env:STORE":                              "",
		"postgres://u:hush@db/agents":            "may not have a password",
		"postgres://u@db/agents?password=hush":   "may not have a password",
		"file:" + open:                           "chmod 600",
		"file:" + odd:                            "no address of a database",
		"file:" + filepath.Join(dir, "none"):     "no such file",
		"env:NONE":                               "NONE is not set",
		"mysql://db":                             "want postgres://user@host/name",
		"":                                       "want postgres://user@host/name",
		"postgres://u:hush@db:port/agents":       "postgres://u:***@db:port/agents",
	} {
		w, err := ParseWhere(given, getenv)
		if want == "" {
			if err != nil || w.String() != given {
				t.Errorf("%s is %s, %v", given, w, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: error %v, want one with %q and no password", given, err, want)
		}
	}
	if _, err := Connect(context.Background(), config(t, "postgres://u@127.0.0.1:1/none", "a")); err == nil || !strings.Contains(err.Error(), "postgres://u@127.0.0.1:1/none") {
		t.Errorf("a database that is not there: %v", err)
	}
}
