package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func listFilters(e *env) {
	a := newEntry("a", priority(9))
	a.ID = "11111111-aaaa-7000-8000-000000000001"
	b := newEntry("b")
	b.ID = "11111111-bbbb-7000-8000-000000000002"
	c := newEntry("c", tenant("website"), deadline(epoch))
	c.ID = "22222222-aaaa-7000-8000-000000000003"
	d := newEntry("a", tenant("website"))
	d.ID = "00000000-aaaa-7000-8000-000000000004" // smaller, and submitted later
	e.enqueue(a, b, c)
	other := newBatch("other.yaml")
	if err := e.store.Enqueue(e.ctx, other, []queue.Entry{d}); err != nil {
		e.Fatal(err)
	}
	e.claimOne(epoch) // a; expires c
	for what, x := range map[string]struct {
		filter queue.Filter
		want   []job.ID
	}{
		"all":             {queue.Filter{}, []job.ID{a.ID, b.ID, c.ID, d.ID}},
		"newest":          {queue.Filter{Newest: true}, []job.ID{d.ID, c.ID, b.ID, a.ID}},
		"batch":           {queue.Filter{Batch: e.batch.ID}, []job.ID{a.ID, b.ID, c.ID}},
		"unknown batch":   {queue.Filter{Batch: "x"}, nil},
		"queued":          {queue.Filter{States: []job.EntryState{job.Queued}}, []job.ID{b.ID, d.ID}},
		"dispatched":      {queue.Filter{States: []job.EntryState{job.Dispatched}}, []job.ID{a.ID}},
		"expired":         {queue.Filter{States: []job.EntryState{job.Expired}}, []job.ID{c.ID}},
		"two states":      {queue.Filter{States: []job.EntryState{job.Expired, job.Queued}}, []job.ID{b.ID, c.ID, d.ID}},
		"no such state":   {queue.Filter{States: []job.EntryState{"x"}}, nil},
		"tenant":          {queue.Filter{Tenant: "website"}, []job.ID{c.ID, d.ID}},
		"name":            {queue.Filter{Name: "a"}, []job.ID{a.ID, d.ID}},
		"prefix":          {queue.Filter{Prefix: "11111111"}, []job.ID{a.ID, b.ID}},
		"longer prefix":   {queue.Filter{Prefix: "11111111-a"}, []job.ID{a.ID}},
		"whole id":        {queue.Filter{Prefix: string(c.ID)}, []job.ID{c.ID}},
		"no such prefix":  {queue.Filter{Prefix: "%"}, nil},
		"suffix":          {queue.Filter{Suffix: string(b.ID[len(b.ID)-8:])}, []job.ID{b.ID}},
		"no such suffix":  {queue.Filter{Suffix: "%"}, nil},
		"several at once": {queue.Filter{Batch: e.batch.ID, Tenant: "website", States: []job.EntryState{job.Expired}, Prefix: "2", Name: "c"}, []job.ID{c.ID}},
		"none of several": {queue.Filter{Batch: e.batch.ID, Tenant: "website", Name: "a"}, nil},
	} {
		list, total := e.list(x.filter)
		var got []job.ID
		for _, entry := range list {
			got = append(got, entry.ID)
		}
		if !slices.Equal(got, x.want) || total != len(x.want) {
			e.Errorf("%s: got %v of %d, want %v", what, got, total, x.want)
		}
	}
}

// listRuns selects by the state of the latest run; each entry has exactly one.
func listRuns(e *env) {
	waits := func(text string) func(*queue.Entry) {
		return func(e *queue.Entry) { e.Held, e.Waiting = job.HeldForTeam, text }
	}
	e.enqueueOne("late", deadline(epoch))
	e.claim(9, epoch) // expires late
	e.fail("bad", job.Auth, epoch)
	for _, exit := range []job.ExitKind{job.ExitSucceeded, job.ExitCancelled} {
		name := map[job.ExitKind]string{job.ExitSucceeded: "good", job.ExitCancelled: "stopped"}[exit]
		e.enqueueOne(name, priority(99))
		c := e.claimOne(epoch)
		op := succeed(c, e.begin(c, epoch), epoch, epoch)
		if op.Exit = exit; exit == job.ExitCancelled {
			op.Outcome.State = job.RunCancelled
		}
		e.apply(op)
	}
	gone := e.enqueueOne("gone", priority(99))
	e.apply(queue.Cancel{ID: gone, Now: epoch})
	e.asked("asked", epoch)
	e.enqueueOne("between", priority(99))
	c := e.claimOne(epoch)
	e.apply(queue.Release{ID: c.ID, Fence: c.Fence, RunnableAt: epoch.Add(time.Hour), Waiting: "waiting for its turn: " + queue.CheckpointedText + "told to)"})
	e.enqueueOne("runs", priority(99))
	e.begin(e.claimOne(epoch), epoch)
	e.enqueueOne("asks", priority(99))
	c = e.claimOne(epoch)
	e.begin(c, epoch)
	e.apply(queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: job.WaitingApproval, Waiting: job.Waiting{Reason: job.WaitApproval, Text: "run make?"}.String()})
	e.enqueueOne("held", waits("waiting for its team: "+queue.CheckpointedText+"no)"))
	e.enqueueOne("next")
	for _, x := range []struct {
		runs []job.RunState
		want []string
	}{
		{[]job.RunState{job.Pending}, []string{"held", "next"}}, {[]job.RunState{job.Checkpointed}, []string{"between"}},
		{[]job.RunState{job.WaitingApproval}, []string{"asked", "asks"}}, {[]job.RunState{job.Running}, []string{"runs"}},
		{[]job.RunState{job.RunCompleted}, []string{"good"}}, {[]job.RunState{job.RunFailed}, []string{"late", "bad"}},
		{[]job.RunState{job.RunCancelled}, []string{"stopped", "gone"}}, {[]job.RunState{job.Running, job.RunFailed}, []string{"late", "bad", "runs"}},
		{[]job.RunState{"x"}, nil},
	} {
		for _, f := range []queue.Filter{{Runs: x.runs}, {Runs: x.runs, States: queue.EntryStates(x.runs)}, {Runs: x.runs, Batch: e.batch.ID}} {
			list, total := e.list(f)
			wantSame(e, "list of "+show(f), names(list), x.want)
			if total != len(x.want) {
				e.Errorf("list of %s: %d in all, want %d", show(f), total, len(x.want))
			}
			for i := range list {
				if got := list[i].RunState(); !slices.Contains(x.runs, got) {
					e.Errorf("list of %s has %s, which is %s", show(f), list[i].Spec.Name, got)
				}
			}
		}
	}
}

func listPages(e *env) {
	const n = 1203
	var all []queue.Entry
	for i := range n {
		all = append(all, newEntry(fmt.Sprintf("j%04d", i)))
	}
	e.enqueue(all...)
	for what, x := range map[string]struct {
		filter      queue.Filter
		first, last string
		count       int
	}{
		"default limit": {queue.Filter{}, "j0000", "j0999", 1000},
		"limit":         {queue.Filter{Limit: 5}, "j0000", "j0004", 5},
		"offset":        {queue.Filter{Limit: 5, Offset: 10}, "j0010", "j0014", 5},
		"last page":     {queue.Filter{Limit: 5, Offset: n - 2}, "j1201", "j1202", 2},
		"beyond":        {queue.Filter{Limit: 5, Offset: n}, "", "", 0},
		"newest":        {queue.Filter{Limit: 5, Offset: 1, Newest: true}, "j1201", "j1197", 5},
	} {
		list, total := e.list(x.filter)
		if total != n {
			e.Errorf("%s: total %d, want %d", what, total, n)
		}
		if len(list) != x.count {
			e.Errorf("%s: %d entries, want %d", what, len(list), x.count)
			continue
		}
		if x.count > 0 && (string(list[0].Spec.Name) != x.first || string(list[x.count-1].Spec.Name) != x.last) {
			e.Errorf("%s: %s to %s, want %s to %s", what, list[0].Spec.Name, list[x.count-1].Spec.Name, x.first, x.last)
		}
	}
}

func batches(e *env) {
	a, b, c := newBatch("one.yaml"), newBatch("two.yaml"), newBatch("one.yaml")
	for _, batch := range []queue.Batch{a, b, c} {
		if err := e.store.Enqueue(e.ctx, batch, []queue.Entry{newEntry("j")}); err != nil {
			e.Fatal(err)
		}
	}
	want := func(source string, want ...queue.Batch) {
		e.Helper()
		got, err := e.store.Batches(e.ctx, source)
		if err != nil {
			e.Fatal(err)
		}
		wantSame(e, "batches of "+source, got, want)
	}
	want("", c, b, a)
	want("one.yaml", c, a)
	want("three.yaml")
	e.apply(queue.CloseBatch{ID: a.ID, Now: epoch})
	a.ClosedAt = &epoch
	want("one.yaml", c, a)
	e.apply(queue.CloseBatch{ID: a.ID, Now: epoch.Add(1)}) // again: the first time stays
	want("one.yaml", c, a)
}

func unknownIDs(e *env) {
	_, err := e.store.Get(e.ctx, "nobody")
	_, err2 := e.store.Attempts(e.ctx, "nobody")
	_, err3 := e.store.Events(e.ctx, "nobody", 0, 5)
	_, err4 := e.store.LastEvents(e.ctx, "nobody", 5)
	for what, err := range map[string]error{"get": err, "attempts": err2, "events": err3, "last events": err4} {
		if !errors.Is(err, queue.ErrNotFound) {
			e.Errorf("%s: got error %v, want %v", what, err, queue.ErrNotFound)
		}
	}
	e.refuse(queue.ErrNotFound, queue.Cancel{ID: "nobody", Now: epoch})
	e.refuse(queue.ErrNotFound, queue.Append{Events: []job.Event{event("nobody", 1, 1)}})
	e.refuse(queue.ErrNotFound, queue.CloseBatch{ID: "nothing", Now: epoch})
	e.refuse(queue.ErrNotFound, queue.Release{ID: "nobody", Fence: 1})
}
