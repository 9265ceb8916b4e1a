package sched_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// desk is a Kernel over a real store, with a clock that stands until it is set.
type desk struct {
	*testing.T
	*sched.Kernel
	store *sqlite.Store
	now   time.Time
}

func open(t *testing.T) *desk {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "queue.db"))
}

func openAt(t *testing.T, path string) *desk {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &desk{T: t, store: store, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	d.Kernel = sched.New(store, sched.Options{Now: func() time.Time { return d.now }})
	return d
}

func (d *desk) enqueue(r sched.EnqueueRequest) sched.Entry {
	d.Helper()
	e, created, err := d.Enqueue(d.Context(), r)
	if err != nil || !created {
		d.Fatalf("enqueue: created %v, %v", created, err)
	}
	return e
}

func (d *desk) claim(worker string, n int) []sched.Entry {
	d.Helper()
	list, err := d.Claim(d.Context(), sched.ClaimRequest{WorkerID: worker, MaxN: n})
	if err != nil {
		d.Fatal(err)
	}
	return list
}

// refused checks the code of an error, and that its text says what is wrong.
func (d *desk) refused(err error, code sched.Code, text string) {
	d.Helper()
	got, ok := errors.AsType[*sched.Error](err)
	if !ok || got.Code != code || !strings.Contains(got.Message, text) {
		d.Errorf("got %v (%+v), want code %d with %q", err, got, code, text)
	}
}

func ids(list []sched.Entry) []job.ID {
	var out []job.ID
	for _, e := range list {
		out = append(out, e.SchedID)
	}
	return out
}

// TestOrder: priority first, then runnable_at, then id; what lies ahead is not
// seen, what is overdue expires.
func TestOrder(t *testing.T) {
	d := open(t)
	at := func(after time.Duration) *time.Time { m := d.now.Add(after); return &m }
	low := d.enqueue(sched.EnqueueRequest{Priority: 1})
	late := d.enqueue(sched.EnqueueRequest{Priority: 5, RunnableAt: at(-time.Minute)})
	early := d.enqueue(sched.EnqueueRequest{Priority: 5, RunnableAt: at(-time.Hour), Tenant: "other"})
	hidden := d.enqueue(sched.EnqueueRequest{Priority: 9, RunnableAt: at(time.Hour)})
	doomed := d.enqueue(sched.EnqueueRequest{Priority: 9, RunnableAt: at(time.Minute), Deadline: at(2 * time.Minute)})
	if got, want := ids(d.claim("w", 10)), []job.ID{early.SchedID, late.SchedID, low.SchedID}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	d.now = d.now.Add(3 * time.Minute)
	gone, err := d.GCExpired(t.Context(), nil)
	if err != nil || !slices.Equal(gone, []job.ID{doomed.SchedID}) {
		t.Errorf("expired %v, %v; want %s", gone, err, doomed.SchedID)
	}
	d.now = d.now.Add(time.Hour)
	if got := ids(d.claim("w", 10)); !slices.Equal(got, []job.ID{hidden.SchedID}) {
		t.Errorf("an hour later: claimed %v, want %s", got, hidden.SchedID)
	}
}

// TestLife takes an entry through its whole life, and everything illegal on the way.
func TestLife(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	e := d.enqueue(sched.EnqueueRequest{Tenant: "acme", Agent: "pid:7", Trigger: job.ByEvent, Payload: json.RawMessage(`{"do":"it"}`)})
	_, err := d.Complete(ctx, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "w"})
	d.refused(err, sched.IllegalTransition, "queued")
	got := d.claim("w", 1)
	if len(got) != 1 || got[0].State != job.Dispatched || got[0].WorkerID != "w" || string(got[0].Payload) != `{"do":"it"}` || got[0].Trigger != job.ByEvent {
		t.Fatalf("claimed %+v", got)
	}
	_, err = d.Cancel(ctx, e.SchedID)
	d.refused(err, sched.IllegalTransition, "dispatched")
	_, err = d.Complete(ctx, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "other"})
	d.refused(err, sched.IllegalTransition, `held by "w"`)
	_, err = d.Complete(ctx, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "w", ExitKind: "fine"})
	d.refused(err, sched.InvalidPayload, "exit_kind")
	done, err := d.Complete(ctx, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "w", Usage: job.Usage{InputTokens: 10, CostUSD: 1, CostKnown: true}})
	if err != nil || done.State != job.Completed || done.ExitKind != job.ExitSucceeded || done.CompletedAt == nil {
		t.Errorf("completed %+v, %v", done, err)
	}
	stored, err := d.Get(ctx, e.SchedID)
	if err != nil || !reflect.DeepEqual(stored, done) {
		t.Errorf("stored %+v, %v; want what complete told: %+v", stored, err, done)
	}
	for _, again := range []error{
		func() error {
			_, err := d.Complete(ctx, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "w"})
			return err
		}(),
		func() error { _, err := d.Cancel(ctx, e.SchedID); return err }(),
	} {
		d.refused(again, sched.IllegalTransition, "completed")
	}
	_, err = d.Get(ctx, "nobody")
	d.refused(err, sched.UnknownID, "nobody")
	_, _, err = d.List(ctx, sched.ListRequest{States: []job.EntryState{"asleep"}})
	d.refused(err, sched.InvalidStateFilter, "asleep")
	list, total, err := d.List(ctx, sched.ListRequest{States: []job.EntryState{job.Completed}, Tenant: "acme", Agent: "pid:7"})
	if err != nil || total != 1 || list[0].SchedID != e.SchedID {
		t.Errorf("listed %v of %d, %v", ids(list), total, err)
	}
	used, err := d.store.Accounts(ctx, queue.AccountFilter{By: []queue.Dimension{queue.ByAgent, queue.ByWorker}})
	if err != nil || len(used) != 1 || used[0].Agent != "pid:7" || used[0].Worker != "external" || used[0].Usage.CostUSD != 1 {
		t.Errorf("charged %+v, %v", used, err)
	}
}

// TestUnique: one unfinished entry of what is equal in the given fields.
func TestUnique(t *testing.T) {
	d := open(t)
	ask := func(agent job.AgentID, payload string, by ...string) (sched.Entry, bool) {
		e, created, err := d.Enqueue(t.Context(), sched.EnqueueRequest{Agent: agent, Payload: json.RawMessage(payload), DedupeBy: by})
		if err != nil {
			t.Fatal(err)
		}
		return e, created
	}
	first, created := ask("a", `{"x":1,"y":[2]}`, "payload", "agent")
	if !created {
		t.Fatal("the first was not made")
	}
	if e, created := ask("a", ` {"y":[2], "x":1}`, "agent", "payload", "agent"); created || e.SchedID != first.SchedID {
		t.Errorf("the same again: %s, made %v", e.SchedID, created)
	}
	if _, created := ask("b", `{"x":1,"y":[2]}`, "payload", "agent"); !created {
		t.Error("another agent's was not made")
	}
	if _, created := ask("a", `{"x":1,"y":[3]}`, "payload", "agent"); !created {
		t.Error("another payload's was not made")
	}
	if _, err := d.Cancel(t.Context(), first.SchedID); err != nil {
		t.Fatal(err)
	}
	if _, created := ask("a", `{"x":1,"y":[2]}`, "payload", "agent"); !created {
		t.Error("after the first was cancelled another one was not made")
	}
	_, _, err := d.Enqueue(t.Context(), sched.EnqueueRequest{DedupeBy: []string{"colour"}})
	d.refused(err, sched.InvalidPayload, "colour")
}

// TestAdmission: the dead enqueue nothing, and who is over a limit is passed
// over until there is room.
func TestAdmission(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	if err := d.UpdateGrant(ctx, queue.Grant{Owner: queue.Owner{Tenant: "acme", Agent: "gone"}, Dead: true}); err != nil {
		t.Fatal(err)
	}
	_, _, err := d.Enqueue(ctx, sched.EnqueueRequest{Tenant: "acme", Agent: "gone"})
	d.refused(err, sched.AdmissionDenied, "dead")
	if err := d.UpdateGrant(ctx, queue.Grant{Owner: queue.Owner{Tenant: "acme", Agent: "busy"}, CostUSD: 1}); err != nil {
		t.Fatal(err)
	}
	d.enqueue(sched.EnqueueRequest{Tenant: "acme", Agent: "busy", Priority: 2})
	second := d.enqueue(sched.EnqueueRequest{Tenant: "acme", Agent: "busy", Priority: 1})
	poor := d.enqueue(sched.EnqueueRequest{Tenant: "acme", Agent: "thrifty"})
	first := d.claim("w", 1)[0]
	if _, err := d.Complete(ctx, sched.CompleteRequest{SchedID: first.SchedID, WorkerID: "w", Usage: job.Usage{CostUSD: 2, CostKnown: true}}); err != nil {
		t.Fatal(err)
	}
	if got := ids(d.claim("w", 10)); !slices.Equal(got, []job.ID{poor.SchedID}) {
		t.Errorf("claimed %v, want only that of the owner with room, %s", got, poor.SchedID)
	}
	if e, err := d.Get(ctx, second.SchedID); err != nil || e.State != job.Queued {
		t.Errorf("who is over a limit: %+v, %v; want it as it was", e, err)
	}
	if err := d.UpdateGrant(ctx, queue.Grant{Owner: queue.Owner{Tenant: "acme", Agent: "busy"}, CostUSD: 10}); err != nil {
		t.Fatal(err)
	}
	if got := ids(d.claim("w", 10)); !slices.Equal(got, []job.ID{second.SchedID}) {
		t.Errorf("with a larger grant: claimed %v, want %s", got, second.SchedID)
	}
}

// TestStale: what a worker that died held goes to others, what one holds that
// lives does not, and the dead one's word is void.
func TestStale(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	for range 4 {
		d.enqueue(sched.EnqueueRequest{})
	}
	dead, alive := d.claim("dead", 2), d.claim("alive", 2)
	d.now = d.now.Add(20 * time.Second)
	if lost, err := d.Extend(ctx, []job.Fence{alive[0].Fence, alive[1].Fence}, 0); err != nil || len(lost) > 0 {
		t.Fatalf("extend: lost %v, %v", lost, err)
	}
	d.now = d.now.Add(15 * time.Second)
	back, err := d.GCDispatched(ctx, 30*time.Second)
	slices.Sort(back)
	if want := ids(dead); err != nil || !slices.Equal(back, want) {
		t.Fatalf("taken back %v, %v; want %v", back, err, want)
	}
	if got := d.claim("next", 10); len(got) != 2 {
		t.Errorf("the next worker got %v", ids(got))
	}
	_, err = d.Complete(ctx, sched.CompleteRequest{SchedID: dead[0].SchedID, WorkerID: "dead", Fence: dead[0].Fence})
	d.refused(err, sched.IllegalTransition, "held by")
	_, err = d.Complete(ctx, sched.CompleteRequest{SchedID: dead[0].SchedID, WorkerID: "next", Fence: dead[0].Fence})
	d.refused(err, sched.IllegalTransition, "fence")
}

// TestOnce: claimers at the same time get each entry once.
func TestOnce(t *testing.T) {
	d := open(t)
	const n = 200
	for range n {
		d.enqueue(sched.EnqueueRequest{})
	}
	var mu sync.Mutex
	seen := map[job.ID]int{}
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for {
				list, err := d.Claim(t.Context(), sched.ClaimRequest{WorkerID: fmt.Sprint(w), MaxN: 7})
				if err != nil {
					t.Error(err)
				}
				if len(list) == 0 {
					return
				}
				mu.Lock()
				for _, e := range list {
					seen[e.SchedID]++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if len(seen) != n {
		t.Errorf("%d distinct entries were claimed, want %d", len(seen), n)
	}
	for id, times := range seen {
		if times > 1 {
			t.Errorf("%s was claimed %d times", id, times)
		}
	}
}

// TestCall: the same by name with JSON, and what a frame can have wrong.
func TestCall(t *testing.T) {
	d := open(t)
	call := func(method, params string) (any, error) { return d.Call(t.Context(), method, json.RawMessage(params)) }
	result, err := call(sched.MethodEnqueue, `{"tenant":"acme","payload":[1],"priority":3}`)
	made, ok := result.(sched.Enqueued)
	if err != nil || !ok || !made.Created || made.Priority != 3 {
		t.Fatalf("enqueue: %+v, %v", result, err)
	}
	for _, c := range []struct {
		method, params string
		code           sched.Code
		text           string
	}{
		{"kernel.sched.fly", `{}`, sched.MethodNotFound, "kernel.sched.fly"},
		{sched.MethodEnqueue, `{"colour":1}`, sched.InvalidParams, "colour"},
		{sched.MethodEnqueue, `[]`, sched.InvalidParams, "params"},
		{sched.MethodEnqueue, `{"dedupe_by":["agent"]}`, sched.InvalidParams, "enqueue_unique"},
		{sched.MethodEnqueueUnique, `{}`, sched.InvalidParams, "dedupe_by"},
		{sched.MethodEnqueue, `{"agent":"two words"}`, sched.InvalidPayload, "agent"},
		{sched.MethodEnqueue, `{"trigger":"a whim"}`, sched.InvalidPayload, "trigger"},
		{sched.MethodEnqueue, `{"deadline":"2020-01-01T00:00:00Z"}`, sched.InvalidPayload, "deadline"},
		{sched.MethodEnqueue, `{"sched_id":"` + string(made.SchedID) + `"}`, sched.AdmissionDenied, "already"},
		{sched.MethodClaim, `{}`, sched.InvalidParams, "worker_id"},
		{sched.MethodClaim, `{"worker_id":"w","max_n":-1}`, sched.InvalidPayload, "max_n"},
		{sched.MethodClaim, `{"worker_id":"w","lease":"1ms"}`, sched.InvalidPayload, "lease"},
		{sched.MethodComplete, `{"sched_id":"none","worker_id":"w"}`, sched.UnknownID, "none"},
		{sched.MethodCancel, `{"sched_id":"none"}`, sched.UnknownID, "none"},
		{sched.MethodList, `{"state":["asleep"]}`, sched.InvalidStateFilter, "asleep"},
		{sched.MethodList, `{"limit":-1}`, sched.InvalidPayload, "limit"},
		{sched.MethodGCDispatched, `{"stale_seconds":-1}`, sched.InvalidPayload, "stale_seconds"},
		{sched.MethodUpdateGrant, `{}`, sched.InvalidParams, "tenant"},
	} {
		_, err := call(c.method, c.params)
		d.refused(err, c.code, c.text)
	}
	result, err = call(sched.MethodClaim, `{"worker_id":"w","max_n":5,"lease":"30s"}`)
	if got, ok := result.(sched.Entries); err != nil || !ok || got.Total != 1 || got.Entries[0].SchedID != made.SchedID {
		t.Errorf("claim: %+v, %v", result, err)
	}
	for _, method := range []string{sched.MethodGCExpired, sched.MethodList, sched.MethodGCDispatched} {
		if _, err := call(method, ``); err != nil {
			t.Errorf("%s without parameters: %v", method, err)
		}
	}
}

// TestCancelByKey: what is queued of a tenant's key is withdrawn, and nothing else.
func TestCancelByKey(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	unique := func(params string) sched.Enqueued {
		t.Helper()
		made, err := d.example("enqueue_unique " + params)
		if err != nil {
			t.Fatal(err)
		}
		return made.(sched.Enqueued)
	}
	one := unique(`{"key":"crawl:example.org","tenant":"acme"}`)
	if again := unique(`{"key":"crawl:example.org","tenant":"acme","payload":2}`); !one.Created || again.Created || again.SchedID != one.SchedID || again.Key != "crawl:example.org" {
		t.Errorf("the second with the key is %+v, want the first, %s", again, one.SchedID)
	}
	other := unique(`{"key":"crawl:example.org"}`)
	got, err := d.example(`cancel {"key":"crawl:example.org","tenant":"acme"}`)
	if err != nil || got.(sched.Entries).Total != 1 || got.(sched.Entries).Entries[0].State != job.Cancelled {
		t.Errorf("cancelled %+v, %v", got, err)
	}
	if e, err := d.Get(ctx, other.SchedID); err != nil || e.State != job.Queued {
		t.Errorf("another tenant's is %s, %v", e.State, err)
	}
	d.claim("w", 1)
	for _, c := range []struct {
		call string
		code sched.Code
		text string
	}{
		{`cancel {"key":"crawl:example.org","tenant":"acme"}`, sched.UnknownID, `tenant acme has no unfinished entry of the key "crawl:example.org"`},
		{`cancel {"key":"crawl:example.org"}`, sched.IllegalTransition, "is dispatched"},
		{`cancel {}`, sched.InvalidParams, "sched_id is missing"},
		{`cancel {"key":"k","sched_id":"s"}`, sched.InvalidParams, "leave one of them out"},
		{`cancel {"tenant":"acme","sched_id":"s"}`, sched.InvalidParams, "tenant is for a key"},
		{`cancel {"key":"k","tenant":"a/b"}`, sched.InvalidPayload, "tenant"},
		{`enqueue {"key":"k"}`, sched.InvalidParams, "enqueue_unique"},
		{`enqueue_unique {"key":"k","dedupe_by":["agent"]}`, sched.InvalidPayload, "leave one of them out"},
		{`enqueue_unique {"key":" k"}`, sched.InvalidPayload, "key"},
	} {
		_, err := d.example(c.call)
		d.refused(err, c.code, c.text)
	}
}
