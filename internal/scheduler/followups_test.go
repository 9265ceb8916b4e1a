package scheduler_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// talker is a job whose agent can be told things.
func talker(name string, change ...func(*job.Spec)) job.Spec {
	return task(name, 0, append([]func(*job.Spec){func(s *job.Spec) { s.Type, s.Worker = job.WorkerTask, "codex" }}, change...)...)
}

// idleJobs returns a scheduler that does not run, with jobs.
func idleJobs(t *testing.T, specs ...job.Spec) (*scheduler.Scheduler, *sqlite.Store, []job.ID) {
	t.Helper()
	store := openStore(t)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	b, entries := scheduler.NewBatch("test", "", specs, job.Workflow{}, stamp())
	if err := store.Enqueue(t.Context(), b, entries); err != nil {
		t.Fatal(err)
	}
	var ids []job.ID
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return scheduler.Idle(store, &isolation.Book{}, nil), store, ids
}

// ends has a job run once and end.
func ends(t *testing.T, store *sqlite.Store, id job.ID, exit job.ExitKind, session string) {
	t.Helper()
	at := stamp()
	c, err := store.Claim(t.Context(), queue.ClaimSpec{Holder: "test", Now: at, Lease: time.Hour, IDs: []job.ID{id}})
	if err != nil || len(c.Entries) != 1 {
		t.Fatalf("claimed %v, %v", c.Entries, err)
	}
	e := c.Entries[0]
	n := e.Attempts + 1
	o := job.Outcome{State: job.RunCompleted, Session: session, StartedAt: at, EndedAt: at}
	if exit == job.ExitFailed {
		o.State, o.Class = job.RunFailed, job.VerifyFailed
	}
	err = store.Apply(t.Context(),
		queue.Begin{ID: id, Fence: e.Fence, Attempt: job.Attempt{Job: id, Number: n, Fence: e.Fence, Choice: e.Spec.Choices()[0], State: job.Pending, Node: "n1", Started: at}},
		queue.Move{ID: id, Fence: e.Fence, Attempt: n, To: job.Running},
		queue.Finish{ID: id, Fence: e.Fence, Attempt: n, Outcome: o, Now: at, Exit: exit, DeadLetter: map[bool]string{true: "it failed"}[exit == job.ExitFailed]})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFollowUp: what is said to a job that has ended begins another one, and is heard once, whoever says it to which of them.
func TestFollowUp(t *testing.T) {
	past := stamp().Add(-time.Hour)
	s, store, ids := idleJobs(t, talker("done", func(s *job.Spec) {
		s.Key, s.OnDuplicate, s.RunnableAt = "k", job.Reject, &past
	}), talker("failed"), talker("cancelled"))
	ends(t, store, ids[0], job.ExitSucceeded, "S-1")
	ends(t, store, ids[1], job.ExitFailed, "")
	if err := store.Apply(t.Context(), queue.Cancel{ID: ids[2], Now: stamp()}); err != nil {
		t.Fatal(err)
	}
	// Another job of the same key does not stand in its way.
	b, other := scheduler.NewBatch("other", "", []job.Spec{talker("other", func(s *job.Spec) { s.Key, s.OnDuplicate = "k", job.Reject })}, job.Workflow{}, stamp())
	if err := store.Enqueue(t.Context(), b, other); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		var clients sync.WaitGroup
		said := make([]api.Said, 4)
		for c := range said {
			clients.Go(func() {
				var err error
				if said[c], err = s.Conversations.Say(t.Context(), id, api.Say{ID: string(rune('a' + c)), Text: string(rune('a' + c)), By: "ann"}); err != nil {
					t.Error(err)
				}
			})
		}
		clients.Wait()
		old, err := store.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		f, err := store.Get(t.Context(), old.ContinuedAs)
		if err != nil {
			t.Fatalf("nothing goes on from %+v: %v", old, err)
		}
		if f.Continues != id || f.Folder != id || f.Spec.Name != old.Spec.Name || f.Spec.Trigger != job.ByResume || f.Spec.RunnableAt != nil || f.Batch == old.Batch {
			t.Errorf("goes on as %+v", f)
		}
		if i == 0 && (f.Session != "S-1" || f.SessionWorker != "codex" || f.SessionNode != "n1" || f.Spec.OnDuplicate != job.Serialize || f.WaitsFor != other[0].ID) {
			t.Errorf("goes on as %+v, want the session, behind the other of its key", f)
		}
		if i == 1 && (old.RequeuedAs != f.ID || scheduler.WaitsForSomebody(&old) == nil) {
			t.Errorf("the dead letter still waits: %+v", old)
		}
		list, err := scheduler.Messages(t.Context(), store, f.ID)
		if err != nil || len(list) != 4 {
			t.Fatalf("it was told %+v, %v", list, err)
		}
		for n, m := range list {
			if m.Number != n+1 || m.Job != f.ID || m.State != api.MessageQueued {
				t.Errorf("message %+v", m)
			}
		}
		for _, to := range []job.ID{id, f.ID} { // it had no answer
			again, err := s.Conversations.Say(t.Context(), to, api.Say{ID: "a", Text: "a"})
			if err != nil || again.Message.Job != f.ID || again.Note != "it was said before" {
				t.Errorf("said again to %s: %+v, %v", to, again, err)
			}
			if _, err := s.Conversations.Say(t.Context(), to, api.Say{ID: "a", Text: "b"}); !errors.Is(err, queue.ErrIllegalTransition) {
				t.Errorf("other words of the same id: %v", err)
			}
		}
		if left, err := scheduler.Messages(t.Context(), store, id); err != nil || len(left) > 0 {
			t.Errorf("the old job was told %+v, %v", left, err)
		}
	}
}

// TestFork: a fork has the session, and a folder and a name of its own; what cannot be forked says why.
func TestFork(t *testing.T) {
	s, store, ids := idleJobs(t, talker("done"), talker("never"))
	ends(t, store, ids[0], job.ExitSucceeded, "S-1")
	if _, err := s.Conversations.Fork(t.Context(), ids[0], api.Fork{Text: "x"}); !errors.Is(err, queue.ErrIllegalTransition) {
		t.Errorf("a worker that cannot fork: %v", err)
	}
	if _, err := s.Conversations.Fork(t.Context(), ids[1], api.Fork{Text: "x"}); !errors.Is(err, queue.ErrIllegalTransition) {
		t.Errorf("no session: %v", err)
	}
}

// TestUntold: what a job was not told before it ended by itself begins a follow-up, once; of a cancelled one nobody is told.
func TestUntold(t *testing.T) {
	for name, c := range map[string]struct {
		ends job.Outcome
		jobs int
	}{
		"it completes": {job.Outcome{State: job.RunCompleted}, 2},
		"it fails":     {job.Outcome{State: job.RunFailed, Class: job.Config, Message: "no"}, 2},
		"cancelled":    {job.Outcome{State: job.RunCancelled, Class: job.CancelledClass}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, openStoreAt(t, filepath.Join(t.TempDir(), "queue.db")), 1, nil)
				w.cores.play = func(core *playedCore) {
					core.run = func(ctx context.Context, r *playedRun) job.Outcome {
						r.tell(job.Event{Kind: job.EventState, State: job.Running})
						sleep(ctx, time.Minute)
						return c.ends
					}
				}
				w.start()
				defer w.end()
				id := w.submit(talker("fix"))[0]
				w.wait(10 * time.Second)
				if _, err := w.sched.Conversations.Say(t.Context(), id, api.Say{Text: "and the tests"}); err != nil {
					t.Fatal(err)
				}
				if c.jobs == 1 {
					if err := w.sched.Cancel(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				w.wait(10 * time.Minute)
				list, _, err := w.store.List(t.Context(), queue.Filter{})
				if err != nil || len(list) != c.jobs {
					t.Fatalf("%d jobs, %v; want %d", len(list), err, c.jobs)
				}
				old := w.get(id)
				said, err := scheduler.Messages(t.Context(), w.store, id)
				if err != nil || len(said) != 1 || said[0].State != api.MessageSuperseded || said[0].FollowUp != old.ContinuedAs {
					t.Errorf("the job was told %+v, %v", said, err)
				}
				if c.jobs == 1 {
					return
				}
				last := w.cores.at(1).lastSubmitted()
				if last.Job != old.ContinuedAs || last.Folder != id || len(last.Messages) != 1 || last.Messages[0].Text != "and the tests" || !last.Messages[0].Unread || last.Left == nil || !last.Left.Here {
					t.Errorf("the core was given %+v", last)
				}
			})
		})
	}
}

// TestAnswerTold: a resumed agent that was answered while it was gone is told so, and the answer still counts once when it
// asks the same.
func TestAnswerTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStoreAt(t, filepath.Join(t.TempDir(), "queue.db")), 1, nil)
		question := ipc.Question{ID: "1", Key: "k", Kind: "command", Text: "run make?", Command: "make", Decisions: []string{"allow", "deny"}}
		asked := make(chan ipc.AskPersonResult, 3)
		w.cores.play = func(core *playedCore) {
			core.run = func(ctx context.Context, r *playedRun) job.Outcome {
				r.tell(job.Event{Kind: job.EventState, State: job.Running})
				r.tell(job.Event{Kind: job.EventSession, Session: "S-1"})
				if r.Attempt != 2 {
					var answer ipc.AskPersonResult
					if err := core.peer.Call(ctx, ipc.MethodAskPerson, ipc.AskPerson{Job: r.Job, Attempt: r.Attempt, Question: question, Wait: job.Duration(time.Hour)}, &answer); err != nil {
						t.Error(err)
					}
					asked <- answer
				}
				if r.Attempt < 3 {
					sleep(ctx, time.Minute)
					return job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Session: "S-1"}
				}
				return lasts(ctx, r)
			}
		}
		w.start()
		defer w.end()
		id := w.submit(talker("fix", func(s *job.Spec) { s.Ask.For, s.Limits.MaxAttempts = []job.AskFor{job.AskCommands}, 9 }))[0]
		w.wait(70 * time.Second)
		<-asked
		if _, err := w.sched.Conversations.Answer(t.Context(), id, 1, api.AnswerQuestion{Decision: api.Allow, Text: "but quietly", By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.wait(2 * time.Minute)
		third := w.cores.at(1).lastSubmitted()
		if third.Attempt != 3 || len(third.Answered) != 1 || third.Answered[0].Question != "run make?" || third.Answered[0].Decision != api.Allow || third.Answered[0].Text != "but quietly" {
			t.Errorf("attempt %d was told %+v", third.Attempt, third.Answered)
		}
		if answer := <-asked; answer.Answer == nil || answer.Answer.Decision != api.Allow {
			t.Errorf("asked again, it was given %+v", answer.Answer)
		}
	})
}
