package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestMigrateSurvey opens a file of the version before surveys were known: what
// it holds is found by worker, counted and on the line of time.
func TestMigrateSurvey(t *testing.T) {
	ctx := t.Context()
	path, d := atVersion(t, 5)
	err := d.conn.exec(`INSERT INTO batches (seq, id, source, digest, private, created_at) VALUES (1, 'b', '', '', 0, 4);
		UPDATE fence SET last = 4;
		INSERT INTO entries (seq, id, batch, pool, tenant, name, priority, state, exit_kind, created_at, runnable_at, completed_at, fence, holder, lease_until, attempts, counted, choice) VALUES
			(1, 'done', 1, 0, 't', 'done', 0, 'completed', 'succeeded', 1, 1, 5000000000, 3, '', NULL, 1, 1, 0),
			(2, 'runs', 1, 0, 't', 'runs', 2, 'dispatched', '', 1, 1, NULL, 4, 'h', 99, 1, 1, 1),
			(3, 'waits', 1, 0, 'u', 'waits', 0, 'queued', '', 1, 7, NULL, 0, '', NULL, 0, 0, 0);
		INSERT INTO specs SELECT seq, json_object('id', name, 'tenant', tenant, 'worker', 'codex', 'fallback', json('[{"worker":"claude"}]')) FROM entries;
		INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at, ended_at, outcome) VALUES
			(1, 1, 3, 'codex', '', 'failed', '', 1, 5, '{"state":"failed","class":"TIMEOUT"}'), (2, 1, 4, 'claude', '', 'running', '', 3, NULL, '');
		INSERT INTO ledger VALUES ('t', 0, '', 'shell', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 1)`)
	if err := errors.Join(err, d.close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenReadOnly(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for worker, want := range map[job.WorkerKind]int{"codex": 3, "claude": 1, "shell": 0} {
		if entries, _, total, err := s.Page(ctx, queue.Filter{Worker: worker}, ""); err != nil || len(entries) != want || total != want {
			t.Errorf("page of %s: %d of %d, %v", worker, len(entries), total, err)
		}
	}
	c, err := s.Census(ctx)
	if err != nil || c.Queued != 1 || c.Dispatched != 1 || len(c.Tenants) != 2 || !c.Tenants[1].Oldest.Equal(time.Unix(0, 7)) {
		t.Errorf("census %+v, %v", c, err)
	}
	steps, err := s.Throughput(ctx, time.Unix(5, 0), time.Unix(6, 0), time.Second)
	if err != nil || len(steps) != 1 || steps[0].Succeeded != 1 {
		t.Errorf("throughput %+v, %v", steps, err)
	}
	runs, err := s.Runs(ctx, time.Time{}, time.Time{}, 0)
	if err != nil || len(runs) != 2 || runs[0].Job != "runs" || runs[0].Ended != nil || runs[1].Class != job.Timeout || !runs[1].Ended.Equal(time.Unix(0, 5)) {
		t.Errorf("runs %+v, %v", runs, err)
	}
}

// TestSurveyPlans: no survey reads a table from end to end, and a census reads
// none at all, but for the tenants of what is dispatched.
func TestSurveyPlans(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "queue.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := func(query string, args ...any) []string {
		t.Helper()
		return strings.Split(strings.TrimSpace(planOf(t, s, query, args)), "\n")
	}
	// A partial index whose condition is all that is asked is not called a covering one.
	for _, query := range []string{censusLane, selectNextPool, selectFirstLane, selectNextLane, censusWaiting, censusApproval, censusDead} {
		for _, step := range plan(query, make([]any, strings.Count(query, "?"))...) {
			if !strings.Contains(step, "INDEX") {
				t.Errorf("%s\n%s", query, step)
			}
		}
	}
	whole := map[string][]string{
		"census of what is dispatched": plan(censusRunning),
		"throughput":                   plan(countEnded, 0, 1),
		"runs":                         plan(selectRuns, 0, 0, 0),
	}
	for _, f := range []queue.Filter{
		{States: []job.EntryState{job.Dispatched}}, {States: []job.EntryState{job.Queued, job.Cancelled}}, {Tenant: "t"},
		{Tenant: "t", States: []job.EntryState{job.Completed}, Worker: "codex"}, {DeadLetters: true}, {Held: []job.Hold{job.HeldForApproval}}, {Batch: "b"},
	} {
		err := s.reads.do(ctx, func(d *db) error {
			p := pager{db: d, filter: f, few: few}
			query, args, err := p.query(10)
			whole["page of "+string(must(encode(f)))] = plan(query, args...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, steps := range whole {
		for _, step := range steps {
			// The planner's other scans are over what a subquery returned, or one of the partial indexes.
			if strings.HasPrefix(step, "SCAN e") && !strings.Contains(step, "INDEX") || strings.HasPrefix(step, "SCAN attempts") && !strings.Contains(step, "INDEX") {
				t.Errorf("%s: %s in\n%s", what, step, strings.Join(steps, "\n"))
			}
		}
	}
}

// TestPageOfMany: where too many entries of a state are there to be looked up one
// by one, the pages are the same.
func TestPageOfMany(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "queue.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 40 {
		e := queue.Entry{ID: job.ID(fmt.Sprintf("%02d", i*7%40)), Spec: job.Spec{Name: job.Name(fmt.Sprint(i)), Tenant: job.Tenant(fmt.Sprint("t", i%3))}}
		if i%5 == 0 {
			e.Spec.OnDuplicate, e.Spec.Key = job.Serialize, "k"
		}
		if err := s.Enqueue(ctx, queue.Batch{ID: "b"}, []queue.Entry{e}); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			if err := s.Apply(ctx, queue.Cancel{ID: e.ID, Now: time.Unix(1, 0)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 9, Now: time.Unix(1, 0), Lease: time.Hour}); err != nil || len(c.Entries) != 9 {
		t.Fatalf("claimed %d, %v", len(c.Entries), err)
	}
	queued, dispatched, cancelled := []job.EntryState{job.Queued}, []job.EntryState{job.Dispatched}, []job.EntryState{job.Cancelled}
	for _, f := range []queue.Filter{
		{States: queued}, {States: dispatched}, {States: cancelled}, {Tenant: "t1"}, {Tenant: "t1", States: queued}, {Tenant: "t2", States: cancelled},
		{States: append(queued, job.Cancelled, job.Completed)}, {States: queued, Worker: "nobody"}, {States: cancelled, Search: "1"},
	} {
		for _, f.Newest = range []bool{false, true} {
			want, total, err := s.List(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			f.Limit = 4
			for _, few := range []int{0, 5, few} {
				var got []queue.Entry
				cursor := ""
				for first := true; first || cursor != ""; first = false {
					page, next, n, err := s.page(ctx, f, cursor, few)
					if err != nil {
						t.Fatal(err)
					}
					if first && n != total {
						t.Errorf("%+v: total %d, want %d", f, n, total)
					}
					got, cursor = append(got, page...), next
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%+v, few %d: %d entries, want %d, or in another order", f, few, len(got), len(want))
				}
			}
			f.Limit = 0
		}
	}
}

func must(text string, err error) string {
	if err != nil {
		panic(err)
	}
	return text
}
