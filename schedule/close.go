package schedule

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// conclude ends a claim with an op.
func (fs *flights) conclude(at time.Time, f *flight, op queue.Op) {
	f.phase, f.op = closing, op
	fs.record(at, f)
}

// record makes the op durable that ends a claim, together with the attempt's last events.
func (fs *flights) record(at time.Time, f *flight) {
	ops, told := fs.takeEvents(f)
	ops = append(ops, f.beforeEnd()...)
	ops = append(ops, f.op)
	if fs.verdicts.with != nil {
		ops = append(ops, fs.verdicts.with(f.run, f.op)...)
	}
	fs.do(f, Work{Ops: ops, Tell: append(told, Over{Run: f.run, Op: f.op, Checkpointed: f.checkpointed})})
}

// beforeEnd returns the move to Running before the end of an attempt of which the core told
// no such move: a run fails from Running, not from Pending.
func (f *flight) beforeEnd() (ops []queue.Op) {
	ended := false
	switch end := f.op.(type) {
	case queue.Finish:
		ended = end.Attempt > 0 && end.Outcome.State != job.RunCancelled
	case queue.Await:
		ended = true
	}
	move := queue.Move{ID: f.run.Entry.ID, Fence: f.run.Entry.Fence, Attempt: f.run.Attempt, To: job.Running}
	if (ended || f.checkpointed) && (!f.moved || f.asking) {
		f.moved, f.asking = true, false
		ops = append(ops, move)
	}
	if f.checkpointed {
		move.To = job.Checkpointed
		ops = append(ops, move)
	}
	return ops
}

// close ends a flight whose claim has ended, and tells the policy what the attempt used.
func (fs *flights) close(at time.Time, f *flight) {
	var used job.Usage
	over := false
	switch end := f.op.(type) {
	case queue.Finish:
		used, over = end.Outcome.Usage, end.Exit != ""
	case queue.Await:
		used, over = end.Outcome.Usage, true
	}
	fs.gone(at, Gone{ID: f.run.Entry.ID, Used: used, Over: over, Parked: f.parked})
}

// lost ends a flight whose claim has become somebody else's, or whose store has failed. What
// its core still runs of it is stopped, and counts for nothing.
func (fs *flights) lost(at time.Time, f *flight, err error) {
	if !errors.Is(err, queue.ErrFenced) && fs.ready.Err == nil {
		fs.ready.Err = fmt.Errorf("record job %s: %w", f.run.Entry.ID, err)
	}
	fs.ready.Tell = append(fs.ready.Tell, Refused{f.run, err})
	if f.phase == running {
		fs.do(f, Work{Call: CancelRun{f.run, ipc.CancelJob{
			Job: f.run.Entry.ID, Attempt: f.run.Attempt, Class: job.CancelledClass, Reason: "its claim has ended", Lost: true,
		}}})
	}
	fs.gone(at, Gone{ID: f.run.Entry.ID})
}

// Gone says that a job is no longer in flight: it has ended, or went back to the queue, and
// the store has committed that. Before the commit its lane would still be read without it,
// and the job would be lost from sight.
type Gone struct {
	ID   job.ID
	Used job.Usage // by the attempt; zero if none was made
	Over bool      // the job has ended with it
	// Parked says that the job went back to the queue because something is isolated: it is
	// not claimed again while that keeps it from running.
	Parked bool
}

// gone ends a flight with what its attempt used. A job that left flight because something is
// isolated is remembered as long as an isolation exists, and asked about again only then.
func (fs *flights) gone(at time.Time, e Gone) {
	if e.Parked {
		fs.room.parked[e.ID] = true
	}
	if e.Over {
		fs.forget(e.ID)
	}
	f := fs.all[e.ID]
	if f == nil {
		return
	}
	if f.probe && !e.Over && e.Used == (job.Usage{}) {
		fs.cores.hosts.probed(f.host, at.Add(probePause))
	}
	fs.buffered -= len(f.events)
	delete(fs.unstored, e.ID)
	fs.cores.leave(f)
	fs.end(at, e.ID, f, policy.Demand{Tokens: float64(e.Used.Tokens()), CostUSD: e.Used.CostUSD}, e.Over)
}

// end gives back what a flight holds, tells the policy what was used instead of what was
// expected, and looks again at what was passed over.
func (fs *flights) end(at time.Time, id job.ID, f *flight, used policy.Demand, over bool) {
	fs.lend(f, false)
	delete(fs.all, id)
	fs.room.give(f.uses)
	fs.cores.hosts.give(f)
	fs.backlog.policy.End(f.lane.Tenant, f.ask, used, over, wall(at))
	fs.backlog.again()
}

// forget forgets what was noted of a job: it has ended.
func (fs *flights) forget(id job.ID) {
	delete(fs.room.parked, id)
	delete(fs.room.sessions, id)
	delete(fs.verdicts.folderBusy, id)
	delete(fs.verdicts.lateStarts, id)
}
