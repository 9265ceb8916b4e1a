package queuetest

import (
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// flowOp draws an op of a workflow, most of them about what is held.
func (m *machine) flowOp(r *rapid.T) queue.Op {
	e := m.heldTarget(r)
	switch rapid.SampledFrom([]string{"ready", "keep", "skip", "spawn", "add", "conclude", "await", "await", "decide", "decide", "write", "erase"}).Draw(r, "flow op") {
	case "ready":
		op := queue.Ready{ID: e.ID, Now: m.now}
		if rapid.Bool().Draw(r, "is resolved") {
			op.Resolved = &job.Resolved{Instructions: "resolved", Input: json.RawMessage(`{"a":1}`), Patches: []job.Patch{{Job: "x", Path: "/p"}}}
		}
		return op
	case "keep":
		if rapid.Bool().Draw(r, "any queued") {
			if queued, _ := m.oracle.list(queue.Filter{States: []job.EntryState{job.Queued}}); len(queued) > 0 {
				e = rapid.SampledFrom(queued).Draw(r, "queued")
			}
		}
		return queue.Keep{ID: e.ID, For: m.hold(r), Waiting: "kept"}
	case "skip":
		if rapid.Bool().Draw(r, "really") {
			return queue.Skip{ID: e.ID, Why: "its condition", Now: m.now}
		}
		return queue.Keep{ID: e.ID, For: job.HeldForParts, Waiting: "parts"}
	case "spawn":
		op := queue.Spawn{Batch: rapid.SampledFrom(m.batches).Draw(r, "of batch").ID, Entries: m.entries(r)}
		if rapid.IntRange(0, 9).Draw(r, "no batch") == 0 {
			op.Batch = "nowhere"
		}
		return op
	case "add":
		return queue.Add{Batch: rapid.SampledFrom(m.batches).Draw(r, "to batch"), Entries: m.entries(r)}
	case "conclude":
		return m.concludeOf(r, e)
	case "await":
		return m.awaitOf(r, m.target(r))
	case "decide":
		return m.decideOf(r, e, max(0, e.Attempts+rapid.SampledFrom([]int{0, 0, 0, 0, 1, -1}).Draw(r, "about")))
	case "write":
		return queue.Write{Once: rapid.Bool().Draw(r, "once"), Record: queue.Record{At: m.now, Space: m.space(r),
			Key: fmt.Sprint(rapid.IntRange(1, 12).Draw(r, "key")), Value: json.RawMessage(fmt.Sprintf(`{"v":%d}`, rapid.IntRange(0, 1).Draw(r, "value")))}}
	default:
		return queue.Erase{Space: m.space(r), UpTo: rapid.SampledFrom([]string{"", "1", "10", "4"}).Draw(r, "up to")}
	}
}

func (m *machine) concludeOf(r *rapid.T, e queue.Entry) queue.Op {
	return queue.Conclude{ID: e.ID, Now: m.now, DeadLetter: "a part failed", Result: json.RawMessage(`{"a":[1,2]}`),
		Class: rapid.SampledFrom([]job.ErrorClass{"", job.Timeout}).Draw(r, "concluding class"),
		Exit:  rapid.SampledFrom([]job.ExitKind{job.ExitSucceeded, job.ExitFailed, job.ExitCancelled, "odd"}).Draw(r, "concluding exit")}
}

func (m *machine) decideOf(r *rapid.T, e queue.Entry, attempt int) queue.Op {
	op := queue.Decide{ID: e.ID, Attempt: attempt, Now: m.now, Approved: rapid.Bool().Draw(r, "approved"), By: "someone",
		Comment: rapid.SampledFrom([]string{"", "not so"}).Draw(r, "comment"), DeadLetter: "no"}
	if rapid.Bool().Draw(r, "again") {
		op.Retry = &queue.Retry{RunnableAt: m.moment(r, "again at"), Choice: 1, Session: "s-5", SessionWorker: "codex", SessionNode: "a", Feedback: "not so", Waiting: "rejected"}
	}
	return op
}

func (m *machine) awaitOf(r *rapid.T, target queue.Entry) queue.Op {
	f := m.finish(r, target.ID, target.Fence, target.Attempts)
	op := queue.Await{ID: f.ID, Fence: f.Fence, Attempt: f.Attempt, Outcome: f.Outcome, Waiting: "look at it", Now: m.now,
		Approval: queue.Approval{Why: "supervised", AskedAt: m.now}}
	if rapid.Bool().Draw(r, "until") {
		until, draw := m.moment(r, "asked until"), 0.25
		op.Approval.Until, op.Approval.Default, op.Approval.Draw = &until, "approve", &draw
	}
	return op
}

func (m *machine) hold(r *rapid.T) job.Hold {
	return rapid.SampledFrom([]job.Hold{job.HeldForNeeds, job.HeldForNeeds, job.HeldForParts, job.HeldForTeam, job.HeldForWords, job.HeldByPerson, job.HeldForApproval}).Draw(r, "hold")
}

func (m *machine) space(r *rapid.T) string {
	return rapid.SampledFrom([]string{"job/1/steps", "job/1/other", "batch/b/log"}).Draw(r, "space")
}

// heldTarget draws an entry that is held, if there is one, now and then any.
func (m *machine) heldTarget(r *rapid.T) queue.Entry {
	list, _ := m.oracle.list(queue.Filter{Held: []job.Hold{job.HeldForNeeds, job.HeldForParts, job.HeldForTeam, job.HeldForWords, job.HeldByPerson, job.HeldForApproval}})
	if len(list) == 0 || rapid.IntRange(0, 9).Draw(r, "other than held") == 0 {
		return m.target(r)
	}
	return rapid.SampledFrom(list).Draw(r, "held back")
}

// compareJournal compares the records of both stores.
func (m *machine) compareJournal(r *rapid.T) {
	spaces, err := m.real.Spaces(m.ctx, "")
	if err != nil {
		r.Fatalf("spaces: %v", err)
	}
	var got []queue.Record
	for _, s := range spaces {
		list, err := m.real.Records(m.ctx, s, "", 100)
		if err != nil {
			r.Fatalf("records of %s: %v", s, err)
		}
		got = append(got, list...)
	}
	wantSame(r, "records", got, m.oracle.notes)
	if !slices.IsSorted(spaces) {
		r.Fatalf("spaces %q", spaces)
	}
}

// compareRules looks at what must hold of the real store whatever was done: who is
// asked about has an answer at most once, and the store itself finds nothing wrong.
func (m *machine) compareRules(r *rapid.T) {
	if err := m.real.Check(m.ctx); err != nil {
		r.Fatalf("%v", err)
	}
	for _, want := range m.oracle.records {
		completed := 0
		attempts, err := m.real.Attempts(m.ctx, want.ID)
		if err != nil {
			r.Fatalf("attempts: %v", err)
		}
		for _, a := range attempts {
			if a.State == job.RunCompleted && want.Approval != nil && want.Approval.Approved && a.Number == want.Approval.Attempt {
				completed++
			}
		}
		if a := want.Approval; a != nil && a.Approved && (completed != 1 || want.State != job.Completed) {
			r.Fatalf("%s was approved: it is %s, with %d approved attempts", want.ID, want.State, completed)
		}
	}
}
