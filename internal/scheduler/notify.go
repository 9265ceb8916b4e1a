package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// setStopping notes that the end is near: nothing more is claimed.
func (s *Scheduler) setStopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	s.post(schedule.Stopping)
	s.more.Broadcast()
}

// endFlights ends whatever is still in the air when there will be no core.
func (s *Scheduler) endFlights(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.live {
		f.settle(ending{died: cause})
	}
}

// CoreNotify takes what the core tells. It waits only for room for events.
func (s *Scheduler) CoreNotify(c *supervisor.Core, method string, params json.RawMessage) {
	switch method {
	case ipc.NotifyWorkerEvent:
		decodeNotify(s, method, params, func(n ipc.WorkerEvent) { s.event(n.Event) })
	case ipc.NotifyJobCompleted:
		decodeNotify(s, method, params, func(n ipc.JobCompleted) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if f := s.live[n.Job]; f != nil && f.attempt == n.Attempt && f.core == c {
				f.settle(ending{outcome: n.Outcome})
			}
		})
	case ipc.NotifyJobCancelled:
		decodeNotify(s, method, params, func(n ipc.JobCancelled) {
			s.cfg.Log.Info().Str("job", string(n.Job)).Int("attempt", n.Attempt).Int64("worker_cancel_latency_ms", n.LatencyMS).Msg("worker stopped, tree empty")
		})
	case ipc.NotifyCircuits:
		decodeNotify(s, method, params, func(n ipc.Circuits) { s.circuit(c, n) })
	case ipc.NotifyMetrics:
		decodeNotify(s, method, params, func(n ipc.Metrics) { s.metrics(c, n) })
	case ipc.NotifyEscalation:
		decodeNotify(s, method, params, func(n ipc.Escalation) { s.Isolations.escalated(c, n) })
	default:
		s.cfg.Log.Debug().Str("method", method).Msg("unknown notification ignored")
	}
}

// circuit takes the news of a circuit breaker.
func (s *Scheduler) circuit(core *supervisor.Core, n ipc.Circuits) {
	s.mu.Lock()
	if m := s.cores[core]; m != nil {
		m.circuits = n.Circuits
	}
	s.mu.Unlock()
	c := n.Changed
	name := string(c.Worker)
	if c.Model != "" {
		name += " on " + c.Model
	}
	text := fmt.Sprintf("circuit of %s is %s", name, c.State)
	if !c.OpenUntil.IsZero() {
		text += fmt.Sprintf(" for %s: %s", time.Until(c.OpenUntil).Round(time.Second), c.Cause)
	}
	s.cfg.Log.Info().Str("worker", string(c.Worker)).Str("model", c.Model).Str("state", c.State).Str("cause", c.Cause).Msg("circuit breaker")
	s.Feed.publish(api.Update{Kind: api.UpdateCircuit, Time: now(), Worker: c.Worker, Text: text})
	if c.State != "open" {
		s.poke()
	}
}

// metrics takes how a core fares, and tells when its stage has changed.
func (s *Scheduler) metrics(core *supervisor.Core, n ipc.Metrics) {
	s.mu.Lock()
	m := s.cores[core]
	before := ""
	if m != nil {
		slots := m.metrics.Concurrency
		if before, m.metrics = m.metrics.Stage, n; slots != n.Concurrency {
			s.postCores()
		}
	}
	s.mu.Unlock()
	if m == nil || before == n.Stage || before == "" && n.Stage == normalStage {
		return
	}
	s.cfg.Log.Info().Int("core", core.Index()).Str("stage", n.Stage).Str("evidence", n.Evidence).Msg("stage of the defence")
	s.Feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: fmt.Sprintf("%s is at stage %s: %s", s.coreName(core.Index()), n.Stage, n.Evidence)})
	if n.Stage == normalStage {
		s.poke()
	}
}

// normalStage is what a core that is not overloaded tells.
const normalStage = "normal"

func decodeNotify[N any](s *Scheduler, method string, params json.RawMessage, f func(N)) {
	var n N
	if err := json.Unmarshal(params, &n); err != nil {
		s.cfg.Log.Error().Err(err).Str("method", method).Msg("notification that cannot be read")
		return
	}
	f(n)
}

// maxPending bounds the events that wait to be stored. Beyond it the core's
// stream is not read, and the core drops progress, the oldest first.
const maxPending = 20_000

// event takes one event of a run.
func (s *Scheduler) event(e job.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.pending >= maxPending && !s.stopping {
		s.more.Wait()
	}
	f := s.live[e.Job]
	if f == nil || f.attempt != e.Attempt {
		return
	}
	f.events = append(f.events, e)
	s.pending++
	switch e.Kind {
	case job.EventUsage:
		if e.Usage != nil {
			f.usage = f.usage.Add(*e.Usage)
			s.charge(f, e.Usage.CostUSD)
		}
	case job.EventSession:
		f.session = e.Session
	case job.EventStep:
		switch about := f.entry; e.Kept {
		case job.KeptBefore:
			about.Attempts = f.attempt
			defer s.Feed.signal(&about, api.StepReplayed, e.Step, "")
		case job.KeptRefused:
			about.Attempts = f.attempt
			defer s.Feed.signal(&about, api.StepFailed, e.Step, e.Text)
		}
	case job.EventState:
		if e.State == job.Running {
			f.touched = true
			started := f.entry
			started.Attempts = f.attempt
			defer s.Feed.signal(&started, api.AgentStarted, "", "")
		}
	}
	select {
	case s.flush <- struct{}{}:
	default:
	}
	s.Feed.publish(updateOf(f, job.Running, e))
}

// takeEvents returns, as ops, the events of a flight that wait to be stored.
func (s *Scheduler) takeEvents(f *flight) []queue.Op {
	s.storing.Lock() // wait for what is being stored
	defer s.storing.Unlock()
	s.mu.Lock()
	ops, t := s.takeLocked(f)
	s.mu.Unlock()
	if t != nil {
		s.Feed.observeEvents([]taken{*t})
	}
	return ops
}

// takeLocked is takeEvents with s.mu held; it leaves it to the caller to tell the
// observer.
func (s *Scheduler) takeLocked(f *flight) ([]queue.Op, *taken) {
	if len(f.events) == 0 {
		return nil, nil
	}
	t := &taken{entry: f.entry, attempt: f.attempt, choice: f.choice, events: f.events}
	ops := []queue.Op{queue.Append{Events: f.events}}
	for _, e := range f.events {
		move := queue.Move{ID: f.entry.ID, Fence: f.entry.Fence, Attempt: f.attempt, Session: e.Session}
		if e.Kind == job.EventState && e.State == job.Running && !f.running {
			f.running, move.To = true, job.Running
		}
		if move.To != "" || move.Session != "" {
			ops = append(ops, move)
		}
	}
	s.pending -= len(f.events)
	f.events = nil
	s.more.Broadcast()
	return ops, t
}

// flushEvery is how long an event may wait to be stored: long enough that a
// burst shares one commit.
const flushEvery = 50 * time.Millisecond

// flushLoop stores events as they come.
func (s *Scheduler) flushLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.flush:
		}
		if err := s.storeEvents(ctx); err != nil && ctx.Err() == nil {
			s.failure(fmt.Errorf("store events: %w", err))
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(flushEvery):
		}
	}
}

// storeEvents stores the events of every flight, with the moves of state and
// session that they bring.
func (s *Scheduler) storeEvents(ctx context.Context) error {
	s.storing.Lock()
	defer s.storing.Unlock()
	var ops []queue.Op
	var all []taken
	s.mu.Lock()
	for _, f := range s.live {
		more, t := s.takeLocked(f)
		if ops = append(ops, more...); t != nil {
			all = append(all, *t)
		}
	}
	s.mu.Unlock()
	s.Feed.observeEvents(all)
	if len(ops) == 0 {
		return nil
	}
	return s.apply(ctx, ops...)
}
