package queuetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// model does the same random things to the store and to the oracle and
// compares every answer, and in between and at the end all that is stored.
func model(t *testing.T, open func(t *testing.T, dir string) queue.Store) {
	root := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(root, "model")
		if err != nil {
			r.Fatal(err)
		}
		m := &machine{
			ctx: t.Context(), real: open(t, dir), now: epoch,
			reopen: func() queue.Store { return open(t, dir) },
			realOf: map[job.Fence]job.Fence{}, oracleOf: map[job.Fence]job.Fence{},
			batches: []queue.Batch{newBatch("one"), newBatch("two"), newBatch("shared")},
		}
		m.batches[0].Private, m.batches[1].Private = true, true
		for _, b := range append(m.batches, m.batches[2]) { // one of them has two
			m.followers = append(m.followers, &follower{batch: b.ID})
		}
		for _, id := range []job.BatchID{"", m.batches[0].ID, m.batches[1].ID, m.batches[2].ID} {
			m.headFollowers = append(m.headFollowers, &headFollower{batch: id})
		}
		m.watch = m.real.Watch(m.ctx)
		defer func() {
			if err := m.real.Close(); err != nil {
				r.Errorf("close: %v", err)
			}
			os.RemoveAll(dir)
		}()
		r.Repeat(map[string]func(*rapid.T){
			"enqueue": m.enqueue, "claim": m.claim, "apply": m.apply, "apply2": m.apply, "flow": m.applyFlow, "flow2": m.applyFlow, "submit": m.submit, "work": m.work,
			"ask": m.ask, "hold": m.keepOrLetGo, "answer": m.answer, "all": m.all, "extend": m.extend,
			"reclaim": m.reclaim, "time": m.passTime, "list": m.list, "survey": m.survey, "follow": m.follow, "heads": m.followHeads, "heads2": m.followHeads, "claim ids": m.claimIDs, "reopen": m.openAgain,
		})
		m.compareAll(r)
	})
}

// machine drives both stores. It speaks in the oracle's fences; the real
// store's numbers may have gaps, so they are translated on the way.
type machine struct {
	ctx    context.Context
	real   queue.Store
	oracle memory
	reopen func() queue.Store
	now    time.Time

	realOf, oracleOf map[job.Fence]job.Fence
	batches          []queue.Batch
	followers        []*follower
	headFollowers    []*headFollower
	watch            <-chan struct{}
	signalled        uint64 // the oracle's version when watch was looked at last
	made             int    // entries ever made, for their ids and names
}

func (m *machine) enqueue(r *rapid.T) {
	batch, entries := rapid.SampledFrom(m.batches).Draw(r, "batch"), m.entries(r)
	m.sameError(r, "enqueue", m.real.Enqueue(m.ctx, batch, entries), m.oracle.enqueue(batch, entries))
}

// entries draws new entries, some of them held.
func (m *machine) entries(r *rapid.T) (entries []queue.Entry) {
	for range rapid.IntRange(0, 4).Draw(r, "entries") {
		entries = append(entries, m.entry(r, rapid.IntRange(0, 9).Draw(r, "again") == 0))
	}
	return entries
}

// entry draws a new entry, with another's name and id if it is to be one again.
func (m *machine) entry(r *rapid.T, again bool) queue.Entry {
	m.made++
	n := m.made
	if again {
		n = rapid.IntRange(1, m.made).Draw(r, "which") // perhaps a duplicate
	}
	e := newEntry(fmt.Sprintf("j%d", n),
		priority(rapid.IntRange(-1, 1).Draw(r, "priority")),
		runnableAt(m.moment(r, "runnable at")),
		tenant(rapid.SampledFrom([]job.Tenant{"a", "b"}).Draw(r, "tenant")),
		class(rapid.SampledFrom(append(job.Classes(), "")).Draw(r, "class")))
	e.Spec.Agent = rapid.SampledFrom([]job.AgentID{"", "p"}).Draw(r, "agent")
	if rapid.IntRange(0, 3).Draw(r, "requeues") == 0 {
		e.RequeuedFrom = m.someDeadLetter(r)
	}
	if rapid.IntRange(0, 4).Draw(r, "goes on") == 0 {
		if list, _ := m.oracle.list(queue.Filter{}); len(list) > 0 {
			e.Continues = rapid.SampledFrom(list).Draw(r, "from").ID
			e.Folder, e.ForkedFrom = e.Continues, e.Continues
		}
	}
	if rapid.Bool().Draw(r, "has policy") {
		duplicate(rapid.SampledFrom(job.DuplicatePolicies()).Draw(r, "policy"), rapid.SampledFrom([]string{"k", "k", "l"}).Draw(r, "key"))(&e)
	}
	if rapid.IntRange(0, 4).Draw(r, "external") == 0 {
		e.Spec.Type = job.External
	}
	// The order of ids is not the order of submission.
	e.ID = job.ID(fmt.Sprintf("%02x-%d", n*37%256, n))
	if rapid.IntRange(0, 2).Draw(r, "has deadline") == 0 {
		deadline(m.moment(r, "deadline"))(&e)
	}
	if rapid.IntRange(0, 3).Draw(r, "is held") == 0 {
		e.Held, e.Waiting = job.HeldForNeeds, "needs another"
	}
	return e
}

func (m *machine) claim(r *rapid.T) {
	spec := queue.ClaimSpec{
		Holder: "tester", Max: rapid.IntRange(1, 5).Draw(r, "max"), Now: m.now, Count: rapid.Bool().Draw(r, "count"),
		Lease: time.Duration(rapid.IntRange(1, 20).Draw(r, "lease")) * time.Second,
		Batch: rapid.SampledFrom([]job.BatchID{"", "", m.batches[0].ID, m.batches[1].ID, m.batches[2].ID}).Draw(r, "of batch"),
	}
	spec.External = spec.Batch == "" && rapid.IntRange(0, 3).Draw(r, "claims external") == 0
	if refused := rapid.IntRange(0, 5).Draw(r, "admit"); refused > 2 {
		// Depends on the entry alone, so both are told the same.
		spec.Admit = func(e *queue.Entry) bool { return len(e.Spec.Name)+int(e.ID[0])%refused > refused }
	}
	if rapid.IntRange(0, 5).Draw(r, "none") == 0 {
		spec.Max = 0
	}
	m.claimBoth(r, spec, spec)
}

// claimBoth claims from both stores and returns what the oracle gave.
func (m *machine) claimBoth(r *rapid.T, spec, asOracle queue.ClaimSpec) []queue.Entry {
	got, err := m.real.Claim(m.ctx, spec)
	if err != nil {
		r.Fatalf("claim: %v", err)
	}
	want := m.oracle.claim(asOracle)
	for i := range min(len(got.Entries), len(want.Entries)) {
		m.realOf[want.Entries[i].Fence], m.oracleOf[got.Entries[i].Fence] = got.Entries[i].Fence, want.Entries[i].Fence
	}
	slices.Sort(got.Expired)
	slices.Sort(want.Expired)
	m.translate(got.Entries)
	for _, e := range got.Entries {
		if e.Held != "" {
			r.Fatalf("claimed %s, which is held for %s", e.ID, e.Held)
		}
	}
	wantSame(r, "claims", got, want)
	return want.Entries
}

func (m *machine) extend(r *rapid.T) {
	var oracles, reals []job.Fence
	for range rapid.IntRange(0, 3).Draw(r, "fences") {
		f := job.Fence(rapid.IntRange(0, int(m.oracle.fence)).Draw(r, "fence"))
		oracles, reals = append(oracles, f), append(reals, m.realOf[f])
	}
	until := m.now.Add(time.Duration(rapid.IntRange(-5, 30).Draw(r, "until")) * time.Second)
	lost, err := m.real.Extend(m.ctx, reals, until)
	if err != nil {
		r.Fatalf("extend: %v", err)
	}
	for i, f := range lost {
		lost[i] = m.oracleOf[f]
	}
	wantSame(r, "lost fences", lost, m.oracle.extend(oracles, until))
}

func (m *machine) reclaim(r *rapid.T) {
	op := queue.Reclaim{Now: m.now, Message: "gone", Lapsed: rapid.Bool().Draw(r, "lapsed")}
	if rapid.IntRange(0, 3).Draw(r, "holders") == 0 {
		op.Holders = []string{"nobody", rapid.SampledFrom([]string{"tester", "worker", "chooser"}).Draw(r, "holder")}
	}
	for range rapid.IntRange(0, 2).Draw(r, "fences") {
		op.Fences = append(op.Fences, job.Fence(rapid.IntRange(1, int(m.oracle.fence)+1).Draw(r, "fence")))
	}
	m.applyBoth(r, op)
}

func (m *machine) passTime(r *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 10_000).Draw(r, "ms")) * time.Millisecond)
}

func (m *machine) openAgain(r *rapid.T) {
	if rapid.IntRange(0, 4).Draw(r, "really") > 0 {
		return
	}
	if err := m.real.Close(); err != nil {
		r.Fatalf("close: %v", err)
	}
	m.real = m.reopen()
	m.oracle.version++
	m.watch, m.signalled, m.oracle.floor = m.real.Watch(m.ctx), m.oracle.version, m.oracle.version
	m.compareAll(r)
}

// moment draws a time around now.
func (m *machine) moment(r *rapid.T, what string) time.Time {
	return m.now.Add(time.Duration(rapid.IntRange(-2, 10).Draw(r, what)) * time.Second)
}

func (m *machine) sameError(r *rapid.T, what string, got, want error) {
	for _, sentinel := range []error{queue.ErrIllegalTransition, queue.ErrNotFound, queue.ErrFenced, queue.ErrDuplicate, queue.ErrDeadOwner, queue.ErrExists, nil} {
		if errors.Is(got, sentinel) != errors.Is(want, sentinel) {
			r.Fatalf("%s: got error %v, want %v", what, got, want)
		}
	}
}

// translate turns the real store's fences into the oracle's.
func (m *machine) translate(entries []queue.Entry) {
	for i := range entries {
		entries[i].Fence = m.oracleOf[entries[i].Fence]
	}
}

func (m *machine) list(r *rapid.T) {
	f := queue.Filter{
		Batch:  rapid.SampledFrom([]job.BatchID{"", m.batches[0].ID}).Draw(r, "list batch"),
		Tenant: rapid.SampledFrom([]job.Tenant{"", "", "a"}).Draw(r, "list tenant"),
		States: rapid.SampledFrom([][]job.EntryState{nil, {job.Queued}, {job.Dispatched}, {job.Completed, job.Queued}}).Draw(r, "list states"),
		Prefix: rapid.SampledFrom([]string{"", "", "2", "4a"}).Draw(r, "list prefix"),
		Limit:  rapid.IntRange(0, 4).Draw(r, "limit"), Offset: rapid.IntRange(0, 4).Draw(r, "offset"),
		Agent: rapid.SampledFrom([]job.AgentID{"", "", "p"}).Draw(r, "list agent"), DeadLetters: rapid.IntRange(0, 3).Draw(r, "dead letters") == 0,
		External:   rapid.IntRange(0, 4).Draw(r, "list external") == 0,
		ErrorClass: rapid.SampledFrom([]job.ErrorClass{"", "", job.Crash, job.Timeout}).Draw(r, "list class"),
		Newest:     rapid.Bool().Draw(r, "newest"), CancelRequested: rapid.IntRange(0, 4).Draw(r, "cancel requested") == 0,
	}
	f.Runs = rapid.SampledFrom([][]job.RunState{nil, nil, {job.Pending}, {job.WaitingApproval, job.Running}, {job.RunFailed}, {job.RunCancelled, job.RunCompleted}}).Draw(r, "list runs")
	f.Joined = rapid.IntRange(0, 4).Draw(r, "list joined") == 0
	if rapid.IntRange(0, 2).Draw(r, "list held") == 0 {
		f.Held = []job.Hold{job.HeldForApproval, m.hold(r)}
	}
	if rapid.IntRange(0, 2).Draw(r, "has since") == 0 {
		f.Since = m.moment(r, "since").Add(-5 * time.Second)
	}
	switch other := m.target(r).ID; rapid.IntRange(0, 5).Draw(r, "relation") {
	case 0:
		f.CoalescedWith = other
	case 1:
		f.SupersededBy = other
	}
	f.Worker = rapid.SampledFrom([]job.WorkerKind{"", "", "", "codex", "claude", "none"}).Draw(r, "list worker")
	f.Search = rapid.SampledFrom([]string{"", "", "", "J1", "do j2", "4A-", "CLAUD", "a", "%"}).Draw(r, "search")
	m.compareList(r, f)
	f.Offset = 0
	m.comparePages(r, f)
}

func (m *machine) compareList(r *rapid.T, f queue.Filter) {
	got, total, err := m.real.List(m.ctx, f)
	if err != nil {
		r.Fatalf("list: %v", err)
	}
	m.translate(got)
	want, wantTotal := m.oracle.list(f)
	wantSame(r, "entries of "+show(f), got, want)
	if total != wantTotal {
		r.Fatalf("total of %s: got %d, want %d", show(f), total, wantTotal)
	}
}

// compareAll compares everything that the two stores hold.
func (m *machine) compareAll(r *rapid.T) {
	m.compareList(r, queue.Filter{})
	for _, f := range m.followers {
		m.followOne(r, f)
	}
	m.compareAccounts(r)
	m.compareJournal(r)
	m.compareRules(r)
	batches, err := m.real.Batches(m.ctx, "")
	if err != nil {
		r.Fatalf("batches: %v", err)
	}
	slices.Reverse(batches)
	wantSame(r, "batches", batches, m.oracle.batches)
	for _, want := range m.oracle.records {
		attempts, err := m.real.Attempts(m.ctx, want.ID)
		if err != nil {
			r.Fatalf("attempts: %v", err)
		}
		for i := range attempts {
			attempts[i].Fence = m.oracleOf[attempts[i].Fence]
		}
		wantSame(r, "attempts", attempts, m.oracle.attemptsOf(want))
		stored, err := m.real.Events(m.ctx, want.ID, 0, 1000)
		if err != nil {
			r.Fatalf("events: %v", err)
		}
		var events []job.Event
		for _, s := range stored {
			events = append(events, s.Event)
		}
		wantSame(r, "events", events, want.events)
	}
}
