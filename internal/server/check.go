package server

import (
	"cmp"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// maxSource bounds what says where jobs came from, in bytes.
const maxSource = 64 << 10

// checker checks submissions. Its functions are those of Options.
type checker struct {
	bounds  func() queue.Bounds
	domains func() []string
}

// maxJobs is how many jobs a submission may have; 0 means any number.
func (c checker) maxJobs() int { return call(c.bounds).Submission }

// call returns what f does, the zero value where there is none.
func call[T any](f func() T) (none T) {
	if f == nil {
		return none
	}
	return f()
}

// check reports all that is wrong with a submission, and names the default tenant
// where a job has none.
func (c checker) check(in *api.Submission) error {
	if err := call(c.bounds).CheckSubmission(len(in.Jobs)); err != nil {
		return err
	}
	for i := range in.Jobs {
		in.Jobs[i].Tenant = cmp.Or(in.Jobs[i].Tenant, job.DefaultTenant)
	}
	bad := &invalid{}
	if len(in.Jobs) == 0 {
		bad.add("body.jobs", "is empty, want at least one")
	}
	// The source of several job files has one on each line.
	if len(in.Source) > maxSource || !job.OneLine(strings.ReplaceAll(in.Source, "\n", " ")) {
		bad.add("body.source", "is not a name, want text without control characters of at most %d bytes", maxSource)
	}
	if len(in.Digest) > 256 || !job.OneLine(in.Digest) {
		bad.add("body.digest", "is not a hash, want one line of at most 256 bytes")
	}
	type member struct {
		tenant job.Tenant
		name   job.Name
	}
	first := map[member]int{}
	for i := range in.Jobs {
		m := member{in.Jobs[i].Tenant, in.Jobs[i].Name}
		if n, twice := first[m]; twice {
			bad.add(at("body.jobs", i)+".id", "%q is the id of jobs[%d] already; ids are unique among the jobs that are submitted together", m.name, n)
		} else {
			first[m] = i
		}
		for _, f := range in.Jobs[i].Validate() {
			bad.add(at("body.jobs", i)+"."+f.Field, "%s", f.Message)
		}
		if f := &in.Jobs[i].Flow; f.Node != "" || f.Part != 0 || f.Restart != 0 {
			bad.add(at("body.jobs", i)+".flow", "node, part and restart are the scheduler's to set; leave them out")
		}
	}
	if in.Workflow.Caller != nil {
		bad.add("body.workflow.caller", "is the scheduler's to set; leave it out")
	}
	for _, f := range in.Workflow.Validate() {
		bad.add("body.workflow."+f.Field, "%s", f.Message)
	}
	if len(bad.fields) > 0 {
		return bad
	}
	checkTogether(in, call(c.domains), bad)
	return bad.or()
}

// checkTogether checks how the jobs depend on one another.
func checkTogether(in *api.Submission, domains []string, bad *invalid) {
	joined := len(in.Workflow.Teams) > 0 || len(in.Workflow.Pipelines) > 0
	for i := range in.Jobs {
		joined = joined || !in.Jobs[i].Flow.Alone()
	}
	for i := range in.Jobs {
		in.Jobs[i].Flow.Joined = joined
	}
	for _, p := range append(workflow.Check(in.Jobs, &in.Workflow), workflow.CheckDomains(in.Jobs, &in.Workflow, domains)...) {
		bad.add("body", "%v", p)
	}
	for i := range in.Workflow.Pipelines {
		for _, p := range pipeline.Check(&in.Workflow.Pipelines[i], in.Jobs) {
			bad.add(at("body.workflow.pipelines", i), "pipeline %s: %v", in.Workflow.Pipelines[i].ID, p)
		}
	}
}
