package workflow_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// TestMetricsOf adds attempts up, and takes words from the last one.
func TestMetricsOf(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	attempt := func(n int, worker job.WorkerKind, took time.Duration, o *job.Outcome) job.Attempt {
		end := at.Add(took)
		return job.Attempt{Number: n, Choice: job.Choice{Worker: worker, Model: "m-" + string(worker)}, Started: at, Ended: &end, Outcome: o}
	}
	got := workflow.MetricsOf([]job.Attempt{
		attempt(1, "codex", time.Second, &job.Outcome{Usage: job.Usage{InputTokens: 10, OutputTokens: 1, CostUSD: 0.5, CostKnown: true}, ExitCode: 1}),
		attempt(2, "codex", -time.Hour, nil), // lost, and the clock was set back
		attempt(3, "claude", 2*time.Second, &job.Outcome{Usage: job.Usage{InputTokens: 5, CostUSD: 0.25, CostKnown: true, Steps: 2}}),
	})
	want := workflow.Metrics{
		Attempts: 3, Duration: 3 * time.Second, Worker: "claude", Model: "m-claude",
		Usage: job.Usage{InputTokens: 15, OutputTokens: 1, CostUSD: 0.75, CostKnown: true, Steps: 2},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if none := workflow.MetricsOf(nil); none != (workflow.Metrics{}) {
		t.Errorf("of no attempt: %+v", none)
	}
}

// TestExpressionsSeeMetrics of a need: what the parts of a node took together, and
// of a skipped job nothing.
func TestExpressionsSeeMetrics(t *testing.T) {
	each, skipped, x := spec("each"), spec("skipped", "each"), spec("x", "each", "skipped")
	each.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`["a","b"]`)}
	skipped.Flow.If = "jobs.each.metrics.cost_usd > 2"
	x.Flow.If = "always() && jobs.each.metrics.cost_usd == 1.5 && jobs.each.metrics.cost_known"
	x.Flow.Input = json.RawMessage(`{"each":"${{ jobs.each.metrics }}","skipped":"${{ jobs.skipped.metrics.attempts + jobs.skipped.metrics.tokens }}","class":"${{ jobs.skipped.error_class }}"}`)
	w := newWorld([]job.Spec{each, skipped, x}, func(j *workflow.Job) {
		j.Metrics = workflow.Metrics{
			Attempts: j.Spec.Flow.Part, Duration: time.Second, Worker: "codex", Model: string(j.Spec.Name), Exit: j.Spec.Flow.Part,
			Usage: job.Usage{InputTokens: 7, OutputTokens: 2, CostUSD: 0.75, CostKnown: true, Commands: 1, CommandMillis: 40},
		}
	})
	finish(t, w)
	want := `{"class":"","each":{"attempts":3,"cache_write_tokens":0,"cached_tokens":0,"command_ms":80,"commands":2,"cost_known":true,"cost_usd":1.5,"duration_ms":2000,` +
		`"exit_code":2,"input_tokens":14,"model":"each@2","output_tokens":4,"reasoning_tokens":0,"steps":0,"tokens":18,"worker":"codex"},"skipped":0}`
	if r := w.resolved["x"]; r == nil || string(r.Input) != want {
		t.Errorf("got  %+v\nwant %s\n%s", r, want, w.summary())
	}
}

// TestCheckMetrics: names and types are known when the file is read.
func TestCheckMetrics(t *testing.T) {
	for text, want := range map[string][]string{
		"jobs.a.metrics.cost_usd > 0.5 && jobs.a.metrics.worker == 'codex'": nil,
		"jobs.a.metrics.costusd > 1":                                        {"job x: if: ${{ jobs.a.metrics.costusd > 1 }}: column 16: costusd is not there; did you mean cost_usd?"},
		"jobs.a.metrics.tokens":                                             {"gives a number, want true or false"},
		"jobs.a.metrics.worker > 1":                                         {"mismatched types string and int"},
		"jobs.a.metric.tokens > 1":                                          {"metric is not there; did you mean metrics?"},
		"jobs.b.metrics.attempts > 1":                                       {"b is not among the job's needs; add it: needs: [a, b]"},
		"jobs.a.error_class == 'AUTH'":                                      nil,
	} {
		x := spec("x", "a")
		x.Flow.If = text
		wantProblems(t, workflow.Check([]job.Spec{spec("a"), spec("b"), x}, nil), want)
	}
}
