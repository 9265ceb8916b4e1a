package scheduler

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// UpdateKind names what an update is about.
type UpdateKind string

const (
	// UpdateJob: a job changed its state; State, Waiting and the rest say how it stands now.
	UpdateJob UpdateKind = "job"
	// UpdateWaiting: what a queued job waits for has changed, though nothing was stored
	// about it; Waiting says for what. The job may have left the queue meanwhile.
	UpdateWaiting UpdateKind = "waiting"
	// UpdateEvent: something happened in a run; Event says what.
	UpdateEvent UpdateKind = "event"
	// UpdateCore: an agentcore came up or died; Text says so.
	UpdateCore UpdateKind = "core"
	// UpdateCircuit: a circuit breaker changed its state; Text says how.
	UpdateCircuit UpdateKind = "circuit"
	// UpdateEscalation: something that a person should look at.
	UpdateEscalation UpdateKind = "escalation"
	// UpdateSignal: a moment in an agent's life; Signal names it.
	UpdateSignal UpdateKind = "signal"
	// UpdateGap: this listener was too slow; Missed updates were dropped.
	UpdateGap UpdateKind = "gap"
)

// Update is one line of what `run` shows: everything that changes.
type Update struct {
	// ID is its place in the stream of this scheduler's updates, BOOT-N: what
	// SubscribeFrom goes on from. An UpdateGap has that of the update before it.
	ID   string     `json:"id,omitempty"`
	Kind UpdateKind `json:"kind"`
	Time time.Time  `json:"time"`

	Job      job.ID         `json:"job,omitempty"`
	Name     job.Name       `json:"name,omitempty"`
	Tenant   job.Tenant     `json:"tenant,omitempty"`
	Worker   job.WorkerKind `json:"worker,omitempty"`
	Attempt  int            `json:"attempt,omitempty"`
	Entry    job.EntryState `json:"entry_state,omitempty"`
	State    job.RunState   `json:"state,omitempty"`
	Waiting  *job.Waiting   `json:"waiting,omitempty"` // what a job waits for that is queued
	ExitKind job.ExitKind   `json:"exit_kind,omitempty"`
	Usage    *job.Usage     `json:"usage,omitempty"` // of all attempts so far
	Text     string         `json:"text,omitempty"`
	Skipped  bool           `json:"skipped,omitempty"` // it was not to run: Text says why
	Trace    string         `json:"trace_id,omitempty"`

	// With UpdateSignal: the moment, and whose.
	Signal Signal      `json:"signal,omitempty"`
	Step   string      `json:"step,omitempty"`
	Batch  job.BatchID `json:"batch,omitempty"`
	Agent  job.AgentID `json:"agent,omitempty"`

	// CorePID is the process id of an agentcore that came up.
	CorePID int `json:"core_pid,omitempty"`

	// Escalation is set with UpdateEscalation, unless an isolation was lifted.
	Escalation *isolation.Escalation `json:"escalation,omitempty"`

	Event  *job.Event `json:"event,omitempty"`
	Missed int        `json:"missed,omitempty"`
}

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
func updateOf(f *flight, state job.RunState, e job.Event) Update {
	u := flightUpdate(f, state)
	u.Kind, u.Time, u.Event = UpdateEvent, e.Time, &e
	usage := f.entry.Spent.Add(f.usage)
	u.Usage = &usage
	return u
}

func flightUpdate(f *flight, state job.RunState) Update {
	e := &f.entry
	return Update{
		Kind: UpdateJob, Time: now(), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Worker: f.choice.Worker,
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
func entryUpdate(e *queue.Entry, st job.Status) Update {
	choices, spent := e.Spec.Choices(), e.Spent
	return Update{
		Kind: UpdateJob, Time: now(), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant,
		Worker: choices[min(e.Choice, len(choices)-1)].Worker, Attempt: e.Attempts, Entry: e.State, State: st.State, Waiting: st.Waiting,
		ExitKind: e.ExitKind, Usage: &spent, Text: st.Line(), Skipped: e.Skipped != "", Trace: e.Spec.Trace,
	}
}

// Tell lets every listener know of something that the program around the
// scheduler does.
func (s *Scheduler) Tell(text string) {
	s.hub.publish(Update{Kind: UpdateCore, Time: now(), Text: text})
}
