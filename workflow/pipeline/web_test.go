package pipeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// The five-stage pipeline of examples/web-testing.

const webSeeds = `[{"start":"shop/index.html"},{"start":"blog/index.html"},{"start":"account/index.html"}]`

func webLine() *job.Pipeline {
	return &job.Pipeline{ID: "web-testing", Stages: []job.Stage{
		{ID: "recon", Job: "recon", Publishes: []job.EventType{"page_discovered", "api_found", "sitemap_built"}},
		{
			ID: "behavior", Job: "behavior", Batch: 4,
			Subscribes: []job.EventType{"page_discovered", "api_found", "sitemap_built"},
			Publishes:  []job.EventType{"test_generated", "flow_mapped"},
		},
		{
			ID: "load", Job: "load", Batch: 2, MaxParallel: 4, Buffer: 16,
			Subscribes: []job.EventType{"test_generated", "flow_mapped"},
			Publishes:  []job.EventType{"load_result", "perf_metric"},
		},
		{
			ID: "observer", Job: "observer", Batch: 8,
			Subscribes: []job.EventType{"load_result", "perf_metric"},
			Publishes:  []job.EventType{"anomaly_detected", "observation_complete"},
		},
		{
			ID: "synthesis", Job: "synthesis", Batch: 8,
			Subscribes: []job.EventType{"anomaly_detected", "observation_complete"},
			Publishes:  []job.EventType{"final_report"},
		},
	}}
}

// webReport is the report: it does not depend on what ran when, or how often.
const webReport = `{"tests":22,"failed":4,"slowest":{"what":"page shop/rolls.html","ms":930},"anomalies":[` +
	`"api GET /api/orders answers 500","flow shop/ stops at shop/sold-out.html","flow shop/ takes 207 ms, more than 200",` +
	`"form POST /api/reorder is unknown, called by account/orders.html",` +
	`"page shop/rolls.html takes 930 ms, more than 200","page shop/sold-out.html is not there"]}`

// webStages runs the example's programs. They give the same answer to the same
// input, so that each is asked only once, however often the pipeline is run.
type webStages struct {
	t       tb
	mu      sync.Mutex
	answers map[string]string
}

func newWebStages(t testing.TB) *webStages {
	if _, err := exec.LookPath("awk"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no awk on this host")
		}
		t.Skip("no awk on this host")
	}
	return &webStages{t: t, answers: map[string]string{}}
}

func (w *webStages) do(in pipeline.Input) (string, job.ErrorClass) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s %s %v", in.Stage, in.State, in.End)
	for _, e := range in.Events {
		key += fmt.Sprintf(" %s=%s", e.Type, e.Data)
	}
	if answer, known := w.answers[key]; known {
		return answer, ""
	}
	w.answers[key] = w.ask(in, 0)
	return w.answers[key], ""
}

// ask runs the stage's program, which takes that much longer.
func (w *webStages) ask(in pipeline.Input, wait time.Duration) string {
	text, err := json.Marshal(in)
	check(w.t, err)
	script, err := filepath.Abs("../../examples/web-testing/stages/stage.sh")
	check(w.t, err)
	cmd := exec.Command("sh", script, string(in.Stage))
	if wait > 0 {
		cmd = exec.Command("sh", "-c", fmt.Sprintf(`sleep %.3f && exec sh "$@"`, wait.Seconds()), "sh", script, string(in.Stage))
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("stage %s with %s: %v\n%s", in.Stage, text, err, &stderr)
	}
	return string(out)
}

func newWeb(t tb, stages *webStages) *runner {
	r := &runner{t: t, batch: job.NewBatchID(), line: webLine(), do: stages.do}
	m := newMemory()
	for i := range r.line.Stages {
		seeds := ""
		if i == 0 {
			seeds = webSeeds
		}
		m.jobs = append(m.jobs, node(r.batch, r.line.Stages[i].Job, seeds))
	}
	r.world = m
	return r
}

func (r *runner) wantReport() {
	r.t.Helper()
	reports := r.ofType("final_report")
	if len(reports) != 1 || string(reports[0].Data) != webReport {
		r.t.Fatalf("after %d crashes there are %d reports:\n%s\nwant one\n%s", r.crashes, len(reports), marshal(r.t, reports), webReport)
	}
	for _, s := range r.line.Stages {
		e := r.job(s.Job)
		if e.State != job.Completed || e.ExitKind != job.ExitSucceeded {
			r.t.Fatalf("the job of stage %s is %s %s: %s", s.ID, e.State, e.ExitKind, e.DeadLetter)
		}
	}
}

func marshal(t tb, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	check(t, err)
	return string(text)
}

func TestWebTesting(t *testing.T) {
	r := newWeb(t, newWebStages(t))
	r.run()
	r.wantReport()
	var sum pipeline.Summary
	check(t, json.Unmarshal(r.job("load").Result, &sum))
	if tests := len(r.ofType("test_generated")) + len(r.ofType("flow_mapped")); sum.Events != tests || sum.Published == 0 || sum.DeadLetters != 0 {
		t.Errorf("the result of load is %+v, of %d tests", sum, tests)
	}
	// Downstream starts on the first event, not at the end.
	first := map[pipeline.MoveKind]map[job.Name]int{pipeline.Gave: {}, pipeline.Ended: {}}
	for i, m := range r.moves {
		if at, kind := first[m.Kind]; kind {
			if _, seen := at[m.Stage]; !seen {
				at[m.Stage] = i
			}
		}
	}
	for i := range r.line.Stages[1:] {
		if before, s := r.line.Stages[i].ID, r.line.Stages[i+1].ID; first[pipeline.Gave][s] > first[pipeline.Ended][before] {
			t.Errorf("stage %s was given nothing before %s had ended", s, before)
		}
	}
}

// TestWebTestingKilledAnywhere kills the scheduler at each of its writes in turn,
// just before and just after it is on disk, and lets the next one go on.
func TestWebTestingKilledAnywhere(t *testing.T) {
	stages := newWebStages(t)
	whole := newWeb(t, stages)
	whole.run()
	events := len(whole.events())
	for _, done := range []bool{false, true} {
		for at := 1; ; at++ {
			r := newWeb(t, stages)
			r.world.(*memory).fail = func(n int) (bool, error) {
				if n == at {
					return done, errCrash
				}
				return true, nil
			}
			r.run()
			if r.crashes == 0 {
				if at < 60 {
					t.Fatalf("the whole run took %d writes only", at)
				}
				break
			}
			r.wantReport()
			if n := len(r.events()); n != events {
				t.Fatalf("killed at write %d (on disk: %v): %d events in the log, want %d", at, done, n, events)
			}
		}
	}
}

// TestWebTestingStageKilled kills the worker of each stage in turn, at each part
// that it has.
func TestWebTestingStageKilled(t *testing.T) {
	stages := newWebStages(t)
	whole := newWeb(t, stages)
	whole.run()
	for _, s := range whole.line.Stages {
		parts := whole.status()[s.ID].Given
		for part := 1; part <= parts; part++ {
			r, had := newWeb(t, stages), 0
			r.kill = func(in pipeline.Input) bool {
				if in.Stage == s.ID {
					had++
				}
				return in.Stage == s.ID && had == part
			}
			r.run()
			if r.crashes != 1 {
				t.Fatalf("stage %s was killed %d times at its part %d", s.ID, r.crashes, part)
			}
			r.wantReport()
		}
		if parts < 2 {
			t.Errorf("stage %s had only %d parts", s.ID, parts)
		}
	}
}
