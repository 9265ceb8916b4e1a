package scheduler

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// StateOf returns the state of a job's latest run; one that has stopped at a step's
// boundary and is queued again is job.Pending.
func StateOf(e *queue.Entry) job.RunState {
	if st := e.RunState(); st != job.Checkpointed {
		return st
	}
	return job.Pending
}

// runUpdate is the update about a run that is in the state.
func runUpdate(r *schedule.Run, state job.RunState) api.Update {
	e := &r.Entry
	return api.Update{
		Kind: api.UpdateJob, Time: now(), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Worker: r.Choice.Worker,
		Attempt: r.Attempt, Entry: job.Dispatched, State: state, Trace: e.Spec.Trace,
	}
}

// publishRun tells that a run is in the state.
func (f *Feed) publishRun(r *schedule.Run, state job.RunState, text string) {
	u := runUpdate(r, state)
	u.Text = text
	f.publish(u)
}

// progress tells of an event of a run.
func (f *Feed) progress(p *schedule.Progress) {
	u := runUpdate(p.Run, job.Running)
	usage := p.Run.Entry.Spent.Add(p.Usage)
	u.Kind, u.Time, u.Event, u.Usage = api.UpdateEvent, p.Event.Time, &p.Event, &usage
	f.publish(u)
	e := p.Run.Entry
	e.Attempts = p.Run.Attempt
	switch {
	case p.Event.Kind == job.EventStep && p.Event.Kept == job.KeptBefore:
		f.signal(&e, api.StepReplayed, p.Event.Step, "")
	case p.Event.Kind == job.EventStep && p.Event.Kept == job.KeptRefused:
		f.signal(&e, api.StepFailed, p.Event.Step, p.Event.Text)
	case p.Event.Kind == job.EventState && p.Event.State == job.Running && p.Event.Change == "":
		f.signal(&e, api.AgentStarted, "", "")
	}
}

// publishEntry tells how a job stands in the store, and returns it if it could be
// read.
func (f *Feed) publishEntry(ctx context.Context, id job.ID) (e queue.Entry, read bool) {
	e, err := f.store.Get(context.WithoutCancel(ctx), id)
	if err != nil {
		f.log.Warn().Err(err).Str("job", string(id)).Msg("read a job to tell of it")
		return e, false
	}
	if e.State.Terminal() {
		f.follow(&e)
	}
	f.publishState(&e)
	return e, true
}

func (f *Feed) publishState(e *queue.Entry) {
	if e.State.Terminal() {
		f.forget(e)
		f.observeEnd(e)
	}
	f.publish(entryUpdate(e, StatusOf(e, now())))
}

// publishChange tells how a job stands that something else than its run has changed.
func (f *Feed) publishChange(ctx context.Context, e *queue.Entry) {
	if e.State.Terminal() {
		f.signalEnd(e)
		f.publishFollowers(ctx, e)
	}
	f.publishState(e)
}

// entryUpdate is the update about a job that stands so.
func entryUpdate(e *queue.Entry, st job.Status) api.Update {
	choices, spent := e.Spec.Choices(), e.Spent
	return api.Update{
		Kind: api.UpdateJob, Time: now(), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant,
		Worker: choices[min(e.Choice, len(choices)-1)].Worker, Attempt: e.Attempts, Entry: e.State, State: st.State, Waiting: st.Waiting,
		ExitKind: e.ExitKind, Usage: &spent, Text: st.Line(), Skipped: e.Skipped != "", Trace: e.Spec.Trace,
	}
}

// Tell lets every listener know of something that the program around the
// scheduler does.
func (f *Feed) Tell(text string) {
	f.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: text})
}

// signal tells whoever watches of a moment in the life of a job's agent.
func (f *Feed) signal(e *queue.Entry, which api.Signal, step, text string) {
	choices := e.Spec.Choices()
	f.publish(api.Update{
		Kind: api.UpdateSignal, Signal: which, Step: step, Text: text, Time: now(),
		Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Batch: e.Batch, Agent: e.Spec.Agent,
		Worker: choices[min(e.Choice, len(choices)-1)].Worker, Attempt: e.Attempts, Trace: e.Spec.Trace,
	})
}

// signalEnd tells that a job has ended, and has it evaluated.
func (f *Feed) signalEnd(e *queue.Entry) {
	f.judge(e)
	if e.State == job.Cancelled || e.ExitKind == job.ExitCancelled {
		f.signal(e, api.AgentCancelled, "", e.Waiting)
		return
	}
	f.signal(e, api.JobCompleted, "", e.DeadLetter)
}

// signalReclaimed tells that the attempt of a job is over that was open when the
// job was taken back.
func (f *Feed) signalReclaimed(ctx context.Context, id job.ID, at time.Time) {
	attempts, err := f.store.Attempts(ctx, id)
	if err != nil || len(attempts) == 0 {
		return
	}
	if last := &attempts[len(attempts)-1]; last.Ended == nil || last.Ended.Before(at) {
		return // it had ended before
	}
	if e, err := f.store.Get(ctx, id); err == nil {
		f.signal(&e, api.AgentTerminated, "", "the scheduler ended while it ran")
	}
}

// publishFollowers tells how the jobs stand that share the result of one that may
// have ended, and finds what follows from that.
func (f *Feed) publishFollowers(ctx context.Context, e *queue.Entry) {
	if e.Key == "" {
		return // no other is like it
	}
	followers, _, err := f.store.List(context.WithoutCancel(ctx), queue.Filter{CoalescedWith: e.ID, Limit: 1 << 30})
	if err != nil {
		f.log.Warn().Err(err).Str("job", string(e.ID)).Msg("look for jobs with the same result")
		return
	}
	for i := range followers {
		f.publishEntry(ctx, followers[i].ID)
	}
}
