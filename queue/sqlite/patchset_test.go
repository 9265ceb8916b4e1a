package sqlite

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// TestPatchset changes rows of tables in many ways, among them statements that fail and
// savepoints that are taken back, and merges each commit's patch into another file, which
// then holds the same.
func TestPatchset(t *testing.T) {
	a, b := patchDB(t), patchDB(t)
	tables, err := a.tables()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.conn.record(tables); err != nil {
		t.Fatal(err)
	}
	w := newTx(a)
	rnd := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kinds := []func() (string, []any){
		func() (string, []any) {
			return `INSERT INTO one (name, size, part) VALUES (?, ?, ?)`, []any{text(rnd), rnd.Int64N(1 << 40), rnd.Float64()}
		},
		func() (string, []any) { return `INSERT INTO one (name, size) VALUES (?, ?)`, []any{text(rnd), 1} },
		func() (string, []any) {
			return `UPDATE one SET size = size + 1, part = ? WHERE seq % 7 = ?`, []any{float64(rnd.IntN(3)), rnd.IntN(7)}
		},
		func() (string, []any) { return `UPDATE one SET part = NULL WHERE seq % 5 = ?`, []any{rnd.IntN(5)} },
		func() (string, []any) {
			return `UPDATE one SET name = ? WHERE seq % 9 = ?`, []any{text(rnd), rnd.IntN(9)}
		}, // fails where it meets two rows
		func() (string, []any) {
			return `UPDATE one SET seq = seq + 1000 WHERE seq % 31 = ?`, []any{rnd.IntN(31)}
		},
		func() (string, []any) { return `DELETE FROM one WHERE seq % 11 = ?`, []any{rnd.IntN(11)} },
		func() (string, []any) {
			return `INSERT INTO two (name, number, note) VALUES (?, ?, ?) ON CONFLICT (name, number) DO UPDATE SET note = excluded.note || note`, []any{text(rnd)[:1], rnd.IntN(4), text(rnd)}
		},
		func() (string, []any) {
			return `UPDATE two SET number = number + 4 WHERE number = ?`, []any{rnd.IntN(6)}
		},
		func() (string, []any) { return `DELETE FROM two WHERE number > ?`, []any{4 + rnd.IntN(4)} },
		func() (string, []any) { return `INSERT INTO two SELECT name, seq + 10, name FROM one LIMIT 3`, nil },
		func() (string, []any) { return `DELETE FROM two`, nil },
	}
	failed, undone, merged := 0, 0, 0
	for range 500 {
		must(w.beginWrite())
		for range 1 + rnd.IntN(4) {
			w.protected = false
			protect := rnd.IntN(2) == 0
			if protect {
				must(w.protect())
			}
			for range 1 + rnd.IntN(3) {
				query, args := kinds[rnd.IntN(len(kinds))]()
				if err := w.exec(query, args...); err != nil {
					failed++
				}
			}
			if protect && rnd.IntN(3) == 0 {
				must(w.control("ROLLBACK TO caller"))
				a.conn.recording.undo(w.before)
				undone++
			}
			if protect {
				must(w.control("RELEASE caller"))
			}
		}
		if rnd.IntN(10) == 0 {
			a.conn.recording.forget()
			must(w.control("ROLLBACK"))
			continue
		}
		patch, err := a.conn.recording.take()
		must(err)
		must(w.control("COMMIT"))
		must(b.beginWrite())
		must(b.conn.merge(patch))
		must(b.control("COMMIT"))
		if len(patch) > 0 {
			merged++
		}
		for _, table := range tables {
			if got, want := rowsOf(t, b, table), rowsOf(t, a, table); !slices.Equal(got, want) {
				t.Fatalf("table %s after %d patches:\n%q\nwant\n%q", table.Name, merged, got, want)
			}
		}
	}
	if failed < 50 || undone < 50 || merged < 200 {
		t.Errorf("%d statements failed, %d savepoints were taken back, %d patches merged: too few", failed, undone, merged)
	}
}

func patchDB(t *testing.T) *db {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := create(path); err != nil {
		t.Fatal(err)
	}
	d, err := openDB(path, "rw", copyPragmas())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	for _, x := range []string{
		`CREATE TABLE one (seq INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL DEFAULT 3, part REAL)`,
		`ALTER TABLE one ADD COLUMN late TEXT NOT NULL DEFAULT 'x'`,
		`CREATE TABLE two (name TEXT NOT NULL, number INTEGER NOT NULL, note TEXT NOT NULL, PRIMARY KEY (number, name)) WITHOUT ROWID`,
	} {
		if err := d.conn.exec(x); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func text(rnd *rand.Rand) string {
	return string(rune('a'+rnd.IntN(26))) + fmt.Sprintf("%0*d", rnd.IntN(300), rnd.IntN(40))
}

func rowsOf(t *testing.T, d *db, table Table) []string {
	t.Helper()
	rows, err := collect(d, func(row scanner) (string, error) {
		values, into := make([]any, len(table.Columns)), make([]any, len(table.Columns))
		for i := range values {
			into[i] = &values[i]
		}
		err := row.Scan(into...)
		return fmt.Sprintf("%#v", values), err
	}, `SELECT `+table.columns()+` FROM `+table.Name+` ORDER BY 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
