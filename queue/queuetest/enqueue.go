package queuetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func enqueueKeeps(e *env) {
	due, end := epoch.Add(time.Hour), epoch.Add(2*time.Hour)
	entry := queue.Entry{
		ID: job.NewID(), CreatedAt: epoch, RunnableAt: due, Deadline: &end, Choice: 1,
		Session: "s-1", SessionWorker: "claude", SessionNode: "a", Feedback: "not like that", Waiting: "for its turn",
		Spec: job.Spec{
			Name: "fix-login", Tenant: "website", Type: job.WorkerTask, Worker: "codex", Model: "small",
			Fallback:     []job.Choice{{Worker: "claude"}, {Worker: "opencode", Model: "x/y"}},
			Workspace:    job.Workspace{Path: "/home/me/site", Isolation: job.Worktree, Base: "main"},
			Instructions: "Fix <it> & say \"why\"\n\tünïcode 🙂\x00end", SystemPrompt: "be brief",
			Capabilities: job.Capabilities(), AllowCommands: []string{"go test *"}, Env: []string{"GOFLAGS"},
			Priority: -7, RunnableAt: &due, Deadline: &end,
			Limits: job.Limits{Timeout: job.Duration(90 * time.Second), MaxAttempts: 5, MaxCostUSD: 0.1, MaxTokens: 1 << 40,
				MaxSteps: 9, MaxCommandTime: job.Duration(time.Minute), RetryBudget: job.RetryBudget{Time: job.Duration(time.Hour), CostUSD: 2.5}},
			Output: []byte(`{"type":"object"}`), Verify: "go test ./...", Trace: "t-1",
		},
	}
	e.enqueue(entry)
	entry.Batch, entry.State = e.batch.ID, job.Queued
	wantSame(e, "stored entry", e.get(entry.ID), entry)
	list, err := e.store.Batches(e.ctx, "")
	if err != nil {
		e.Fatal(err)
	}
	wantSame(e, "stored batch", list, []queue.Batch{e.batch})
}

func enqueueAllOrNone(e *env) {
	a, b := newEntry("a"), newEntry("b")
	if err := e.store.Enqueue(e.ctx, e.batch, []queue.Entry{a, b, a}); !errors.Is(err, queue.ErrDuplicate) {
		e.Fatalf("got error %v, want %v", err, queue.ErrDuplicate)
	}
	if _, total := e.list(queue.Filter{}); total != 0 {
		e.Fatalf("%d entries are stored after a refused enqueue, want none", total)
	}
	if list, err := e.store.Batches(e.ctx, ""); err != nil || len(list) != 0 {
		e.Fatalf("batches %v, %v after a refused enqueue, want none", list, err)
	}
	if c := e.claim(5, epoch); len(c.Entries) != 0 {
		e.Fatalf("claimed %v of a refused enqueue", names(c.Entries))
	}
	e.enqueue(a, b) // nothing of them is in the way
	e.enqueue()     // an empty one joins an existing batch
}

func enqueueDuplicates(e *env) {
	first := newEntry("a")
	e.enqueue(first)
	sameID := newEntry("other")
	sameID.ID = first.ID
	other := newBatch("other.yaml")
	for what, c := range map[string]struct {
		batch queue.Batch
		entry queue.Entry
		want  error
	}{
		"same id":                 {e.batch, sameID, queue.ErrDuplicate},
		"same id, other batch":    {other, sameID, queue.ErrDuplicate},
		"same name, other tenant": {e.batch, newEntry("a", tenant("other")), nil},
		"same name":               {e.batch, newEntry("a"), queue.ErrDuplicate},
		"same name, other batch":  {newBatch("third.yaml"), newEntry("a"), nil},
		"another batch's entry":   {e.batch, func() queue.Entry { n := newEntry("z"); n.Batch = "b"; return n }(), errAny},
		"a terminal entry":        {e.batch, func() queue.Entry { n := newEntry("z"); n.State = job.Completed; return n }(), queue.ErrIllegalTransition},
	} {
		err := e.store.Enqueue(e.ctx, c.batch, []queue.Entry{c.entry})
		if c.want == errAny && err != nil {
			continue
		}
		if !errors.Is(err, c.want) {
			e.Errorf("%s: got error %v, want %v", what, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "constraint") {
			e.Errorf("%s: the database's own words reach the user: %v", what, err)
		}
	}
	if _, total := e.list(queue.Filter{}); total != 3 {
		e.Errorf("%d entries are stored, want 3", total)
	}
	// The batch exists: its first form stays and new entries join it.
	changed := e.batch
	changed.Source = "changed"
	if err := e.store.Enqueue(e.ctx, changed, []queue.Entry{newEntry("joins")}); err != nil {
		e.Fatal(err)
	}
	if list, err := e.store.Batches(e.ctx, "changed"); err != nil || len(list) != 0 {
		e.Errorf("batch was stored again: %v, %v", list, err)
	}
}

// errAny stands for an error that has no sentinel.
var errAny = errors.New("any error")

func enqueueConcurrently(e *env) {
	const callers, each = 16, 8
	var wg sync.WaitGroup
	errs := make(chan error, callers*each)
	for c := range callers {
		wg.Go(func() {
			for n := range each {
				// Two callers fight for each name; one of them must lose alone.
				errs <- e.store.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry(fmt.Sprintf("%d-%d", c/2, n))})
			}
		})
	}
	wg.Wait()
	close(errs)
	stored, refused := 0, 0
	for err := range errs {
		switch {
		case err == nil:
			stored++
		case errors.Is(err, queue.ErrDuplicate):
			refused++
		default:
			e.Error(err)
		}
	}
	const want = callers * each / 2
	if _, total := e.list(queue.Filter{}); stored != want || refused != want || total != want {
		e.Errorf("%d stored, %d refused, %d found; want %d each", stored, refused, total, want)
	}
}
