package queuetest

import (
	"cmp"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// apply draws one to three ops, most of them about what is really held, and
// applies them to both stores.
func (m *machine) apply(r *rapid.T) {
	var ops []queue.Op
	for range rapid.IntRange(1, 3).Draw(r, "ops") {
		ops = append(ops, m.op(r))
	}
	m.applyBoth(r, ops...)
}

// applyFlow does so with ops of workflows, perhaps together with others.
func (m *machine) applyFlow(r *rapid.T) {
	ops := []queue.Op{m.flowOp(r)}
	for range rapid.IntRange(0, 2).Draw(r, "more flow ops") {
		ops = append(ops, m.flowOp(r))
	}
	if rapid.IntRange(0, 3).Draw(r, "and another") == 0 {
		ops = append(ops, m.op(r))
	}
	m.applyBoth(r, ops...)
}

func (m *machine) applyBoth(r *rapid.T, ops ...queue.Op) {
	reals := make([]queue.Op, len(ops))
	for i, op := range ops {
		reals[i] = m.real1(op)
	}
	m.sameError(r, "apply "+show(ops), m.real.Apply(m.ctx, reals...), m.oracle.apply(ops...))
}

// real1 returns op with the real store's fence.
func (m *machine) real1(op queue.Op) queue.Op {
	switch op := op.(type) {
	case queue.Begin:
		op.Fence = m.realOf[op.Fence]
		return op
	case queue.Move:
		op.Fence = m.realOf[op.Fence]
		return op
	case queue.Finish:
		op.Fence = m.realOf[op.Fence]
		return op
	case queue.Release:
		op.Fence = m.realOf[op.Fence]
		return op
	case queue.Await:
		op.Fence = m.realOf[op.Fence]
		return op
	case queue.Reclaim:
		fences := make([]job.Fence, len(op.Fences))
		for i, f := range op.Fences {
			fences[i] = m.realOf[f]
		}
		op.Fences = fences
		return op
	}
	return op
}

func (m *machine) op(r *rapid.T) queue.Op {
	target := m.target(r)
	id, fence := target.ID, target.Fence
	if rapid.IntRange(0, 9).Draw(r, "old fence") == 0 {
		fence = max(0, fence-1)
	}
	// Mostly the attempt that may be open, now and then its neighbours.
	attempt := max(0, target.Attempts+rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, -1}).Draw(r, "attempt"))
	switch rapid.SampledFrom([]string{"begin", "begin", "move", "move", "append", "finish", "finish", "release", "cancel", "close", "rebase", "drop", "grant", "adopt", "private", "private"}).Draw(r, "op") {
	case "begin":
		return queue.Begin{ID: id, Fence: fence, Attempt: job.Attempt{
			Number: target.Attempts + rapid.SampledFrom([]int{1, 1, 1, 1, 2, 0}).Draw(r, "number"), State: job.Pending, Started: m.now,
			Choice: job.Choice{Worker: "claude"}, Session: rapid.SampledFrom([]string{"", "chosen"}).Draw(r, "own session"),
			Node: rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "node"),
		}}
	case "move":
		return queue.Move{ID: id, Fence: fence, Attempt: attempt,
			To:      rapid.SampledFrom(append(job.RunStates(), "", job.Running, job.Running)).Draw(r, "to"),
			Session: rapid.SampledFrom([]string{"", "s-1", "s-2"}).Draw(r, "session"),
			Waiting: rapid.SampledFrom([]string{"", "waiting for approval: run make?"}).Draw(r, "asks")}
	case "append":
		return queue.Append{Events: m.events(r, id)}
	case "finish":
		return m.finish(r, id, fence, attempt)
	case "release":
		return queue.Release{ID: id, Fence: fence, Now: m.now, RunnableAt: m.moment(r, "released until"), Choice: 1, Waiting: "w"}
	case "cancel":
		return queue.Cancel{ID: id, Now: m.now}
	case "drop":
		return queue.Drop{ID: cmp.Or(m.someDeadLetter(r), id), Now: m.now}
	case "adopt":
		if rapid.IntRange(0, 3).Draw(r, "really") == 0 {
			return queue.Adopt{}
		}
		return queue.Cancel{ID: id, Now: m.now}
	case "private":
		return queue.SetPrivate{ID: rapid.SampledFrom(m.batches).Draw(r, "batch").ID, Private: rapid.Bool().Draw(r, "private"),
			Waiting: rapid.SampledFrom([]string{"", "stopped"}).Draw(r, "why it waits")}
	case "grant":
		return queue.SetGrant{Grant: m.grant(r)}
	case "rebase":
		back := m.now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(r, "put back")) * time.Second)
		return queue.Rebase{Now: back, After: back.Add(time.Duration(rapid.IntRange(0, 30).Draw(r, "after")) * time.Second), Future: rapid.Bool().Draw(r, "future")}
	default:
		return queue.CloseBatch{ID: rapid.SampledFrom(m.batches).Draw(r, "closed").ID, Now: m.now}
	}
}

// target draws an entry: one that is held if there is one, else any, at times
// one that is not there.
func (m *machine) target(r *rapid.T) queue.Entry {
	nobody := queue.Entry{ID: "nobody"}
	all, _ := m.oracle.list(queue.Filter{})
	held, _ := m.oracle.list(queue.Filter{States: []job.EntryState{job.Dispatched}})
	pick := rapid.IntRange(0, 9).Draw(r, "target")
	switch {
	case len(all) == 0 || pick == 0:
		return nobody
	case len(held) == 0 || pick == 1:
		return rapid.SampledFrom(all).Draw(r, "any")
	}
	return rapid.SampledFrom(held).Draw(r, "held")
}

func (m *machine) events(r *rapid.T, id job.ID) (events []job.Event) {
	for range rapid.IntRange(0, 3).Draw(r, "events") {
		ev := event(id, rapid.IntRange(1, 2).Draw(r, "of attempt"), int64(rapid.IntRange(1, 6).Draw(r, "seq")))
		ev.Text = fmt.Sprint(rapid.IntRange(0, 99).Draw(r, "text")) // delivered again with another text: the first stays
		if rapid.Bool().Draw(r, "tells of usage") {
			ev.Kind, ev.Usage = job.EventUsage, m.usage(r)
		}
		events = append(events, ev)
	}
	return events
}

func (m *machine) finish(r *rapid.T, id job.ID, fence job.Fence, attempt int) queue.Finish {
	return queue.Finish{
		ID: id, Fence: fence, Attempt: attempt, Now: m.now, Lost: rapid.Bool().Draw(r, "lost"),
		Outcome: job.Outcome{
			State:     rapid.SampledFrom([]job.RunState{job.RunCompleted, job.RunFailed, job.RunFailed, job.RunCancelled, job.Running}).Draw(r, "end"),
			Class:     rapid.SampledFrom([]job.ErrorClass{"", job.Timeout}).Draw(r, "class"),
			Session:   rapid.SampledFrom([]string{"", "s-3"}).Draw(r, "last session"),
			Usage:     *m.usage(r),
			StartedAt: m.now.Add(-time.Second), EndedAt: m.now,
		},
		Exit:       rapid.SampledFrom([]job.ExitKind{"", "", "", job.ExitSucceeded, job.ExitFailed, job.ExitCancelled}).Draw(r, "exit"),
		DeadLetter: "spent",
		Retry: queue.Retry{RunnableAt: m.moment(r, "retry at"), Choice: 1, Session: rapid.SampledFrom([]string{"", "s-4"}).Draw(r, "resume"),
			SessionWorker: "codex", SessionNode: "b", Feedback: "f", Waiting: "w", Hold: rapid.SampledFrom([]job.Hold{"", "", job.HeldForWords}).Draw(r, "held")},
	}
}
