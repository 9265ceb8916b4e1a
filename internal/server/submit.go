package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

func (s *Server) submitRoutes() {
	again := "\nWith an Idempotency-Key the same request may be sent again: it is answered with the jobs of the first, status 200 and the header Idempotent-Replayed."
	postAny(s, route{id: "submit-jobs", method: "POST", path: "/v1/jobs", role: submit, tag: "jobs", status: http.StatusCreated, other: http.StatusOK, body: s.opt.MaxBody, maxJobs: func() int { return s.bounds().Submission },
		about: "Submit jobs that stand or fall together; when they are answered they are durable." + again}, s.submit)
	postAny(s, route{id: "submit-job-file", method: "POST", path: "/v1/job-files", role: submit, tag: "jobs", status: http.StatusCreated, other: http.StatusOK, body: s.opt.MaxBody,
		about: "Submit a job file, as `scheduler submit` reads it on the scheduler's host." + again}, s.submitFile)
}

type submitHeaders struct {
	Key   string `header:"Idempotency-Key" doc:"1 to 255 printable ASCII characters; of one sender, the same key is the same submission, as long as its jobs are kept"`
	Trace string `header:"traceparent" doc:"W3C trace context: its trace id becomes that of jobs that have none"`
}

// submitted is the answer to a submission.
type submitted struct {
	Status   int
	Replayed string `header:"Idempotent-Replayed" doc:"true: the jobs are those of an earlier request with this key"`
	Body     api.Jobs
}

func (s *Server) submitFile(ctx context.Context, h *submitHeaders, f *api.JobFile) (*submitted, error) {
	if s.opt.ReadFile == nil {
		return nil, newProblem("not_available", http.StatusNotFound, "job files cannot be read here: submit their jobs to POST /v1/jobs")
	}
	in, err := s.opt.ReadFile(ctx, *f)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, badField("body.text", "%v", err)
	}
	return s.submit(ctx, h, &in)
}

// submit stores jobs and answers when they are durable.
func (s *Server) submit(ctx context.Context, h *submitHeaders, in *api.Submission) (*submitted, error) {
	if err := s.bounds().CheckSubmission(len(in.Jobs)); err != nil {
		return nil, err
	}
	if err := s.checkSubmission(in); err != nil {
		return nil, err
	}
	for i := range in.Jobs {
		in.Jobs[i].Tenant = cmp.Or(in.Jobs[i].Tenant, job.DefaultTenant)
	}
	key, err := s.newKey(ctx, h.Key, in)
	if err != nil {
		return nil, err
	}
	if out, err := s.replay(ctx, key, in); out != nil || err != nil {
		return out, err
	}
	if trace := traceOf(h.Trace); trace != "" {
		for i := range in.Jobs {
			if in.Jobs[i].Trace == "" {
				in.Jobs[i].Trace = trace
			}
		}
	}
	b, entries := scheduler.NewBatch(in.Source, in.Digest, in.Jobs, in.Workflow, time.Now().UTC().Round(0))
	key.name(&b, entries)
	if err := s.opt.Sched.Submit(ctx, b, entries); err != nil {
		if errors.Is(err, queue.ErrDuplicate) {
			// The same request may have come in at the same time, and been first.
			if out, again := s.replay(ctx, key, in); out != nil || again != nil {
				return out, again
			}
		}
		return nil, err
	}
	jobs, err := s.stored(ctx, b.ID, len(entries))
	return &submitted{Status: http.StatusCreated, Body: jobs}, err
}

func (s *Server) bounds() (b queue.Bounds) {
	if s.opt.Bounds != nil {
		b = s.opt.Bounds()
	}
	return b
}

func (s *Server) domains() []string {
	if s.opt.Domains == nil {
		return nil
	}
	return s.opt.Domains()
}

func (s *Server) stored(ctx context.Context, b job.BatchID, n int) (api.Jobs, error) {
	stored, _, err := s.opt.Store.List(ctx, queue.Filter{Batch: b, Limit: n})
	return api.Jobs{Jobs: s.stand(ctx, stored), Total: len(stored)}, err
}

// maxSource bounds what says where jobs came from, in bytes.
const maxSource = 64 << 10

// checkSubmission reports all that is wrong with a submission.
func (s *Server) checkSubmission(in *api.Submission) error {
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
		m := member{cmp.Or(in.Jobs[i].Tenant, job.DefaultTenant), in.Jobs[i].Name}
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
	checkTogether(in, s.domains(), bad)
	return bad.or()
}

// checkTogether looks at how the jobs hang together.
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

// traceOf returns the trace id of a traceparent header, 32 hexadecimal digits; ""
// of one that is none, which the standard has passed over
// (https://www.w3.org/TR/trace-context/#traceparent-header).
func traceOf(header string) string {
	parts := strings.Split(header, "-")
	if len(parts) < 4 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 {
		return ""
	}
	for i, digits := range []int{2, 32, 16, 2} {
		raw, err := hex.DecodeString(parts[i])
		if err != nil || len(parts[i]) != digits || parts[i] != strings.ToLower(parts[i]) {
			return ""
		}
		if i == 1 || i == 2 {
			if zero := strings.Repeat("0", digits); parts[i] == zero || len(raw) == 0 {
				return ""
			}
		}
	}
	return parts[1]
}
