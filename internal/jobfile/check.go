package jobfile

import (
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/workflow"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// part is where a team or a pipeline stands.
type part struct {
	*reader
	path string
}

// check records what is wrong between jobs that are right by themselves.
func (b *batch) check() {
	w := &b.jobs.Workflow
	for _, p := range append(workflow.Check(b.jobs.Specs, w), workflow.CheckDomains(b.jobs.Specs, w, b.opts.Domains)...) {
		if from, ok := b.origins[p.Job]; ok {
			from.fail(p.Field, p.Message)
			continue
		}
		b.failTeam(p)
	}
	for i := range w.Pipelines {
		at := b.pipelinesAt[i]
		for _, p := range pipeline.Check(&w.Pipelines[i], b.jobs.Specs) {
			at.Failf(at.path+"."+p.Field, "%s", p.Message)
		}
	}
}

// failTeam places a mistake in a team: the teams of all files are counted through.
func (b *batch) failTeam(p workflow.Problem) {
	for i, at := range b.teamsAt {
		if rest, ok := strings.CutPrefix(p.Field, fmt.Sprintf("teams[%d]", i)); ok {
			at.Failf(at.path+rest, "%s", p.Message)
			return
		}
	}
	last := b.files[len(b.files)-1] // it names no place that we know
	last.Failf("", "%s", p.Error())
}
