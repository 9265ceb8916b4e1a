package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// worked returns the path of a closed store with n jobs, of which some have
// run, and the jobs.
func worked(t *testing.T, n int) (path string, jobs map[job.ID]queue.Entry) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "queue.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, now := t.Context(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var entries []queue.Entry
	for i := range n {
		e := named(fmt.Sprint("j", i))
		if i%7 == 0 {
			e.Held, e.Spec.Flow = job.HeldForNeeds, job.Flow{Joined: true, Needs: []job.Name{"j1"}}
		}
		entries = append(entries, e)
	}
	if err := s.Enqueue(ctx, queue.Batch{ID: "b"}, entries); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: n / 2, Now: time.Now(), Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range c.Entries {
		ops := []queue.Op{
			queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: 1, State: job.Pending, Started: now, Choice: job.Choice{Worker: "codex"}}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running},
			queue.Append{Events: []job.Event{{Job: e.ID, Attempt: 1, Seq: 1, Time: now, Kind: job.EventUsage, Usage: &job.Usage{InputTokens: 1}}}},
		}
		if i%10 == 5 {
			ops = append(ops, queue.Await{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: now, Outcome: job.Outcome{State: job.RunCompleted, EndedAt: now}, Approval: queue.Approval{Why: "w"}})
		}
		if i%5 > 0 {
			ops = append(ops, queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: now, Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted, EndedAt: now}})
		}
		if err := s.Apply(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range entries {
		ops := []queue.Op{queue.Write{Record: queue.Record{Space: queue.JobSpace(e.ID, "steps"), Key: "1", Value: json.RawMessage(`{"step":1}`), At: now}}}
		if i%14 == 0 {
			ops = append(ops, queue.Ready{ID: e.ID, Now: now, Resolved: &job.Resolved{Instructions: "resolved"}})
		}
		if err := s.Apply(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
	jobs = map[job.ID]queue.Entry{}
	list, _, err := s.List(ctx, queue.Filter{Limit: n})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		jobs[e.ID] = e
	}
	return path, jobs
}

// TestSalvage damages stores all over: whatever is in the new store is as it
// was, the new store is whole, and the damaged one is left as it is.
func TestSalvage(t *testing.T) {
	const n = 300
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, path string, pages int)
		least  int
	}{
		{"nothing", func(*testing.T, string, int) {}, n},
		{"one page in the middle", func(t *testing.T, path string, pages int) { spoil(t, path, pages/2, 1) }, n / 2},
		{"ten pages at the end", func(t *testing.T, path string, pages int) { spoil(t, path, pages-10, 10) }, n / 2},
		{"every ninth page", func(t *testing.T, path string, pages int) {
			for p := 60; p < pages; p += 9 {
				spoil(t, path, p, 1)
			}
		}, n / 4},
		{"broken rules", func(t *testing.T, path string, _ int) {
			execIn(t, path, `UPDATE entries SET state = 'asleep' WHERE seq = 200; UPDATE entries SET state = 'completed' WHERE seq = 201;
				DELETE FROM ledger; UPDATE specs SET spec = '{' WHERE entry = 202; UPDATE fence SET last = 0; UPDATE entries SET attempts = 9 WHERE seq = 1;
				UPDATE entries SET key = 'k', waits_for = 'nobody' WHERE seq = 203; UPDATE entries SET coalesced_with = 'nobody' WHERE seq = 2;
				UPDATE entries SET held = 'lunch' WHERE name = 'j21'; UPDATE entries SET pool = 0 WHERE name = 'j35'; UPDATE entries SET held = 'team' WHERE seq = 204;
				UPDATE entries SET held = 'needs' WHERE state = 'completed' AND seq < 20; INSERT INTO records (space, key, value, at) VALUES ('s', 'k', '{', 0);
				DELETE FROM flows WHERE entry IN (SELECT seq FROM entries WHERE held = 'approval' LIMIT 3); UPDATE flows SET flow = '{' WHERE entry = 15;
				DELETE FROM attempts WHERE entry = (SELECT max(seq) FROM entries WHERE held = 'approval');
				DELETE FROM batches; INSERT INTO events (entry, attempt, seq, body) VALUES (9999, 1, 1, '{}')`)
		}, n - 2},
		{"the last third", func(t *testing.T, path string, pages int) {
			if err := os.Truncate(path, int64(pages*2/3)*4096); err != nil {
				t.Fatal(err)
			}
		}, n / 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, jobs := worked(t, n)
			tt.damage(t, path, int(size(t, path)/4096))
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fresh := path + ".new"
			saved, err := sqlite.Salvage(t.Context(), path, fresh, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d jobs, %d known to be lost", saved.Jobs, n, len(saved.Lost))
			if saved.Jobs < tt.least || saved.Jobs+len(saved.Lost) > n {
				t.Errorf("%d jobs were saved and %d known to be lost, of %d; want at least %d", saved.Jobs, len(saved.Lost), n, tt.least)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("the damaged store was changed (%v)", err)
			}
			if saved.Wrong != nil {
				t.Error(saved.Wrong)
			}
			s := openAt(t, fresh)
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
			list, _, err := s.List(t.Context(), queue.Filter{Limit: n})
			if err != nil || len(list) != saved.Jobs {
				t.Errorf("%d jobs are there, %v; want %d", len(list), err, saved.Jobs)
			}
			for _, e := range list {
				was := jobs[e.ID]
				if e.Spec.Name != was.Spec.Name || tt.name != "broken rules" && e.State != was.State || e.Fence != was.Fence || e.Attempts > was.Attempts {
					t.Errorf("job %s is %+v, and was %+v", e.ID, e, was)
				}
			}
			// What refers to others is not run with words that nobody has put in.
			for _, e := range list {
				if e.State == job.Queued && e.Held == "" && len(e.Spec.Flow.Needs) > 0 && e.Resolved == nil {
					t.Errorf("job %s can be claimed without what it is run with", e.Spec.Name)
				}
				if e.Held == job.HeldForApproval {
					if err := s.Apply(t.Context(), queue.Decide{ID: e.ID, Attempt: e.Approval.Attempt, Approved: true, Now: time.Now()}); err != nil {
						t.Error(err)
					}
				}
			}
			spaces, err := s.Spaces(t.Context(), "job/")
			// They were written last, so that what is cut off or spoilt at the end has them.
			if err != nil || len(spaces) != n && (tt.name == "nothing" || tt.name == "broken rules") {
				t.Errorf("of %d jobs there are records, %v; want %d", len(spaces), err, n)
			}
			// It works: what was running is taken back, and everything left can be run.
			if err := s.Apply(t.Context(), queue.Reclaim{Now: time.Now(), Holders: []string{"h"}}); err != nil {
				t.Fatal(err)
			}
			if err := s.Enqueue(t.Context(), queue.Batch{ID: "new"}, []queue.Entry{named("new")}); err != nil {
				t.Fatal(err)
			}
			c, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: n + 1, Now: time.Now().Add(time.Hour), Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Entries {
				err := s.Apply(t.Context(), queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: e.Attempts + 1, State: job.Pending, Started: time.Now()}})
				if err != nil {
					t.Error(err)
				}
			}
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSalvageNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "queue.db")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Salvage(t.Context(), path, path+".new", sqlite.Options{}); !errors.Is(err, queue.ErrCorrupt) {
		t.Errorf("got %v, want %v", err, queue.ErrCorrupt)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left is %v, %v", left, err)
	}
}
