package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// checkPipelines looks at what the configuration must have for pipelines to run to
// their ends: workers that can stream, and a slot for each of them.
func (prog *program) checkPipelines(w *job.Workflow, specs []job.Spec, cfg *config.Config) error {
	var errs []error
	slots, of := 0, map[job.WorkerKind]int{}
	for i := range w.Pipelines {
		p := &w.Pipelines[i]
		streams := 0
		for j := range p.Stages {
			if s := &p.Stages[j]; s.Streams {
				streams++
				kind, err := prog.streamsOn(p, s, specs, cfg)
				errs = append(errs, err)
				of[kind]++
			}
		}
		if streams > 0 {
			slots += pipeline.Slots(p)
		}
	}
	if slots > cfg.Concurrency.Max {
		errs = append(errs, fmt.Errorf(
			"the stages that stream need %d workers at once, each its own until its pipeline ends and one for those that do not stream, but concurrency.max is %d: raise it to %d, or let fewer stages stream",
			slots, cfg.Concurrency.Max, slots))
	}
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		if most, bounded := cfg.Concurrency.PerWorker[kind]; bounded && most > 0 && of[kind] > most {
			errs = append(errs, fmt.Errorf("%d stages stream on worker %s, each with one of its own until its pipeline ends, but concurrency.per_worker.%s is %d: raise it to %d", of[kind], kind, kind, most, of[kind]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usage(err)
	}
	return nil
}

// streamsOn returns the worker of a stage that streams, and why it, or one that the
// stage's job falls back to, cannot.
func (prog *program) streamsOn(p *job.Pipeline, s *job.Stage, specs []job.Spec, cfg *config.Config) (job.WorkerKind, error) {
	n := slices.IndexFunc(specs, func(spec job.Spec) bool { return spec.Name == s.Job })
	if n < 0 {
		return "", nil // the file was refused for that
	}
	for _, c := range specs[n].Choices() {
		if !prog.traits(cfg, c.Worker).Streams {
			able := prog.adaptersThat(func(t job.WorkerTraits) bool { return t.Streams })
			return c.Worker, fmt.Errorf("pipeline %s: stage %s: streams: true needs a worker of the adapter %s, and the worker of job %s, %s, is of the adapter %s: name another, or leave streams out",
				p.ID, s.ID, strings.Join(able, " or "), s.Job, c.Worker, cfg.AdapterOf(c.Worker))
		}
	}
	return specs[n].Worker, nil
}
