package telemetry

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// counters count moments. They begin at 0 with the process.
type counters struct {
	names *names

	submitted, ended           *prometheus.CounterVec
	permits                    *prometheus.CounterVec
	permitLatency, dispatch    *prometheus.HistogramVec
	begun, attempts            *prometheus.CounterVec
	tokens, tokenParts, cost   *prometheus.CounterVec
	events                     *prometheus.CounterVec
	eventsDropped, ghosts      prometheus.Counter
	escalations, coresUp, down *prometheus.CounterVec
}

func newCounters(n *names) *counters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentsched_" + name, Help: help}, labels)
	}
	c := &counters{
		names:     n,
		submitted: counter("jobs_submitted_total", "Jobs that became durable.", "tenant"),
		ended:     counter("jobs_ended_total", "Jobs that reached a terminal state, by how and, where they failed, by the class of that.", "tenant", "worker", "outcome", "error_class"),
		permits:   counter("permits_total", "Answers of cores to the question whether an attempt may run.", "result", "reason"),
		permitLatency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentsched_permit_latency_seconds", Help: "How long the answer to a question for a permit took.",
			Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
		}, []string{"result"}),
		dispatch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentsched_dispatch_latency_seconds", Help: "How long a job had waited since it could run when an attempt began.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400},
		}, []string{"class"}),
		begun:      counter("attempts_started_total", "Attempts that were given to a core.", "worker", "model"),
		attempts:   counter("attempts_ended_total", "Attempts whose outcome is durable, by how they ended.", "worker", "model", "result", "error_class"),
		tokens:     counter("tokens_total", "Tokens that attempts reported, input with what was cached and output with reasoning.", "tenant", "worker", "model", "direction"),
		tokenParts: counter("tokens_part_total", "Parts of the tokens: read from a cache and written to it (of the input), reasoning (of the output).", "tenant", "worker", "model", "part"),
		cost:       counter("cost_usd_total", "What attempts cost, in US dollars, as far as it is known.", "tenant", "worker", "model"),
		events:     counter("events_total", "Events of attempts that were given to the event store.", "kind"),
		eventsDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentsched_events_dropped_total", Help: "Events of attempts that were dropped under load before they could be stored."}),
		ghosts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agentsched_ghosts_total", Help: "Processes that were found alive after they had to be dead."}),
		escalations: counter("escalations_total", "Conditions of which a person was told.", "cause"),
		coresUp:     counter("cores_up_total", "Cores that came up."),
		down:        counter("cores_down_total", "Cores that died or were replaced."),
	}
	// What has not happened yet is 0, not absent: an alert on its increase sees the first.
	for _, cause := range causes() {
		c.escalations.WithLabelValues(string(cause))
	}
	c.coresUp.WithLabelValues()
	c.down.WithLabelValues()
	c.permits.WithLabelValues(granted, "")
	for _, reason := range reasons() {
		c.permits.WithLabelValues(refused, string(reason))
	}
	return c
}

func (c *counters) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		c.submitted, c.ended, c.permits, c.permitLatency, c.dispatch, c.begun, c.attempts, c.tokens, c.tokenParts, c.cost,
		c.events, c.eventsDropped, c.ghosts, c.escalations, c.coresUp, c.down,
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
		c.submitted.WithLabelValues(c.names.tenant(m.Entry.Spec.Tenant)).Inc()
	case scheduler.MomentPermit:
		result := granted
		if m.Reason != "" {
			result = refused
		}
		c.permits.WithLabelValues(result, oneOf(m.Reason, reasons())).Inc()
		c.permitLatency.WithLabelValues(result).Observe(m.Took.Seconds())
	case scheduler.MomentBegun:
		c.begun.WithLabelValues(c.choice(m.Choice)...).Inc()
		c.dispatch.WithLabelValues(oneOf(m.Entry.Spec.Class.Or(), job.Classes())).Observe(m.Took.Seconds())
	case scheduler.MomentEvents:
		for i := range m.Events {
			c.event(&m, &m.Events[i])
		}
	case scheduler.MomentAttemptEnded:
		labels := append(c.choice(m.Choice), oneOf(m.Outcome.State, job.RunStates()), errorClass(m.Outcome.Class))
		c.attempts.WithLabelValues(labels...).Inc()
	case scheduler.MomentEnded:
		e := m.Entry
		class := job.NoError
		if outcome(e) == string(job.ExitFailed) {
			class = e.ErrorClass
		}
		c.ended.WithLabelValues(c.names.tenant(e.Spec.Tenant), c.names.worker(currentChoice(e).Worker), outcome(e), errorClass(class)).Inc()
	case scheduler.MomentCoreUp:
		c.coresUp.WithLabelValues().Inc()
	case scheduler.MomentCoreDown:
		c.down.WithLabelValues().Inc()
	}
}

func (c *counters) choice(choice job.Choice) []string {
	return []string{c.names.worker(choice.Worker), c.names.model(choice.Model)}
}

func (c *counters) event(m *scheduler.Moment, ev *job.Event) {
	c.events.WithLabelValues(oneOf(ev.Kind, eventKinds())).Inc()
	c.eventsDropped.Add(float64(max(ev.Dropped, 0)))
	u := ev.Usage
	if u == nil {
		return
	}
	of := append([]string{c.names.tenant(m.Entry.Spec.Tenant)}, c.choice(m.Choice)...)
	add := func(v *prometheus.CounterVec, n float64, label ...string) {
		if n > 0 {
			v.WithLabelValues(append(of[:len(of):len(of)], label...)...).Add(n)
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
	c.escalations.WithLabelValues(oneOf(cause, causes())).Inc()
	if cause == isolation.CauseGhost {
		c.ghosts.Inc()
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
