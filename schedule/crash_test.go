package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// TestCrashes plays jobs to their ends while the scheduler, the core or both die between any
// two of commit, call and tell. However that falls, each job ends once, no attempt is handed
// out twice or to two cores at once, what an attempt spent is counted once, and at most as
// many runs as there are slots go on at any time.
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &host{T: rt, pilot: newPilot(t), runs: map[job.ID]int{}, submitted: map[string]bool{}, ended: map[job.ID]int{}}
		for n := range rapid.IntRange(1, 6).Draw(rt, "jobs") {
			h.add(task(n, "t", 0))
		}
		h.boot()
		for range rapid.IntRange(10, 80).Draw(rt, "steps") {
			h.act(rapid.IntRange(0, 11).Draw(rt, "act"))
		}
		for n := 0; len(h.inState(job.Queued))+len(h.inState(job.Dispatched)) > 0; n++ {
			if n == 1000 {
				rt.Fatalf("after 1000 further steps jobs are left: %v", h.works)
			}
			h.now = h.now.Add(time.Minute)
			h.step(schedule.Tick{}, schedule.Changed{})
			h.collect()
			for len(h.works) > 0 {
				h.answerWork(0, 2)
			}
			h.endRuns()
		}
		for _, r := range h.rows {
			if h.ended[r.ID] != 1 {
				rt.Errorf("%s has ended %d times", r.ID, h.ended[r.ID])
			}
		}
	})
}

// host is a world with one core that can die, as can the machine.
type host struct {
	*rapid.T
	*pilot
	works     []schedule.Work
	core      schedule.CoreID
	runs      map[job.ID]int  // attempts that the core runs
	submitted map[string]bool // attempts that were handed out, ever
	ended     map[job.ID]int
}

// boot starts a machine on what the store holds: what was in flight is taken back, as lost.
func (h *host) boot() {
	for _, r := range h.inState(job.Dispatched) {
		r.state = job.Queued
		h.touch(r.lane)
	}
	clear(h.runs)
	h.works = nil
	h.m = schedule.New(func() schedule.Config {
		c := flightConfig()
		c.Policy, c.Scopes, c.Bounds.Slots = h.policyOfTest(), []job.BatchID{""}, 2
		return c
	}())
	h.core++
	h.step(schedule.Cores{{ID: h.core, Index: 1, Takes: true}})
	h.collect()
}

// collect answers reads and claims, and keeps the Works.
func (h *host) collect() {
	for {
		h.works = append(h.works, h.ready.Work...)
		h.ready.Work = nil
		answers := h.answers()
		if len(answers) == 0 {
			return
		}
		h.step(answers...)
	}
}

func (h *host) act(n int) {
	switch {
	case n < 6 && len(h.works) > 0:
		h.answerWork(rapid.IntRange(0, len(h.works)-1).Draw(h.T, "work"), 2)
	case n < 8:
		h.endRuns()
	case n == 8: // the scheduler dies in the middle of a Work: committed and not called, or called and not told
		if len(h.works) > 0 {
			h.answerWork(rapid.IntRange(0, len(h.works)-1).Draw(h.T, "work"), rapid.IntRange(0, 1).Draw(h.T, "until"))
		}
		h.boot()
	case n == 9:
		h.boot()
	case n == 10: // the core dies, and everything of it is gone
		gone := h.core
		h.core++
		clear(h.runs)
		h.step(schedule.Cores{{ID: h.core, Index: 1, Takes: true}}, schedule.CoreGone{ID: gone, Cause: errors.New("killed")})
	default:
		h.now = h.now.Add(time.Second)
		h.step(schedule.Tick{}, schedule.Changed{})
	}
	h.collect()
}

// answerWork does a Work up to a point: 0 commits it, 1 makes its call, 2 answers it.
func (h *host) answerWork(i, until int) {
	w := h.works[i]
	h.works = slices.Delete(h.works, i, i+1)
	h.commit(w.Ops)
	if until == 0 {
		return
	}
	done := schedule.Done{Job: w.Job}
	switch c := w.Call.(type) {
	case schedule.AskPermit:
		if c.Run.Core != h.core {
			done.Called = errors.New("no such core")
			break
		}
		done.Permit.Permit = &ipc.Permit{ID: "p"}
	case schedule.Submit:
		key := fmt.Sprint(w.Job, " ", c.Job.Attempt)
		switch {
		case c.Run.Core != h.core:
			done.Called = errors.New("no such core")
		case h.submitted[key]:
			h.T.Fatalf("attempt %s was handed out twice", key)
		default:
			if h.runs[w.Job] > 0 {
				h.T.Fatalf("%s runs already", w.Job)
			}
			h.submitted[key], h.runs[w.Job] = true, c.Job.Attempt
			if len(h.runs) > 2 {
				h.T.Fatalf("%d runs in 2 slots", len(h.runs))
			}
		}
	}
	if until == 1 {
		return
	}
	h.step(done, schedule.Changed{})
	h.collect()
}

// commit stores ops as far as they concern this test.
func (h *host) commit(ops []queue.Op) {
	h.apply(ops)
	for _, op := range ops {
		if end, ok := op.(queue.Finish); ok && end.Exit != "" {
			h.ended[end.ID]++
		}
	}
}

// endRuns ends one of the core's runs, well or not.
func (h *host) endRuns() {
	var ids []job.ID
	for id := range h.runs {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := ids[rapid.IntRange(0, len(ids)-1).Draw(h.T, "run")]
	o := outcome([]string{"completed", "SERVER", "cancelled"}[rapid.IntRange(0, 2).Draw(h.T, "outcome")], h.now)
	h.step(schedule.Ended{Core: h.core, Job: id, Attempt: h.runs[id], Outcome: o})
	delete(h.runs, id)
	h.collect()
}
