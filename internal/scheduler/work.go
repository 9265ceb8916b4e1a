package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// applier carries out what the machine has decided about single jobs.
type applier struct {
	log        zerolog.Logger
	apply      func(context.Context, ...queue.Op) error
	feed       *Feed
	fleet      *fleet
	streams    *streams
	steps      *steps
	patches    *patches
	followers  *Followers
	judge      *Judge
	approvals  *Approvals
	runs       *Runs
	grants     *Grants
	talks      *Conversations
	kids       *Children
	isolations *Isolations
}

// do does a Work: it commits the ops, makes the call, tells, and returns the answer. ctx
// ends with the scheduler. Only a request for a permit ends with it: whether anything else
// has happened must be known.
func (a *applier) do(ctx context.Context, w schedule.Work) schedule.Done {
	done := schedule.Done{Job: w.Job}
	if len(w.Ops) > 0 {
		if done.Stored = a.apply(ctx, w.Ops...); done.Stored != nil {
			return done
		}
	}
	if w.Call != nil {
		a.call(ctx, w.Call, &done)
	}
	for _, t := range w.Tell {
		a.tell(context.WithoutCancel(ctx), t)
	}
	return done
}

// askTime is how long a core may take to say whether a worker can stop.
const askTime = 2 * time.Second

// call makes a call, and notes the answer in done.
func (a *applier) call(ctx context.Context, call schedule.Call, done *schedule.Done) {
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	switch c := call.(type) {
	case schedule.Prepare:
		done.Prepared = a.prepare(ctx, c.Run)
	case schedule.AskPermit:
		if c.Request.Ceded, done.Called = a.kids.cededBy(ctx, &c.Run.Entry); done.Called != nil {
			log := logOf(a.log, c.Run)
			log.Error().Err(done.Called).Msg("what the jobs of an agent take of its budget cannot be read")
			return
		}
		if done.Called = a.fleet.call(ctx, c.Run.Core, ipc.MethodRequestPermit, c.Request, &done.Permit); done.Called != nil {
			log := logOf(a.log, c.Run)
			log.Warn().Err(done.Called).Msg("no answer to a permit request")
		}
	case schedule.Submit:
		done.Called = a.submit(lasting, c)
	case schedule.CheckpointRun:
		done.Asked, done.Called = a.checkpoint(lasting, c.Run, c.Reason)
	case schedule.CancelRun:
		a.streams.get(c.Run).stop(errors.New(c.How.Reason)) // what its worker has then is not to blame
		if done.Called = a.fleet.call(lasting, c.Run.Core, ipc.MethodCancelJob, c.How, nil); done.Called != nil {
			a.log.Debug().Err(done.Called).Str("job", string(c.How.Job)).Msg("ask the core to cancel")
		}
	case schedule.CloseStream:
		done.Closed = a.streams.end(ctx, c)
	case schedule.Park:
		a.isolations.parkKind(c.Parking)
	}
}

// prepare finds what a claimed job needs that is stored elsewhere.
func (a *applier) prepare(ctx context.Context, r *schedule.Run) (p schedule.Prepared) {
	var err error
	if p.Spec, err = a.judge.rank(ctx, &r.Entry); err != nil && ctx.Err() == nil {
		a.log.Error().Err(err).Msg("the job runs on its first worker")
	}
	p.Streams, p.Op = a.streams.prepare(ctx, r)
	return p
}

// submit hands a run to its core.
func (a *applier) submit(ctx context.Context, c schedule.Submit) error {
	e := &c.Run.Entry
	c.Job.Environ = a.runs.environ(e)
	c.Job.HasSteps = c.Run.Attempt > 1 && a.steps.any(ctx, e.ID)
	a.patches.give(ctx, c.Run, a.fleet.isAway(c.Run.Core), &c.Job)
	c.Job.Stream = a.streams.get(c.Run).name()
	a.talks.submit(ctx, c.Run, &c.Job)
	err := a.grants.submit(ctx, c.Run, func(granted []string, rules []job.AskRule) error {
		c.Job.Granted, c.Job.Rules = granted, rules
		return a.fleet.call(ctx, c.Run.Core, ipc.MethodSubmitJob, c.Job, nil)
	})
	var refused *ipc.Error
	switch {
	case !errors.As(err, &refused):
		a.streams.start(c.Run)
	case refused.Code == ipc.CodePermitUnknown:
		log := logOf(a.log, c.Run)
		log.Warn().Msg("the permit expired before the job could begin")
	}
	return err
}

// checkpoint asks a run to stop at the boundary of its next step, and reports whether its
// worker can.
func (a *applier) checkpoint(ctx context.Context, r *schedule.Run, reason string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var answer ipc.CheckpointResult
	err := a.fleet.call(ctx, r.Core, ipc.MethodCheckpointJob, ipc.CheckpointJob{Job: r.Entry.ID, Attempt: r.Attempt, Reason: reason}, &answer)
	if err != nil {
		return false, fmt.Errorf("ask job %s for a checkpoint: %w", r.Entry.ID, err)
	}
	if answer.Asked {
		a.log.Info().Str("job", string(r.Entry.ID)).Str("reason", reason).Msg("asked for a checkpoint")
	}
	return answer.Asked, nil
}

// logOf returns the log for what concerns a run.
func logOf(to zerolog.Logger, r *schedule.Run) zerolog.Logger {
	e := &r.Entry
	log := to.With().Str("job", string(e.ID)).Str("name", string(e.Spec.Name)).Str("tenant", string(e.Spec.Tenant)).
		Int("attempt", r.Attempt).Str("worker", string(r.Choice.Worker)).Str("trace_id", e.Spec.Trace)
	if id := e.Spec.Context.CorrelationID; id != "" {
		log = log.Str("correlation_id", id)
	}
	return log.Logger()
}

// tell tells everybody who watches of what has happened to a job, and finds what follows.
func (a *applier) tell(ctx context.Context, told schedule.Told) {
	switch t := told.(type) {
	case schedule.PermitTold:
		a.feed.observe(Moment{Kind: MomentPermit, Entry: &t.Run.Entry, Attempt: t.Run.Attempt, Choice: t.Run.Choice, Reason: t.Reason, Took: t.Took})
	case schedule.Charged:
		a.fleet.ledger.charged(&t)
	case schedule.Begun:
		e := t.Run.Entry
		a.fleet.ledger.begun(t.Run)
		a.feed.observe(Moment{Kind: MomentBegun, At: t.Run.Began, Entry: &t.Run.Entry, Attempt: t.Run.Attempt, Choice: t.Run.Choice, Took: max(t.Run.Began.Sub(e.RunnableAt), 0)})
		a.feed.publishRun(t.Run, job.Pending, t.Run.Smaller())
		e.Attempts = t.Run.Attempt
		a.feed.signal(&e, api.JobAssigned, "", "")
	case schedule.Progress:
		a.feed.progress(&t)
	case schedule.Stored:
		a.fleet.stored(t.Run, t.Events)
		a.feed.observe(Moment{Kind: MomentEvents, Entry: &t.Run.Entry, Attempt: t.Run.Attempt, Choice: t.Run.Choice, Events: t.Events})
	case schedule.Over:
		a.tellOver(ctx, &t)
	case schedule.Refused:
		log := logOf(a.log, t.Run)
		log.Error().Err(t.Err).Msg("the store did not keep what became of the job")
		a.fleet.over(t.Run)
		a.streams.drop(t.Run.Entry.ID)
	}
}

// tellOver tells of the end of a claim, and finds what follows from it.
func (a *applier) tellOver(ctx context.Context, t *schedule.Over) {
	a.streams.drop(t.Run.Entry.ID)
	a.fleet.over(t.Run)
	a.talks.over(ctx, &t.Run.Entry)
	a.log.Debug().Str("job", string(t.Run.Entry.ID)).Int("attempt", t.Run.Attempt).Type("op", t.Op).Msg("recorded")
	e := after(t.Run.Entry, t.Op)
	outcome, made := outcomeOf(t.Op)
	if made {
		a.feed.observe(Moment{Kind: MomentAttemptEnded, Entry: &t.Run.Entry, Attempt: t.Run.Attempt, Choice: t.Run.Choice, Outcome: outcome})
	}
	if t.Checkpointed {
		a.feed.publishRun(t.Run, job.Checkpointed, e.Waiting)
		a.feed.signal(&e, api.CheckpointCreated, "", e.Waiting)
		a.followers.follow(&e) // its team may have wanted it
	}
	switch op := t.Op.(type) {
	case queue.Finish:
		if made {
			a.feed.signal(&e, api.AgentTerminated, "", string(op.Outcome.Class))
		}
		if op.Exit != "" {
			a.feed.signalEnd(&e)
			a.followers.follow(&e)
		}
	case queue.Await:
		a.feed.signal(&e, api.AgentTerminated, "", "")
		a.approvals.ask(&e, outcome)
	}
	if e.Key != "" {
		a.feed.publishEntry(ctx, e.ID)
		a.feed.publishFollowers(ctx, &e)
		return
	}
	a.feed.publishState(&e)
}

// outcomeOf returns how an attempt ended by the op that ended its claim; false if none was
// made.
func outcomeOf(op queue.Op) (*job.Outcome, bool) {
	switch op := op.(type) {
	case queue.Finish:
		return &op.Outcome, op.Attempt > 0
	case queue.Await:
		return &op.Outcome, true
	}
	return nil, false
}

// after returns how an entry without a key stands when the op, which ends its
// claim, is stored: what the store would tell, without asking it. What is seen
// of the entry's times is left as it was.
func after(e queue.Entry, op queue.Op) queue.Entry {
	switch op := op.(type) {
	case queue.Release:
		e.State, e.RunnableAt, e.Choice, e.Waiting = job.Queued, op.RunnableAt, op.Choice, op.Waiting
	case queue.Await:
		e.Attempts = op.Attempt
		e.Spent = e.Spent.Add(op.Outcome.Usage)
		e.State, e.Held, e.Waiting = job.Queued, job.HeldForApproval, op.Waiting
		approval := op.Approval
		e.Approval = &approval
	case queue.Finish:
		if op.Attempt > 0 {
			e.Attempts = op.Attempt
			e.Spent = e.Spent.Add(op.Outcome.Usage)
		}
		if op.Exit == "" {
			e.State, e.RunnableAt, e.Choice, e.Waiting = job.Queued, op.Retry.RunnableAt, op.Retry.Choice, op.Retry.Waiting
			return e
		}
		e.State, e.ExitKind = job.Completed, op.Exit
		if op.Exit == job.ExitFailed {
			e.DeadLetter = op.DeadLetter
		}
		if op.Exit != job.ExitCancelled {
			e.Waiting = ""
		}
	}
	return e
}
