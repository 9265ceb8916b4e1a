package telemetry

import (
	"cmp"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// counters count moments. They begin at 0 with the process.
type counters struct {
	names *names

	submitted, ended, permits       *counter
	permitLatency, dispatch         *histogram
	begun, attempts, preempted      *counter
	tokens, tokenParts, cost        *counter
	events, eventsDropped, ghosts   *counter
	escalations, coresUp, coresDown *counter
}

func newCounters(n *names) *counters {
	c := &counters{
		names:     n,
		submitted: newCounter("jobs_submitted_total", "Jobs that became durable.", "tenant"),
		ended:     newCounter("jobs_ended_total", "Jobs that reached a terminal state, by how and, where they failed, by the class of that.", "tenant", "worker", "outcome", "error_class"),
		permits:   newCounter("permits_total", "Answers of cores to the question whether an attempt may run.", "result", "reason"),
		permitLatency: newHistogram("permit_latency_seconds", "How long the answer to a question for a permit took.", "result",
			0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
		dispatch: newHistogram("dispatch_latency_seconds", "How long a job had waited since it could run when an attempt began.", "class",
			0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
		begun:         newCounter("attempts_started_total", "Attempts that were given to a core.", "worker", "model"),
		attempts:      newCounter("attempts_ended_total", "Attempts whose outcome is durable, by how they ended.", "worker", "model", "result", "error_class"),
		preempted:     newCounter("preemptions_total", "Runs that stopped at a step's boundary to give their slot to a tenant with a contract.", "tenant", "preempted_by"),
		tokens:        newCounter("tokens_total", "Tokens that attempts reported, input with what was cached and output with reasoning.", "tenant", "worker", "model", "direction"),
		tokenParts:    newCounter("tokens_part_total", "Parts of the tokens: read from a cache and written to it (of the input), reasoning (of the output).", "tenant", "worker", "model", "part"),
		cost:          newCounter("cost_usd_total", "What attempts cost, in US dollars, as far as it is known.", "tenant", "worker", "model"),
		events:        newCounter("events_total", "Events of attempts that were given to the event store.", "kind"),
		eventsDropped: newCounter("events_dropped_total", "Events of attempts that were dropped under load before they could be stored."),
		ghosts:        newCounter("ghosts_total", "Processes that were found alive after they had to be dead."),
		escalations:   newCounter("escalations_total", "Conditions of which a person was told.", "cause"),
		coresUp:       newCounter("cores_up_total", "Cores that came up."),
		coresDown:     newCounter("cores_down_total", "Cores that died or were replaced."),
	}
	// What has not happened yet is 0, not absent: an alert on its increase sees the first.
	for _, cause := range causes() {
		c.escalations.add(0, string(cause))
	}
	c.permits.add(0, granted, "")
	for _, reason := range reasons() {
		c.permits.add(0, refused, string(reason))
	}
	return c
}

func (c *counters) collect(p *page) {
	for _, one := range []collector{
		c.submitted, c.ended, c.permits, c.permitLatency, c.dispatch, c.begun, c.attempts, c.preempted, c.tokens, c.tokenParts, c.cost,
		c.events, c.eventsDropped, c.ghosts, c.escalations, c.coresUp, c.coresDown,
	} {
		one.collect(p)
	}
}

// Results of a question for a permit.
const (
	granted = "granted"
	refused = "refused"
)

func (c *counters) observe(m scheduler.Moment) {
	switch m.Kind {
	case scheduler.MomentSubmitted:
		c.submitted.add(1, c.names.tenant(m.Entry.Spec.Tenant))
	case scheduler.MomentPermit:
		result := granted
		if m.Reason != "" {
			result = refused
		}
		c.permits.add(1, result, oneOf(m.Reason, reasons()))
		c.permitLatency.observe(m.Took.Seconds(), result)
	case scheduler.MomentBegun:
		c.begun.add(1, c.choice(m.Choice)...)
		c.dispatch.observe(m.Took.Seconds(), oneOf(m.Entry.Spec.Class.Or(), job.Classes()))
	case scheduler.MomentEvents:
		for i := range m.Events {
			c.event(&m, &m.Events[i])
		}
	case scheduler.MomentAttemptEnded:
		labels := append(c.choice(m.Choice), oneOf(m.Outcome.State, job.RunStates()), errorClass(m.Outcome.Class))
		c.attempts.add(1, labels...)
		if to := m.Outcome.PreemptedBy; to != "" {
			c.preempted.add(1, c.names.tenant(m.Entry.Spec.Tenant), c.names.tenant(to))
		}
	case scheduler.MomentEnded:
		e := m.Entry
		class := job.NoError
		if outcome(e) == string(job.ExitFailed) {
			class = e.ErrorClass
		}
		c.ended.add(1, c.names.tenant(e.Spec.Tenant), c.names.worker(currentChoice(e).Worker), outcome(e), errorClass(class))
	case scheduler.MomentCoreUp:
		c.coresUp.add(1)
	case scheduler.MomentCoreDown:
		c.coresDown.add(1)
	}
}

func (c *counters) choice(choice job.Choice) []string {
	return []string{c.names.worker(choice.Worker), c.names.model(choice.Model)}
}

func (c *counters) event(m *scheduler.Moment, ev *job.Event) {
	c.events.add(1, oneOf(ev.Kind, eventKinds()))
	c.eventsDropped.add(float64(max(ev.Dropped, 0)))
	u := ev.Usage
	if u == nil {
		return
	}
	of := append([]string{c.names.tenant(m.Entry.Spec.Tenant)}, c.choice(m.Choice)...)
	add := func(v *counter, n float64, label ...string) {
		if n > 0 {
			v.add(n, append(of[:len(of):len(of)], label...)...)
		}
	}
	add(c.tokens, float64(u.InputTokens), "input")
	add(c.tokens, float64(u.OutputTokens), "output")
	add(c.tokenParts, float64(u.CachedTokens), "cache_read")
	add(c.tokenParts, float64(u.CacheWriteTokens), "cache_write")
	add(c.tokenParts, float64(u.ReasoningTokens), "reasoning")
	add(c.cost, u.CostUSD)
}

func (c *counters) escalated(cause isolation.Cause) {
	c.escalations.add(1, oneOf(cause, causes()))
	if cause == isolation.CauseGhost {
		c.ghosts.add(1)
	}
}

// outcome says how a job ended: succeeded, failed, cancelled or expired.
func outcome(e *queue.Entry) string {
	if e.State == job.Completed {
		return cmp.Or(oneOf(e.ExitKind, []job.ExitKind{job.ExitSucceeded, job.ExitFailed, job.ExitCancelled}), other)
	}
	return oneOf(e.State, job.EntryStates())
}

// currentChoice is the worker that an entry was tried on last, or would be next.
func currentChoice(e *queue.Entry) job.Choice {
	choices := e.Spec.Choices()
	return choices[min(max(e.Choice, 0), len(choices)-1)]
}
