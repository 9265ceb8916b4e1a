package schedule

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// verdicts says what follows from a refusal, a stop and an end. The ops that it returns end
// a claim.
type verdicts struct {
	retry *policy.Retry
	await func(time.Time, *Run, *job.Outcome, *policy.Decision) queue.Op
	with  func(*Run, queue.Op) []queue.Op
	room  *room

	held       map[job.BatchID]string // why batches do not go on
	folderBusy map[job.ID]time.Time   // since when jobs wait for a workspace that others have
	lateStarts map[job.ID]int         // how often in a row jobs came too late for their permits
}

// finish decides what follows the end of an attempt, and records it.
func (fs *flights) finish(at time.Time, f *flight) {
	e := f.end
	o := e.outcome
	if c := e.closed; c != nil && e.died == nil {
		o = c.Outcome
	}
	if f.run.Node != "" && e.died == nil {
		f.byOurClock(at, &o)
	}
	fs.cores.charge(at, f, o.Usage.CostUSD-f.usage.CostUSD) // what no event has told
	if e.died != nil {
		o = job.Outcome{State: job.RunFailed, Class: job.Crash, Message: fmt.Sprintf("the core died: %v", e.died),
			Usage: f.usage, Session: f.session, ExitCode: -1, StartedAt: f.run.Began, EndedAt: wall(at)}
	}
	if o.Session == "" {
		o.Session = f.session
	}
	// A core that dies before the agent has said with which session it goes on says
	// nothing against the session.
	unheard := e.died != nil && o.Session == "" && f.run.Resume() != ""
	if unheard {
		o.Session = f.run.Resume()
	}
	op := queue.Finish{ID: f.run.Entry.ID, Fence: f.run.Entry.Fence, Attempt: f.run.Attempt, Outcome: o, Now: wall(at)}
	switch {
	case o.State == job.Checkpointed && !f.cancelled:
		f.op = fs.verdicts.atBoundary(f, op)
	case f.cancelled && !o.Succeeded():
		op.Exit = job.ExitCancelled
		op.Outcome.State, op.Outcome.Class = job.RunCancelled, job.CancelledClass
		f.op = op
	case e.late:
		f.op = fs.verdicts.lateStart(f, op)
	case o.State == job.RunCancelled, e.died != nil && (fs.room.mode == Stopping || e.replaced):
		// Nobody asked for it but us: it goes on with the next scheduler, or core.
		op.Lost = true
		op.Retry = queue.Retry{RunnableAt: f.run.Entry.RunnableAt, Choice: f.run.Entry.Choice, Feedback: f.run.Entry.Feedback, Waiting: fs.verdicts.interrupted(f).String()}
		f.goesOnWith(&op.Retry, o.Session)
		f.op = op
	default:
		if fs.judge(at, f, op, unheard) {
			return // a kind of worker is parked first
		}
	}
	fs.record(at, f)
}

// byOurClock puts the times of an outcome that another host has told, whose wall clock may stand anywhere, on ours: it
// ended when it was told, and took what it says, but no longer than it can have.
func (f *flight) byOurClock(at time.Time, o *job.Outcome) {
	took := min(max(o.EndedAt.Sub(o.StartedAt), 0), max(wall(at).Sub(f.run.Began), 0))
	o.EndedAt = wall(at)
	o.StartedAt = o.EndedAt.Add(-took)
}

// judge decides by the retry policy what follows an attempt that ran to its own end, and
// whether a person looks at it first. It reports true if the kind of worker has met its
// usage limit: the isolation must be known before the job goes back to the queue, and holds
// it there.
func (fs *flights) judge(at time.Time, f *flight, op queue.Finish, unheard bool) (parks bool) {
	e, o := &f.run.Entry, op.Outcome
	history := policy.History{
		Choices: len(e.Spec.Choices()), Choice: f.run.Index, Counted: e.Counted + 1,
		MaxAttempts: e.MaxAttempts(), Resumed: f.run.Resume() != "" && !unheard, Domain: e.Spec.Domain,
	}
	if c := f.end.closed; c != nil {
		history.Forgiven, history.Final = c.Forgiven, c.Final
	}
	d := fs.verdicts.retry.Decide(history, &o, wall(at))
	op.Lost = history.Forgiven && d.Exit == ""
	parking, parks := policy.Park(&o, f.run.Choice, wall(at))
	if parks {
		d.RunnableAt = wall(at) // the isolation may be lifted earlier
	}
	f.op = fs.verdicts.follow(at, f, op, &d)
	if parks {
		f.parks = true
		fs.do(f, Work{Call: Park{parking}})
	}
	return parks
}

// follow returns the op that a decision of the retry policy leads to.
func (v *verdicts) follow(at time.Time, f *flight, op queue.Finish, d *policy.Decision) queue.Op {
	if v.await != nil {
		if await := v.await(wall(at), f.run, &op.Outcome, d); await != nil {
			return await
		}
	}
	op.Exit, op.DeadLetter = d.Exit, d.DeadLetter
	if d.Exit != "" {
		return op
	}
	if d.Choice == f.run.Index {
		d.Choice = f.run.Entry.Choice // the same again: the job's own choice, load or not
	}
	waiting := job.Waiting{Reason: job.WaitTurn, Text: d.Waiting}
	if d.RunnableAt.After(wall(at)) {
		waiting.Reason = job.WaitRetry
	}
	op.Retry = queue.Retry{RunnableAt: d.RunnableAt, Choice: d.Choice, Feedback: d.Feedback, Waiting: waiting.String()}
	if d.Resume {
		op.Retry.Session, op.Retry.SessionWorker, op.Retry.SessionNode = op.Outcome.Session, f.run.Choice.Worker, f.run.Node
	}
	return op
}

// atBoundary gives a job back whose run has stopped at a step's boundary: it goes on from
// there, in its place of the line, with all that it was told.
func (v *verdicts) atBoundary(f *flight, op queue.Finish) queue.Op {
	f.checkpointed = true
	// The attempt is over, though nothing was wrong with it.
	op.Outcome.State, op.Outcome.Class, op.Outcome.Checkpointed = job.RunCancelled, job.NoError, true
	op.Lost, op.Outcome.PreemptedBy = true, f.yieldsTo
	why := op.Outcome.Message
	if f.yieldsTo != "" { // whatever its worker says
		why = yieldReason(f.yieldsTo)
	}
	op.Retry = queue.Retry{
		RunnableAt: f.run.Entry.RunnableAt, Choice: f.run.Entry.Choice,
		Feedback: f.run.Entry.Feedback, Waiting: job.Waiting{Reason: job.WaitTurn, Text: queue.CheckpointedText + why + "); goes on from its last step"}.String(),
	}
	if op.Outcome.Interrupted && f.yieldsTo == "" {
		op.Retry.Hold = job.HeldForWords
		op.Retry.Waiting = job.Waiting{Reason: job.WaitWords, Text: why}.String()
	}
	f.goesOnWith(&op.Retry, op.Outcome.Session)
	return op
}

// goesOnWith sets the session for the next attempt of a job whose attempt was cut short, having
// told the session of its own, or "". Then the one that it was to resume stands, and so does
// that of another worker, or on another host, as long as the attempt has not touched the
// workspace.
func (f *flight) goesOnWith(r *queue.Retry, told string) {
	e := &f.run.Entry
	switch {
	case told != "":
		r.Session, r.SessionWorker, r.SessionNode = told, f.run.Choice.Worker, f.run.Node
	case f.run.Resume() != "" || !f.started:
		r.Session, r.SessionWorker, r.SessionNode = e.Session, e.SessionWorker, e.SessionNode
	}
}

// interrupted says what becomes of a run that we cut short.
func (v *verdicts) interrupted(f *flight) job.Waiting {
	if v.room.mode == Stopping {
		return job.Waiting{Reason: job.WaitScheduler, Text: "interrupted; goes on at the next run"}
	}
	if why := v.held[f.run.Entry.Batch]; why != "" {
		return job.Waiting{Reason: job.WaitCommand, Text: why}
	}
	return job.Waiting{Reason: job.WaitTurn, Text: "interrupted; goes on soon"}
}

// A job whose permit expires before its core hears of it has a host that is too slow. It is
// tried again after lateDelay, doubled each time, and given up after maxLateStarts in a row.
const (
	maxLateStarts = 10
	lateDelay     = time.Second
)

// lateStart says what follows when an attempt came too late for its permit. It does not
// count as one of the job's.
func (v *verdicts) lateStart(f *flight, op queue.Finish) queue.Op {
	e := &f.run.Entry
	v.lateStarts[e.ID]++
	n := v.lateStarts[e.ID]
	op.Lost = true
	if n < maxLateStarts {
		after := lateDelay << (n - 1)
		op.Retry = queue.Retry{RunnableAt: op.Now.Add(after), Choice: e.Choice, Session: e.Session, SessionWorker: e.SessionWorker, SessionNode: e.SessionNode, Feedback: e.Feedback,
			Waiting: job.Waiting{Reason: job.WaitPermit, Text: fmt.Sprintf("its permit expired before it could begin, %d times in a row; next attempt after %s", n, after)}.String()}
		return op
	}
	op.Exit = job.ExitFailed
	op.DeadLetter = fmt.Sprintf("%s: its permit expired before it could begin, %d times in a row: the host is too slow; retry it when the load or the disk is better", job.ResourceExhausted, n)
	op.Outcome.State, op.Outcome.Class = job.RunFailed, job.ResourceExhausted
	op.Outcome.Hint = "look at the load of the host and its disk"
	return op
}

// coreRetry is how soon a job is tried again whose core gave no answer.
const coreRetry = 200 * time.Millisecond

// minRetryAfter keeps a rejection without a time from becoming a busy loop; maxRetryAfter is
// how long what an operator can lift delays a job at most.
const (
	minRetryAfter = 100 * time.Millisecond
	maxRetryAfter = 5 * time.Second
)

// noAnswer gives a job back whose core gave no answer, or that has none.
func (v *verdicts) noAnswer(at time.Time, f *flight) queue.Op {
	after := coreRetry
	if v.room.mode == Stopping {
		after = 0
	}
	return v.release(at, f, after, f.run.Entry.Choice, job.Waiting{Reason: job.WaitCore, Text: "the last one gave no answer"})
}

// rejected says what becomes of a job that got no permit.
func (v *verdicts) rejected(at time.Time, f *flight, r *ipc.Rejection) queue.Op {
	e := &f.run.Entry
	why := v.refusedFor(at, f, r)
	after := max(time.Duration(r.RetryAfterMS)*time.Millisecond, minRetryAfter)
	switch {
	case r.Reason.Terminal():
		return queue.Finish{
			ID: e.ID, Fence: e.Fence, Now: wall(at), Exit: job.ExitFailed, DeadLetter: r.Message,
			Outcome: job.Outcome{State: job.RunFailed, Class: job.Budget, Message: r.Message},
		}
	case e.Choice+1 < len(e.Spec.Choices()) && (r.Reason == job.CircuitOpen || v.isKindOut(at, f)):
		why = job.Waiting{Reason: job.WaitTurn, Text: why.Text + "; goes on with " + string(e.Spec.Choices()[e.Choice+1].Worker)}
		return v.release(at, f, 0, e.Choice+1, why)
	case r.Reason == job.WorkspaceBusy:
		if _, known := v.folderBusy[e.ID]; !known {
			v.folderBusy[e.ID] = at.Add(-f.run.Waited)
		}
	}
	_, blocked := v.blocking(at, f)
	switch {
	case blocked:
		f.parked = true
		after = 0
	case r.Action != "", r.Reason == job.FatalMode, r.Reason == job.WorkspaceBusy:
		// The load may change at any time, or an operator changes it.
		after = min(after, maxRetryAfter)
	}
	return v.release(at, f, after, e.Choice, why)
}

// blocking returns the isolation that keeps the flight's job from beginning, on any host or on its own.
func (v *verdicts) blocking(at time.Time, f *flight) (isolation.Isolation, bool) {
	e := &f.run.Entry
	return v.room.blockedOn(at, f.run.Node, isolation.Run{Kind: e.Spec.Choices()[e.Choice].Worker, Tenant: e.Spec.Tenant, Workspace: f.uses.folder})
}

// isKindOut reports whether an isolation keeps every run of the flight's kind of worker for its
// tenant from beginning, and that alone.
func (v *verdicts) isKindOut(at time.Time, f *flight) bool {
	i, blocked := v.room.blockedOn(at, f.run.Node, isolation.Run{Kind: f.run.Choice.Worker, Tenant: f.run.Entry.Spec.Tenant})
	return blocked && i.Scope != isolation.Global
}

// refusedFor returns what a job waits for that got no permit.
func (v *verdicts) refusedFor(at time.Time, f *flight, r *ipc.Rejection) job.Waiting {
	if i, blocked := v.blocking(at, f); blocked {
		return i.Waiting()
	}
	w := job.Waiting{Reason: r.Waiting, Text: r.Message}
	if w.Reason == "" {
		w.Reason = refusals[r.Reason]
	}
	return w
}

// refusals is what a rejection has a job wait for that does not say it.
var refusals = map[job.Reason]job.WaitingReason{
	job.QueueStall: job.WaitLoad, job.GlobalShed: job.WaitLoad, job.CircuitOpen: job.WaitCircuit, job.RateLimited: job.WaitRate,
	job.FatalMode: job.WaitIsolation, job.WorkspaceBusy: job.WaitFolder,
}

// release gives a job back to the queue without an attempt. One that may run again at once
// keeps its place.
func (v *verdicts) release(at time.Time, f *flight, after time.Duration, choice int, w job.Waiting) queue.Op {
	e := &f.run.Entry
	runnable := wall(at).Add(after)
	if after == 0 && e.RunnableAt.Before(wall(at)) {
		runnable = e.RunnableAt
	}
	return queue.Release{ID: e.ID, Fence: e.Fence, Now: wall(at), RunnableAt: runnable, Choice: choice, Waiting: w.String()}
}
