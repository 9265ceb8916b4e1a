package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// leading is a job whose agent may use the scheduler. It runs as the test says, by its name.
func leading(name string, change ...func(*job.Spec)) job.Spec {
	return task(name, 0, append([]func(*job.Spec){func(s *job.Spec) {
		s.Type, s.Worker, s.Instructions = job.WorkerTask, "codex", "lead"
		s.Capabilities, s.AllowCommands = []job.Capability{job.CanRead, job.CanRunCommands, job.CanUseScheduler}, []string{"go test *", "make"}
		s.Network, s.Secrets = []string{"example.com"}, []string{"TOKEN"}
	}}, change...)...)
}

// agents plays runs by the names of their jobs; others last as long as their instructions say.
func agents(play map[job.Name]func(context.Context, *playedRun)) func(*playedCore) {
	return func(c *playedCore) {
		c.run = func(ctx context.Context, r *playedRun) job.Outcome {
			agent := play[r.Spec.Name]
			if agent == nil {
				return lasts(ctx, r)
			}
			r.tell(job.Event{Kind: job.EventState, State: job.Running})
			if agent(ctx, r); ctx.Err() != nil {
				return job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "stopped"}
			}
			return job.Outcome{State: job.RunCompleted, Answer: "done"}
		}
	}
}

func call[A any](t testing.TB, r *playedRun, method string, q any) (a A) {
	t.Helper()
	if err := r.c.peer.Call(context.Background(), method, q, &a); err != nil {
		t.Errorf("%s: %v", method, err)
	}
	return a
}

func (r *playedRun) submit(t testing.TB, c ipc.NewChild, b ipc.Budget) ipc.ChildResult {
	t.Helper()
	return call[ipc.ChildResult](t, r, ipc.MethodSubmitChild, ipc.SubmitChild{Job: r.Job, Attempt: r.Attempt, Child: c, Budget: b})
}

func (r *playedRun) children(t testing.TB) ipc.Children {
	t.Helper()
	return call[ipc.Children](t, r, ipc.MethodListChildren, ipc.ListChildren{Job: r.Job, Attempt: r.Attempt})
}

// await asks how the children stand until one of them, or all, have ended; it reports false if the run is to end.
func (r *playedRun) await(ctx context.Context, t testing.TB, all bool) bool {
	t.Helper()
	for sleep(ctx, 100*time.Millisecond) {
		list := r.children(t).Children
		left := slices.DeleteFunc(slices.Clone(list), func(c ipc.Child) bool { return c.Ended })
		if len(left) == 0 || !all && len(left) < len(list) {
			return true
		}
	}
	return false
}

// waits says that the run waits for its children, or does so no more.
func (r *playedRun) waits(change string) {
	r.tell(job.Event{Kind: job.EventState, State: job.Running, Change: change})
}

// leads runs leads, each as the test says, in a world with one slot.
func leads(t *testing.T, specs []job.Spec, play map[job.Name]func(context.Context, *playedRun), then func(*world, []job.ID), before ...func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) {
			c.Settings.MaxConcurrent = 1
			c.Children = scheduler.ChildBounds{Depth: 2, Each: 3, Workers: []job.WorkerKind{"shell"}}
		})
		w.cores.play = agents(play)
		for _, f := range before {
			f(w)
		}
		w.start()
		defer w.end()
		ids := w.submit(specs...)
		w.wait(time.Minute)
		then(w, ids)
	})
}

// TestChildrenNeedTheSlotOfTheirLead: a run that waits for its children lends them its slot, and has it back when it goes on.
func TestChildrenNeedTheSlotOfTheirLead(t *testing.T) {
	var most int
	leads(t, []job.Spec{leading("lead")}, map[job.Name]func(context.Context, *playedRun){
		"lead": func(ctx context.Context, r *playedRun) {
			for _, name := range []string{"a", "b"} {
				if got := r.submit(t, ipc.NewChild{Name: name, Instructions: "1s"}, ipc.Budget{}); got.Refused != "" {
					t.Error(got.Refused)
				}
			}
			sleep(ctx, 5*time.Second)
			if all := r.children(t); all.Children[0].Ended || all.Children[1].Ended {
				t.Errorf("children ran without a slot: %+v", all)
			}
			r.waits(job.WaitsForJobs)
			r.await(ctx, t, false)
			r.c.mu.Lock()
			most = len(r.c.runs)
			r.c.mu.Unlock()
			r.waits(job.WaitedForJobs)
			r.waits(job.WaitsForJobs)
			r.await(ctx, t, true)
		},
	}, func(w *world, ids []job.ID) {
		if e := w.wantState(ids[0], job.Completed); e.ExitKind != job.ExitSucceeded {
			w.Errorf("the lead ended as %s", e.ExitKind)
		}
		for _, name := range []job.Name{"lead.a", "lead.b"} {
			list, _, err := w.store.List(w.Context(), queue.Filter{Name: name})
			if err != nil || len(list) != 1 || list[0].ExitKind != job.ExitSucceeded || list[0].Spec.Lead != (job.Lead{Job: ids[0], Depth: 1}) {
				w.Errorf("%s: %+v, %v", name, list, err)
			}
		}
		if most > 2 {
			w.Errorf("%d runs at once with one slot, which was lent", most)
		}
	})
}

// TestChildMayNoMoreThanItsLead tries what an agent could say to get more than its own job has.
func TestChildMayNoMoreThanItsLead(t *testing.T) {
	limits := func(s *job.Spec) {
		s.Limits.MaxTokens, s.Limits.MaxCostUSD, s.Limits.Timeout = 1000, 2, job.Duration(time.Minute)
	}
	leads(t, []job.Spec{leading("lead", limits)}, map[job.Name]func(context.Context, *playedRun){
		"lead": func(_ context.Context, r *playedRun) {
			fair := ipc.Budget{Tokens: 400, CostUSD: 1}
			for about, tc := range map[string]struct {
				child  ipc.NewChild
				budget ipc.Budget
				want   string
			}{
				"a capability":       {ipc.NewChild{Capabilities: []string{"read", "edit"}}, fair, `capabilities has "edit"`},
				"no capability":      {ipc.NewChild{Capabilities: []string{"root"}}, fair, `capabilities has "root"`},
				"a command":          {ipc.NewChild{AllowCommands: []string{"rm *"}}, fair, `allow_commands has "rm *"`},
				"a wider command":    {ipc.NewChild{AllowCommands: []string{"go *"}}, fair, `allow_commands has "go *"`},
				"a host":             {ipc.NewChild{Network: []string{"example.org"}}, fair, `network has "example.org"`},
				"all hosts":          {ipc.NewChild{Network: []string{"full"}}, fair, `network has "full"`},
				"a secret":           {ipc.NewChild{Secrets: []string{"KEY"}}, fair, `secrets has "KEY"`},
				"a worker":           {ipc.NewChild{Worker: "claude"}, fair, `worker is "claude"`},
				"a model":            {ipc.NewChild{Worker: "codex:dear"}, fair, `worker is "codex:dear"`},
				"time":               {ipc.NewChild{Timeout: job.Duration(time.Hour)}, fair, "timeout is 1h0m0s"},
				"tokens":             {ipc.NewChild{}, ipc.Budget{Tokens: 1001, CostUSD: 1}, "1001 tokens are more"},
				"tokens below zero":  {ipc.NewChild{}, ipc.Budget{Tokens: -1, CostUSD: 1}, "below zero"},
				"unlimited tokens":   {ipc.NewChild{}, ipc.Budget{CostUSD: 1}, "0 tokens are more"},
				"money":              {ipc.NewChild{}, ipc.Budget{Tokens: 1, CostUSD: 2.01}, "2.0100 US dollars are more"},
				"a name with a path": {ipc.NewChild{Name: "../x"}, fair, "name is"},
				"many words":         {ipc.NewChild{Instructions: strings.Repeat("x", 65<<10)}, fair, "at most 65536"},
				"no words":           {ipc.NewChild{Instructions: " "}, fair, "must not be empty"},
			} {
				c := tc.child
				if c.Name == "" {
					c.Name = "x"
				}
				if c.Instructions == "" {
					c.Instructions = "1s"
				}
				if got := r.submit(t, c, tc.budget); !strings.Contains(got.Refused, tc.want) {
					t.Errorf("%s: refused with %q, want %q", about, got.Refused, tc.want)
				}
			}
			if all := r.children(t); len(all.Children) != 0 || all.Free != 3 || all.Depth != 2 {
				t.Errorf("what was refused is there: %+v", all)
			}
			// What the first may spend is not left for the second.
			first := r.submit(t, ipc.NewChild{Name: "a", Instructions: "1s", Network: []string{"none"}, AllowCommands: []string{"make"}}, ipc.Budget{Tokens: 700, CostUSD: 1})
			if first.Refused != "" || first.Ceded.Budget != (ipc.Budget{Tokens: 700, CostUSD: 1}) {
				t.Errorf("first child: %+v", first)
			}
			if got := r.submit(t, ipc.NewChild{Name: "b", Instructions: "1s"}, ipc.Budget{Tokens: 301, CostUSD: .1}); !strings.Contains(got.Refused, "more than your job has left") {
				t.Errorf("a second child with more than what is left: %+v", got)
			}
			if again := r.submit(t, ipc.NewChild{Name: "a", Instructions: "1s", Network: []string{"none"}, AllowCommands: []string{"make"}}, ipc.Budget{Tokens: 1, CostUSD: 1}); !again.Before || again.Refused != "" || again.Child.Job != first.Child.Job {
				t.Errorf("the same again: %+v, want job %s", again, first.Child.Job)
			}
			if other := r.submit(t, ipc.NewChild{Name: "a", Instructions: "2s"}, fair); !strings.Contains(other.Refused, "already") {
				t.Errorf("other words of a name that is taken: %+v", other)
			}
		},
	}, func(w *world, ids []job.ID) {
		list, _, err := w.store.List(w.Context(), queue.Filter{Name: "lead.a"})
		if err != nil || len(list) != 1 {
			w.Fatalf("%d children, %v", len(list), err)
		}
		s := list[0].Spec
		if s.Tenant != "t" || s.Can(job.CanUseScheduler) || !s.Can(job.CanRead) || fmt.Sprint(s.AllowCommands, s.Network, s.Secrets) != "[make] [none] [TOKEN]" || s.Limits.MaxTokens != 700 || s.Limits.Timeout != job.Duration(time.Minute) {
			w.Errorf("the child may %+v", s)
		}
	})
}

// TestChildrenOfOthers: an agent neither sees nor stops what it has not submitted, and a job without the capability does nothing.
func TestChildrenOfOthers(t *testing.T) {
	plain := leading("plain", func(s *job.Spec) { s.Capabilities = []job.Capability{job.CanRead} })
	other := leading("other", func(s *job.Spec) { s.Tenant = "u" })
	synctest.Test(t, func(t *testing.T) {
		held, ready := make(chan struct{}), make(chan struct{})
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) {
			c.Settings.MaxConcurrent = 3
			c.Children = scheduler.ChildBounds{Depth: 2, Each: 3}
		})
		w.cores.play = agents(map[job.Name]func(context.Context, *playedRun){
			"lead": func(_ context.Context, r *playedRun) {
				if got := r.submit(t, ipc.NewChild{Name: "a", Instructions: "1m"}, ipc.Budget{}); got.Refused != "" {
					t.Error(got.Refused)
				}
				note := call[ipc.NotesResult](t, r, ipc.MethodNotes, ipc.Notes{Job: r.Job, Attempt: r.Attempt, Key: "plan", Text: "mine"})
				if len(note.Notes) != 1 || note.Notes[0] != (ipc.Note{Key: "plan", Text: "mine", By: "lead"}) {
					t.Errorf("a note: %+v", note)
				}
				close(ready)
				<-held
			},
			"other": func(_ context.Context, r *playedRun) {
				<-ready
				if all := r.children(t); len(all.Children) != 0 {
					t.Errorf("another tenant sees %+v", all)
				}
				for _, name := range []string{"a", "lead.a", "lead"} {
					if got := call[ipc.ChildResult](t, r, ipc.MethodCancelChild, ipc.CancelChild{Job: r.Job, Attempt: r.Attempt, Name: name}); got.Refused == "" || got.Child.Job != "" {
						t.Errorf("another one's job %s was cancelled: %+v", name, got)
					}
					if got := call[ipc.ChildResult](t, r, ipc.MethodReadChild, ipc.ReadChild{Job: r.Job, Attempt: r.Attempt, Name: name}); got.Refused == "" || got.Answer != "" {
						t.Errorf("another one's job %s was read: %+v", name, got)
					}
				}
				if notes := call[ipc.NotesResult](t, r, ipc.MethodNotes, ipc.Notes{Job: r.Job, Attempt: r.Attempt}); len(notes.Notes) != 0 {
					t.Errorf("another tenant reads %+v", notes)
				}
			},
			"plain": func(_ context.Context, r *playedRun) {
				<-ready
				if got := r.submit(t, ipc.NewChild{Name: "x", Instructions: "1s"}, ipc.Budget{}); !strings.Contains(got.Refused, "capability") {
					t.Errorf("submitted without the capability: %+v", got)
				}
				if got := r.children(t); !strings.Contains(got.Refused, "capability") {
					t.Errorf("listed without the capability: %+v", got)
				}
				// A run that is not its own.
				var out ipc.ChildResult
				if err := r.c.peer.Call(context.Background(), ipc.MethodSubmitChild, ipc.SubmitChild{Job: r.Job, Attempt: 2, Child: ipc.NewChild{Name: "x", Instructions: "1s"}}, &out); err == nil {
					t.Errorf("submitted for an attempt that is not under way: %+v", out)
				}
				close(held)
			},
		})
		w.start()
		defer w.end()
		ids := w.submit(leading("lead"), other, plain)
		w.wait(time.Minute)
		for _, id := range ids {
			w.wantState(id, job.Completed)
		}
		// Its lead has ended before it.
		list, _, err := w.store.List(w.Context(), queue.Filter{Name: "lead.a"})
		if err != nil || len(list) != 1 || list[0].State != job.Cancelled && list[0].ExitKind != job.ExitCancelled {
			t.Errorf("the child of a job that has ended: %+v, %v", list, err)
		}
		if spaces, err := w.store.Spaces(w.Context(), "leads/"); err != nil || len(spaces) != 0 {
			t.Errorf("it is remembered that there are children of %v, %v", spaces, err)
		}
	})
}

// TestDepthAndNumberOfChildren: grandchildren are the last, their spending is that of their lead's lead, and no job has more
// children than it may.
func TestDepthAndNumberOfChildren(t *testing.T) {
	with := []string{"read", "scheduler"}
	leads(t, []job.Spec{leading("lead", func(s *job.Spec) { s.Limits.MaxTokens = 1000 })}, map[job.Name]func(context.Context, *playedRun){
		"lead": func(ctx context.Context, r *playedRun) {
			r.submit(t, ipc.NewChild{Name: "a", Instructions: "lead", Capabilities: with}, ipc.Budget{Tokens: 500})
			r.waits(job.WaitsForJobs)
			r.await(ctx, t, true)
			if got := r.children(t).Ceded; got.Tokens != 0 {
				t.Errorf("children that have spent nothing take %+v", got)
			}
			for _, name := range []string{"b", "c", "d"} {
				got := r.submit(t, ipc.NewChild{Name: name, Instructions: "1s"}, ipc.Budget{Tokens: 10})
				if refused := got.Refused != ""; refused != (name == "d") {
					t.Errorf("child %s: %+v", name, got)
				}
			}
		},
		"lead.a": func(ctx context.Context, r *playedRun) {
			if got := r.submit(t, ipc.NewChild{Name: "b", Instructions: "lead", Capabilities: with}, ipc.Budget{Tokens: 501}); !strings.Contains(got.Refused, "more than") {
				t.Errorf("a grandchild with more than its lead has: %+v", got)
			}
			r.submit(t, ipc.NewChild{Name: "b", Instructions: "lead", Capabilities: with}, ipc.Budget{Tokens: 100})
			r.waits(job.WaitsForJobs)
			r.await(ctx, t, true)
		},
		"lead.a.b": func(_ context.Context, r *playedRun) {
			if all := r.children(t); all.Free != 0 || all.Depth != 0 {
				t.Errorf("below the last level there are %+v", all)
			}
			if got := r.submit(t, ipc.NewChild{Name: "c", Instructions: "1s"}, ipc.Budget{Tokens: 1}); !strings.Contains(got.Refused, "2 levels") {
				t.Errorf("a level too deep: %+v", got)
			}
		},
	}, func(w *world, ids []job.ID) { w.wantState(ids[0], job.Completed) })
}

// TestLeadInAWorkflow: a job that needs a lead begins when that has ended, and its children hold up nothing.
func TestLeadInAWorkflow(t *testing.T) {
	joined := func(s *job.Spec) { s.Flow.Joined = true }
	next := task("next", time.Second, joined, func(s *job.Spec) { s.Flow.Needs = []job.Name{"lead"} })
	leads(t, []job.Spec{leading("lead", joined), next}, map[job.Name]func(context.Context, *playedRun){
		"lead": func(ctx context.Context, r *playedRun) {
			r.submit(t, ipc.NewChild{Name: "a", Instructions: "1s"}, ipc.Budget{})
			r.submit(t, ipc.NewChild{Name: "left", Instructions: "1h"}, ipc.Budget{})
			r.waits(job.WaitsForJobs)
			r.await(ctx, t, false)
		},
	}, func(w *world, ids []job.ID) {
		for _, id := range ids {
			if e := w.wantState(id, job.Completed); e.ExitKind != job.ExitSucceeded {
				w.Errorf("%s ended as %s", e.Spec.Name, e.ExitKind)
			}
		}
		for name, want := range map[job.Name]job.ExitKind{"lead.a": job.ExitSucceeded, "lead.left": job.ExitCancelled} {
			list, _, err := w.store.List(w.Context(), queue.Filter{Name: name})
			if err != nil || len(list) != 1 || !list[0].State.Terminal() || list[0].State == job.Completed && list[0].ExitKind != want {
				w.Errorf("%s: %+v, %v", name, list, err)
			}
		}
	})
}

// TestLeadsAreFoundAgain: the scheduler that comes after one that was killed ends the children of jobs that have ended, and the
// next attempt of a lead finds its own again.
func TestLeadsAreFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t)
		bounds := func(c *scheduler.Config) {
			c.Settings.MaxConcurrent = 2
			c.Children = scheduler.ChildBounds{Depth: 1, Each: 3}
		}
		w := newWorld(t, store, 1, bounds)
		var attempts []int
		var first ipc.ChildResult
		w.cores.play = agents(map[job.Name]func(context.Context, *playedRun){
			"lead": func(ctx context.Context, r *playedRun) {
				attempts = append(attempts, r.Attempt)
				got := r.submit(t, ipc.NewChild{Name: "a", Instructions: "20s"}, ipc.Budget{Tokens: 300})
				if r.Attempt == 1 {
					first = got
					<-ctx.Done()
					return
				}
				if !got.Before || got.Child.Job != first.Child.Job {
					t.Errorf("the next attempt is told of %+v, want job %s", got, first.Child.Job)
				}
				r.await(ctx, t, true)
			},
		})
		var ceded ipc.Ceded
		played := w.cores.play
		w.cores.play = func(c *playedCore) {
			played(c)
			c.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
				if method == ipc.MethodRequestPermit {
					var q ipc.PermitRequest
					if json.Unmarshal(params, &q) == nil && q.Attempt == 2 && q.Limits.MaxTokens == 1000 { // the lead's
						ceded = q.Ceded
					}
				}
				return nil, nil, false
			}
		}
		w.start()
		defer w.end()
		ids := w.submit(leading("lead", func(s *job.Spec) { s.Limits.MaxTokens = 1000 }))
		w.wait(time.Second)
		w.cores.down(1, errCancelled)
		w.cores.up(1)
		w.wait(time.Minute)
		w.wantState(ids[0], job.Completed)
		if !slices.Equal(attempts, []int{1, 2}) || ceded.Tokens != 300 {
			t.Errorf("attempts %v, the second of which was told that %+v is ceded", attempts, ceded)
		}
	})
}

// TestChildrenCountInTheQueue: what bounds the queue of a tenant bounds what agents submit, too.
func TestChildrenCountInTheQueue(t *testing.T) {
	var got []string
	leads(t, []job.Spec{leading("lead")}, map[job.Name]func(context.Context, *playedRun){
		"lead": func(ctx context.Context, r *playedRun) {
			sleep(ctx, 2*time.Second) // the lead itself is counted anew
			for _, name := range []string{"a", "b", "b"} {
				got = append(got, r.submit(t, ipc.NewChild{Name: name, Instructions: "1s"}, ipc.Budget{}).Refused)
			}
			if all := r.children(t).Children; len(all) != 1 {
				t.Errorf("it has %+v", all)
			}
		},
	}, func(w *world, _ []job.ID) {
		if len(got) != 3 || got[0] != "" || !strings.Contains(got[1], "queue.max_queued") || !strings.Contains(got[2], "queue.max_queued") {
			w.Errorf("refused were %q", got)
		}
	}, func(w *world) { w.store.SetBounds(queue.Bounds{Tenant: 1}) })
}
