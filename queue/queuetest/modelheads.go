package queuetest

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// headFollower knows the lanes of a batch by what it is told of them.
type headFollower struct {
	batch     job.BatchID
	since, as uint64 // the version of the real store, and that of the oracle
	lanes     map[job.Lane]followedLane
}

type followedLane struct {
	queue.LaneHeads
	fences map[job.ID]job.Fence // of the heads, when it was told
}

// followHeads asks both stores for what has changed in the lanes of a batch, and
// compares what a follower makes of it with what there is.
func (m *machine) followHeads(r *rapid.T) {
	f := rapid.SampledFrom(m.headFollowers).Draw(r, "head follower")
	spec := queue.HeadsSpec{Batch: f.batch, Since: f.since, Each: rapid.IntRange(1, 3).Draw(r, "each"), Now: m.now}
	asOracle := spec
	if asOracle.Since = f.as; rapid.IntRange(0, 9).Draw(r, "all anew") == 0 {
		spec.Since, asOracle.Since = 0, 0
	}
	for range rapid.IntRange(0, 2).Draw(r, "pages") {
		p := queue.Page{Lane: m.lane(r, f.batch), Max: rapid.IntRange(1, 3).Draw(r, "page of")}
		if rapid.Bool().Draw(r, "behind one") {
			e := m.target(r)
			p.After = queue.Place{RunnableAt: e.RunnableAt, ID: e.ID}
		}
		spec.Pages = append(spec.Pages, p)
	}
	asOracle.Pages = spec.Pages
	m.compareSignal(r)
	got, err := m.real.Heads(m.ctx, spec)
	if err != nil {
		r.Fatalf("heads: %v", err)
	}
	want := m.oracle.heads(asOracle)
	slices.Sort(got.Expired)
	slices.Sort(want.Expired)
	wantSame(r, "expired", got.Expired, want.Expired)
	wantSame(r, "pages", got.Pages, want.Pages)
	if got.All != want.All || !got.NextAt.Equal(want.NextAt) {
		r.Fatalf("heads: all %v, next %v; want %v, %v", got.All, got.NextAt, want.All, want.NextAt)
	}
	if got.All {
		wantSame(r, "all lanes", got.Lanes, want.Lanes)
	}
	for _, l := range want.Lanes {
		if !slices.ContainsFunc(got.Lanes, func(x queue.LaneHeads) bool { return x.Lane == l.Lane }) {
			r.Fatalf("not told that %s has changed", show(l.Lane))
		}
	}
	for i, l := range got.Lanes {
		wantSame(r, "lane", l, m.oracle.laneHeads(l.Lane, queue.Place{}, spec.Each))
		if i > 0 && got.Lanes[i-1].Lane.Compare(l.Lane) >= 0 {
			r.Fatalf("lanes in the order %s", show(got.Lanes))
		}
	}
	f.since, f.as = got.Version, want.Version
	f.take(m, got)
	f.compare(r, m)
}

// lane draws a lane of entries of a batch.
func (m *machine) lane(r *rapid.T, batch job.BatchID) job.Lane {
	return job.Lane{Batch: batch, Tenant: rapid.SampledFrom([]job.Tenant{"a", "b"}).Draw(r, "lane tenant"), Priority: rapid.IntRange(-1, 1).Draw(r, "lane priority")}
}

func (f *headFollower) take(m *machine, h queue.Heads) {
	for l := range f.lanes {
		if h.All || l.Only != "" {
			delete(f.lanes, l)
		}
	}
	if f.lanes == nil {
		f.lanes = map[job.Lane]followedLane{}
	}
	for _, l := range h.Lanes {
		fences := map[job.ID]job.Fence{}
		for _, head := range l.Heads {
			if r, err := m.oracle.find(head.ID); err == nil {
				fences[head.ID] = r.Fence
			}
		}
		f.lanes[l.Lane] = followedLane{l, fences}
	}
}

// compare compares what is known to stand first in each lane with what does. Of what
// was claimed since it was told, the lanes do not tell.
func (f *headFollower) compare(r *rapid.T, m *machine) {
	fresh := m.oracle.heads(queue.HeadsSpec{Batch: f.batch, Each: math.MaxInt, Now: m.now})
	lanes := map[job.Lane][]queue.Head{}
	for l := range f.lanes {
		lanes[l] = nil
	}
	for _, l := range fresh.Lanes {
		lanes[l.Lane] = l.Heads
	}
	for l, want := range lanes {
		known := f.lanes[l]
		heads := slices.DeleteFunc(slices.Clone(known.Heads), func(h queue.Head) bool {
			x, err := m.oracle.find(h.ID)
			return err == nil && x.Fence > known.fences[h.ID]
		})
		if len(heads) > len(want) || len(heads) < len(want) && !known.More {
			r.Fatalf("known of lane %s is %s, want %s", show(l), show(known), show(want))
		}
		wantSame(r, "known of a lane", heads, want[:len(heads)])
	}
}

// compareSignal fails the test if lanes have changed and nobody was told.
func (m *machine) compareSignal(r *rapid.T) {
	raised := m.oracle.floor > m.signalled
	for _, at := range m.oracle.changed {
		raised = raised || at > m.signalled
	}
	m.signalled = m.oracle.version
	select {
	case <-m.watch:
	default:
		if raised {
			r.Fatalf("no signal, although lanes have changed")
		}
	}
}
