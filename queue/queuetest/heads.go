package queuetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// watcher reads the heads of a batch again and again, two of each lane.
type watcher struct {
	batch job.BatchID
	since uint64
	now   time.Time
	pages []queue.Page
}

func (e *env) heads(spec queue.HeadsSpec) queue.Heads {
	e.Helper()
	h, err := e.store.Heads(e.ctx, spec)
	if err != nil {
		e.Fatal(err)
	}
	return h
}

func (e *env) readHeads(w *watcher) queue.Heads {
	e.Helper()
	h := e.heads(queue.HeadsSpec{Batch: w.batch, Since: w.since, Each: 2, Pages: w.pages, Now: w.now})
	if w.since = h.Version; h.Version == 0 {
		e.Error("an answer has version 0, which stands for none")
	}
	return h
}

// wantHeads fails the test unless the watcher is told this: "all" if it is told all
// lanes, and of each lane its tenant, priority and heads, as "t/0:a,b+" if there are
// more behind.
func (e *env) wantHeads(what string, w *watcher, want string) queue.Heads {
	e.Helper()
	h := e.readHeads(w)
	var words []string
	if h.All {
		words = append(words, "all")
	}
	for _, l := range h.Lanes {
		words = append(words, e.laneText(w, l))
	}
	if got := strings.Join(words, " "); got != want {
		e.Errorf("%s: told %q, want %q", what, got, want)
	}
	return h
}

func (e *env) laneText(w *watcher, l queue.LaneHeads) string {
	e.Helper()
	var heads []string
	for _, h := range l.Heads {
		entry := e.get(h.ID)
		heads = append(heads, string(entry.Spec.Name))
		want := queue.HeadOf(&entry)
		want.Over = h.Over
		wantSame(e, "head", h, want)
	}
	text := fmt.Sprintf("%s/%d:%s", l.Lane.Tenant, l.Lane.Priority, strings.Join(heads, ","))
	if l.More {
		text += "+"
	}
	if l.Lane.Only != "" {
		text += "!"
	}
	if l.Lane.Batch != w.batch {
		e.Errorf("a lane of batch %q is told with those of %q", l.Lane.Batch, w.batch)
	}
	return text
}

// headsTold follows the heads through all that can change them.
func headsTold(e *env) {
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	w := &watcher{now: epoch}
	e.wantHeads("an empty queue", w, "all")
	e.wantHeads("nothing new", w, "")
	e.enqueueOne("one")
	e.enqueueOne("two", runnableAt(at(time.Second)))
	ahead := e.enqueueOne("ahead", priority(1), runnableAt(at(time.Hour)))
	e.wantHeads("two lanes", w, "default/0:one,two default/1:ahead")
	e.wantHeads("told already", w, "")
	early := e.enqueueOne("early", runnableAt(at(-time.Second)))
	e.wantHeads("an earlier one", w, "default/0:early,one+")
	e.apply(queue.Cancel{ID: early, Now: epoch}, queue.Cancel{ID: ahead, Now: epoch})
	e.wantHeads("cancelled", w, "default/0:one,two default/1:")
	c := e.claimOne(epoch)
	e.wantHeads("claimed", w, "")
	e.apply(queue.Release{ID: c.ID, Fence: c.Fence, Now: epoch, RunnableAt: at(time.Minute), Choice: 1})
	h := e.wantHeads("released for later", w, "default/0:two,one")
	if got := h.Lanes[0].Heads[1].Worker; got != "claude" {
		e.Errorf("after its first choice was given up its worker is %q", got)
	}
	c = e.claimOne(at(time.Second))
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Retry: queue.Retry{RunnableAt: at(2 * time.Second)}})
	e.wantHeads("to be retried", w, "default/0:two,one")
	e.claimOne(at(time.Minute))
	e.wantHeads("claimed again", w, "")
	e.apply(queue.Reclaim{Now: at(3 * time.Second), Holders: []string{"tester"}})
	e.wantHeads("reclaimed", w, "default/0:two,one")
	e.apply(queue.Rebase{Now: epoch, After: at(30 * time.Second)})
	e.wantHeads("rebased", w, "default/0:one,two")

	// What is held is in no lane.
	first := e.enqueueOne("first", held(job.HeldForNeeds), runnableAt(at(-time.Minute)))
	e.wantHeads("held", w, "")
	e.apply(queue.Ready{ID: first, Now: at(-time.Minute)})
	e.wantHeads("let go", w, "default/0:first,one+")
	e.apply(queue.Keep{ID: first, For: job.HeldForTeam, Waiting: "the team"})
	e.wantHeads("held again", w, "default/0:one,two")
	e.apply(queue.Keep{ID: first, For: job.HeldForParts}, queue.Conclude{ID: first, Exit: job.ExitSucceeded, Now: epoch})
	e.readHeads(w)
	last := e.enqueueOne("last")
	e.wantHeads("another", w, "default/0:one,last+")
	e.apply(queue.Keep{ID: last, For: job.HeldForParts}, queue.Conclude{ID: last, Exit: job.ExitSucceeded, Now: epoch})
	e.wantHeads("held and concluded in one", w, "default/0:one,two")
	e.apply(queue.Spawn{Batch: e.batch.ID, Entries: []queue.Entry{newEntry("part", priority(3))}})
	h = e.wantHeads("spawned", w, "default/3:part")
	e.apply(queue.Skip{ID: h.Lanes[0].Heads[0].ID, Why: "no need", Now: epoch})
	e.wantHeads("skipped", w, "default/3:")
	asked := e.asked("asked", epoch, func(x *queue.Entry) { x.Spec.Type = job.LLM; x.Spec.Expect.Tokens = 5 }, joined)
	e.readHeads(w)
	e.apply(queue.Decide{ID: asked.ID, Attempt: 1, Now: epoch, Retry: &queue.Retry{RunnableAt: epoch}})
	e.wantHeads("rejected", w, "default/99:asked")

	// Another that asks anew is told all.
	e.wantHeads("all", &watcher{now: epoch}, "all default/0:one,two default/99:asked")
}

// headsQuiet: what a claim takes, and what becomes of that unless it goes back to the
// queue, changes no lane.
func headsQuiet(e *env) {
	for _, name := range []string{"a", "b", "c"} {
		e.enqueueOne(name)
	}
	w := &watcher{now: epoch}
	e.wantHeads("all", w, "all default/0:a,b+")
	signal := e.store.Watch(e.ctx)
	quiet := func(what string) {
		e.Helper()
		select {
		case <-signal:
			e.Errorf("%s: a signal", what)
		default:
		}
		e.wantHeads(what, w, "")
	}
	list := e.claim(2, epoch).Entries
	quiet("claimed")
	a, b := list[0], list[1]
	n := e.begin(a, epoch)
	quiet("begun")
	if _, err := e.store.Extend(e.ctx, []job.Fence{a.Fence}, epoch.Add(time.Hour)); err != nil {
		e.Fatal(err)
	}
	e.apply(queue.Append{Events: []job.Event{event(a.ID, n, 1)}}, queue.Write{Record: queue.Record{Space: "s", Key: "k", At: epoch}})
	e.apply(queue.Cancel{ID: b.ID, Now: epoch}, queue.CloseBatch{ID: e.batch.ID, Now: epoch})
	quiet("cancelled while it runs")
	e.apply(succeed(a, n, epoch, epoch), queue.Finish{ID: b.ID, Fence: b.Fence, Now: epoch, Exit: job.ExitFailed, DeadLetter: "no"})
	quiet("finished")
	e.apply(queue.Drop{ID: b.ID, Now: epoch})
	c := e.claimOne(epoch)
	e.apply(awaitOp(c, e.begin(c, epoch), epoch))
	quiet("waits for a person")
	e.apply(queue.Decide{ID: c.ID, Attempt: 1, Approved: true, Now: epoch})
	e.enqueueOne("held", held(job.HeldForNeeds))
	e.enqueueOne("outside", func(x *queue.Entry) { x.Spec.Type = job.External })
	quiet("held, and for programs outside")
	e.refuse(queue.ErrNotFound, queue.Keep{ID: e.enqueueOne("x"), For: job.HeldForNeeds}, queue.Cancel{ID: "nobody", Now: epoch})
	e.wantHeads("what is refused changes nothing", w, "default/0:x")
}

// headsOfLines: of the entries that have a key, one is in a lane.
func headsOfLines(e *env) {
	w := &watcher{now: epoch}
	k := func(n int) []func(*queue.Entry) {
		return []func(*queue.Entry){tenant("t"), priority(n), duplicate(job.Serialize, "k")}
	}
	e.enqueueOne("first", append(k(2), deadline(epoch.Add(time.Minute)))...)
	e.enqueueOne("second", k(5)...)
	e.enqueueOne("third", k(7)...)
	e.wantHeads("a line", w, "all t/2:first")
	c := e.claimOne(epoch)
	e.wantHeads("the first is claimed", w, "")
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Exit: job.ExitSucceeded})
	h := e.readHeads(w)
	if i := slices.IndexFunc(h.Lanes, func(l queue.LaneHeads) bool { return l.Lane.Priority == 5 }); i < 0 || e.laneText(w, h.Lanes[i]) != "t/5:second" {
		e.Errorf("the second has its turn: told %s", show(h))
	}
	e.enqueueOne("latest", tenant("t"), duplicate(job.LatestWins, "k"))
	h = e.readHeads(w)
	var got []string
	for _, l := range h.Lanes {
		got = append(got, e.laneText(w, l))
	}
	if !slices.Contains(got, "t/5:") || !slices.Contains(got, "t/0:latest") {
		e.Errorf("superseded: told %v", got)
	}
	// What shares a result is in no lane, nor is it after that.
	e.enqueueOne("shares", tenant("t"), priority(1), duplicate(job.Coalesce, "k"))
	e.readHeads(w)
	c = e.claimOne(epoch)
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Exit: job.ExitSucceeded})
	e.wantHeads("shared", w, "")
	e.wantHeads("in the end", &watcher{now: epoch}, "all")
}

// headsOfBatches: a private batch's lanes are its own, together with those of the
// entries of other batches that it waits for.
func headsOfBatches(e *env) {
	private := newBatch("private")
	private.Private = true
	submit := func(entries ...queue.Entry) {
		e.Helper()
		if err := e.store.Enqueue(e.ctx, private, entries); err != nil {
			e.Fatal(err)
		}
	}
	shared, own := &watcher{now: epoch}, &watcher{batch: private.ID, now: epoch}
	e.wantHeads("a batch that is not there", own, "all")
	e.enqueueOne("before", duplicate(job.Serialize, "k"), deadline(epoch.Add(time.Minute)))
	e.wantHeads("shared", shared, "all default/0:before")
	e.wantHeads("what is shared is not its", own, "")
	submit(newEntry("mine"))
	e.wantHeads("its own", own, "default/0:mine")
	e.wantHeads("not what is shared", shared, "")
	signal := e.store.Watch(e.ctx)
	waits := newEntry("waits", duplicate(job.Serialize, "k"), priority(4))
	submit(waits)
	select {
	case <-signal:
	default:
		e.Error("no signal, although the batch has a lane more")
	}
	only := func(what string, want ...string) queue.Heads {
		e.Helper()
		h := e.readHeads(own)
		var got []string
		for _, l := range h.Lanes {
			if l.Lane.Only != "" {
				got = append(got, e.laneText(own, l))
			}
		}
		wantSame(e, what, got, want)
		return h
	}
	if h := only("what it waits for", "default/0:before!"); !h.NextAt.Equal(epoch.Add(time.Minute)) {
		e.Errorf("the first deadline is %v, want that of the one it waits for", h.NextAt)
	}
	only("told each time", "default/0:before!")
	e.apply(queue.Keep{ID: e.heads(queue.HeadsSpec{Each: 1, Now: epoch}).Lanes[0].Heads[0].ID, For: job.HeldForNeeds, Waiting: "needs"})
	only("held")
	e.wantHeads("held", shared, "default/0:")
	own.now = epoch.Add(time.Minute) // before is held, so it is not the batch's to expire
	if h := only("still held"); len(h.Expired) != 0 {
		e.Errorf("expired %v", h.Expired)
	}
	shared.now = own.now
	if h := e.readHeads(shared); len(h.Expired) != 1 || len(h.Lanes) == 0 {
		e.Errorf("told %s, want that what was held has expired", show(h))
	}
	e.wantHeads("its own turn", own, "default/4:waits")

	// A batch that moves between the scopes makes everything unknown.
	e.apply(queue.SetPrivate{ID: private.ID})
	e.wantHeads("no longer private", own, "all")
	e.wantHeads("shared with all", shared, "all default/0:mine default/4:waits")
	e.apply(queue.SetPrivate{ID: private.ID, Private: true, Waiting: "stopped"})
	e.wantHeads("private again", own, "all default/0:mine default/4:waits")
	e.apply(queue.Adopt{})
	e.wantHeads("adopted", shared, "all default/0:mine default/4:waits")
	e.wantHeads("of no batch", own, "all")
}

// headsPages: a lane can be read on from any place.
func headsPages(e *env) {
	var all []queue.Entry
	for i := range 9 {
		all = append(all, newEntry(fmt.Sprint("j", i), runnableAt(epoch.Add(time.Duration(i/3)*time.Second))))
	}
	e.enqueue(all...)
	w, lane := &watcher{now: epoch}, job.Lane{Tenant: job.DefaultTenant}
	e.wantHeads("the first two", w, "all default/0:j0,j1+")
	e.claimOne(epoch)
	w.pages = []queue.Page{
		{Lane: lane, After: queue.Place{RunnableAt: epoch, ID: all[1].ID}, Max: 3},
		{Lane: lane, After: queue.Place{RunnableAt: epoch.Add(2 * time.Second), ID: all[7].ID}, Max: 1},
		{Lane: lane, Max: 2},
		{Lane: lane, After: queue.Place{RunnableAt: epoch.Add(time.Hour)}, Max: 2},
		{Lane: job.Lane{Tenant: "nobody", Priority: 3}, Max: 2},
	}
	h := e.wantHeads("no lane has changed", w, "")
	var got []string
	for _, p := range h.Pages {
		got = append(got, e.laneText(w, p))
	}
	wantSame(e, "pages", got, []string{"default/0:j2,j3,j4+", "default/0:j8", "default/0:j1,j2+", "default/0:", "nobody/3:"})
}

// headsExpire: what is past its deadline has gone from the lanes and is told of.
func headsExpire(e *env) {
	soon, later := epoch.Add(time.Minute), epoch.Add(time.Hour)
	w := &watcher{now: epoch}
	one := e.enqueueOne("one", deadline(soon))
	e.enqueueOne("two", deadline(later), runnableAt(later))
	kept := e.enqueueOne("kept", held(job.HeldForNeeds), deadline(soon.Add(time.Second)))
	e.asked("asked", epoch, deadline(soon))
	if h := e.wantHeads("before", w, "all default/0:one,two"); !h.NextAt.Equal(soon) || len(h.Expired) != 0 {
		e.Errorf("next %v, expired %v; want %v and none", h.NextAt, h.Expired, soon)
	}
	signal := e.store.Watch(e.ctx)
	w.now = soon
	h := e.wantHeads("one is overdue", w, "default/0:two")
	if !slices.Equal(h.Expired, []job.ID{one}) || !h.NextAt.Equal(soon.Add(time.Second)) {
		e.Errorf("next %v, expired %v; want the deadline of what is held, and one", h.NextAt, h.Expired)
	}
	e.wantState(one, job.Expired)
	select {
	case <-signal:
	default:
		e.Error("no signal for who else watches")
	}
	w.now = soon.Add(time.Second)
	if h := e.readHeads(w); !slices.Equal(h.Expired, []job.ID{kept}) || !h.NextAt.Equal(later) {
		e.Errorf("next %v, expired %v; want what is held too", h.NextAt, h.Expired)
	}
	// A claim that lets expire says so to its caller, and the lane to all.
	if c := e.claim(1, later); len(c.Expired) != 1 {
		e.Errorf("claim: %s", show(c))
	}
	w.now = later
	if h := e.wantHeads("expired by a claim", w, "default/0:"); !h.NextAt.IsZero() || len(h.Expired) != 0 {
		e.Errorf("next %v, expired %v; want nothing", h.NextAt, h.Expired)
	}
	// What follows in a line expires with it.
	e.enqueueOne("x", duplicate(job.Serialize, "k"), deadline(later.Add(1)))
	e.enqueueOne("y", duplicate(job.Serialize, "k"), deadline(later.Add(2)))
	e.enqueueOne("z", duplicate(job.Serialize, "k"))
	w.now = later.Add(time.Second)
	if h := e.wantHeads("a line", w, "default/0:z"); len(h.Expired) != 2 {
		e.Errorf("expired %v, want two", h.Expired)
	}
}

// headsOver: a head says whether its owner's grant is used up.
func headsOver(e *env) {
	for _, name := range []string{"p", "q"} {
		e.enqueueOne(name, tenant("a"), agent(job.AgentID(name)))
	}
	e.enqueueOne("other", tenant("b"), agent("p"))
	w := &watcher{now: epoch}
	over := func(what string, now time.Time, want ...string) {
		e.Helper()
		var got []string
		for _, l := range e.heads(queue.HeadsSpec{Each: 9, Now: now}).Lanes {
			for _, h := range l.Heads {
				if h.Over {
					got = append(got, string(l.Lane.Tenant)+"."+string(h.Agent))
				}
			}
		}
		wantSame(e, what, got, want)
	}
	e.readHeads(w)
	over("without a grant", epoch)
	e.grant(queue.Grant{Owner: queue.Owner{Tenant: "a", Agent: "p"}, Tokens: 10, Window: job.Duration(time.Hour)})
	if h := e.readHeads(w); !h.All {
		e.Error("after a grant was set, not all lanes are told")
	}
	over("nothing used", epoch)
	e.work(queue.Owner{Tenant: "a", Agent: "p"}, epoch, job.Usage{InputTokens: 9}, 0)
	over("less than granted", epoch)
	e.work(queue.Owner{Tenant: "a", Agent: "p"}, epoch, job.Usage{InputTokens: 1}, 0)
	over("all used", epoch, "a.p")
	e.reopen()
	over("after a restart", epoch, "a.p")
	over("after the window", epoch.Add(2*time.Hour))
	over("with a clock that was put back", epoch, "a.p")
	e.grant(queue.Grant{Owner: queue.Owner{Tenant: "a"}, Tokens: 5})
	over("the tenant's", epoch, "a.p", "a.q")
	e.claim(0, epoch) // the writer looks at its grants
	over("the tenant's, to the writer", epoch, "a.p", "a.q")
	e.grant(queue.Grant{Owner: queue.Owner{Tenant: "a"}})
	e.claim(0, epoch)
	over("its own again", epoch, "a.p")
	list := e.heads(queue.HeadsSpec{Each: 9, Now: epoch}).Lanes[0].Heads
	ids := []job.ID{list[0].ID, list[1].ID}
	if c := e.claimAs(queue.ClaimSpec{Holder: "tester", IDs: ids, Now: epoch, Lease: lease}); len(c.Entries) != 1 || c.Entries[0].Spec.Agent != "q" {
		e.Errorf("claimed %v by their ids, want q", names(c.Entries))
	}
	if c := e.claimAs(queue.ClaimSpec{Holder: "tester", IDs: ids, Now: epoch, Lease: lease, OverGrants: true}); len(c.Entries) != 1 || c.Entries[0].Spec.Agent != "p" {
		e.Errorf("claimed %v over their grants, want p", names(c.Entries))
	}
}

// headsWhole: whoever asks with a version that means nothing is told all.
func headsWhole(e *env) {
	e.enqueueOne("a")
	e.enqueueOne("b", priority(1))
	w := &watcher{now: epoch}
	e.wantHeads("for the first time", w, "all default/0:a default/1:b")
	past := w.since
	e.enqueueOne("c", priority(2))
	e.wantHeads("what is new", w, "default/2:c")
	e.wantHeads("what is new since before", &watcher{now: epoch, since: past}, "default/2:c")
	e.wantHeads("version 0", &watcher{now: epoch}, "all default/0:a default/1:b default/2:c")
	e.wantHeads("a version from before everything", &watcher{now: epoch, since: 1}, "all default/0:a default/1:b default/2:c")
	e.wantHeads("a version to come", &watcher{now: epoch, since: w.since + 1000}, "all default/0:a default/1:b default/2:c")
	e.reopen()
	e.wantHeads("after a restart", w, "all default/0:a default/1:b default/2:c")
	e.wantHeads("from there on", w, "")
	e.done("d", epoch) // what is forgotten has left the lanes long ago
	e.readHeads(w)
	if ids, err := e.store.Prune(e.ctx, queue.PruneSpec{Before: epoch.Add(1), Max: 9}); err != nil || len(ids) != 1 {
		e.Fatal(ids, err)
	}
	e.wantHeads("forgotten", w, "")
}

func headsRefuses(e *env) {
	lane := job.Lane{Tenant: "t"}
	for what, spec := range map[string]queue.HeadsSpec{
		"no heads":           {},
		"no page":            {Each: 1, Pages: []queue.Page{{Lane: lane}}},
		"another batch":      {Each: 1, Pages: []queue.Page{{Lane: job.Lane{Batch: "b", Tenant: "t"}, Max: 1}}},
		"a lane of one":      {Each: 1, Pages: []queue.Page{{Lane: job.Lane{Tenant: "t", Only: "x"}, Max: 1}}},
		"what is not shared": {Batch: "b", Each: 1, Pages: []queue.Page{{Lane: lane, Max: 1}}},
	} {
		spec.Now = epoch
		if h, err := e.store.Heads(e.ctx, spec); err == nil {
			e.Errorf("%s: %s", what, show(h))
		}
	}
	ended, end := context.WithCancel(e.ctx)
	end()
	if _, err := e.store.Heads(ended, queue.HeadsSpec{Each: 1, Now: epoch}); err == nil {
		e.Error("with a context that has ended: no error")
	}
	s := e.store
	e.readHeads(&watcher{now: epoch})
	e.close()
	if _, err := s.Heads(e.ctx, queue.HeadsSpec{Each: 1, Now: epoch}); err == nil {
		e.Error("a closed store told of heads")
	}
}

// headsWatch: each watcher is told of changes, of several once, as soon as they are
// made, and until its context ends.
func headsWatch(e *env) {
	ended, end := context.WithCancel(e.ctx)
	one, two, gone := e.store.Watch(e.ctx), e.store.Watch(e.ctx), e.store.Watch(ended)
	told := func(w <-chan struct{}) bool {
		select {
		case _, open := <-w:
			if !open {
				e.Error("the channel is closed")
			}
			return open
		default:
			return false
		}
	}
	if told(one) || told(gone) {
		e.Error("told of nothing")
	}
	e.enqueueOne("a")
	e.enqueueOne("b")
	if !told(one) || told(one) || !told(gone) {
		e.Error("want to be told once of two changes")
	}
	e.claimOne(epoch)
	if told(one) {
		e.Error("told of a claim")
	}
	end()
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	if !told(one) || !told(two) {
		e.Error("want to be told of what was given back")
	}
	e.apply(queue.Cancel{ID: e.claimOne(epoch).ID, Now: epoch}, queue.SetGrant{Grant: queue.Grant{Owner: queue.Owner{Tenant: "t"}, Tokens: 1}})
	if !told(one) {
		e.Error("want to be told of a grant")
	}
}

// headsTogether: while others write, a follower that reads what it is told has in the
// end what there is, and on the way nothing that was never there: each writer keeps
// its two lanes so that the second has what the first has.
func headsTogether(e *env) {
	const writers, turns = 4, 40
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	signal := e.store.Watch(ctx)
	var all sync.WaitGroup
	for i := range writers {
		t := job.Tenant(fmt.Sprint("t", i))
		all.Go(func() {
			var last [2]job.ID
			for n := range turns {
				pair := []queue.Entry{newEntry(fmt.Sprint(t, "-", n), tenant(t)), newEntry(fmt.Sprint(t, "-", n), tenant(t), priority(1))}
				pair[0].Spec.Turn, pair[1].Spec.Turn = fmt.Sprint(n), fmt.Sprint(n)
				pair[1].Spec.Name += "x"
				if err := e.store.Enqueue(e.ctx, e.batch, pair); err != nil {
					e.Error(err)
				}
				if n > 0 {
					if err := e.store.Apply(e.ctx, queue.Cancel{ID: last[0], Now: epoch}, queue.Cancel{ID: last[1], Now: epoch}); err != nil {
						e.Error(err)
					}
				}
				last = [2]job.ID{pair[0].ID, pair[1].ID}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	known := map[job.Lane]queue.LaneHeads{}
	var since uint64
	read := func() {
		h := e.heads(queue.HeadsSpec{Since: since, Each: 5, Now: epoch})
		for _, l := range h.Lanes {
			known[l.Lane] = l
		}
		since = h.Version
		for l := range known {
			if a, b := known[l], known[job.Lane{Tenant: l.Tenant, Priority: 1 - l.Priority}]; len(a.Heads) != len(b.Heads) || len(a.Heads) > 2 {
				e.Errorf("of tenant %s there are %d heads and %d", l.Tenant, len(a.Heads), len(b.Heads))
			}
		}
	}
	for working := true; working; {
		select {
		case <-signal:
			read()
		case <-done:
			working = false
		}
	}
	read()
	fresh := e.heads(queue.HeadsSpec{Each: 5, Now: epoch})
	if len(fresh.Lanes) != 2*writers || len(known) != len(fresh.Lanes) {
		e.Errorf("known are %d lanes of %d, want %d", len(known), len(fresh.Lanes), 2*writers)
	}
	for _, l := range fresh.Lanes {
		wantSame(e, "lane", known[l.Lane], l)
	}
	if h := e.heads(queue.HeadsSpec{Since: since, Each: 5, Now: epoch}); h.All || len(h.Lanes) > 0 {
		e.Errorf("told %s, although nothing has changed", show(h))
	}
}
