package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestSessionKept: an attempt that is to go on with a session, and is cut short
// before its agent has said so, leaves it to the next one, with its workspace.
func TestSessionKept(t *testing.T) {
	killed := errors.New("killed")
	for name, c := range map[string]struct {
		refuse int          // the core does not take the second attempt, with this code
		ends   *job.Outcome // so does the second attempt at once
		during func(*world) // the second attempt
		again  bool         // with another scheduler
	}{
		"the core dies":                {during: func(w *world) { w.cores.down(1, killed); w.cores.up(1) }},
		"the core is replaced":         {during: func(w *world) { w.cores.down(1, supervisor.ErrReplaced); w.cores.up(1) }},
		"the permit was late":          {refuse: ipc.CodePermitUnknown},
		"the core ends":                {refuse: ipc.CodeShuttingDown},
		"the workspace was taken":      {ends: &job.Outcome{State: job.RunCancelled, Class: job.CancelledClass}},
		"it stopped between two steps": {ends: &job.Outcome{State: job.Checkpointed}},
		"the scheduler ends":           {during: (*world).end, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "queue.db")
				begin := func() *world {
					w := newWorld(t, openStoreAt(t, path), 1, nil)
					w.cores.play = func(core *playedCore) {
						core.run = func(ctx context.Context, r *playedRun) job.Outcome {
							switch {
							case r.Attempt == 1:
								r.tell(job.Event{Kind: job.EventState, State: job.Running})
								r.tell(job.Event{Kind: job.EventSession, Session: "S-1"})
								sleep(ctx, time.Second)
								return job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Session: "S-1"}
							case r.Attempt == 2 && c.ends != nil:
								return *c.ends
							}
							r.tell(job.Event{Kind: job.EventState, State: job.Running})
							return lasts(ctx, r)
						}
						core.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
							var r ipc.SubmitJob
							if method != ipc.MethodSubmitJob || json.Unmarshal(params, &r) != nil || r.Attempt != 2 || c.refuse == 0 {
								return nil, nil, false
							}
							return nil, &ipc.Error{Code: c.refuse, Message: "not now"}, true
						}
					}
					w.start()
					return w
				}
				w := begin()
				id := w.submit(task("fix", time.Hour, func(s *job.Spec) { s.Worker, s.Limits.MaxAttempts = "codex", 5 }))[0]
				w.wait(10 * time.Second)
				if c.during != nil {
					if n := w.get(id).Attempts; n != 2 {
						t.Fatalf("attempt %d runs, want the second", n)
					}
					c.during(w)
				}
				if c.again {
					w = begin()
				}
				defer func() { w.end() }()
				w.wait(10 * time.Second)
				w.wantState(id, job.Dispatched)
				if got := w.cores.at(1).lastSubmitted(); got.Attempt != 3 || got.Session != "S-1" {
					t.Errorf("attempt %d goes on with session %q, want the third with S-1", got.Attempt, got.Session)
				}
			})
		})
	}
}
