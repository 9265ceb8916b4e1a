package terminal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

var topNoon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fake is a scheduler that stands still, and notes what it was told.
type fake struct {
	mu      sync.Mutex
	picture TopPicture
	events  []api.Event
	down    error // of Look
	refuse  error // of everything that changes something
	told    []string
	updates chan api.Update // of Watch; closed breaks the connection
}

func (f *fake) Look(context.Context) (TopPicture, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.picture, f.down
}

func (f *fake) Watch(ctx context.Context, see func(api.Update)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u, ok := <-f.updates:
			if !ok {
				return errors.New("the stream has ended")
			}
			see(u)
		}
	}
}

func (f *fake) Events(_ context.Context, id job.ID, after int64, limit int) ([]api.Event, error) {
	var list []api.Event
	for _, e := range f.events {
		if e.Cursor > after && len(list) < limit {
			list = append(list, e)
		}
	}
	return list, nil
}

func (f *fake) note(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, fmt.Sprintf(format, args...))
	return f.refuse
}

func (f *fake) Cancel(_ context.Context, id job.ID) error { return f.note("cancel %s", id) }
func (f *fake) Answer(_ context.Context, id job.ID, approve bool, comment string) error {
	return f.note("answer %s %v %s", id, approve, comment)
}
func (f *fake) AnswerQuestion(_ context.Context, id job.ID, number int, in api.AnswerQuestion) error {
	return f.note("answer question %d of %s: %s %s", number, id, in.Decision, in.Text)
}
func (f *fake) Attach(_ context.Context, id job.ID) error {
	fmt.Printf("talking with %s\r\n", id)
	return f.note("attach %s", id)
}
func (f *fake) Pause(context.Context) error  { return f.note("pause") }
func (f *fake) Resume(context.Context) error { return f.note("resume") }

// jobOf returns a job that was submitted n minutes before topNoon.
func jobOf(n int, name, tenant, worker string, state job.EntryState) api.Job {
	at := topNoon.Add(-time.Duration(n) * time.Minute)
	e := api.Job{ID: job.ID(fmt.Sprintf("01a1fcce-%04d", n)), State: state, CreatedAt: at, RunnableAt: at}
	e.Spec.Name, e.Spec.Tenant, e.Spec.Worker = job.Name(name), job.Tenant(tenant), job.WorkerKind(worker)
	e.Spec.Instructions = "Do " + name + " well."
	e.Status = &job.Status{State: job.Pending}
	if state == job.Dispatched {
		began := at.Add(30 * time.Second)
		e.DispatchedAt, e.Attempts = &began, 1
		e.Status.State = job.Running
	}
	return e
}

// busyPicture is a scheduler with something of everything.
func busyPicture() TopPicture {
	fix := jobOf(9, "fix-login", "website", "codex", job.Dispatched)
	fix.Spent = job.Usage{InputTokens: 12000, OutputTokens: 900, CostUSD: 0.1234, CostKnown: true}
	review := jobOf(8, "review", "website", "claude", job.Queued)
	review.Status.State, review.Attempts, review.Approval = job.WaitingApproval, 1, &api.Approval{Why: "supervised: a person looks at everything"}
	evil := jobOf(7, "evil", "back\x1b[2Jend", "shell", job.Dispatched)
	evil.Spec.Instructions = "\x1b]0;owned\x07look \u202ehere\nand there"
	docs := jobOf(6, "write-docs", "backend", "opencode", job.Queued)
	docs.Status = &job.Status{State: job.Pending, Waiting: &job.Waiting{Reason: job.WaitSlot, Text: "2 of 2 slots are taken"}}
	later := jobOf(5, "later", "backend", "codex", job.Queued)
	later.Spec.Flow.Needs = []job.Name{"fix-login"}
	later.Status.Waiting = &job.Waiting{Reason: job.WaitDependency, Text: "fix-login"}
	o := api.Overview{
		At: topNoon, Version: "1.4.0", Started: topNoon.Add(-125 * time.Minute), Running: 2, MaxAtOnce: 4, Policy: "deficit",
		Census:     api.Census{Queued: 12, Held: 3, Approval: 1, Dispatched: 2, DeadLetters: 4},
		Waiting:    []api.Waiting{{Reason: job.WaitSlot, Why: "waiting for a slot: 2 of 2 slots are taken", Jobs: 9}},
		Throughput: []api.Throughput{{At: topNoon.Add(-time.Hour), Succeeded: 30, Failed: 2}, {At: topNoon.Add(-5 * time.Minute), Succeeded: 4}},
		Today:      api.Account{Usage: job.Usage{InputTokens: 1_200_000, OutputTokens: 60_000, CostUSD: 3.5, CostKnown: true}},
		Budgets:    []api.Budget{{Window: job.Duration(24 * time.Hour), MaxUSD: 20, SpentUSD: 3.5}, {Tenant: "website", Window: job.Duration(time.Hour), MaxUSD: 1, SpentUSD: 1.02}},
		Tenants: []api.Tenant{
			{Tenant: "backend", Queued: 10, Running: 1, Share: &api.Share{Target: 0.25, Actual: 0.4}, Today: api.Account{Usage: job.Usage{CostUSD: 1, CostKnown: true}}},
			{Tenant: "website", Queued: 2, Running: 1, Share: &api.Share{Target: 0.75, Actual: 0.6}, Today: api.Account{Usage: job.Usage{CostUSD: 2.5, CostKnown: true}}},
			{Tenant: "idle"},
		},
		Circuits:   []api.Circuit{{Worker: "codex", State: "closed"}, {Worker: "opencode", Model: "big", State: "open"}},
		Isolations: []api.Isolation{{Scope: "worker:shell", Message: "5 crashes within a minute"}},
		Alerts:     []api.Alert{{At: topNoon.Add(-time.Minute), Kind: "isolation", Message: "worker:shell is isolated"}},
	}
	up := api.Core{Stage: "throttle"}
	up.Index, up.State = 1, "up"
	o.Cores = []api.Core{up}
	return TopPicture{
		Overview: o, Jobs: []api.Job{later, docs, evil, review, fix}, Total: 17,
		Workers: []api.Worker{
			{Kind: "claude", Adapter: "claude", Program: "/usr/bin/claude"},
			{Kind: "codex", Adapter: "codex", Program: "/usr/bin/codex", Model: "gpt", Running: 1, Max: 2, Circuits: []api.Circuit{{Worker: "codex", State: "closed"}}},
			{Kind: "opencode", Adapter: "opencode", Circuits: []api.Circuit{{Worker: "opencode", Model: "big", State: "open", OpenUntil: topNoon.Add(3 * time.Minute), Requests: 10, Failures: 6, Cause: "SERVER: 503"}}},
			{Kind: "shell", Adapter: "shell", Running: 1, Isolations: []api.Isolation{{Scope: "worker:shell", Message: "5 crashes within a minute"}}},
			{Kind: "other", Adapter: "exec", Problem: "other is not installed"},
		},
	}
}
