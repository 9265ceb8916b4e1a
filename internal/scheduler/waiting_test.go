package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestWhatJobsWaitFor has jobs wait for one thing after the other, and asks for what.
func TestWhatJobsWaitFor(t *testing.T) {
	dir := t.TempDir()
	codex := func(s *job.Spec) { s.Worker = "codex" }
	tenant := func(name job.Tenant) func(*job.Spec) { return func(s *job.Spec) { s.Tenant = name } }
	direct := func(s *job.Spec) { s.Workspace = job.Workspace{Isolation: job.Direct, Path: dir} }
	needs := func(s *job.Spec) { s.Flow.Needs, s.Flow.Joined = []job.Name{"first"}, true }
	cases := map[string]struct {
		change func(*scheduler.Config)
		before func(*world)
		first  job.Spec // runs, while the second, of which is asked, waits
		second job.Spec
		want   job.Waiting
	}{
		"a slot": {
			func(c *scheduler.Config) { c.Settings.MaxConcurrent = 1 }, nil, task("first", time.Hour), task("second", time.Hour),
			job.Waiting{Reason: job.WaitSlot, Text: "1 of 1 slots are taken"},
		},
		"a slot of its worker": {
			func(c *scheduler.Config) {
				c.Settings.Workers["codex"] = job.WorkerSettings{MaxConcurrent: 1}
			}, nil, task("first", time.Hour, codex), task("second", time.Hour, codex),
			job.Waiting{Reason: job.WaitSlot, Text: "all slots of worker codex are taken"},
		},
		"a slot of its tenant": {
			func(c *scheduler.Config) { c.Settings.Limits.EachTenant = 1 }, nil, task("first", time.Hour), task("second", time.Hour),
			job.Waiting{Reason: job.WaitSlot, Text: "1 of 1 slots of tenant t are taken"},
		},
		"its folder": {
			nil, nil, task("first", time.Hour, direct), task("second", time.Hour, direct),
			job.Waiting{Reason: job.WaitFolder, Text: "another job works in " + dir},
		},
		"a job that it needs": {
			nil, nil, task("first", time.Hour), task("second", time.Hour, needs), job.Waiting{Reason: job.WaitDependency, Text: "first"},
		},
		"its time": {
			nil, nil, task("first", time.Hour), task("second", time.Hour, func(s *job.Spec) {
				at := time.Date(2100, 1, 2, 3, 4, 5, 0, time.Local)
				s.RunnableAt = &at
			}), job.Waiting{Reason: job.WaitTime, Text: "2100-01-02 03:04:05"},
		},
		"the end of a pause": {
			nil, func(w *world) {
				if _, err := w.sched.Isolations.Pause("worker:codex", "the bill", 0); err != nil {
					w.Fatal(err)
				}
			}, task("first", time.Hour), task("second", time.Hour, codex),
			job.Waiting{Reason: job.WaitPause, Text: "worker:codex: the bill"},
		},
		"a grant": {
			nil, func(w *world) {
				grant := queue.Grant{Owner: queue.Owner{Tenant: "poor"}, CostUSD: 0.5}
				if err := w.store.Apply(w.Context(), queue.SetGrant{Grant: grant}); err != nil {
					w.Fatal(err)
				}
				spender := w.submit(task("spender", time.Second, tenant("poor")))[0]
				w.wait(2 * time.Second)
				w.wantState(spender, job.Completed)
			}, task("first", time.Hour), task("second", time.Hour, tenant("poor")),
			job.Waiting{Reason: job.WaitBudget, Text: "the grant of poor: 1.00 of 0.50 US dollars are spent"},
		},
		"credits": {
			nil, func(w *world) {
				if err := w.store.Apply(w.Context(), queue.TopUp{Tenant: "poor", Credits: 1, Now: stamp()}); err != nil {
					w.Fatal(err)
				}
			}, task("first", time.Hour, tenant("poor")), task("second", time.Hour, tenant("poor")),
			job.Waiting{Reason: job.WaitBudget, Text: "the credits of poor: 0 are left and a run takes 1; `scheduler grant poor --credits N` adds some"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, openStore(t), 1, c.change)
				w.cores.play = func(core *playedCore) {
					core.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
						var r ipc.PermitRequest
						if method != ipc.MethodRequestPermit || json.Unmarshal(params, &r) != nil {
							return nil, nil, false
						}
						i, blocked := w.sched.Isolations.Blocking(&queue.Entry{Spec: job.Spec{Worker: r.Choice.Worker}})
						return ipc.PermitAnswer{Rejection: &ipc.Rejection{Reason: job.CircuitOpen, Message: i.Message}}, nil, blocked
					}
					core.run = func(ctx context.Context, r *playedRun) job.Outcome {
						o := lasts(ctx, r)
						o.Usage.CostUSD, o.Usage.CostKnown = 1, true
						return o
					}
				}
				w.start()
				defer w.end()
				if c.before != nil {
					c.before(w)
				}
				if c.second.Flow.Joined {
					c.first.Flow.Joined = true
				}
				ids := w.submit(c.first, c.second)
				w.wait(time.Second)
				w.wantState(ids[0], job.Dispatched)
				e := w.wantState(ids[1], job.Queued)
				st := w.sched.Explain.Statuses(t.Context())(&e)
				if st.State != job.Pending || st.Waiting == nil || *st.Waiting != c.want {
					t.Errorf("it is %s, %v, want %v", st.State, st.Waiting, c.want)
				}
				if first := w.get(ids[0]); w.sched.Explain.Statuses(t.Context())(&first).State != job.Running {
					t.Error("the first one does not run")
				}
			})
		})
	}
}

// TestTopUp: as many runs begin at once as there are credits for, and those of a top-up
// begin with it, without a look at the clock.
func TestTopUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.Settings.MaxConcurrent = 10 })
		topUp := func(n int64) {
			if err := w.store.Apply(t.Context(), queue.TopUp{Tenant: "t", Credits: n, Now: stamp()}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		wantRuns := func(want int) {
			t.Helper()
			_, n, err := w.store.List(t.Context(), queue.Filter{Tenant: "t", States: []job.EntryState{job.Dispatched}})
			if err != nil || n != want {
				t.Fatalf("%d run (%v), want %d", n, err, want)
			}
		}
		w.start()
		defer w.end()
		topUp(3)
		var specs []job.Spec
		for i := range 8 {
			specs = append(specs, task(fmt.Sprint("a", i), time.Hour))
		}
		w.submit(append(specs, task("free", time.Hour, func(s *job.Spec) { s.Tenant = "other" }))...)
		w.wait(time.Second)
		wantRuns(3)
		topUp(2)
		wantRuns(5)
		w.wait(90 * time.Minute) // all that began have ended
		wantRuns(0)
		topUp(9)
		wantRuns(3)
	})
}

// TestRefusedFor: what a core refuses a permit for is what the store says that the
// job waits for.
func TestRefusedFor(t *testing.T) {
	for _, c := range []struct {
		refusal ipc.Rejection
		want    job.WaitingReason
	}{
		{ipc.Rejection{Reason: job.RateLimited, Waiting: job.WaitCostWindow}, job.WaitCostWindow},
		{ipc.Rejection{Reason: job.RateLimited}, job.WaitRate},
		{ipc.Rejection{Reason: job.GlobalShed}, job.WaitLoad},
		{ipc.Rejection{Reason: job.QueueStall}, job.WaitLoad},
		{ipc.Rejection{Reason: job.CircuitOpen}, job.WaitCircuit},
		{ipc.Rejection{Reason: job.FatalMode}, job.WaitIsolation},
		{ipc.Rejection{Reason: job.WorkspaceBusy}, job.WaitFolder},
	} {
		t.Run(string(c.refusal.Reason)+" "+string(c.refusal.Waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, openStore(t), 1, nil)
				w.cores.play = func(core *playedCore) {
					core.answer = func(_ context.Context, method string, _ json.RawMessage) (any, error, bool) {
						r := c.refusal
						r.Message, r.RetryAfterMS = "not now", 60_000
						return ipc.PermitAnswer{Rejection: &r}, nil, method == ipc.MethodRequestPermit
					}
				}
				w.start()
				defer w.end()
				id := w.submit(task("a", time.Second))[0]
				w.wait(time.Second)
				e := w.wantState(id, job.Queued)
				want := job.Waiting{Reason: c.want, Text: "not now"}
				if st := scheduler.StatusOf(&e, stamp()); e.Waiting != want.String() || st.Waiting == nil || *st.Waiting != want {
					t.Errorf("it waits: %q, %v, want %v", e.Waiting, st.Waiting, want)
				}
			})
		})
	}
}

// TestEndsInWords: what did not run says why.
func TestEndsInWords(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for name, c := range map[string]struct {
		e    queue.Entry
		want job.Status
	}{
		"expired": {queue.Entry{State: job.Expired, Deadline: &at},
			job.Status{State: job.RunFailed, Note: "expired: not started before its deadline, 2026-03-01 12:00:00"}},
		"skipped": {queue.Entry{State: job.Cancelled, Skipped: "its condition did not hold"},
			job.Status{State: job.RunCancelled, Note: "skipped: its condition did not hold"}},
		"given up": {queue.Entry{State: job.Completed, ExitKind: job.ExitFailed, DeadLetter: "CRASH: it fell\nand more"},
			job.Status{State: job.RunFailed, Note: "CRASH: it fell"}},
		"a person is asked": {queue.Entry{State: job.Queued, Held: job.HeldForApproval, Waiting: "it changes files"},
			job.Status{State: job.WaitingApproval, Waiting: &job.Waiting{Reason: job.WaitApproval, Text: "it changes files"}}},
		"stopped between two steps": {queue.Entry{State: job.Queued, Waiting: "waiting for its turn: checkpointed (why); goes on from its last step"},
			job.Status{State: job.Checkpointed, Waiting: &job.Waiting{Reason: job.WaitTurn, Text: "checkpointed (why); goes on from its last step"}}},
		"a retry whose time has come": {queue.Entry{State: job.Queued, RunnableAt: at, Attempts: 1, Waiting: "waiting for a retry: CRASH; next attempt after 3s"},
			job.Status{State: job.Pending, Waiting: &job.Waiting{Reason: job.WaitTurn, Text: "CRASH"}}},
		"what an earlier version has stored": {queue.Entry{State: job.Queued, Waiting: "RATE_LIMIT: 2 of 2 slots are taken"},
			job.Status{State: job.Pending, Waiting: &job.Waiting{Reason: job.WaitTurn, Text: "RATE_LIMIT: 2 of 2 slots are taken"}}},
	} {
		got := scheduler.StatusOf(&c.e, at)
		if got.State != c.want.State || got.Line() != c.want.Line() {
			t.Errorf("%s: %s, %q, want %s, %q", name, got.State, got.Line(), c.want.State, c.want.Line())
		}
	}
}

// TestWaitingIsTold: listeners hear what a job waits for that no claim gets to, once.
func TestWaitingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.Settings.MaxConcurrent = 1 })
		w.start()
		defer w.end()
		updates, cancel := w.sched.Feed.Subscribe(1000)
		defer cancel()
		ids := w.submit(task("first", 22*time.Second), task("second", time.Hour))
		w.wait(30 * time.Second)
		var told []string
		for len(updates) > 0 {
			if u := <-updates; u.Kind == api.UpdateWaiting {
				if u.Job != ids[1] || u.Waiting == nil {
					t.Errorf("told of %+v", u)
				}
				told = append(told, u.Text)
			}
		}
		if len(told) != 1 || told[0] != "waiting for a slot: 1 of 1 slots are taken" {
			t.Errorf("told: %q", told)
		}
	})
}

// TestWorkerAfterFallback: of a job that runs on its next choice since the breaker of
// its own is open, that one is told, while it runs and when it has ended.
func TestWorkerAfterFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, nil)
		w.cores.play = func(core *playedCore) {
			core.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
				var r ipc.PermitRequest
				sick := method == ipc.MethodRequestPermit && json.Unmarshal(params, &r) == nil && r.Choice.Worker == "codex"
				return ipc.PermitAnswer{Rejection: &ipc.Rejection{Reason: job.CircuitOpen, Message: "open", Action: ipc.ActionDegrade}}, nil, sick
			}
		}
		w.start()
		defer w.end()
		id := w.submit(task("a", 10*time.Second, func(s *job.Spec) { s.Worker, s.Fallback = "codex", []job.Choice{{Worker: "shell"}} }))[0]
		for _, state := range []job.EntryState{job.Dispatched, job.Completed} {
			w.wait(6 * time.Second)
			e := w.wantState(id, state)
			if st := w.sched.Explain.Statuses(t.Context())(&e); st.Worker != "shell" {
				t.Errorf("%s: its worker is %q, want shell", state, st.Worker)
			}
		}
	})
}
