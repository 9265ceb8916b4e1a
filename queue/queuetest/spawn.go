package queuetest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// concludeEnds: an entry that never ran ends like one that did.
func concludeEnds(e *env) {
	now := epoch.Add(time.Minute)
	good, bad, gone := e.enqueueOne("good", held(job.HeldForParts)), e.enqueueOne("bad", held(job.HeldForParts)), e.enqueueOne("gone", held(job.HeldForTeam))
	e.apply(
		queue.Conclude{ID: good, Exit: job.ExitSucceeded, Result: json.RawMessage(`["a",2]`), DeadLetter: "x", Now: now},
		queue.Conclude{ID: bad, Exit: job.ExitFailed, DeadLetter: "part 2 failed", Class: job.VerifyFailed, Result: json.RawMessage(`1`), Now: now},
		queue.Conclude{ID: gone, Exit: job.ExitCancelled, Now: now})
	if got := e.wantState(good, job.Completed); got.ExitKind != job.ExitSucceeded || string(got.Result) != `["a",2]` || got.DeadLetter != "" ||
		got.Held != "" || got.Waiting != "" || !got.CompletedAt.Equal(now) || got.Attempts != 0 {
		e.Errorf("succeeded %s", show(got))
	}
	if got := e.wantState(bad, job.Completed); got.ExitKind != job.ExitFailed || got.DeadLetter != "part 2 failed" || got.ErrorClass != job.VerifyFailed || got.Result != nil {
		e.Errorf("failed %s", show(got))
	}
	if got := e.wantState(gone, job.Completed); got.ExitKind != job.ExitCancelled {
		e.Errorf("cancelled %s", show(got))
	}
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{"bad"})
	list, err := e.store.Accounts(e.ctx, queue.AccountFilter{})
	wantSame(e, "accounts", list, []queue.Account{{Completed: 1}})
	if err != nil {
		e.Error(err)
	}
	e.reopen()
	if got := e.get(good); string(got.Result) != `["a",2]` {
		e.Errorf("after a restart %s", show(got))
	}
	// A node that failed can be done again, and dropped.
	e.batch = newBatch("again")
	again := e.enqueueOne("bad", func(x *queue.Entry) { x.RequeuedFrom = bad })
	if got := e.get(bad); got.RequeuedAs != again {
		e.Errorf("requeued %s", show(got))
	}
	e.check()
}

// spawnOnce adds what is missing, whatever was added before.
func spawnOnce(e *env) {
	private := newBatch("private")
	private.Private = true
	if err := e.store.Enqueue(e.ctx, private, []queue.Entry{newEntry("node", held(job.HeldForParts))}); err != nil {
		e.Fatal(err)
	}
	part := func(n int, options ...func(*queue.Entry)) queue.Entry {
		return newEntry(string(job.PartName("node", n)), options...)
	}
	one, two := part(1), part(2, held(job.HeldForNeeds))
	e.apply(queue.Spawn{Batch: private.ID, Entries: []queue.Entry{one}})
	again, three := part(1), part(3)
	e.apply(queue.Spawn{Batch: private.ID, Entries: []queue.Entry{again, two, part(2), three}})
	e.apply(queue.Spawn{Batch: private.ID, Entries: []queue.Entry{part(1), part(2), part(3)}}, queue.Spawn{Batch: private.ID})
	list, _ := e.list(queue.Filter{Batch: private.ID})
	wantSame(e, "jobs", names(list), []string{"node", "node@1", "node@2", "node@3"})
	for i, id := range []job.ID{one.ID, two.ID, three.ID} {
		if list[i+1].ID != id {
			e.Errorf("part %d is job %s, want the first that was spawned, %s", i+1, list[i+1].ID, id)
		}
	}
	if c := e.claim(9, epoch); len(c.Entries) != 0 {
		e.Errorf("claimed %v of a private batch", names(c.Entries))
	}
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: private.ID, Max: 9, Now: epoch, Lease: lease})
	if len(c.Entries) != 2 {
		e.Errorf("claimed %v, want the parts that are not held", names(c.Entries))
	}
	// The same name of another tenant is another job; an id is taken, however it is called.
	e.apply(queue.Spawn{Batch: private.ID, Entries: []queue.Entry{part(1, tenant("other"))}})
	taken := part(4)
	taken.ID = one.ID
	five := part(5)
	e.refuse(queue.ErrDuplicate, queue.Spawn{Batch: private.ID, Entries: []queue.Entry{five, taken}})
	if _, err := e.store.Get(e.ctx, five.ID); !errors.Is(err, queue.ErrNotFound) {
		e.Errorf("a refused spawn has left a job: %v", err)
	}
	e.refuse(queue.ErrNotFound, queue.Spawn{Batch: "nowhere", Entries: []queue.Entry{part(6)}})
	e.refuse(queue.ErrNotFound, queue.Spawn{Batch: "nowhere"})
	running := part(7)
	running.State = job.Dispatched
	e.refuse(queue.ErrIllegalTransition, queue.Spawn{Batch: private.ID, Entries: []queue.Entry{running}})
	// Keys, grants and dead letters are as with Enqueue.
	e.apply(queue.Spawn{Batch: private.ID, Entries: []queue.Entry{part(8, duplicate(job.Serialize, "k")), part(9, duplicate(job.Serialize, "k"))}})
	if nine, _ := e.list(queue.Filter{Name: "node@9"}); len(nine) != 1 || nine[0].WaitsFor == "" {
		e.Errorf("spawned with a key: %s", show(nine))
	}
	e.refuse(queue.ErrDuplicate, queue.Spawn{Batch: private.ID, Entries: []queue.Entry{part(10, duplicate(job.Reject, "k"))}})
	e.apply(queue.SetGrant{Grant: queue.Grant{Owner: queue.Owner{Tenant: job.DefaultTenant}, Dead: true}})
	e.refuse(queue.ErrDeadOwner, queue.Spawn{Batch: private.ID, Entries: []queue.Entry{part(11)}})
	e.apply(queue.Spawn{Batch: private.ID, Entries: []queue.Entry{part(1), part(2)}}) // nothing is added
	e.check()
}

// batchWorkflow: what the jobs of a batch have in common is kept.
func batchWorkflow(e *env) {
	e.batch.Workflow = job.Workflow{
		Teams: []job.Team{{ID: "t", Strategy: job.OneForAll, MaxRestarts: 1, MaxSeconds: 5,
			Members: []job.Member{{Job: "a", Restart: job.Transient, Shutdown: job.DefaultShutdown}}}},
		Agents:    []job.Profile{{Name: "p", Output: json.RawMessage(`{"type":"object"}`)}},
		Pipelines: []job.Pipeline{{ID: "l", Stages: []job.Stage{{ID: "s", Job: "a", Publishes: []job.EventType{"x"}}}}},
	}
	e.enqueueOne("a")
	plain := newBatch("plain")
	if err := e.store.Enqueue(e.ctx, plain, []queue.Entry{newEntry("b")}); err != nil {
		e.Fatal(err)
	}
	want := e.batch.Workflow
	e.batch.Workflow = job.Workflow{}
	e.enqueueOne("c") // joins it, and changes nothing
	e.reopen()
	list, err := e.store.Batches(e.ctx, "")
	if err != nil || len(list) != 2 {
		e.Fatalf("batches %s, %v", show(list), err)
	}
	wantSame(e, "workflow", list[1].Workflow, want)
	wantSame(e, "none", list[0].Workflow, job.Workflow{})
}
