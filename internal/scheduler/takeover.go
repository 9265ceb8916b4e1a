package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// orphans are runs that an earlier scheduler has left on nodes, by node. Their claims hold
// until their leases end, by which time the runs have ended by themselves.
type orphans map[string]map[job.ID]job.Fence

// leftBehind finds which claims of earlier schedulers go on to hold: those of runs on nodes, and
// those of other schedulers' own hosts. The rest, which it returns, ended with an earlier process of this one.
func (f *fleet) leftBehind(ctx context.Context, held []queue.Entry, earlier func(holder string) bool) (ended []job.Fence, err error) {
	var left schedule.LeftBehind
	nodes := orphans{}
	for i := range held {
		e := &held[i]
		if e.Spec.Type == job.External {
			continue
		}
		attempt, err := f.openAttempt(ctx, e)
		switch {
		case err != nil:
			return nil, err
		case attempt.Node != "":
			if nodes[attempt.Node] == nil {
				nodes[attempt.Node] = map[job.ID]job.Fence{}
			}
			nodes[attempt.Node][e.ID] = e.Fence
		case earlier(e.Holder):
			ended = append(ended, e.Fence)
			continue
		default:
			instance, _, _ := strings.Cut(e.Holder, "/")
			attempt.Node = "of scheduler " + instance // no node's name has a space
		}
		left = append(left, schedule.Takeover{Entry: *e, Attempt: attempt})
	}
	f.mu.Lock()
	f.orphans = nodes
	f.mu.Unlock()
	if len(left) > 0 {
		f.loop.post(left)
	}
	return ended, nil
}

// openAttempt returns the attempt of a claim: the one that has begun, or that it is to make.
func (f *fleet) openAttempt(ctx context.Context, e *queue.Entry) (job.Attempt, error) {
	if e.Attempts > 0 {
		attempts, err := f.store.Attempts(ctx, e.ID)
		if err != nil {
			return job.Attempt{}, err
		}
		if a := attempts[len(attempts)-1]; a.Fence == e.Fence && !a.State.Terminal() {
			return a, nil
		}
	}
	choices := e.Spec.Choices()
	return job.Attempt{Number: e.Attempts + 1, Fence: e.Fence, Choice: choices[min(e.Choice, len(choices)-1)], State: job.Pending}, nil
}

// CoresTakeOver implements supervisor.AwayHandler. What an earlier scheduler began goes on
// under its claim, which is extended here.
func (f *fleet) CoresTakeOver(ctx context.Context, node string, runs []supervisor.HeldRun) ([]supervisor.Verdict, error) {
	verdicts := make([]supervisor.Verdict, len(runs))
	over := map[schedule.CoreID]*schedule.TakenOver{}
	named := map[job.ID]bool{}
	for i, h := range runs {
		t, ok, err := f.takeover(ctx, node, h)
		if err != nil {
			return nil, fmt.Errorf("take over job %s of node %s: %w", h.Job, node, err)
		}
		if !ok {
			continue
		}
		if verdicts[i].Events, t.Usage, err = f.storedOf(ctx, h); err != nil {
			return nil, fmt.Errorf("read what is stored of job %s of node %s: %w", h.Job, node, err)
		}
		verdicts[i].Counts, named[h.Job] = true, true
		if t.Streams, err = f.unstreamed(ctx, &t.Entry); err != nil {
			return nil, fmt.Errorf("look for the stream of job %s of node %s: %w", h.Job, node, err)
		}
		id := f.idOf(h.Core)
		if over[id] == nil {
			over[id] = &schedule.TakenOver{Core: id}
		}
		over[id].Runs = append(over[id].Runs, t)
	}
	for _, e := range over {
		f.loop.post(*e)
		for i := range e.Runs {
			if t := &e.Runs[i]; t.Streams { // nobody feeds its worker: the next one goes on behind what is acknowledged
				f.loop.post(schedule.Stop{Job: t.Entry.ID, How: schedule.Interrupt, Reason: "the stream has its worker start anew: another scheduler leads"})
			}
		}
	}
	return verdicts, f.settleOrphans(ctx, node, named)
}

// CoreHas implements supervisor.AwayHandler.
func (f *fleet) CoreHas(c *supervisor.Core, id job.ID, attempt int) bool {
	_, err := f.runOn(c, id, attempt)
	return err == nil
}

// CoresChanged implements supervisor.AwayHandler.
func (f *fleet) CoresChanged() { f.told() }

// takeover finds out whether a run that a node has still counts.
func (f *fleet) takeover(ctx context.Context, node string, h supervisor.HeldRun) (t schedule.Takeover, ok bool, err error) {
	r := f.loop.run(h.Job)
	switch m := (*member)(nil); {
	case r == nil || r.Attempt != h.Attempt:
		return t, false, nil
	case r.Core != 0:
		m = f.core(r.Core)
		return schedule.Takeover{Entry: r.Entry, Attempt: job.Attempt{Number: r.Attempt}}, m != nil && m.Node() == node, nil
	case r.Node != node:
		return t, false, nil
	}
	lost, err := f.store.Extend(ctx, []job.Fence{r.Entry.Fence}, now().Add(f.lease))
	if err != nil || len(lost) > 0 {
		return t, false, err
	}
	if t.Entry, err = f.store.Get(ctx, h.Job); err != nil {
		return t, false, err
	}
	t.Attempt, err = f.openAttempt(ctx, &t.Entry)
	return t, err == nil && t.Attempt.Number == h.Attempt, err
}

// storedOf returns the number of the last event that is stored of a run, and what those say of
// its usage.
func (f *fleet) storedOf(ctx context.Context, h supervisor.HeldRun) (last int64, usage job.Usage, err error) {
	const page = 1000
	for after := int64(0); ; {
		events, err := f.store.Events(ctx, h.Job, after, page)
		if err != nil {
			return 0, usage, err
		}
		for i := range events {
			e := &events[i]
			after = e.Cursor
			if e.Attempt != h.Attempt {
				continue
			}
			last = max(last, e.Seq)
			if e.Usage != nil {
				usage = usage.Add(*e.Usage)
			}
		}
		if len(events) < page {
			return last, usage, nil
		}
	}
}

// settleOrphans gives jobs back that were left on a node which does not have them any more.
func (f *fleet) settleOrphans(ctx context.Context, node string, named map[job.ID]bool) error {
	f.mu.Lock()
	left := f.orphans[node]
	delete(f.orphans, node)
	f.mu.Unlock()
	op := queue.Reclaim{Now: now(), Message: "node " + node + " ended while this attempt ran"}
	var ids []job.ID
	for id, fence := range left {
		if !named[id] {
			op.Fences, ids = append(op.Fences, fence), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if err := f.store.Apply(ctx, op); err != nil {
		return fmt.Errorf("take back what node %s has lost: %w", node, err)
	}
	for _, id := range ids {
		f.loop.post(schedule.Lapsed{ID: id})
		f.feed.publishEntry(ctx, id)
	}
	return nil
}

// stored tells a run's core that events of it are stored.
func (f *fleet) stored(r *schedule.Run, events []job.Event) {
	if m := f.core(r.Core); m != nil && len(events) > 0 {
		m.Recorded(r.Entry.ID, r.Attempt, events[len(events)-1].Seq, false)
	}
}

// over tells a run's core, or the host of one that is down, that nothing more is stored of it.
func (f *fleet) over(r *schedule.Run) {
	if m := f.core(r.Core); m != nil {
		m.Recorded(r.Entry.ID, r.Attempt, 0, true)
		return
	}
	f.mu.Lock()
	c := f.mourned[r.Core]
	f.mu.Unlock()
	if c == nil {
		return
	}
	c.Recorded(r.Entry.ID, r.Attempt, 0, true)
	if !slices.ContainsFunc(f.loop.runs(), func(other *schedule.Run) bool {
		return other.Core == r.Core && other.Entry.ID != r.Entry.ID
	}) {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mourned, r.Core)
	}
}
