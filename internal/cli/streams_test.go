package cli

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
)

func TestCheckPipelines(t *testing.T) {
	specs := []job.Spec{
		{Name: "a", Worker: "mine"}, {Name: "b", Worker: "mine"}, {Name: "c", Worker: "shell"},
		{Name: "falls-back", Worker: "mine", Fallback: []job.Choice{{Worker: "codex"}}},
	}
	line := func(jobs ...job.Name) *job.Workflow {
		p := job.Pipeline{ID: "line"}
		for _, j := range jobs {
			name, streams := strings.CutSuffix(string(j), "*")
			p.Stages = append(p.Stages, job.Stage{ID: job.Name(name), Job: job.Name(name), Streams: streams})
		}
		return &job.Workflow{Pipelines: []job.Pipeline{p}}
	}
	for _, c := range []struct {
		w    *job.Workflow
		max  int
		each int    // of worker mine; 0: no bound
		want string // in the message; "" none
	}{
		{line("a", "b", "c"), 1, 1, ""},
		{line("a*", "b", "c"), 2, 1, ""},
		{line("a*", "b*", "c"), 3, 2, ""},
		{line("a*", "b*", "c"), 2, 0, "need 3 workers at once, each its own until its pipeline ends and one for those that do not stream, but concurrency.max is 2"},
		{line("a*", "b*", "c"), 3, 1, "2 stages stream on worker mine, each with one of its own until its pipeline ends, but concurrency.per_worker.mine is 1"},
		{line("a", "c*"), 9, 0, "stage c: streams: true needs a worker of the adapter exec, and the worker of job c, shell, is of the adapter shell"},
		{line("a", "falls-back*"), 9, 0, "the worker of job falls-back, codex, is of the adapter codex"},
		{&job.Workflow{Pipelines: append(line("a*").Pipelines, line("b*").Pipelines...)}, 1, 0, "need 2 workers at once"},
	} {
		cfg := config.Config{Workers: map[job.WorkerKind]job.WorkerSettings{"mine": {Adapter: "exec"}}}
		cfg.Concurrency.Max = c.max
		cfg.Concurrency.PerWorker = map[job.WorkerKind]int{"mine": c.each}
		err := newMain().prog.checkPipelines(c.w, specs, &cfg)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.w, err, c.want)
		}
	}
}
