package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (e *env) page(f queue.Filter, cursor string) (entries []queue.Entry, next string, total int) {
	e.Helper()
	entries, next, total, err := e.store.Page(e.ctx, f, cursor)
	if err != nil {
		e.Fatal(err)
	}
	return entries, next, total
}

func listSearch(e *env) {
	worker := func(w job.WorkerKind, fallback ...job.Choice) func(*queue.Entry) {
		return func(x *queue.Entry) { x.Spec.Worker, x.Spec.Fallback = w, fallback }
	}
	says := func(text string) func(*queue.Entry) { return func(x *queue.Entry) { x.Spec.Instructions = text } }
	id := func(id job.ID) func(*queue.Entry) { return func(x *queue.Entry) { x.ID = id } }
	e.enqueue(
		newEntry("Parser", worker("codex"), says("Fix the \"quoted\" test\nof Größe 100%"), id("0af1-1")),
		newEntry("docs", worker("claude", job.Choice{Worker: "shell"}), says("write"), id("0af2-2"), tenant("parsers")),
		newEntry("other", worker("claude", job.Choice{Worker: "gemini"}), says("nothing"), id("1bc3-0af1"), func(x *queue.Entry) { x.Choice = 1 }),
	)
	for _, tt := range []struct {
		f    queue.Filter
		want []string
	}{
		{queue.Filter{Search: "pArSeR"}, []string{"Parser", "docs"}},
		{queue.Filter{Search: "QUOTED\" TEST\nof"}, []string{"Parser"}},
		{queue.Filter{Search: "größe"}, []string{"Parser"}},
		{queue.Filter{Search: "%"}, []string{"Parser"}}, {queue.Filter{Search: "_"}, nil}, {queue.Filter{Search: "'"}, nil},
		{queue.Filter{Search: "0AF1"}, []string{"Parser"}}, {queue.Filter{Search: "0af"}, []string{"Parser", "docs"}},
		{queue.Filter{Search: "CLAUDE"}, []string{"docs", "other"}}, {queue.Filter{Search: "gemini"}, []string{"other"}},
		{queue.Filter{Search: "shell"}, nil},
		{queue.Filter{Worker: "claude"}, []string{"docs", "other"}}, {queue.Filter{Worker: "gemini"}, []string{"other"}},
		{queue.Filter{Worker: "shell"}, nil}, {queue.Filter{Worker: "Codex"}, nil}, {queue.Filter{Worker: "codex", Search: "docs"}, nil},
	} {
		list, total := e.list(tt.f)
		wantSame(e, "found by "+show(tt.f), names(list), tt.want)
		if total != len(tt.want) {
			e.Errorf("%s: total %d, want %d", show(tt.f), total, len(tt.want))
		}
		list, _, total = e.page(tt.f, "")
		wantSame(e, "page of "+show(tt.f), names(list), tt.want)
		if total != len(tt.want) {
			e.Errorf("%s: total of the page %d, want %d", show(tt.f), total, len(tt.want))
		}
	}
}

func pageCursor(e *env) {
	var all []queue.Entry
	for i := range 7 {
		all = append(all, newEntry(fmt.Sprintf("j%d", i), tenant(job.Tenant(fmt.Sprint("t", i%2)))))
	}
	e.enqueue(all...)
	for _, tt := range []struct {
		f    queue.Filter
		want [][]string
	}{
		{queue.Filter{}, [][]string{{"j0", "j1", "j2", "j3", "j4", "j5", "j6"}}},
		{queue.Filter{Limit: 7}, [][]string{{"j0", "j1", "j2", "j3", "j4", "j5", "j6"}}},
		{queue.Filter{Limit: 3}, [][]string{{"j0", "j1", "j2"}, {"j3", "j4", "j5"}, {"j6"}}},
		{queue.Filter{Limit: 4, Newest: true}, [][]string{{"j6", "j5", "j4", "j3"}, {"j2", "j1", "j0"}}},
		{queue.Filter{Limit: 2, Tenant: "t1"}, [][]string{{"j1", "j3"}, {"j5"}}},
		{queue.Filter{Limit: 3, States: []job.EntryState{job.Completed, job.Queued, job.Queued}, Newest: true}, [][]string{{"j6", "j5", "j4"}, {"j3", "j2", "j1"}, {"j0"}}},
		{queue.Filter{Limit: 3, Batch: e.batch.ID, Tenant: "t0"}, [][]string{{"j0", "j2", "j4"}, {"j6"}}},
		{queue.Filter{Tenant: "nobody"}, [][]string{{}}},
	} {
		cursor, total := "", 0
		for _, page := range tt.want {
			total += len(page)
		}
		for i, want := range tt.want {
			list, next, n := e.page(tt.f, cursor)
			wantSame(e, fmt.Sprintf("page %d of %s", i, show(tt.f)), names(list), want)
			if i == 0 && n != total || i > 0 && n != -1 {
				e.Errorf("page %d of %s: total %d", i, show(tt.f), n)
			}
			if (next == "") != (i == len(tt.want)-1) {
				e.Errorf("page %d of %s: next %q", i, show(tt.f), next)
			}
			cursor = next
		}
	}
	// A cursor outlives the store's being opened.
	_, next, _ := e.page(queue.Filter{Limit: 5}, "")
	e.reopen()
	list, _, _ := e.page(queue.Filter{Limit: 5}, next)
	wantSame(e, "page after a restart", names(list), []string{"j5", "j6"})
}

func pageRefuses(e *env) {
	e.enqueue(newEntry("a"), newEntry("b"))
	_, next, _ := e.page(queue.Filter{Limit: 1}, "")
	for what, tt := range map[string]struct {
		f      queue.Filter
		cursor string
	}{
		"words":       {queue.Filter{}, "no cursor"},
		"a part":      {queue.Filter{}, next[:len(next)-1]},
		"more":        {queue.Filter{}, next + "AA"},
		"other order": {queue.Filter{Newest: true}, next},
		"a number":    {queue.Filter{}, "1"},
	} {
		if _, _, _, err := e.store.Page(e.ctx, tt.f, tt.cursor); !errors.Is(err, queue.ErrBadCursor) {
			e.Errorf("%s: error %v, want %v", what, err, queue.ErrBadCursor)
		}
	}
	if _, _, _, err := e.store.Page(e.ctx, queue.Filter{Offset: 1}, ""); err == nil {
		e.Error("a page with an offset")
	}
	for what, tt := range map[string]struct {
		until time.Time
		step  time.Duration
	}{
		"no step":        {epoch.Add(time.Hour), 0},
		"step back":      {epoch.Add(time.Hour), -1},
		"too many steps": {epoch.Add(time.Duration(queue.MaxSteps+1) * time.Second), time.Second},
		"all time":       {time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), time.Millisecond},
	} {
		if _, err := e.store.Throughput(e.ctx, epoch, tt.until, tt.step); err == nil {
			e.Errorf("throughput with %s", what)
		}
	}
	if steps, err := e.store.Throughput(e.ctx, epoch, epoch.Add(-time.Hour), time.Minute); err != nil || len(steps) != 0 {
		e.Errorf("throughput of a span that ends before it begins: %v, %v", steps, err)
	}
}

// pageChanges: between two pages entries are added, end and are forgotten.
func pageChanges(e *env) {
	var all []queue.Entry
	for i := range 6 {
		all = append(all, newEntry(fmt.Sprintf("j%d", i)))
	}
	e.enqueue(all...)
	queued := queue.Filter{States: []job.EntryState{job.Queued}, Limit: 2}
	_, oldest, _ := e.page(queued, "")
	newest := queued
	newest.Newest = true
	_, down, _ := e.page(newest, "") // j5, j4
	e.enqueueOne("j6")
	for _, x := range []int{1, 4} { // the ones that the cursors were returned with
		e.apply(queue.Cancel{ID: all[x].ID, Now: epoch})
	}
	if ids, err := e.store.Prune(e.ctx, queue.PruneSpec{Before: epoch.Add(time.Hour), Max: 9}); err != nil || len(ids) != 2 {
		e.Fatalf("forgot %v, %v", ids, err)
	}
	list, next, _ := e.page(queued, oldest)
	wantSame(e, "second page", names(list), []string{"j2", "j3"})
	list, next, _ = e.page(queued, next)
	wantSame(e, "third page", names(list), []string{"j5", "j6"})
	if next != "" {
		e.Errorf("a fourth page at %q", next)
	}
	list, _, _ = e.page(newest, down)
	wantSame(e, "second page, newest first", names(list), []string{"j3", "j2"})
}

// pageConcurrently: while others submit, claim and cancel, what was there before
// and stays is on exactly one page, and nothing is on two.
func pageConcurrently(e *env) {
	const there, more = 60, 60
	var all []queue.Entry
	for i := range there {
		all = append(all, newEntry(fmt.Sprintf("j%02d", i), tenant(job.Tenant(fmt.Sprint("t", i%3)))))
	}
	e.enqueue(all...)
	var wg sync.WaitGroup
	failed := make(chan error, 2*more)
	wg.Go(func() {
		for i := range more {
			entry := newEntry(fmt.Sprintf("new%02d", i))
			failed <- e.store.Enqueue(e.ctx, e.batch, []queue.Entry{entry})
		}
	})
	wg.Go(func() { // every third ends
		for i := 0; i < there; i += 3 {
			failed <- e.store.Apply(e.ctx, queue.Cancel{ID: all[i].ID, Now: epoch})
		}
	})
	for _, f := range []queue.Filter{{Limit: 3}, {Limit: 3, Newest: true}, {Limit: 3, States: []job.EntryState{job.Queued}}, {Limit: 3, Tenant: "t1"}} {
		seen := map[job.ID]bool{}
		cursor := ""
		for first := true; first || cursor != ""; first = false {
			list, next, _ := e.page(f, cursor)
			for _, x := range list {
				if seen[x.ID] {
					e.Errorf("%s: %s is on two pages", show(f), x.Spec.Name)
				}
				seen[x.ID] = true
			}
			cursor = next
		}
		for i, x := range all {
			ends := i%3 == 0
			if must := !(ends && len(f.States) > 0) && (f.Tenant == "" || x.Spec.Tenant == f.Tenant); must && !seen[x.ID] {
				e.Errorf("%s: %s is on no page", show(f), x.Spec.Name)
			}
		}
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			e.Error(err)
		}
	}
}

func censusCounts(e *env) {
	check := func(what string, want queue.Census) {
		e.Helper()
		got, err := e.store.Census(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		wantSame(e, what, got, want)
	}
	check("nothing", queue.Census{})
	e.fail("dead", job.Timeout, epoch)
	e.done("done", epoch)
	e.enqueueOne("late", runnableAt(epoch.Add(time.Hour)))
	e.enqueueOne("soon", runnableAt(epoch.Add(time.Minute)), priority(5))
	e.enqueueOne("held", held(job.HeldForNeeds), tenant("b"))
	e.enqueueOne("first", duplicate(job.Serialize, "k"), tenant("b"))
	e.enqueueOne("second", duplicate(job.Serialize, "k"), tenant("b"))
	e.enqueueOne("both", duplicate(job.Serialize, "k"), tenant("b"), held(job.HeldForNeeds))
	e.asked("asked", epoch, tenant("a"))
	e.enqueueOne("runs", tenant("c"), priority(100))
	e.claimOne(epoch)
	private := newBatch("private")
	private.Private = true
	if err := e.store.Enqueue(e.ctx, private, []queue.Entry{newEntry("own", tenant("b"), runnableAt(epoch.Add(-time.Hour)))}); err != nil {
		e.Fatal(err)
	}
	want := queue.Census{Queued: 4, Held: 3, Approval: 1, Dispatched: 1, DeadLetters: 1, Tenants: []queue.TenantCensus{
		{Tenant: "a", Approval: 1}, {Tenant: "b", Queued: 2, Held: 3, Oldest: epoch.Add(-time.Hour)}, {Tenant: "c", Dispatched: 1},
		{Tenant: job.DefaultTenant, Queued: 2, Oldest: epoch.Add(time.Minute)},
	}}
	check("some of each", want)
	e.reopen()
	check("after a restart", want)
}

func throughputCounts(e *env) {
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	e.done("a", at(1))
	e.done("b", at(4))
	e.fail("c", job.Timeout, at(5))
	e.enqueueOne("d", deadline(at(9)))
	e.claim(1, at(9))
	e.apply(queue.Cancel{ID: e.enqueueOne("e"), Now: at(15)})
	e.enqueueOne("f", priority(100))
	c := e.claimOne(at(16))
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: at(16), Exit: job.ExitCancelled})
	e.done("g", at(20))
	got, err := e.store.Throughput(e.ctx, at(2), at(20), 5*time.Minute)
	if err != nil {
		e.Fatal(err)
	}
	wantSame(e, "throughput", got, []queue.Throughput{
		{At: at(0), Succeeded: 2}, {At: at(5), Failed: 2}, {At: at(10)}, {At: at(15), Cancelled: 2},
	})
	// Steps are counted from 1970, whatever since is, and the last may be cut.
	if got, err = e.store.Throughput(e.ctx, at(16), at(16).Add(time.Millisecond), time.Hour); err != nil {
		e.Fatal(err)
	}
	wantSame(e, "throughput of an hour", got, []queue.Throughput{{At: epoch, Succeeded: 2, Failed: 2, Cancelled: 2}})
}

func runsWithin(e *env) {
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	run := func(name string, from, to int, class job.ErrorClass) {
		e.Helper()
		e.enqueueOne(name, priority(99))
		c := e.claimOne(epoch)
		n := e.begin(c, at(from))
		state, exit := job.RunCompleted, job.ExitSucceeded
		if class != "" {
			state, exit = job.RunFailed, job.ExitFailed
		}
		e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: n, Now: at(to), Exit: exit,
			Outcome: job.Outcome{State: state, Class: class, StartedAt: at(from), EndedAt: at(to)}})
	}
	run("early", 0, 5, "")
	run("long", 1, 50, job.Timeout)
	run("mid", 10, 12, "")
	run("twin", 10, 13, "")
	run("late", 30, 40, "")
	e.enqueueOne("open", priority(99))
	open := e.claimOne(epoch)
	e.begin(open, at(20))
	e.asked("asked", at(25))
	for _, tt := range []struct {
		since, until time.Time
		limit        int
		want         []string
	}{
		{time.Time{}, time.Time{}, 0, []string{"late", "asked", "open", "twin", "mid", "long", "early"}},
		{time.Time{}, time.Time{}, 2, []string{"late", "asked"}},
		{at(5), at(10), 10, []string{"twin", "mid", "long", "early"}},
		{at(6), at(10), 10, []string{"twin", "mid", "long"}},
		{at(6), at(9), 10, []string{"long"}},
		{at(13), at(20), 10, []string{"open", "twin", "long"}},
		{at(13), at(20), 1, []string{"open"}},
		{at(45), at(46), 10, []string{"open", "long"}},
		{at(51), time.Time{}, 10, []string{"open"}},
		{at(-9), at(-1), 10, nil},
	} {
		runs, err := e.store.Runs(e.ctx, tt.since, tt.until, tt.limit)
		if err != nil {
			e.Fatal(err)
		}
		var got []string
		for _, r := range runs {
			got = append(got, string(r.Name))
		}
		if !slices.Equal(got, tt.want) {
			e.Errorf("from %s until %s, %d at most: %v, want %v", tt.since, tt.until, tt.limit, got, tt.want)
		}
	}
	runs, err := e.store.Runs(e.ctx, at(1), at(1), 10)
	if err != nil || len(runs) != 2 {
		e.Fatalf("%v, %v", runs, err)
	}
	ended := at(50)
	wantSame(e, "a run", runs[0], queue.Running{Job: runs[0].Job, Name: "long", Tenant: job.DefaultTenant, Worker: "codex", Attempt: 1,
		State: job.RunFailed, Class: job.Timeout, Began: at(1), Ended: &ended})
}
