package schedule

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// RunEvent is an event of a run, as its core has told it.
type RunEvent struct {
	Core  CoreID
	Event job.Event
}

// flushAfter is how long an event may wait to be stored: long enough that a burst shares
// one commit.
const flushAfter = 50 * time.Millisecond

// runEvent takes one event.
func (fs *flights) runEvent(at time.Time, e RunEvent) {
	f := fs.all[e.Event.Job]
	if f == nil || f.run == nil || f.run.Attempt != e.Event.Attempt || f.run.Core != e.Core || f.phase < beginning {
		return
	}
	if len(f.events) == 0 {
		f.since = at
		fs.unstored[e.Event.Job] = f
	}
	f.events = append(f.events, e.Event)
	fs.buffered++
	switch e.Event.Kind {
	case job.EventUsage:
		if u := e.Event.Usage; u != nil {
			f.usage = f.usage.Add(*u)
			fs.cores.charge(at, f, u.CostUSD)
		}
	case job.EventSession:
		f.session = e.Event.Session
	case job.EventState:
		f.started = f.started || e.Event.State == job.Running
		switch e.Event.Change {
		case job.WaitsForJobs:
			fs.lend(f, true)
		case job.WaitedForJobs:
			fs.lend(f, false)
		}
	}
	told := Progress{f.run, e.Event, f.usage}
	if f.phase == beginning {
		f.early = append(f.early, told)
		return
	}
	fs.ready.Tell = append(fs.ready.Tell, told)
}

// lend has a run that waits for others hold no slot, or take it again.
func (fs *flights) lend(f *flight, lent bool) {
	if f.lent == lent {
		return
	}
	n := 1
	if f.lent = lent; !lent {
		n = -1
	}
	fs.room.lend(f.uses, n)
	fs.cores.hosts.lend(f.host, n)
	if lent {
		fs.backlog.again()
	}
}

// flush stores the events of all flights once the oldest has waited for long enough: they
// share a commit then.
func (fs *flights) flush(at time.Time) {
	fs.flushAt = time.Time{}
	for _, f := range fs.unstored {
		if !f.busy && f.phase == running {
			fs.flushAt = earlier(fs.flushAt, f.since.Add(flushAfter))
		}
	}
	if !due(fs.flushAt, at) {
		return
	}
	fs.flushAt = time.Time{}
	for _, id := range sorted(fs.unstored) {
		if f := fs.unstored[id]; !f.busy && f.phase == running {
			ops, told := fs.takeEvents(f)
			fs.do(f, Work{Ops: ops, Tell: told})
		}
	}
}

// takeEvents returns, as ops, the events of a flight that wait to be stored, with the moves
// of state and session that they bring.
func (fs *flights) takeEvents(f *flight) ([]queue.Op, []Told) {
	if len(f.events) == 0 {
		return nil, nil
	}
	ops := []queue.Op{queue.Append{Events: f.events}}
	for i := range f.events {
		e := &f.events[i]
		move := queue.Move{ID: f.run.Entry.ID, Fence: f.run.Entry.Fence, Attempt: f.run.Attempt, Session: e.Session}
		if e.Kind == job.EventState {
			switch {
			case e.State == job.Running && (!f.moved || f.asking):
				f.moved, f.asking, move.To = true, false, job.Running
			case e.State == job.WaitingApproval && f.moved && !f.asking:
				f.asking, move.To = true, job.WaitingApproval
				move.Waiting = job.Waiting{Reason: job.WaitApproval, Text: e.Text}.String()
			}
		}
		if move.To != "" || move.Session != "" {
			ops = append(ops, move)
		}
	}
	told := []Told{Stored{f.run, f.events}}
	fs.buffered -= len(f.events)
	f.events = nil
	delete(fs.unstored, f.run.Entry.ID)
	return ops, told
}
