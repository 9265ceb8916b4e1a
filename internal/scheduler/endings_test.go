package scheduler_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// TestEndsWithoutRun: what a job was told, what its agent asks and who has it is settled at its end, also if that is no run's.
func TestEndsWithoutRun(t *testing.T) {
	asks := func(core *playedCore) {
		core.run = func(ctx context.Context, r *playedRun) job.Outcome {
			r.tell(job.Event{Kind: job.EventState, State: job.Running})
			r.tell(job.Event{Kind: job.EventSession, Session: "S-1"})
			q := ipc.Question{ID: "1", Key: "k", Kind: "command", Text: "run make?", Command: "make", Decisions: []string{"allow", "deny"}}
			core.peer.Call(ctx, ipc.MethodAskPerson, ipc.AskPerson{Job: r.Job, Attempt: r.Attempt, Question: q, Wait: job.Duration(time.Second)}, &ipc.AskPersonResult{}) //nolint:errcheck // the store says it
			if r.Spec.Flow.Oversight != nil {
				return job.Outcome{State: job.RunCompleted, Session: "S-1"}
			}
			return job.Outcome{State: job.RunFailed, Class: job.Server, Message: "503", Session: "S-1"}
		}
	}
	begin := func(t *testing.T, path string, change func(*job.Spec)) (*world, job.ID) {
		w := newWorld(t, openStoreAt(t, path), 1, func(c *scheduler.Config) {
			c.Tuning.Retry = policy.NewRetry(time.Hour, time.Hour, func() float64 { return 1 })
		})
		w.cores.play = asks
		w.start()
		id := w.submit(talker("fix", func(s *job.Spec) { s.Ask.For = []job.AskFor{job.AskCommands} }, change))[0]
		w.wait(10 * time.Second)
		w.wantState(id, job.Queued)
		if open, err := w.sched.Conversations.Open(t.Context(), ""); err != nil || len(open) != 1 {
			t.Fatalf("open are %+v, %v", open, err)
		}
		return w, id
	}
	say := func(w *world, id job.ID) {
		w.Helper()
		if _, err := w.sched.Conversations.Say(w.Context(), id, api.Say{Text: "and the tests"}); err != nil {
			w.Fatal(err)
		}
	}
	nothing := func(w *world) {
		w.Helper()
		if open, err := w.sched.Conversations.Open(w.Context(), ""); err != nil || len(open) > 0 {
			w.Errorf("open are %+v, %v", open, err)
		}
		for _, prefix := range []string{"persons/", "told/", "questions/"} {
			if spaces, err := w.store.Spaces(w.Context(), prefix); err != nil || len(spaces) > 0 {
				w.Errorf("noted is %v, %v", spaces, err)
			}
		}
	}
	said := func(w *world, id job.ID) api.Message {
		w.Helper()
		list, err := scheduler.Messages(w.Context(), w.store, id)
		if err != nil || len(list) != 1 {
			w.Fatalf("it was told %+v, %v", list, err)
		}
		return list[0]
	}
	t.Run("cancelled before its next attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, id := begin(t, filepath.Join(t.TempDir(), "queue.db"), func(*job.Spec) {})
			defer w.end()
			if _, err := w.sched.Conversations.TakeOver(t.Context(), id, api.Takeover{By: "ann"}); err != nil {
				t.Fatal(err)
			}
			say(w, id)
			if err := w.sched.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			w.wait(time.Second)
			if m := said(w, id); m.State != api.MessageSuperseded {
				t.Errorf("it was told %+v", m)
			}
			nothing(w)
		})
	})
	t.Run("cancelled while no scheduler runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "queue.db")
			w, id := begin(t, path, func(*job.Spec) {})
			w.end()
			w = newWorld(t, openStoreAt(t, path), 1, nil)
			if err := w.store.Apply(t.Context(), queue.Cancel{ID: id, Now: stamp()}); err != nil {
				t.Fatal(err)
			}
			w.start()
			defer w.end()
			w.wait(time.Second)
			nothing(w)
		})
	})
	t.Run("approved", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, id := begin(t, filepath.Join(t.TempDir(), "queue.db"), func(s *job.Spec) { s.Flow.Oversight = &job.Oversight{Mode: job.Supervised} })
			defer w.end()
			say(w, id)
			if _, err := w.sched.Approvals.Decide(t.Context(), id, 1, api.Answer{Approved: true, By: "ann"}); err != nil {
				t.Fatal(err)
			}
			w.wait(time.Second)
			old := w.wantState(id, job.Completed)
			if m := said(w, id); m.State != api.MessageSuperseded || m.FollowUp == "" || m.FollowUp != old.ContinuedAs {
				t.Errorf("it was told %+v, and goes on as %q", m, old.ContinuedAs)
			}
		})
	})
}

// TestUntoldWhileTheQueueIsFull: what a job was not told begins a follow-up as soon as its tenant may queue one.
func TestUntoldWhileTheQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, nil)
		w.cores.play = func(core *playedCore) {
			core.run = func(ctx context.Context, r *playedRun) job.Outcome {
				r.tell(job.Event{Kind: job.EventState, State: job.Running})
				sleep(ctx, time.Minute)
				return job.Outcome{State: job.RunCompleted}
			}
		}
		w.start()
		defer w.end()
		id := w.submit(talker("fix"), talker("later", func(s *job.Spec) { s.RunnableAt = new(stamp().Add(10 * time.Minute)) }))[0]
		w.store.SetBounds(queue.Bounds{Tenant: 1})
		w.wait(10 * time.Second)
		if _, err := w.sched.Conversations.Say(t.Context(), id, api.Say{Text: "and the tests"}); err != nil {
			t.Fatal(err)
		}
		w.wait(5 * time.Minute)
		if e := w.wantState(id, job.Completed); e.ContinuedAs != "" {
			t.Fatalf("it goes on as %s in a full queue", e.ContinuedAs)
		}
		w.wait(10 * time.Minute)
		if e := w.get(id); e.ContinuedAs == "" {
			t.Error("nothing goes on with what it was told")
		}
	})
}
