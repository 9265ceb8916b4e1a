package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestMigrateEveryVersion opens a store of each earlier version, with rows in every
// table: what it held is there, value by value, and can be read. The stores are
// dumps (sqlite3 FILE .dump, behind the two PRAGMAs that such a dump leaves out),
// so that they stay as they are whatever becomes of the migrations.
func TestMigrateEveryVersion(t *testing.T) {
	list, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version < len(list); version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			ctx := t.Context()
			dump, err := os.ReadFile(fmt.Sprintf("testdata/version%d.sql", version))
			if err != nil {
				t.Fatalf("each version before the newest is kept: %v", err)
			}
			path, d := emptyDB(t)
			defer d.close()
			if err := d.conn.exec(string(dump)); err != nil {
				t.Fatal(err)
			}
			if got := rows(t, d, "pragma_user_version")[0]["user_version"]; got != int64(version) {
				t.Fatalf("the dump has version %v", got)
			}
			before := stored(t, d)

			s, err := Open(ctx, path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Check(ctx); err != nil {
				t.Error(err)
			}
			if got := rows(t, d, "pragma_user_version")[0]["user_version"]; got != int64(len(list)) {
				t.Errorf("migrated to version %v, want %d", got, len(list))
			}
			compareStored(t, before, stored(t, d))
			readStored(t, s, len(before["entries"]))
			checkKept(t, path, version, before)
		})
	}
}

// checkKept finds the copy of a store as it was before it was migrated: a program of
// that version takes it in the place of the store.
func checkKept(t *testing.T, path string, version int, before map[string][]row) {
	t.Helper()
	kept, err := filepath.Glob(fmt.Sprintf("%s.version%d-*", path, version))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v; want one copy", kept, err)
	}
	list, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := inspect(t.Context(), kept[0], version); err != nil || got != version {
		t.Errorf("the copy has version %d, %v; want %d", got, err, version)
	}
	if err := bringUp(t.Context(), kept[0], list[:version], false, zerolog.Nop()); err != nil {
		t.Errorf("opened by a program of version %d: %v", version, err)
	}
	if err := bringUp(t.Context(), path, list[:version], false, zerolog.Nop()); !errors.Is(err, queue.ErrNewerVersion) {
		t.Errorf("the migrated store, opened by that program: %v, want %v", err, queue.ErrNewerVersion)
	}
	d, err := openDB(kept[0], "rw", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if got := stored(t, d); !reflect.DeepEqual(got, before) {
		t.Errorf("the copy holds %v\nwant %v", got, before)
	}
}

type row = map[string]any

// rows returns what a table holds, in the order of its key.
func rows(t *testing.T, d *db, table string) (all []row) {
	t.Helper()
	names, err := collect(d, scanText, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		t.Fatal(err)
	}
	columns := strings.Join(names, ", ")
	if len(names) == 0 { // a query in brackets, of one column
		names, columns = []string{"value"}, "*"
	}
	err = d.rows("SELECT "+columns+" FROM "+table+" ORDER BY 1", nil, func(found scanner) error {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		r := row{}
		err := found.Scan(into...)
		for i, name := range names {
			r[name] = values[i]
		}
		all = append(all, r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// stored returns what every table holds.
func stored(t *testing.T, d *db) map[string][]row {
	t.Helper()
	all := map[string][]row{}
	for _, r := range rows(t, d, "(SELECT name FROM sqlite_schema WHERE type = 'table')") {
		name := r["value"].(string)
		all[name] = rows(t, d, name)
	}
	return all
}

// compareStored reports what is not there any more, or changed.
func compareStored(t *testing.T, before, after map[string][]row) {
	t.Helper()
	for table, old := range before {
		if len(old) == 0 {
			t.Errorf("the dump has no row in %s", table)
		}
		if len(after[table]) != len(old) {
			t.Errorf("%s has %d rows, want %d", table, len(after[table]), len(old))
			continue
		}
		for i, r := range old {
			now := after[table][i]
			for column, want := range r {
				got, there := now[column]
				switch {
				case table == "entries" && column == "spec": // has had a table of its own since version 3
					got, there = after["specs"][i]["spec"], true
				case table == "entries" && column == "class" && want == "standard": // is '' since version 3
					want = ""
				case table == "fence" && column == "epoch": // it was opened once more
					want = want.(int64) + 1
				}
				if !there || got != want {
					t.Errorf("%s, row %d: %s is %v, want %v", table, i+1, column, got, want)
				}
			}
		}
	}
}

// readStored reads through the store what all of the dumps hold.
func readStored(t *testing.T, s *Store, entries int) {
	t.Helper()
	ctx := t.Context()
	list, total, err := s.List(ctx, queue.Filter{})
	if err != nil || total != entries || len(list) != entries {
		t.Fatalf("%d of %d entries, %v; want %d", len(list), total, err, entries)
	}
	done, failed, runs := list[0], list[1], list[3]
	if done.ExitKind != job.ExitSucceeded || done.Spent.InputTokens != 300 || done.Session != "s-1" || done.Spec.Instructions != "Make it élegant." ||
		failed.DeadLetter != "AUTH: log in" || failed.Feedback != "look again" || failed.ErrorClass != job.Auth ||
		runs.State != job.Dispatched || runs.Holder != "host/1" || runs.Fence != 4 || runs.LeaseUntil == nil {
		t.Errorf("entries %+v", list)
	}
	attempts, err := s.Attempts(ctx, "failed")
	if err != nil || len(attempts) != 2 || !attempts[0].Lost || attempts[1].Outcome == nil || attempts[1].Outcome.Class != job.Auth {
		t.Errorf("attempts %+v, %v", attempts, err)
	}
	events, err := s.Events(ctx, "done", 0, 9)
	if err != nil || len(events) != 2 || events[0].Text != "hello" || events[1].Cursor != 2 {
		t.Errorf("events %+v, %v", events, err)
	}
	accounts, err := s.Accounts(ctx, queue.AccountFilter{By: []queue.Dimension{queue.ByAgent}, Tenant: "web"})
	if err != nil || len(accounts) != 2 || accounts[0].Attempts != 2 || accounts[1].Agent != "scout" || accounts[1].Usage.InputTokens != 300 || accounts[1].Usage.CostUSD != 0.25 {
		t.Errorf("accounts %+v, %v", accounts, err)
	}
	batches, err := s.Batches(ctx, "/jobs.yaml")
	if err != nil || len(batches) != 1 || batches[0].ID != "first" || batches[0].ClosedAt == nil || !batches[0].Private {
		t.Errorf("batches %+v, %v", batches, err)
	}
}
