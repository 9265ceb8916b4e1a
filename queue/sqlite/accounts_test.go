package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestMigrateAccounts opens a file of the version before there was a ledger: it
// is filled from the attempts, and what still runs is charged once.
func TestMigrateAccounts(t *testing.T) {
	ctx := t.Context()
	path, d := atVersion(t, 2)
	err := d.conn.exec(`INSERT INTO batches (seq, id, source, digest, created_at) VALUES (1, 'b', '', '', 0);
		INSERT INTO entries (seq, id, batch, tenant, name, priority, created_at, runnable_at, spec, state, exit_kind, completed_at, attempts, fence, counted) VALUES
			(1, 'done', 1, 't', 'done', 0, 0, 0, '{"id":"done","agent":"p"}', 'completed', 'succeeded', 5, 2, 2, 2),
			(2, 'dead', 1, 't', 'dead', 0, 0, 0, '{"id":"dead"}', 'completed', 'failed', 5, 1, 3, 1),
			(3, 'runs', 1, 't', 'runs', 0, 0, 0, '{"id":"runs","tenant":"t","worker":"codex"}', 'dispatched', '', NULL, 1, 4, 1);
		UPDATE entries SET lease_until = 9000000000000000000 WHERE id = 'runs';
		UPDATE fence SET last = 4;
		INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at, ended_at, outcome) VALUES
			(1, 1, 1, 'codex', 'm', 'failed', '', 0, 2000000000, '{"class":"CRASH","usage":{"input_tokens":10,"cost_usd":0.1,"cost_known":true}}'),
			(1, 2, 2, 'codex', 'm', 'completed', '', 0, 1000000000, '{"usage":{"input_tokens":5,"output_tokens":1,"cost_usd":0.2,"cost_known":true}}'),
			(2, 1, 3, 'claude', '', 'failed', '', 0, 900000000000, '{"class":"AUTH","usage":{"output_tokens":7}}'),
			(3, 1, 4, 'codex', '', 'running', '', 0, NULL, '');
		INSERT INTO events (entry, attempt, seq, body) VALUES (3, 1, 1, '{"job":"runs","attempt":1,"seq":1,"time":"1970-01-01T00:00:01Z","usage":{"input_tokens":3}}')`)
	if err := errors.Join(err, d.close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	accounts := func() []queue.Account {
		t.Helper()
		list, err := s.Accounts(ctx, queue.AccountFilter{By: []queue.Dimension{queue.ByAgent, queue.ByWorker}})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want := []queue.Account{
		{Tenant: "t", Worker: "claude", Usage: job.Usage{OutputTokens: 7}, Wall: job.Duration(900 * time.Second), Attempts: 1},
		{Tenant: "t", Agent: "p", Worker: "codex", Usage: job.Usage{InputTokens: 15, OutputTokens: 1, CostUSD: 0.3, CostKnown: true}, Wall: job.Duration(3 * time.Second), Attempts: 2, Completed: 1},
	}
	same := func(got, want []queue.Account) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("accounts %+v\nwant %+v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("account %+v\nwant    %+v", got[i], want[i])
			}
		}
	}
	same(accounts(), want)
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
	dead, _, err := s.List(ctx, queue.Filter{DeadLetters: true, ErrorClass: job.Auth})
	if err != nil || len(dead) != 1 || dead[0].ID != "dead" {
		t.Errorf("dead letters %+v, %v", dead, err)
	}
	if p, _, err := s.List(ctx, queue.Filter{Agent: "p"}); err != nil || len(p) != 1 {
		t.Errorf("jobs of p: %+v, %v", p, err)
	}
	// The old event of the one that runs, again and with another.
	old := job.Event{Job: "runs", Attempt: 1, Seq: 1, Time: time.Unix(1, 0), Usage: &job.Usage{InputTokens: 3}}
	next := job.Event{Job: "runs", Attempt: 1, Seq: 2, Time: time.Unix(1, 0), Usage: &job.Usage{InputTokens: 4}}
	if err := s.Apply(ctx, queue.Append{Events: []job.Event{old, next, old}}); err != nil {
		t.Fatal(err)
	}
	want = []queue.Account{want[0], {Tenant: "t", Worker: "codex", Usage: job.Usage{InputTokens: 7}}, want[1]}
	same(accounts(), want)
	finish := queue.Finish{ID: "runs", Fence: 4, Attempt: 1, Now: time.Unix(2, 0), Exit: job.ExitFailed,
		Outcome: job.Outcome{State: job.RunFailed, Usage: job.Usage{InputTokens: 9}, EndedAt: time.Unix(2, 0)}}
	if err := s.Apply(ctx, finish); err != nil {
		t.Fatal(err)
	}
	want[1].Usage.InputTokens, want[1].Attempts, want[1].Wall = 9, 1, job.Duration(2*time.Second)
	same(accounts(), want)
}

// TestKeeperPlans: what is asked for often is found by an index, however many jobs
// have ended.
func TestKeeperPlans(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	where, args := conditions(queue.Filter{DeadLetters: true, Tenant: "t", ErrorClass: job.Auth})
	for _, q := range []struct {
		query string
		args  []any
		want  string
	}{
		{`SELECT count(*) FROM entries e` + where, args, "entries_dead"},
		{selectPrune, []any{0, 1}, "entries_ended"},
		{selectPruneDead, []any{0, 1}, "entries_dead"},
		{selectPrune, []any{0, 1}, "entries_coalesced"},
		{selectPrune, []any{0, 1}, "entries_joined"},
	} {
		plan := planOf(t, s, q.query, q.args)
		if !strings.Contains(plan, q.want) || strings.Contains(plan, "SCAN e\n") || strings.Contains(plan, "SCAN f") {
			t.Errorf("plan of %s\n%swant %s", q.query, plan, q.want)
		}
	}
}

func planOf(t *testing.T, s *Store, query string, args []any) (plan string) {
	t.Helper()
	err := s.reads.do(t.Context(), func(d *db) error {
		return d.rows(`EXPLAIN QUERY PLAN `+query, args, func(row scanner) error {
			var id, parent, unused int
			var detail string
			err := row.Scan(&id, &parent, &unused, &detail)
			plan += detail + "\n"
			return err
		})
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return plan
}
