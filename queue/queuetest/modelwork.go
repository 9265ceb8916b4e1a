package queuetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// The random calls of a machine rarely come far with one entry: these take some
// on, so that what can only follow later is met often.

// submit enqueues entries with names of their own.
func (m *machine) submit(r *rapid.T) {
	batch := rapid.SampledFrom(m.batches).Draw(r, "submitted to")
	entries := m.entries(r)
	for range 2 {
		entries = append(entries, m.entry(r, false))
	}
	m.sameError(r, "submit", m.real.Enqueue(m.ctx, batch, entries), m.oracle.enqueue(batch, entries))
}

// work claims what there is of a batch and begins an attempt of each.
func (m *machine) work(r *rapid.T) {
	spec := queue.ClaimSpec{Holder: "worker", Max: 3, Now: m.now, Lease: time.Minute,
		Batch: rapid.SampledFrom([]job.BatchID{"", m.batches[0].ID, m.batches[1].ID}).Draw(r, "work of")}
	for _, e := range m.claimBoth(r, spec, spec) {
		begin := queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: e.Attempts + 1, State: job.Pending, Started: m.now, Choice: job.Choice{Worker: "claude"}}}
		m.applyBoth(r, begin, queue.Move{ID: e.ID, Fence: e.Fence, Attempt: e.Attempts + 1, To: job.Running})
	}
}

// ask lets an entry whose attempt runs wait for a person.
func (m *machine) ask(r *rapid.T) {
	running, _ := m.oracle.list(queue.Filter{States: []job.EntryState{job.Dispatched}})
	for _, e := range running {
		if e.Attempts > 0 && rapid.Bool().Draw(r, "this one") {
			m.applyBoth(r, m.awaitOf(r, e))
			return
		}
	}
}

// keepOrLetGo keeps a queued entry back, or lets one go that is.
func (m *machine) keepOrLetGo(r *rapid.T) {
	queued, _ := m.oracle.list(queue.Filter{States: []job.EntryState{job.Queued}})
	if len(queued) == 0 {
		return
	}
	e := rapid.SampledFrom(queued).Draw(r, "kept")
	if e.Held == job.HeldForNeeds || e.Held == job.HeldForTeam || e.Held == job.HeldForWords || e.Held == job.HeldByPerson {
		m.applyBoth(r, queue.Ready{ID: e.ID, Now: m.now})
		return
	}
	m.applyBoth(r, queue.Keep{ID: e.ID, For: m.hold(r), Waiting: "kept"})
}

// answer decides about what a person is asked, or concludes what is held.
func (m *machine) answer(r *rapid.T) {
	held, _ := m.oracle.list(queue.Filter{Held: []job.Hold{job.HeldForApproval, job.HeldForParts, job.HeldForTeam}})
	if len(held) == 0 {
		return
	}
	switch e := rapid.SampledFrom(held).Draw(r, "answered"); e.Held {
	case job.HeldForApproval:
		m.applyBoth(r, m.decideOf(r, e, e.Attempts))
	default:
		m.applyBoth(r, m.concludeOf(r, e))
	}
}

// all takes new entries through everything: claim, attempt, question, answer.
func (m *machine) all(r *rapid.T) {
	m.submit(r)
	m.work(r)
	m.ask(r)
	if rapid.Bool().Draw(r, "with a hold") {
		m.keepOrLetGo(r)
	}
	m.answer(r)
}

// claimIDs claims entries by their ids, of which some cannot be claimed.
func (m *machine) claimIDs(r *rapid.T) {
	spec := queue.ClaimSpec{Holder: "chooser", Now: m.now, Lease: 5 * time.Second,
		Batch: rapid.SampledFrom([]job.BatchID{"", m.batches[0].ID, m.batches[1].ID, m.batches[2].ID}).Draw(r, "ids of batch"),
		Count: rapid.Bool().Draw(r, "count with ids"),
	}
	spec.External = spec.Batch == "" && rapid.IntRange(0, 4).Draw(r, "external ids") == 0
	queued, _ := m.oracle.list(queue.Filter{States: []job.EntryState{job.Queued}})
	for range rapid.IntRange(1, 5).Draw(r, "ids") {
		e := m.target(r)
		if len(queued) > 0 && rapid.IntRange(0, 3).Draw(r, "a queued one") > 0 {
			e = rapid.SampledFrom(queued).Draw(r, "by id")
		}
		spec.IDs = append(spec.IDs, e.ID)
	}
	m.claimBoth(r, spec, spec)
}
