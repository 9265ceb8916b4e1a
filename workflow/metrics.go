package workflow

import (
	"time"

	"github.com/expr-lang/expr/types"

	"github.com/agentsched/agentsched/job"
)

// Metrics is what the attempts of a job took.
type Metrics struct {
	Attempts int // that were begun, whether or not they count
	Duration time.Duration
	Usage    job.Usage
	// Of the last attempt: who did it, and how its process ended.
	Worker job.WorkerKind
	Model  string
	Exit   int // job.Outcome.ExitCode; 0 if there was no attempt
}

// MetricsOf returns the metrics of a job that has ended, by its attempts in order.
func MetricsOf(attempts []job.Attempt) Metrics {
	var m Metrics
	for i := range attempts {
		a := &attempts[i]
		one := Metrics{Attempts: 1, Worker: a.Choice.Worker, Model: a.Choice.Model}
		if a.Ended != nil {
			one.Duration = max(a.Ended.Sub(a.Started), 0) // the clock may have been set back
		}
		if a.Outcome != nil {
			one.Usage, one.Exit = a.Outcome.Usage, a.Outcome.ExitCode
		}
		m = m.add(one)
	}
	return m
}

// add returns the sum of what two took, the later of which is n.
func (m Metrics) add(n Metrics) Metrics {
	if n.Attempts == 0 {
		return m
	}
	n.Attempts += m.Attempts
	n.Duration += m.Duration
	n.Usage = m.Usage.Add(n.Usage)
	return n
}

// metricFields are what jobs.NAME.metrics has.
var metricFields = []struct {
	name  string
	kind  types.Type
	value func(*Metrics) any
}{
	{"attempts", types.Int, func(m *Metrics) any { return m.Attempts }},
	{"duration_ms", types.Int, func(m *Metrics) any { return int(m.Duration.Milliseconds()) }},
	{"cost_usd", types.Float, func(m *Metrics) any { return m.Usage.CostUSD }},
	{"cost_known", types.Bool, func(m *Metrics) any { return m.Usage.CostKnown }},
	{"tokens", types.Int, func(m *Metrics) any { return int(m.Usage.Tokens()) }},
	{"input_tokens", types.Int, func(m *Metrics) any { return int(m.Usage.InputTokens) }},
	{"cached_tokens", types.Int, func(m *Metrics) any { return int(m.Usage.CachedTokens) }},
	{"cache_write_tokens", types.Int, func(m *Metrics) any { return int(m.Usage.CacheWriteTokens) }},
	{"output_tokens", types.Int, func(m *Metrics) any { return int(m.Usage.OutputTokens) }},
	{"reasoning_tokens", types.Int, func(m *Metrics) any { return int(m.Usage.ReasoningTokens) }},
	{"steps", types.Int, func(m *Metrics) any { return int(m.Usage.Steps) }},
	{"commands", types.Int, func(m *Metrics) any { return int(m.Usage.Commands) }},
	{"command_ms", types.Int, func(m *Metrics) any { return int(m.Usage.CommandMillis) }},
	{"worker", types.String, func(m *Metrics) any { return string(m.Worker) }},
	{"model", types.String, func(m *Metrics) any { return m.Model }},
	{"exit_code", types.Int, func(m *Metrics) any { return m.Exit }},
}

func metricTypes() types.Map {
	m := types.Map{}
	for _, f := range metricFields {
		m[f.name] = f.kind
	}
	return m
}

// metrics returns what an expression sees of what a job took, its parts included.
func (a *Batch) metrics(j *Job) map[string]any {
	m := j.Metrics
	for _, n := range a.parts(j.Spec.Name) {
		m = m.add(a.jobs[n].Metrics)
	}
	v := make(map[string]any, len(metricFields))
	for _, f := range metricFields {
		v[f.name] = f.value(&m)
	}
	return v
}
