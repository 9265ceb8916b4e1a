package schedule

import (
	"errors"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// request asks the flight's core for a permit, unless the job is not to run after all.
func (fs *flights) request(at time.Time, f *flight) {
	e := &f.run.Entry
	if op := fs.verdicts.withdrawn(at, f); op != nil {
		fs.conclude(at, f, op)
		return
	}
	if f.run.Core == 0 {
		fs.conclude(at, f, fs.verdicts.noAnswer(at, f))
		return
	}
	if kind := f.run.Choice.Worker; fs.cores.fleet && !fs.moveTo(f, kind) {
		w := job.Waiting{Reason: job.WaitSlot, Text: "all slots of worker " + string(kind) + " are taken"}
		fs.conclude(at, f, fs.verdicts.release(at, f, coreRetry, e.Choice, w))
		return
	}
	f.held = true
	f.phase, f.asked, f.knows = asking, at, fs.cores.elsewhere(f.run.Core)
	_, smaller := f.smaller()
	limits := e.Spec.Limits
	limits.MaxAttempts = e.MaxAttempts()
	fs.do(f, Work{Call: AskPermit{Run: f.run, Request: ipc.PermitRequest{
		Job: e.ID, Tenant: e.Spec.Tenant, Attempt: f.run.Attempt, Counted: e.Counted, Choice: f.run.Choice,
		Workspace: e.Spec.Workspace, Folder: e.Folder, Limits: limits, Deadline: e.Deadline, Now: wall(at), Spent: e.Spent, SpentTime: e.SpentTime,
		Class: e.Spec.Class, Smaller: smaller, Degraded: f.run.Index > e.Choice, Elsewhere: f.knows,
	}}})
}

// withdrawn returns the op that ends a claim whose job must not begin any more; nil if it
// may.
func (v *verdicts) withdrawn(at time.Time, f *flight) queue.Op {
	e := &f.run.Entry
	switch {
	case f.cancelled:
		return queue.Finish{
			ID: e.ID, Fence: e.Fence, Now: wall(at), Exit: job.ExitCancelled,
			Outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Message: "cancelled before it started"},
		}
	case v.held[e.Batch] != "":
		return v.release(at, f, 0, e.Choice, job.Waiting{Reason: job.WaitCommand, Text: v.held[e.Batch]})
	case v.room.mode == Stopping || interrupts(f.stops):
		return v.release(at, f, 0, e.Choice, v.interrupted(f))
	}
	return nil
}

// answered takes the core's answer to a request for a permit. A core that is overloaded may
// ask for something smaller: then the job's next choices are tried at once.
func (fs *flights) answered(at time.Time, f *flight, e *Done) {
	answer := e.Permit
	if e.Called != nil || answer.Permit == nil {
		f.held = false
	}
	if e.Called == nil && answer.Permit == nil && answer.Rejection == nil {
		e.Called = errors.New("the core answered with neither permit nor rejection")
	}
	if e.Called != nil {
		fs.cores.untold(f.run.Core, f.knows)
		fs.conclude(at, f, fs.verdicts.noAnswer(at, f))
		return
	}
	told := PermitTold{Run: f.run, Took: at.Sub(f.asked)}
	if answer.Permit == nil {
		told.Reason = answer.Rejection.Reason
	}
	fs.ready.Tell = append(fs.ready.Tell, told)
	switch {
	case answer.Permit == nil && answer.Rejection.Action == ipc.ActionDegrade && fs.degrade(f, answer.Rejection):
		fs.request(at, f)
	case answer.Permit == nil:
		fs.conclude(at, f, fs.verdicts.rejected(at, f, answer.Rejection))
	default:
		fs.begin(at, f, answer.Permit)
	}
}

// smaller returns the job's next choice, if it has one and its host the worker for it.
func (f *flight) smaller() (next job.Choice, has bool) {
	choices := f.run.Entry.Spec.Choices()
	if f.run.Index+1 >= len(choices) {
		return next, false
	}
	next = choices[f.run.Index+1]
	return next, f.host.has(next.Worker)
}

// degrade moves the flight to its job's next choice, for this attempt. It reports false if
// there is none.
func (fs *flights) degrade(f *flight, r *ipc.Rejection) bool {
	next, has := f.smaller()
	if !has || fs.cores.fleet && !fs.moveTo(f, next.Worker) {
		return false
	}
	moved := *f.run
	moved.Because = "the host is overloaded"
	if r.Reason == job.CircuitOpen {
		moved.Because = string(moved.Choice.Worker) + " is out of use"
	}
	moved.Index++
	moved.Choice = next
	f.run = &moved
	fs.room.give(f.uses)
	f.uses.worker = moved.Choice.Worker
	fs.room.take(f.uses)
	fs.backlog.again()
	return true
}

// moveTo counts a flight for another kind of worker than it was chosen for, if that has a slot.
func (fs *flights) moveTo(f *flight, kind job.WorkerKind) bool {
	if kind == f.uses.worker {
		return true
	}
	if full(fs.room.bounds.Workers[kind], fs.room.workers[kind]) {
		return false
	}
	fs.room.give(f.uses)
	f.uses.worker = kind
	fs.room.take(f.uses)
	fs.backlog.again()
	return true
}

// begin records the attempt and hands it to its core.
func (fs *flights) begin(at time.Time, f *flight, p *ipc.Permit) {
	if op := fs.verdicts.withdrawn(at, f); op != nil { // the permit expires by itself
		fs.conclude(at, f, op)
		return
	}
	began := *f.run
	began.Began = wall(at)
	f.run, f.phase = &began, beginning
	e := &began.Entry
	fs.do(f, Work{
		Ops: []queue.Op{queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{
			Job: e.ID, Number: began.Attempt, Fence: e.Fence, Choice: began.Choice, State: job.Pending, Node: began.Node, Started: began.Began,
		}}},
		Call: Submit{Run: f.run, Job: ipc.SubmitJob{
			Permit: p.ID, Job: e.ID, Attempt: began.Attempt, Choice: began.Choice, Spec: e.Spec,
			Session: began.Resume(), Elsewhere: began.Moved(), Folder: e.Folder, Feedback: e.Feedback, Resolved: e.Resolved,
			QueueLagMS: max(began.Began.Sub(e.RunnableAt), 0).Milliseconds(), LockWaitMS: began.Waited.Milliseconds(),
		}},
		Tell: []Told{Begun{f.run}},
	})
}

// submitted takes the answer to a submission. Any error but an *ipc.Error is the core's
// death or silence: its job may run, and only CoreGone, after the reaping, says that it does
// not.
func (fs *flights) submitted(at time.Time, f *flight, err error) {
	f.phase = running
	fs.ready.Tell = append(fs.ready.Tell, f.early...)
	f.early = nil
	var refused *ipc.Error
	switch {
	case errors.As(err, &refused):
		fs.settle(at, f, refusal(at, refused))
		return
	case err == nil:
		delete(fs.verdicts.lateStarts, f.run.Entry.ID)
	}
	if why := fs.verdicts.held[f.run.Entry.Batch]; why != "" {
		f.stops = append(f.stops, Stop{How: Boundary, Reason: why})
	}
	fs.pursue(at, f)
}

// refusal is the end of an attempt that the core did not start.
func refusal(at time.Time, e *ipc.Error) ending {
	o := job.Outcome{State: job.RunFailed, Class: job.Config, Message: "the core refused the job: " + e.Message, ExitCode: -1, StartedAt: wall(at), EndedAt: wall(at)}
	if e.Code == ipc.CodePermitUnknown || e.Code == ipc.CodeShuttingDown {
		// Too late, or at a bad moment: nobody's fault.
		o.State, o.Class = job.RunCancelled, job.CancelledClass
	}
	return ending{outcome: o, late: e.Code == ipc.CodePermitUnknown}
}
