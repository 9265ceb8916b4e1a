package scheduler

import (
	"context"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// StateOf returns the state of a job's latest run; one that has stopped at a step's
// boundary and is queued again is job.Pending.
func StateOf(e *queue.Entry) job.RunState {
	if st := e.RunState(); st != job.Checkpointed {
		return st
	}
	return job.Pending
}

// updateOf returns the update for an event of a flight. Called with
// Scheduler.mu held.
func updateOf(f *flight, state job.RunState, e job.Event) api.Update {
	u := flightUpdate(f, state)
	u.Kind, u.Time, u.Event = api.UpdateEvent, e.Time, &e
	usage := f.entry.Spent.Add(f.usage)
	u.Usage = &usage
	return u
}

func flightUpdate(f *flight, state job.RunState) api.Update {
	e := &f.entry
	return api.Update{
		Kind: api.UpdateJob, Time: now(), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Worker: f.choice.Worker,
		Attempt: f.attempt, Entry: job.Dispatched, State: state, Trace: e.Spec.Trace,
	}
}

// publishFlight tells that a flight's run is in the state.
func (s *Scheduler) publishFlight(f *flight, state job.RunState, text string) {
	u := flightUpdate(f, state)
	u.Text = text
	s.hub.publish(u)
}

// publishEntry tells how a job stands in the store, and returns it if it could be
// read.
func (s *Scheduler) publishEntry(ctx context.Context, id job.ID) (e queue.Entry, read bool) {
	e, err := s.cfg.Store.Get(context.WithoutCancel(ctx), id)
	if err != nil {
		s.cfg.Log.Warn().Err(err).Str("job", string(id)).Msg("read a job to tell of it")
		return e, false
	}
	if e.State.Terminal() {
		s.follow(&e)
	}
	s.publishState(&e)
	return e, true
}

func (s *Scheduler) publishState(e *queue.Entry) {
	if e.State.Terminal() {
		s.forgetJob(e.ID)
		s.observeEnd(e)
	}
	s.hub.publish(entryUpdate(e, StatusOf(e, now())))
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
func (s *Scheduler) Tell(text string) {
	s.hub.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: text})
}
