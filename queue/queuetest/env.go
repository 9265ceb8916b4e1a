package queuetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// epoch is the moment at which each test begins.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// lease is how long claims are held where a test does not say otherwise.
const lease = time.Minute

// env is one test with its own store.
type env struct {
	*testing.T
	ctx   context.Context
	open  func(t *testing.T, dir string) queue.Store
	dir   string
	store queue.Store
	batch queue.Batch // the batch of jobs that enqueue submits
}

func newEnv(t *testing.T, open func(t *testing.T, dir string) queue.Store) *env {
	e := &env{T: t, ctx: t.Context(), open: open, dir: t.TempDir(), batch: newBatch("jobs.yaml")}
	e.store = open(t, e.dir)
	t.Cleanup(e.close)
	return e
}

// close closes the store, once.
func (e *env) close() {
	if e.store == nil {
		return
	}
	if err := e.store.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
	e.store = nil
}

// reopen closes the store and opens it again.
func (e *env) reopen() {
	e.Helper()
	e.close()
	e.store = e.open(e.T, e.dir)
}

func newBatch(source string) queue.Batch {
	return queue.Batch{ID: job.NewBatchID(), Source: source, Digest: "sha256:0", CreatedAt: epoch}
}

// newEntry returns an entry that is runnable at epoch, changed by the options.
func newEntry(name string, options ...func(*queue.Entry)) queue.Entry {
	e := queue.Entry{
		ID: job.NewID(), CreatedAt: epoch, RunnableAt: epoch,
		Spec: job.Spec{
			Name: job.Name(name), Tenant: job.DefaultTenant, Type: job.WorkerTask, Worker: "codex",
			Fallback:     []job.Choice{{Worker: "claude", Model: "large"}},
			Workspace:    job.Workspace{Path: "/project", Isolation: job.Worktree},
			Instructions: "do " + name,
		},
	}
	for _, o := range options {
		o(&e)
	}
	return e
}

func priority(n int) func(*queue.Entry) { return func(e *queue.Entry) { e.Spec.Priority = n } }

func runnableAt(t time.Time) func(*queue.Entry) { return func(e *queue.Entry) { e.RunnableAt = t } }

func deadline(t time.Time) func(*queue.Entry) { return func(e *queue.Entry) { e.Deadline = &t } }

func tenant(t job.Tenant) func(*queue.Entry) { return func(e *queue.Entry) { e.Spec.Tenant = t } }

func class(c job.Class) func(*queue.Entry) { return func(e *queue.Entry) { e.Spec.Class = c } }

func duplicate(p job.DuplicatePolicy, key string) func(*queue.Entry) {
	return func(e *queue.Entry) { e.Spec.OnDuplicate, e.Spec.Key = p, key }
}

// enqueue submits entries to the test's batch.
func (e *env) enqueue(entries ...queue.Entry) {
	e.Helper()
	if err := e.store.Enqueue(e.ctx, e.batch, entries); err != nil {
		e.Fatal(err)
	}
}

// enqueueOne submits an entry of that name and returns its id.
func (e *env) enqueueOne(name string, options ...func(*queue.Entry)) job.ID {
	e.Helper()
	entry := newEntry(name, options...)
	e.enqueue(entry)
	return entry.ID
}

// claim claims up to max entries at now.
func (e *env) claim(max int, now time.Time) queue.Claims {
	e.Helper()
	return e.claimAs(queue.ClaimSpec{Holder: "tester", Max: max, Now: now, Lease: lease})
}

func (e *env) claimAs(spec queue.ClaimSpec) queue.Claims {
	e.Helper()
	c, err := e.store.Claim(e.ctx, spec)
	if err != nil {
		e.Fatal(err)
	}
	return c
}

// claimOne claims exactly one entry at now.
func (e *env) claimOne(now time.Time) queue.Entry {
	e.Helper()
	c := e.claim(1, now)
	if len(c.Entries) != 1 {
		e.Fatalf("claimed %d entries, want 1", len(c.Entries))
	}
	return c.Entries[0]
}

// apply applies ops and fails the test if they are refused.
func (e *env) apply(ops ...queue.Op) {
	e.Helper()
	if err := e.store.Apply(e.ctx, ops...); err != nil {
		e.Fatal(err)
	}
}

// refuse applies ops and fails the test unless they are refused with want.
func (e *env) refuse(want error, ops ...queue.Op) {
	e.Helper()
	if err := e.store.Apply(e.ctx, ops...); !errors.Is(err, want) {
		e.Fatalf("apply %s\ngot error %v\nwant %v", show(ops), err, want)
	}
}

func (e *env) get(id job.ID) queue.Entry {
	e.Helper()
	entry, err := e.store.Get(e.ctx, id)
	if err != nil {
		e.Fatal(err)
	}
	return entry
}

func (e *env) attempts(id job.ID) []job.Attempt {
	e.Helper()
	list, err := e.store.Attempts(e.ctx, id)
	if err != nil {
		e.Fatal(err)
	}
	return list
}

func (e *env) events(id job.ID, after int64, limit int) []queue.StoredEvent {
	e.Helper()
	list, err := e.store.Events(e.ctx, id, after, limit)
	if err != nil {
		e.Fatal(err)
	}
	return list
}

func (e *env) list(f queue.Filter) ([]queue.Entry, int) {
	e.Helper()
	list, total, err := e.store.List(e.ctx, f)
	if err != nil {
		e.Fatal(err)
	}
	return list, total
}

// begin records the start of the claimed entry's next attempt at now, up to Running.
func (e *env) begin(c queue.Entry, now time.Time) int {
	e.Helper()
	n := e.get(c.ID).Attempts + 1
	e.apply(beginOp(c, n, now), queue.Move{ID: c.ID, Fence: c.Fence, Attempt: n, To: job.Running})
	return n
}

func beginOp(c queue.Entry, number int, now time.Time) queue.Begin {
	return queue.Begin{ID: c.ID, Fence: c.Fence, Attempt: job.Attempt{
		Job: c.ID, Number: number, Fence: c.Fence, Choice: c.Spec.Choices()[c.Choice], State: job.Pending, Started: now,
	}}
}

// succeed is the Finish of an attempt that did what was asked.
func succeed(c queue.Entry, attempt int, started, now time.Time) queue.Finish {
	return queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: attempt, Now: now, Exit: job.ExitSucceeded,
		Outcome: job.Outcome{State: job.RunCompleted, StartedAt: started, EndedAt: now}}
}

// wantState fails the test unless the entry is in this state.
func (e *env) wantState(id job.ID, want job.EntryState) queue.Entry {
	e.Helper()
	entry := e.get(id)
	if entry.State != want {
		e.Fatalf("job %s is %s, want %s", entry.Spec.Name, entry.State, want)
	}
	return entry
}

// wantSame compares two values as JSON, in which times of one moment are equal.
func wantSame(t interface {
	Helper()
	Fatalf(string, ...any)
}, what string, got, want any) {
	t.Helper()
	g, w := show(got), show(want)
	if g == "null" && w == "[]" || g == "[]" && w == "null" {
		return
	}
	if g != w {
		t.Fatalf("%s\ngot  %s\nwant %s", what, g, w)
	}
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v (%v)", v, err)
	}
	return string(text)
}

// names returns the names of entries, in their order.
func names(entries []queue.Entry) []string {
	list := []string{}
	for _, e := range entries {
		list = append(list, string(e.Spec.Name))
	}
	return list
}
