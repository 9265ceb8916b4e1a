package scheduler

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/schedule"
)

// CoreNotify takes what a core tells. It waits only for room for events.
func (f *fleet) CoreNotify(c *supervisor.Core, method string, params json.RawMessage) {
	switch method {
	case ipc.NotifyWorkerEvent:
		decodeNotify(f, method, params, func(n ipc.WorkerEvent) {
			f.loop.postEvent(schedule.RunEvent{Core: f.idOf(c), Event: n.Event})
		})
	case ipc.NotifyJobCompleted:
		decodeNotify(f, method, params, func(n ipc.JobCompleted) {
			if f.keepFiles != nil && len(n.Outcome.Artifacts) > 0 && f.CoreHas(c, n.Job, n.Attempt) {
				f.keepFiles(n.Job, n.Attempt, &n.Outcome)
			}
			if n.Talk != nil {
				f.talks.lastWords(c, *n.Talk)
			}
			if n.RetryIn > 0 && n.Outcome.RetryAt != nil {
				at := now().Add(n.RetryIn.Std())
				n.Outcome.RetryAt = &at
			}
			f.loop.post(schedule.Ended{Core: f.idOf(c), Job: n.Job, Attempt: n.Attempt, Outcome: n.Outcome})
			r, err := f.runOn(c, n.Job, n.Attempt)
			if err != nil {
				c.Recorded(n.Job, n.Attempt, 0, true) // nothing comes of it
			} else if !f.ending.Load() && c.Node() == "" && !r.Entry.Spec.Workspace.IsFolder() {
				f.background(f.lookAtMirrors)
			}
		})
	case ipc.NotifyJobCancelled:
		decodeNotify(f, method, params, func(n ipc.JobCancelled) {
			f.log.Info().Str("job", string(n.Job)).Int("attempt", n.Attempt).Int64("worker_cancel_latency_ms", n.LatencyMS).Msg("worker stopped, tree empty")
		})
	case ipc.NotifyCircuits:
		decodeNotify(f, method, params, func(n ipc.Circuits) { f.circuit(c, n) })
	case ipc.NotifyMetrics:
		decodeNotify(f, method, params, func(n ipc.Metrics) { f.measured(c, n) })
	case ipc.NotifyEscalation:
		decodeNotify(f, method, params, func(n ipc.Escalation) { f.isolations.escalated(c, n) })
	default:
		f.log.Debug().Str("method", method).Msg("unknown notification ignored")
	}
}

func decodeNotify[N any](f *fleet, method string, params json.RawMessage, take func(N)) {
	var n N
	if err := json.Unmarshal(params, &n); err != nil {
		f.log.Error().Err(err).Str("method", method).Msg("notification that cannot be read")
		return
	}
	take(n)
}

// circuit takes the news of a circuit breaker.
func (f *fleet) circuit(core *supervisor.Core, n ipc.Circuits) {
	at := now()
	n.Changed = n.Changed.By(n.Now, at)
	for i := range n.Circuits {
		n.Circuits[i] = n.Circuits[i].By(n.Now, at)
	}
	f.mu.Lock()
	if m := f.members[core]; m != nil {
		m.circuits = n.Circuits
	}
	f.mu.Unlock()
	c := n.Changed
	name := string(c.Worker)
	if c.Model != "" {
		name += " on " + c.Model
	}
	text := fmt.Sprintf("circuit of %s is %s", name, c.State)
	if !c.OpenUntil.IsZero() {
		text += fmt.Sprintf(" for %s: %s", time.Until(c.OpenUntil).Round(time.Second), c.Cause)
	}
	f.log.Info().Str("worker", string(c.Worker)).Str("model", c.Model).Str("state", c.State).Str("cause", c.Cause).Msg("circuit breaker")
	f.feed.publish(api.Update{Kind: api.UpdateCircuit, Time: now(), Worker: c.Worker, Text: text})
}

// measured takes how a core fares, and tells when its stage has changed.
func (f *fleet) measured(core *supervisor.Core, n ipc.Metrics) {
	f.mu.Lock()
	m := f.members[core]
	before := ""
	if m != nil {
		slots := m.metrics.Concurrency
		if before, m.metrics = m.metrics.Stage, n; slots != n.Concurrency {
			f.post()
		}
	}
	f.mu.Unlock()
	if m == nil || before == n.Stage || before == "" && n.Stage == normalStage {
		return
	}
	f.log.Info().Int("core", core.Index()).Str("stage", n.Stage).Str("evidence", n.Evidence).Msg("stage of the defence")
	f.feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: fmt.Sprintf("%s is at stage %s: %s", f.nameOf(core), n.Stage, n.Evidence)})
}

// normalStage is what a core that is not overloaded tells.
const normalStage = "normal"
