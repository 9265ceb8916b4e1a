package queuetest

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func held(h job.Hold) func(*queue.Entry) {
	return func(e *queue.Entry) { e.Held, e.Waiting = h, "held for "+string(h) }
}

func joined(e *queue.Entry) { e.Spec.Flow.Joined = true }

// asked returns an entry whose attempt, begun at now, waits for a person.
func (e *env) asked(name string, now time.Time, options ...func(*queue.Entry)) queue.Entry {
	e.Helper()
	id := e.enqueueOne(name, append(options, priority(99))...)
	c := e.claimOne(now)
	if c.ID != id {
		e.Fatalf("claimed %s, want %s", c.Spec.Name, name)
	}
	e.apply(awaitOp(c, e.begin(c, now), now))
	return e.wantState(id, job.Queued)
}

func awaitOp(c queue.Entry, attempt int, now time.Time) queue.Await {
	return queue.Await{ID: c.ID, Fence: c.Fence, Attempt: attempt, Now: now, Waiting: "waits for a person",
		Outcome:  job.Outcome{State: job.RunCompleted, Answer: "done", StartedAt: now, EndedAt: now},
		Approval: queue.Approval{Why: "supervised", AskedAt: now}}
}

// holdOutOfLane: what is held is in nobody's way until it is let go.
func holdOutOfLane(e *env) {
	ids := map[job.Hold]job.ID{}
	for _, h := range []job.Hold{job.HeldForNeeds, job.HeldForParts, job.HeldForTeam, job.HeldForWords, job.HeldByPerson} {
		ids[h] = e.enqueueOne("held for "+string(h), held(h), priority(5))
	}
	asked := e.asked("asked", epoch)
	look := func(when string, want ...string) {
		e.Helper()
		var told []string
		for _, l := range e.heads(queue.HeadsSpec{Each: 9, Now: epoch}).Lanes {
			for i := range l.Heads {
				told = append(told, string(e.get(l.Heads[i].ID).Spec.Name))
			}
		}
		c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 0, Now: epoch, Lease: lease, Count: true})
		if !slices.Equal(told, want) {
			e.Errorf("%s: heads are %v, want %v", when, told, want)
		}
		if c.Ready[job.Standard].Depth != len(want) || len(want) == 0 && !c.NextAt.IsZero() {
			e.Errorf("%s: a claim says %s, want %d ready and nothing later", when, show(c), len(want))
		}
	}
	look("all held")
	e.reopen()
	look("after a restart")
	if c := e.claim(9, epoch.Add(time.Hour)); len(c.Entries) != 0 {
		e.Fatalf("claimed %v, which are held", names(c.Entries))
	}
	for f, want := range map[job.Hold][]string{
		job.HeldForNeeds: {"held for needs"}, job.HeldForParts: {"held for parts"}, job.HeldForTeam: {"held for team"}, job.HeldForWords: {"held for words"}, job.HeldByPerson: {"held for person"}, job.HeldForApproval: {"asked"},
	} {
		list, total := e.list(queue.Filter{Held: []job.Hold{f}})
		wantSame(e, "held for "+string(f), names(list), want)
		in, _ := e.list(queue.Filter{Held: []job.Hold{f}, Batch: e.batch.ID})
		wantSame(e, "of the batch", names(in), want)
		if total != 1 || list[0].Held != f || list[0].State != job.Queued {
			e.Errorf("%d, %s", total, show(list))
		}
	}
	if list, _ := e.list(queue.Filter{Held: []job.Hold{job.HeldForNeeds, job.HeldForApproval}, States: []job.EntryState{job.Queued}}); len(list) != 2 {
		e.Errorf("of two holds: %v", names(list))
	}
	now := epoch.Add(time.Second)
	resolved := &job.Resolved{Instructions: "do 1 < 2", SystemPrompt: "p", Verify: "v", Hash: "h", Input: json.RawMessage(`{"n":1}`),
		Patches: []job.Patch{{Job: "a", Path: "/patch"}, {Job: "b"}}}
	e.apply(queue.Ready{ID: ids[job.HeldForNeeds], Resolved: resolved, Now: now})
	got := e.wantState(ids[job.HeldForNeeds], job.Queued)
	if got.Held != "" || got.Waiting != "" || !got.RunnableAt.Equal(now) {
		e.Errorf("let go: %s", show(got))
	}
	c := e.claim(9, now)
	if len(c.Entries) != 1 || c.Entries[0].ID != got.ID {
		e.Fatalf("claimed %v, want what was let go", names(c.Entries))
	}
	wantSame(e, "what it is run with", c.Entries[0].Resolved, resolved)
	e.reopen()
	wantSame(e, "after a restart", e.get(got.ID).Resolved, resolved)
	if got := e.get(asked.ID); got.Held != job.HeldForApproval || got.Approval == nil {
		e.Errorf("who waits for a person: %s", show(got))
	}
	// A time that lies ahead stays, and words that were found stay where none are given.
	late := e.enqueueOne("late", held(job.HeldForTeam), runnableAt(now.Add(time.Hour)), func(x *queue.Entry) { x.Resolved = resolved })
	e.apply(queue.Ready{ID: late, Now: now})
	if got := e.get(late); !got.RunnableAt.Equal(now.Add(time.Hour)) || got.Resolved == nil || got.Resolved.Hash != "h" {
		e.Errorf("let go before its time: %s", show(got))
	}
}

// holdHead: an entry that is let go becomes the head of its lane, if it comes first.
func holdHead(e *env) {
	first := e.enqueueOne("first", held(job.HeldForNeeds), runnableAt(epoch.Add(-time.Minute)))
	e.enqueueOne("second", runnableAt(epoch.Add(time.Minute)))
	e.enqueueOne("third", runnableAt(epoch.Add(2*time.Minute)))
	head := func() []string {
		lanes := e.heads(queue.HeadsSpec{Each: 1, Now: epoch}).Lanes
		if len(lanes) != 1 {
			e.Fatalf("%d lanes", len(lanes))
		}
		return []string{string(e.get(lanes[0].Heads[0].ID).Spec.Name)}
	}
	wantSame(e, "head", head(), []string{"second"})
	e.apply(queue.Ready{ID: first, Now: epoch})
	wantSame(e, "head", head(), []string{"first"})
	e.apply(queue.Keep{ID: first, For: job.HeldForTeam, Waiting: "the team"})
	wantSame(e, "head", head(), []string{"second"})
	if got := e.get(first); got.Held != job.HeldForTeam || got.Waiting != "the team" {
		e.Errorf("kept back: %s", show(got))
	}
}

// holdRules tries each op on entries in every situation.
func holdRules(e *env) {
	now := epoch.Add(time.Second)
	situations := []struct {
		name string
		make func(name string) job.ID
	}{
		{"queued", func(n string) job.ID { return e.enqueueOne(n, runnableAt(epoch.Add(time.Hour))) }},
		{"needs", func(n string) job.ID { return e.enqueueOne(n, held(job.HeldForNeeds)) }},
		{"parts", func(n string) job.ID { return e.enqueueOne(n, held(job.HeldForParts)) }},
		{"team", func(n string) job.ID { return e.enqueueOne(n, held(job.HeldForTeam)) }},
		{"person", func(n string) job.ID { return e.enqueueOne(n, held(job.HeldByPerson)) }},
		{"approval", func(n string) job.ID { return e.asked(n, epoch).ID }},
		{"dispatched", func(n string) job.ID { id := e.enqueueOne(n, priority(99)); e.claimOne(epoch); return id }},
		{"completed", func(n string) job.ID { return e.done(n, epoch) }},
		{"cancelled", func(n string) job.ID {
			id := e.enqueueOne(n)
			e.apply(queue.Cancel{ID: id, Now: epoch})
			return id
		}},
	}
	ops := []struct {
		name  string
		op    func(id job.ID) queue.Op
		legal []string // the situations in which it is
		again bool     // it may be repeated
	}{
		{"ready", func(id job.ID) queue.Op { return queue.Ready{ID: id, Now: now} }, []string{"needs", "team", "person"}, false},
		{"keep", func(id job.ID) queue.Op { return queue.Keep{ID: id, For: job.HeldForParts, Waiting: "w"} }, []string{"queued", "needs", "parts", "team", "person"}, true},
		{"keep for approval", func(id job.ID) queue.Op { return queue.Keep{ID: id, For: job.HeldForApproval} }, nil, false},
		{"skip", func(id job.ID) queue.Op { return queue.Skip{ID: id, Why: "not so", Now: now} }, []string{"queued", "needs", "parts", "team", "person", "approval"}, false},
		{"conclude", func(id job.ID) queue.Op { return queue.Conclude{ID: id, Exit: job.ExitSucceeded, Now: now} }, []string{"parts", "team"}, false},
		{"approve", func(id job.ID) queue.Op { return queue.Decide{ID: id, Attempt: 1, Approved: true, Now: now} }, []string{"approval"}, false},
		{"reject", func(id job.ID) queue.Op { return queue.Decide{ID: id, Attempt: 1, Now: now} }, []string{"approval"}, false},
		{"reject, retry", func(id job.ID) queue.Op {
			return queue.Decide{ID: id, Attempt: 1, Now: now, Retry: &queue.Retry{RunnableAt: epoch.Add(time.Hour)}}
		}, []string{"approval"}, false},
	}
	for _, op := range ops {
		e.refuse(queue.ErrNotFound, op.op("nobody"))
		for _, s := range situations {
			id := s.make(op.name + " " + s.name)
			before, attempts := e.get(id), e.attempts(id)
			legal := false
			for _, l := range op.legal {
				legal = legal || l == s.name
			}
			if !legal {
				e.refuse(queue.ErrIllegalTransition, op.op(id))
				wantSame(e, op.name+" of what is "+s.name, e.get(id), before)
				wantSame(e, "its attempts", e.attempts(id), attempts)
			} else {
				e.apply(op.op(id))
				if after := e.get(id); show(after) == show(before) && !op.again {
					e.Errorf("%s of what is %s changed nothing", op.name, s.name)
				}
				after := e.get(id)
				if op.again {
					e.apply(op.op(id))
				} else {
					e.refuse(queue.ErrIllegalTransition, op.op(id))
				}
				wantSame(e, op.name+" again", e.get(id), after)
			}
			// What is left out of the way of the next.
			if !e.get(id).State.Terminal() {
				e.apply(queue.Cancel{ID: id, Now: epoch})
			}
		}
	}
	id := e.enqueueOne("odd", held(job.HeldForParts))
	for _, odd := range []queue.Op{
		queue.Keep{ID: id, For: "lunch"}, queue.Keep{ID: id}, queue.Skip{ID: id, Now: now}, queue.Conclude{ID: id, Exit: "somehow"}, queue.Conclude{ID: id},
		queue.Conclude{ID: id, Exit: job.ExitSucceeded, Result: json.RawMessage(`{`)},
	} {
		if err := e.store.Apply(e.ctx, odd); err == nil {
			e.Errorf("%T %s was applied", odd, show(odd))
		}
	}
	if err := e.store.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry("x", held(job.HeldForApproval))}); !errors.Is(err, queue.ErrIllegalTransition) {
		e.Errorf("enqueued as waiting for a person: %v", err)
	}
	if err := e.store.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry("x", held("lunch"))}); err == nil {
		e.Error("enqueued with an unknown hold")
	}
	e.check()
}

// check looks whether the store finds itself whole.
func (e *env) check() {
	e.Helper()
	if err := e.store.Check(e.ctx); err != nil {
		e.Error(err)
	}
}
