package sqlite

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestMigrateWorkflows opens a file of the version before workflows were known:
// all stays as it was, nothing is held, and it works with what is new.
func TestMigrateWorkflows(t *testing.T) {
	ctx := t.Context()
	path, d := atVersion(t, 4)
	err := d.conn.exec(`INSERT INTO batches (seq, id, source, digest, private, created_at) VALUES (1, 'own', 's', 'd', 1, 3), (2, 'shared', '', '', 0, 4);
		UPDATE fence SET last = 4;
		INSERT INTO entries (seq, id, batch, pool, tenant, name, priority, state, exit_kind, created_at, runnable_at, deadline, completed_at, fence, holder,
				lease_until, attempts, counted, key, waits_for, waiting) VALUES
			(1, 'done', 1, 1, 't', 'done', 0, 'completed', 'succeeded', 1, 1, NULL, 5, 3, '', NULL, 1, 1, '', '', ''),
			(2, 'runs', 2, 0, 't', 'runs', 2, 'dispatched', '', 1, 1, NULL, NULL, 4, 'h', 99, 1, 1, 'k', '', ''),
			(3, 'waits', 2, 0, 't', 'waits', 0, 'queued', '', 1, 1, NULL, NULL, 0, '', NULL, 0, 0, 'k', 'runs', 'w'),
			(4, 'late', 2, 0, 't', 'late', 0, 'queued', '', 1, 1, 9, NULL, 0, '', NULL, 0, 0, '', '', ''),
			(5, 'mine', 1, 1, 't', 'mine', 0, 'queued', '', 1, 1, NULL, NULL, 0, '', NULL, 0, 0, '', '', '');
		INSERT INTO specs SELECT seq, json_object('id', name, 'tenant', tenant) FROM entries;
		INSERT INTO attempts (entry, number, fence, worker, model, state, session, started_at, ended_at, outcome) VALUES
			(1, 1, 3, 'shell', '', 'completed', '', 1, 5, '{"state":"completed"}'), (2, 1, 4, 'shell', '', 'running', '', 1, NULL, '');
		INSERT INTO ledger VALUES ('t', 0, '', 'shell', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 1)`)
	if err := errors.Join(err, d.close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check := func() {
		t.Helper()
		if err := s.Check(ctx); err != nil {
			t.Error(err)
		}
	}
	check()
	entries, total, err := s.List(ctx, queue.Filter{})
	if err != nil || total != 5 {
		t.Fatalf("%d entries, %v", total, err)
	}
	for _, e := range entries {
		if e.Held != "" || e.Resolved != nil || e.Approval != nil || e.Skipped != "" || e.Result != nil {
			t.Errorf("entry of before: %+v", e)
		}
	}
	if entries[1].Holder != "h" || entries[2].WaitsFor != "runs" || entries[3].Deadline == nil {
		t.Errorf("entries %+v", entries)
	}
	if batches, err := s.Batches(ctx, ""); err != nil || len(batches) != 2 || len(batches[0].Workflow.Teams) != 0 {
		t.Errorf("batches %+v, %v", batches, err)
	}
	now := time.Unix(1, 0)
	await := queue.Await{ID: "runs", Fence: 4, Attempt: 1, Now: now, Outcome: job.Outcome{State: job.RunCompleted}, Approval: queue.Approval{Why: "w"}}
	write := queue.Write{Record: queue.Record{Space: queue.JobSpace("runs", "steps"), Key: "1", Value: json.RawMessage(`1`)}, Once: true}
	if err := s.Apply(ctx, await, write, queue.Keep{ID: "mine", For: job.HeldForTeam}); err != nil {
		t.Fatal(err)
	}
	check()
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 9, Now: now, Lease: time.Hour})
	if err != nil || len(c.Entries) != 0 || len(c.Expired) != 1 || c.Expired[0] != "late" {
		t.Errorf("claimed %+v, %v; want only late to expire", c, err)
	}
	if err := s.Apply(ctx, queue.Decide{ID: "runs", Attempt: 1, Approved: true, Now: now}, queue.Ready{ID: "mine", Now: now}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		batch job.BatchID
		id    job.ID
	}{{"", "waits"}, {"own", "mine"}} {
		c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Batch: want.batch, Max: 9, Now: now, Lease: time.Hour})
		if err != nil || len(c.Entries) != 1 || c.Entries[0].ID != want.id {
			t.Errorf("claimed %+v of %q, %v; want %s", c.Entries, want.batch, err, want.id)
		}
	}
	if ids, err := s.Prune(ctx, queue.PruneSpec{Before: now.Add(time.Hour), Max: 9}); err != nil || len(ids) != 3 {
		t.Errorf("forgot %v, %v; want the three that have ended", ids, err)
	}
	check()
}
