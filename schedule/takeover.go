package schedule

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// LeftBehind says which claims of earlier schedulers still hold when this one begins: their
// runs may be alive on hosts that have not come yet. They count in every limit, and nothing
// is asked of them, until a host that has them comes (TakenOver) or their claims end (Lapsed).
type LeftBehind []Takeover

// TakenOver says that a core has runs that were begun by an earlier life of the conversation
// with it: by an earlier scheduler, or by this one before it lost sight of the core. They move
// to the core, and go on from where they are stored.
type TakenOver struct {
	Core CoreID
	Runs []Takeover
}

// Takeover is one run.
type Takeover struct {
	Entry   queue.Entry // dispatched, with its fence
	Attempt job.Attempt // its last one, which has not ended, or the one that its claim makes
	Usage   job.Usage   // what the attempt's stored events tell, which is booked; only of TakenOver
	Streams bool        // it is a stage that streams, whose stream ended with the earlier scheduler: CloseStream judges its end; only of TakenOver
}

// claimed returns the entry as it was when it was claimed, which is what a run has: its own attempt does
// not count yet.
func (t *Takeover) claimed() queue.Entry {
	e := t.Entry
	if e.Attempts >= t.Attempt.Number {
		e.Attempts, e.Counted = e.Attempts-1, e.Counted-1
	}
	return e
}

// Lapsed says that a claim that was left behind has ended: nothing of its run is alive.
type Lapsed struct{ ID job.ID }

// leftBehind takes what earlier schedulers have left.
func (fs *flights) leftBehind(at time.Time, e LeftBehind) {
	for i := range e {
		if t := &e[i]; fs.all[t.Entry.ID] == nil {
			fs.await(at, t)
		}
	}
}

// await makes a flight of a run whose host has not come.
func (fs *flights) await(at time.Time, t *Takeover) {
	e := &t.Entry
	h := head{Head: queue.HeadOf(e), real: e.Spec.Workspace.Path, known: true}
	h.Worker = t.Attempt.Choice.Worker
	index := e.Choice
	for i, c := range e.Spec.Choices() {
		if c == t.Attempt.Choice {
			index = i
			break
		}
	}
	f := &flight{
		lane: job.Lane{Tenant: e.Spec.Tenant, Priority: e.Spec.Priority}, ask: fs.backlog.demand(h.Expect), uses: h.use(e.Spec.Tenant),
		phase: running, awaited: true, held: true, asked: at, cancelled: e.CancelRequested,
		run: &Run{Entry: t.claimed(), Choice: t.Attempt.Choice, Index: index, Attempt: t.Attempt.Number, Began: t.Attempt.Started, Node: t.Attempt.Node},
	}
	if fs.backlog.scope(e.Batch) != nil {
		f.lane.Batch = e.Batch
	}
	if index != e.Choice {
		f.run.Because = "it began so"
	}
	fs.all[e.ID] = f
	fs.room.take(f.uses)
	fs.cores.hosts.await(t.Attempt.Node, f, int64(h.Memory))
	fs.backlog.policy.Start(f.lane.Tenant, f.ask, wall(at))
}

// takeOver takes the runs that a core goes on with.
func (fs *flights) takeOver(at time.Time, e TakenOver) {
	for i := range e.Runs {
		t := &e.Runs[i]
		f := fs.all[t.Entry.ID]
		if f == nil || f.run == nil || f.run.Attempt != t.Attempt.Number || f.phase < beginning {
			continue // its claim has ended meanwhile
		}
		moved := *f.run
		moved.Core = e.Core
		fs.cores.leave(f)
		if f.awaited {
			moved.Entry, moved.Choice = t.claimed(), t.Attempt.Choice
			f.awaited, f.cancelled, f.stops = false, f.cancelled || t.Entry.CancelRequested, nil
			f.asking, f.streams = t.Attempt.State == job.WaitingApproval, t.Streams
			f.moved = t.Attempt.State == job.Running || f.asking
			f.started, f.session, f.usage, f.charged = f.moved, t.Attempt.Session, t.Usage, t.Usage.CostUSD
			if f.cancelled && f.end == nil {
				f.stops = []Stop{{Job: t.Entry.ID, How: Withdraw, Reason: "cancelled"}}
			}
		}
		f.run = &moved
		fs.cores.enter(f)
		fs.pursue(at, f)
	}
}

// lapsed ends a flight whose claim was left behind and has ended.
func (fs *flights) lapsed(at time.Time, e Lapsed) {
	if f := fs.all[e.ID]; f != nil && f.awaited {
		fs.gone(at, Gone{ID: e.ID})
	}
}

// lasts reports whether a flight's run outlives this scheduler: its core does, and has it.
func (fs *flights) lasts(f *flight) bool {
	if f.run == nil || f.phase < beginning {
		return false
	}
	b := fs.cores.book(f.run.Core)
	return f.awaited || b != nil && b.core.Lasting
}

// leave lets go of a flight whose run goes on without this scheduler. Its claim stays as it
// is, for whoever takes it over. What is being stored or asked is waited for; a run that has
// ended is recorded.
func (fs *flights) leave(at time.Time, f *flight) {
	if f.end != nil || f.phase == closing {
		return
	}
	if f.left = true; !f.busy {
		fs.gone(at, Gone{ID: f.run.Entry.ID})
	}
}
