package e2e

// kernel.sched over the socket: other programs' work in the same queue.

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// insist makes a call of a server that may be killed meanwhile, until it is
// answered: with a result, or with why not. Unsure is set if an earlier call had no
// answer, and may have happened.
func insist[R any](b *bench, c *client.Client, method string, params any) (result R, unsure bool, refused *api.RPCError) {
	b.eventually("an answer to "+method, func() bool {
		var r R
		err := c.Call(b.t.Context(), method, params, &r)
		switch no, ok := errors.AsType[*api.RPCError](err); {
		case err == nil:
			result, refused = r, nil
			return true
		// A server that is told to die may still answer that it could not.
		case ok && no.Code != int(sched.Internal):
			refused = no
			return true
		}
		unsure = unsure || !errors.Is(err, client.ErrNotRunning)
		return false
	})
	return result, unsure, refused
}

// ledgerOf is what the clients of a test were told.
type ledgerOf struct {
	mu        sync.Mutex
	enqueued  map[job.ID]bool
	fences    map[job.ID]job.Fence // of the latest claim
	completed map[job.ID]int       // how often that was acknowledged for certain
}

// TestKernelSurvivesKills: producers and consumers go on while the server is
// killed again and again: everything that was enqueued is completed, nothing
// twice, and claims outlive the server that gave them.
func TestKernelSurvivesKills(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	b := newBench(t)
	r := b.serve()
	const producers, consumers, each1, kills = 4, 4, 60, 6
	told := &ledgerOf{enqueued: map[job.ID]bool{}, fences: map[job.ID]job.Fence{}, completed: map[job.ID]int{}}
	var working sync.WaitGroup
	progress := make(chan struct{}, 2*producers*each1)
	for p := range producers {
		c := b.client()
		working.Go(func() { b.produce(c, p, each1, told, progress) })
	}
	const all = producers * each1
	for n := range consumers {
		c := b.client()
		working.Go(func() { b.consume(c, fmt.Sprintf("consumer-%d", n), all, told, progress) })
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	for range kills {
		for range 1 + random.IntN(2*all/kills) {
			select {
			case <-progress:
			case <-done:
			}
		}
		r.kill()
		r = b.serve()
	}
	<-done
	c := b.client()
	list := kernel[sched.Entries](b, c, sched.MethodList, sched.ListRequest{})
	if list.Total != all || len(told.enqueued) != all {
		b.fatalf("%d entries are there, %d were acknowledged, of %d", list.Total, len(told.enqueued), all)
	}
	for _, e := range list.Entries {
		if e.State != job.Completed || e.ExitKind != job.ExitSucceeded || told.completed[e.SchedID] > 1 {
			t.Errorf("%s is %s %s, and was said to be completed %d times", e.SchedID, e.State, e.ExitKind, told.completed[e.SchedID])
		}
		if e.Fence != told.fences[e.SchedID] {
			t.Errorf("%s was completed in claim %d, and claimed last in %d", e.SchedID, e.Fence, told.fences[e.SchedID])
		}
	}
	r.stop()
	b.soundState()
}

func (b *bench) produce(c *client.Client, p, n int, told *ledgerOf, progress chan<- struct{}) {
	for i := range n {
		id := job.ID(fmt.Sprintf("p%d-%03d", p, i))
		_, unsure, refused := insist[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{
			SchedID: id, Tenant: job.Tenant(fmt.Sprintf("tenant-%d", p)), Priority: i % 3, Payload: json.RawMessage(`{"n":1}`)})
		// The same id once more is refused: the one before, without an answer, was done.
		if refused != nil && !(unsure && refused.Code == int(sched.AdmissionDenied)) {
			b.t.Errorf("enqueue %s: %d %s", id, refused.Code, refused.Message)
		}
		told.mu.Lock()
		told.enqueued[id] = true
		told.mu.Unlock()
		progress <- struct{}{}
	}
}

// consume claims and completes until all there ever will be is completed.
func (b *bench) consume(c *client.Client, name string, all int, told *ledgerOf, progress chan<- struct{}) {
	for {
		got, unsure, refused := insist[sched.Entries](b, c, sched.MethodClaim, sched.ClaimRequest{WorkerID: name, MaxN: 5, Lease: job.Duration(time.Hour)})
		if refused != nil {
			b.t.Errorf("claim: %d %s", refused.Code, refused.Message)
			return
		}
		if unsure { // what a claim without an answer has given is not known: it is asked for
			got.Entries = b.held(c, name)
		}
		for _, e := range got.Entries {
			told.mu.Lock()
			if last := told.fences[e.SchedID]; last > e.Fence || e.State != job.Dispatched {
				b.t.Errorf("%s was claimed as %s in claim %d after claim %d", e.SchedID, e.State, e.Fence, last)
			}
			told.fences[e.SchedID] = e.Fence
			told.mu.Unlock()
			_, unsure, refused := insist[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: name, Fence: e.Fence})
			if refused != nil && !(unsure && refused.Code == int(sched.IllegalTransition)) {
				b.t.Errorf("complete %s: %d %s", e.SchedID, refused.Code, refused.Message)
			}
			if refused == nil {
				told.mu.Lock()
				told.completed[e.SchedID]++
				told.mu.Unlock()
			}
			progress <- struct{}{}
		}
		if len(got.Entries) == 0 {
			done, _, _ := insist[sched.Entries](b, c, sched.MethodList, sched.ListRequest{States: []job.EntryState{job.Completed}, Limit: 1})
			if done.Total == all || b.t.Failed() {
				return
			}
			<-time.After(20 * time.Millisecond) // nobody tells a claimer that there is more
		}
	}
}

// held returns what a worker holds.
func (b *bench) held(c *client.Client, worker string) (mine []sched.Entry) {
	list, _, _ := insist[sched.Entries](b, c, sched.MethodList, sched.ListRequest{States: []job.EntryState{job.Dispatched}})
	for _, e := range list.Entries {
		if e.WorkerID == worker {
			mine = append(mine, e)
		}
	}
	return mine
}

// TestKernelCalls: the calls and their codes on a running server, whose own jobs
// are no others' to take.
func TestKernelCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 1}
	r := b.serve()
	c := b.client()
	b.submit(b.jobs(shell("own", nil, "echo begun; "+until(b.folder("go")), nil), shell("second", nil, "true", nil), shell("third", nil, "true", nil)))
	r.await("the job", onText("own", "begun"))
	var payload = json.RawMessage(`{"crawl":["a","b"]}`)
	low := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme", Priority: 1, Payload: payload, Agent: "pid:1"})
	high := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "other", Priority: 5, Trigger: job.ByEvent})
	later := time.Now().Add(time.Hour).UTC()
	ahead := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme", Priority: 9, RunnableAt: &later})
	deadline := time.Now().Add(5 * time.Second).UTC()
	short := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "brief", Priority: -9, Deadline: &deadline})
	once := sched.EnqueueRequest{Tenant: "acme", Payload: payload, DedupeBy: []string{"payload"}}
	unique := kernel[sched.Enqueued](b, c, sched.MethodEnqueueUnique, once)
	if again := kernel[sched.Enqueued](b, c, sched.MethodEnqueueUnique, once); !unique.Created || again.Created || again.SchedID != unique.SchedID {
		t.Errorf("enqueue_unique twice: %s, then %s, created %t", unique.SchedID, again.SchedID, again.Created)
	}

	claimed := kernel[sched.Entries](b, c, sched.MethodClaim, sched.ClaimRequest{WorkerID: "w", MaxN: 2}).Entries
	if len(claimed) != 2 || claimed[0].SchedID != high.SchedID || claimed[1].SchedID != low.SchedID || string(claimed[1].Payload) != string(payload) {
		b.fatalf("claimed %s", asJSON(t, claimed))
	}
	b.eventually("the deadline has passed", func() bool { return time.Now().After(deadline) })
	if gone := kernel[sched.IDs](b, c, sched.MethodGCExpired, struct{}{}); gone.Count > 1 {
		t.Errorf("expired %v", gone.SchedIDs)
	}
	if e := kernel[sched.Entry](b, c, sched.MethodGet, sched.ByID{SchedID: short.SchedID}); e.State != job.Expired {
		t.Errorf("past its deadline: %s", asJSON(t, e))
	}

	id := func(name string) job.ID { return b.show(name).Job.ID }
	b.refused(c, sched.MethodCancel, sched.ByID{SchedID: low.SchedID}, sched.IllegalTransition, "dispatched")
	b.refused(c, sched.MethodComplete, sched.CompleteRequest{SchedID: low.SchedID, WorkerID: "thief"}, sched.IllegalTransition, `"w"`)
	b.refused(c, sched.MethodComplete, sched.CompleteRequest{SchedID: id("own"), WorkerID: "w"}, sched.IllegalTransition, "the scheduler itself")
	b.refused(c, sched.MethodComplete, sched.CompleteRequest{SchedID: ahead.SchedID, WorkerID: "w"}, sched.IllegalTransition, "queued")
	b.refused(c, sched.MethodGet, sched.ByID{SchedID: "nobody"}, sched.UnknownID, "nobody")
	b.refused(c, sched.MethodEnqueue, obj{"payload": 1, "trigger": "a whim"}, sched.InvalidPayload, "trigger")
	b.refused(c, sched.MethodEnqueue, sched.EnqueueRequest{SchedID: low.SchedID}, sched.AdmissionDenied, "already")
	b.refused(c, sched.MethodList, obj{"state": []string{"asleep"}}, sched.InvalidStateFilter, "asleep")
	b.refused(c, "kernel.sched.fly", obj{}, sched.MethodNotFound, "fly")
	b.refused(c, sched.MethodClaim, obj{"worker_id": "w", "colour": 1}, sched.InvalidParams, "colour")

	kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: low.SchedID, WorkerID: "w", Usage: job.Usage{InputTokens: 7, CostUSD: 0.25, CostKnown: true}})
	failed := kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: high.SchedID, WorkerID: "w", ExitKind: job.ExitFailed, Message: "it is not there"})
	if failed.ExitKind != job.ExitFailed || failed.CompletedAt == nil {
		t.Errorf("failed: %s", asJSON(t, failed))
	}
	if out, errs, code := b.command("show", string(high.SchedID)); code != 0 {
		t.Errorf("show, of such an entry: exit code %d\n%s%s", code, out, errs)
	}
	cancelled := kernel[sched.Entry](b, c, sched.MethodCancel, sched.ByID{SchedID: ahead.SchedID})
	if cancelled.State != job.Cancelled {
		t.Errorf("cancelled: %s", asJSON(t, cancelled))
	}
	list := kernel[sched.Entries](b, c, sched.MethodList, sched.ListRequest{Tenant: "acme", Limit: 1, Offset: 1})
	if list.Total != 3 || len(list.Entries) != 1 || list.Entries[0].SchedID != ahead.SchedID {
		t.Errorf("listed %s", asJSON(t, list))
	}

	// The head of the scheduler's own line is withdrawn: the next one is not held up.
	kernel[sched.Entry](b, c, sched.MethodCancel, sched.ByID{SchedID: id("second")})
	b.open()
	r.end("own", job.RunCompleted)
	r.end("second", job.RunCancelled)
	r.end("third", job.RunCompleted)
	r.stop()
	b.soundState()
}

// TestKernelDeadClaimer: what a claimer that died amid a batch held is taken
// back, over a restart too, and its late word is void.
func TestKernelDeadClaimer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.serve()
	c := b.client()
	const n = 10
	for range n {
		kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme"})
	}
	claim := func(worker string) []sched.Entry {
		return kernel[sched.Entries](b, c, sched.MethodClaim, sched.ClaimRequest{WorkerID: worker, MaxN: n}).Entries
	}
	dead := claim("dead")
	if len(dead) != n || len(claim("other")) != 0 {
		b.fatalf("claimed %s", asJSON(t, dead))
	}
	for _, e := range dead[:4] {
		kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "dead", Fence: e.Fence})
	}
	r.kill()
	r = b.serve()
	if lost := kernel[sched.Lost](b, c, sched.MethodExtend, sched.ExtendRequest{Fences: []job.Fence{dead[4].Fence, dead[0].Fence}, Lease: job.Duration(time.Hour)}).Lost; len(lost) != 1 || lost[0] != dead[0].Fence {
		t.Errorf("extended over a restart: lost %v, want only %d, which is completed", lost, dead[0].Fence)
	}
	if back := kernel[sched.IDs](b, c, sched.MethodGCDispatched, sched.StaleRequest{StaleSeconds: 3600}); back.Count != 0 {
		t.Errorf("taken back within the hour: %v", back.SchedIDs)
	}
	back := kernel[sched.IDs](b, c, sched.MethodGCDispatched, sched.StaleRequest{})
	if back.Count != 5 {
		t.Errorf("taken back %v; want 5: of 10, 4 are completed and 1 was extended", back.SchedIDs)
	}
	next := claim("next")
	if len(next) != 5 {
		t.Errorf("the next one got %d", len(next))
	}
	for _, e := range next {
		if e.Fence <= dead[n-1].Fence {
			t.Errorf("%s: fence %d is not above the dead one's", e.SchedID, e.Fence)
		}
	}
	b.refused(c, sched.MethodComplete, sched.CompleteRequest{SchedID: dead[n-1].SchedID, WorkerID: "dead", Fence: dead[n-1].Fence}, sched.IllegalTransition, `"next"`)
	for _, e := range next {
		kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "next"})
	}
	kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: dead[4].SchedID, WorkerID: "dead"})
	if list := kernel[sched.Entries](b, c, sched.MethodList, sched.ListRequest{States: []job.EntryState{job.Completed}}); list.Total != n {
		t.Errorf("%d are completed, want %d", list.Total, n)
	}
	// Nobody has to ask: a lease that has ended is enforced.
	left := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme"})
	kernel[sched.Entries](b, c, sched.MethodClaim, sched.ClaimRequest{WorkerID: "gone", Lease: job.Duration(time.Second)})
	b.eventually("the entry of the worker that is gone to be queued again", func() bool {
		return kernel[sched.Entry](b, c, sched.MethodGet, sched.ByID{SchedID: left.SchedID}).State == job.Queued
	})
	r.stop()
	b.soundState()
}

// TestGrants: an owner over its limit is passed over, changes in no other way,
// and goes on with a larger grant, without another push; the dead enqueue nothing.
func TestGrants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.open()
	b.config["concurrency"] = obj{"max": 1}
	r := b.serve()
	c := b.client()
	grant := func(g queue.Grant) { kernel[queue.Grant](b, c, sched.MethodUpdateGrant, g) }
	acme := queue.Owner{Tenant: "acme"}
	grant(queue.Grant{Owner: acme, Tokens: 500, Window: job.Duration(24 * time.Hour)})
	b.submit(b.jobsOf("acme", "acme.yaml", spenders("a", 6, 200, 0, obj{"priority": 5})...))
	b.submit(b.jobsOf("free", "free.yaml", spenders("f", 4, 200, 0, nil)...))
	r.ends(3 + 4) // three of acme pass the limit, and the rest is in nobody's way
	waiting := func() {
		t.Helper()
		n := 0
		for _, e := range b.list() {
			if e.State == job.Queued {
				if n++; e.Spec.Tenant != "acme" || e.Attempts != 0 {
					t.Errorf("over the limit: %s", asJSON(t, e))
				}
			}
		}
		if n != 3 {
			b.fatalf("%d jobs wait, want 3:\n%s", n, tenantsOf(b.finished()))
		}
	}
	waiting()
	r.stop()
	r = b.serve()
	b.submit(b.jobsOf("free", "more.yaml", spenders("more", 2, 200, 0, nil)...))
	r.ends(2)
	waiting() // a restart forgives nothing

	// Of an agent alone.
	grant(queue.Grant{Owner: queue.Owner{Tenant: "free", Agent: "pid:1"}, CostUSD: 0.1})
	b.submit(b.jobsOf("free", "agent.yaml", append(spenders("pid1", 2, 2, 0.5, obj{"agent": "pid:1"}), spenders("pid2", 1, 2, 0.5, obj{"agent": "pid:2"})...)...))
	r.ends(2 + 2)
	grant(queue.Grant{Owner: queue.Owner{Tenant: "free", Agent: "pid:1"}})
	if _, errs, code := b.command("grant", "acme", "--tokens", "5000"); code != 0 {
		b.fatalf("grant: exit code %d\n%s", code, errs)
	}
	r.ends(2 + 2 + 1 + 3)

	grant(queue.Grant{Owner: queue.Owner{Tenant: "free", Agent: "pid:9"}, Dead: true})
	b.refused(c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "free", Agent: "pid:9"}, sched.AdmissionDenied, "dead")
	if _, errs, code := b.trySubmit(b.jobsOf("free", "dead.yaml", spenders("dead", 1, 2, 0, obj{"agent": "pid:9"})...)); code == 0 || code == 1 && errs == "" {
		t.Errorf("submitted for the dead: exit code %d\n%s", code, errs)
	}
	r.stop()
	b.soundState()
}

// TestGrantsOfClaimers: what other programs complete is charged to its owner,
// whose further entries no claim gives.
func TestGrantsOfClaimers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.serve()
	c := b.client()
	kernel[queue.Grant](b, c, sched.MethodUpdateGrant, queue.Grant{Owner: queue.Owner{Tenant: "acme"}, CostUSD: 1})
	for range 3 {
		kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme", Priority: 3})
	}
	kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "other"})
	claim := func(n int) []sched.Entry {
		return kernel[sched.Entries](b, c, sched.MethodClaim, sched.ClaimRequest{WorkerID: "w", MaxN: n}).Entries
	}
	first := claim(1)[0]
	kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: first.SchedID, WorkerID: "w", Usage: job.Usage{CostUSD: 1.5, CostKnown: true}})
	if got := claim(10); len(got) != 1 || got[0].Tenant != "other" {
		t.Errorf("over the limit: claimed %s", asJSON(t, got))
	}
	r.kill()
	r = b.serve()
	if got := claim(10); len(got) != 0 {
		t.Errorf("over the limit, after a kill: claimed %s", asJSON(t, got))
	}
	kernel[queue.Grant](b, c, sched.MethodUpdateGrant, queue.Grant{Owner: queue.Owner{Tenant: "acme"}, CostUSD: 10})
	if got := claim(10); len(got) != 2 {
		t.Errorf("with a larger grant: claimed %s", asJSON(t, got))
	}
	r.stop()
	b.soundState()
}
