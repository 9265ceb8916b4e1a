package scheduler_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestForkWhileFollowUpRuns: a job cannot be forked while one that goes on from it works in its folder and session.
func TestForkWhileFollowUpRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStoreAt(t, filepath.Join(t.TempDir(), "queue.db")), 1, func(c *scheduler.Config) {
			c.Traits = map[string]job.WorkerTraits{"codex": {Forks: true}}
		})
		w.cores.play = func(core *playedCore) {
			core.run = func(ctx context.Context, r *playedRun) job.Outcome {
				r.tell(job.Event{Kind: job.EventState, State: job.Running})
				sleep(ctx, time.Minute)
				return job.Outcome{State: job.RunCompleted, Session: "S-1"}
			}
		}
		w.start()
		defer w.end()
		id := w.submit(talker("fix"))[0]
		w.wait(2 * time.Minute)
		if _, err := w.sched.Conversations.Say(t.Context(), id, api.Say{Text: "and the tests"}); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Second)
		next := w.wantState(w.get(id).ContinuedAs, job.Dispatched)
		_, err := w.sched.Conversations.Fork(t.Context(), id, api.Fork{Text: "another way"})
		if !errors.Is(err, queue.ErrIllegalTransition) || !strings.Contains(err.Error(), string(next.ID)) {
			t.Errorf("forked while job %s runs: %v", next.ID, err)
		}
		w.wait(2 * time.Minute)
		if _, err := w.sched.Conversations.Fork(t.Context(), id, api.Fork{Text: "another way"}); err != nil {
			t.Errorf("forked after that: %v", err)
		}
	})
}
