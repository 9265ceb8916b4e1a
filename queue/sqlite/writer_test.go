package sqlite

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestGroupFails makes a group fail as a whole, in each way that it can: all
// its members get the error, nothing of any of them is stored, and the writer
// goes on.
func TestGroupFails(t *testing.T) {
	errOwn := errors.New("own failure")
	insert := `INSERT INTO batches (id, source, digest, created_at) VALUES (?, '', '', 0)`
	faults := map[string]func(*tx) error{
		"failure after an unprotected change": func(tx *tx) error {
			if err := tx.exec(insert, "bad"); err != nil {
				return err
			}
			return errOwn
		},
		"commit fails": func(tx *tx) error {
			if err := errors.Join(tx.control("ROLLBACK"), tx.control(`PRAGMA foreign_keys = ON`), tx.control("BEGIN IMMEDIATE"),
				tx.exec(insert, "good"), tx.control(`PRAGMA defer_foreign_keys = ON`)); err != nil {
				return err
			}
			return tx.exec(`INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at) VALUES (99, 1, 1, '', '', '', '', 0)`)
		},
		"transaction ended by itself": func(tx *tx) error {
			if err := tx.exec(insert, "bad"); err != nil {
				return err
			}
			return errors.Join(errOwn, tx.control("ROLLBACK"), tx.protect(), tx.control("ROLLBACK"))
		},
		"disk full": func(tx *tx) error {
			if err := tx.control(`PRAGMA max_page_count = 1`); err != nil {
				return err
			}
			return tx.exec(insert, strings.Repeat("x", 1<<20))
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			// The writer is held until the others stand in the group: they are
			// taken only after the faulty one has run.
			var wg sync.WaitGroup
			started, gate := make(chan struct{}), make(chan struct{})
			errs := make([]error, 2)
			wg.Go(func() {
				errs[0] = s.write(t.Context(), func(tx *tx) error {
					close(started)
					<-gate
					return tx.exec(insert, "good")
				})
			})
			<-started
			r := &request{run: fault, answer: make(chan error, 1)}
			wg.Go(func() { errs[1] = <-r.answer })
			// An unbuffered send that is under way when the writer looks is taken.
			sending := make(chan struct{})
			go func() { close(sending); s.writer.requests <- r }()
			<-sending
			close(gate)
			wg.Wait()
			if errs[1] == nil {
				t.Error("the faulty write succeeded")
			}
			list, err := s.Batches(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			// Whether they met in one group is up to the scheduler; either way
			// the answer is the truth.
			if stored := len(list) == 1 && list[0].ID == "good"; stored != (errs[0] == nil) || !stored && len(list) > 0 {
				t.Errorf("answer %v, stored %v", errs[0], list)
			}
			if err := s.LimitPages(t.Context(), -1); err != nil {
				t.Fatal(err)
			}
			if err := s.Enqueue(t.Context(), queue.Batch{ID: "after"}, nil); err != nil {
				t.Errorf("the writer does not go on: %v", err)
			}
		})
	}
}

// badPlan reports whether a step of a plan could read or sort a whole table.
// What goes from line to line or counts by class may look so, and a list may
// read all of the small indexes over what is not finished.
func badPlan(detail string, list bool) bool {
	fine := []string{"SCAN f", "SCAN l", "SCAN r", "SCAN s", "TEMP B-TREE FOR GROUP BY"}
	if list {
		fine = append(fine, "INDEX entries_lane", "INDEX entries_waiting", "INDEX entries_fence")
	}
	return (strings.Contains(detail, "SCAN") || strings.Contains(detail, "TEMP B-TREE")) &&
		!slices.ContainsFunc(fine, func(f string) bool { return strings.HasSuffix(detail, f) })
}

// TestPlans checks that what a claim and its neighbours execute is answered
// from an index, in the index's order.
func TestPlans(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, nil); err != nil {
		t.Fatal(err)
	}
	err = s.write(t.Context(), func(tx *tx) error {
		queries := []string{
			`SELECT ` + standingColumns + ` FROM entries WHERE id = ?`,
			`SELECT count(*) FROM entries e WHERE e.batch = (SELECT seq FROM batches WHERE id = ?)`,
			`UPDATE entries INDEXED BY entries_fence SET lease_until = ? WHERE fence = ? AND state = 'dispatched'`,
			`SELECT id FROM entries` + ofLine + ` AND coalesced_with = '' ORDER BY seq DESC LIMIT 1`,
			`SELECT id FROM entries` + ofWaiter + ` AND coalesced_with = ? ORDER BY seq LIMIT 1`,
			`UPDATE entries SET state = 'cancelled' WHERE seq IN (SELECT seq FROM entries` + ofLine + ` AND state = 'queued')`,
			`SELECT e.seq` + ofLane + selectLate, selectNextPool,
			selectWaiting, selectHeads, selectSpaces, deleteRecords,
			`SELECT seq FROM entries` + ofLine + ` AND state = 'queued' AND held = 'approval'`,
			`SELECT seq FROM entries WHERE batch = ? AND name = ? AND tenant = ?`,
			`SELECT key, value, at FROM records WHERE space = ? AND key > ? ORDER BY key LIMIT ?`,
			`DELETE FROM records WHERE space = ? AND key <= ? AND key <> ''`,
		}
		queries = append(queries, selectFirstLane, selectNextLane, selectPage, selectAfter, selectReady, selectOverdue, selectDeadline)
		lists := len(queries)
		for _, f := range []queue.Filter{
			{Since: time.Unix(0, 1)}, {Since: time.Unix(0, 1), Batch: "b"}, {States: []job.EntryState{job.Queued}}, {States: []job.EntryState{job.Dispatched}, CancelRequested: true},
			{Held: []job.Hold{job.HeldForApproval, job.HeldForNeeds}}, {Held: []job.Hold{job.HeldForTeam}, Batch: "b"},
			{CoalescedWith: "x"}, {SupersededBy: "x"}, {SupersededBy: "x", States: []job.EntryState{job.Dispatched}},
		} {
			where, _ := conditions(f)
			queries = append(queries, `SELECT count(*) FROM entries e`+where)
		}
		for i, q := range queries {
			stmt, err := tx.prepare("EXPLAIN QUERY PLAN " + q)
			if err != nil {
				return err
			}
			args := make([]any, stmt.takes)
			for k := range args {
				args[k] = 1
			}
			err = stmt.query(args, func(r scanner) error {
				var id, parent, unused int
				var detail string
				if err := r.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				if badPlan(detail, i >= lists) {
					t.Errorf("%s\nplan: %s", q, detail)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
