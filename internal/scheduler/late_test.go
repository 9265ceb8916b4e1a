package scheduler_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// TestLatePermit: an attempt whose permit expires before it begins does not count;
// it is made again later and later, and after ten in a row the job is given up.
func TestLatePermit(t *testing.T) {
	for name, c := range map[string]struct {
		late     int // how often
		attempts int
		state    job.ExitKind
	}{
		"once":   {1, 2, job.ExitSucceeded},
		"always": {1000, 10, job.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				w := newWorld(t, openStore(t), 1, nil)
				w.cores.play = func(core *playedCore) {
					core.answer = func(_ context.Context, method string, _ json.RawMessage) (any, error, bool) {
						if method != ipc.MethodSubmitJob {
							return nil, nil, false
						}
						if at = append(at, time.Now()); len(at) > c.late {
							return nil, nil, false
						}
						return nil, &ipc.Error{Code: ipc.CodePermitUnknown, Message: "it has expired"}, true
					}
				}
				w.start()
				defer w.end()
				id := w.submit(task("a", time.Second, func(s *job.Spec) { s.Limits.MaxAttempts = 2 }))[0]
				synctest.Wait()
				if e := w.wantState(id, job.Queued); !strings.Contains(e.Waiting, "permit expired") {
					t.Errorf("it waits since %q", e.Waiting)
				}
				w.wait(time.Hour)
				e := w.wantState(id, job.Completed)
				if e.ExitKind != c.state || e.Attempts != c.attempts || len(at) != c.attempts || strings.Contains(e.DeadLetter, "permit expired") != (c.state == job.ExitFailed) {
					t.Errorf("%s after %d attempts, asked %d times: %s; want %s after %d", e.ExitKind, e.Attempts, len(at), e.DeadLetter, c.state, c.attempts)
				}
				for i := 2; i < len(at); i++ {
					if before, after := at[i-1].Sub(at[i-2]), at[i].Sub(at[i-1]); after < 2*before-100*time.Millisecond {
						t.Errorf("attempt %d came after %s, the one before after %s", i+1, after, before)
					}
				}
				if n := w.sched.Remembered(); n != 0 {
					t.Errorf("%d notes of jobs that have ended are kept", n)
				}
			})
		})
	}
}

// TestNothingIsRememberedForEver: of jobs that have ended nothing is noted any more,
// however they ended.
func TestNothingIsRememberedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.Settings.MaxConcurrent = 8 })
		w.cores.play = func(c *playedCore) {
			c.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
				var r ipc.PermitRequest
				if method != ipc.MethodRequestPermit || json.Unmarshal(params, &r) != nil || r.Choice.Worker != "codex" {
					return nil, nil, false
				}
				return ipc.PermitAnswer{Rejection: &ipc.Rejection{Reason: job.FatalMode, Message: "out of use", RetryAfterMS: 1000}}, nil, true
			}
		}
		w.start()
		defer w.end()
		kernel := sched.New(w.store, sched.Options{Changed: w.sched.Changed})
		if _, err := w.sched.Isolations.Pause("worker:codex", "", 0); err != nil {
			t.Fatal(err)
		}
		direct := func(s *job.Spec) { s.Workspace = job.Workspace{Isolation: job.Direct, Path: dir} }
		ids := w.submit(
			task("parked", time.Second, func(s *job.Spec) { s.Worker = "codex" }),
			task("parked and expires", time.Second, func(s *job.Spec) { s.Worker = "codex" }, deadline(10*time.Second)),
			task("has the folder", time.Minute, direct), task("waits for the folder", time.Minute, direct),
		)
		at := stamp()
		e := queue.Entry{ID: job.NewID(), CreatedAt: at, RunnableAt: at, State: job.Queued, Spec: job.Spec{Name: "x", Tenant: "t", Type: job.External, Worker: "w"}}
		if err := w.sched.Submit(t.Context(), queue.Batch{ID: job.NewBatchID(), CreatedAt: at}, []queue.Entry{e}); err != nil {
			t.Fatal(err)
		}
		if list, err := kernel.Claim(t.Context(), sched.ClaimRequest{WorkerID: "program"}); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		synctest.Wait()
		if n := w.sched.Remembered(); n < 2 {
			t.Errorf("%d notes of jobs that wait, want those of two", n)
		}
		for _, id := range []job.ID{ids[0], ids[3], e.ID} {
			if err := w.sched.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := kernel.Complete(t.Context(), sched.CompleteRequest{SchedID: e.ID, WorkerID: "program", ExitKind: job.ExitCancelled}); err != nil {
			t.Fatal(err)
		}
		w.wait(20 * time.Second)
		w.wantState(ids[1], job.Expired)
		if n := w.sched.Remembered(); n != 0 {
			t.Errorf("%d notes of jobs that have ended are kept", n)
		}
	})
}
