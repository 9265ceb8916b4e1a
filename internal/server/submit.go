package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// maxSubmission bounds the body of POST /v1/jobs, in bytes.
const maxSubmission = 64 << 20

// submit stores jobs and answers when they are durable.
func (s *Server) submit(r *http.Request) (any, error) {
	var in client.Submission
	if err := decode(r, &in, maxSubmission); err != nil {
		return nil, err
	}
	if len(in.Jobs) == 0 {
		return nil, fmt.Errorf("%w: jobs is empty, want at least one", errBadRequest)
	}
	var bad []error
	for i := range in.Jobs {
		for _, f := range in.Jobs[i].Validate() {
			bad = append(bad, fmt.Errorf("%w: jobs[%d].%s: %s", errBadRequest, i, f.Field, f.Message))
		}
		if f := &in.Jobs[i].Flow; f.Node != "" || f.Part != 0 || f.Restart != 0 {
			bad = append(bad, fmt.Errorf("%w: jobs[%d].flow: node, part and restart are the scheduler's to set; leave them out", errBadRequest, i))
		}
	}
	bad = append(bad, badWorkflow(&in)...)
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	b, entries := scheduler.NewBatch(in.Source, in.Digest, in.Jobs, in.Workflow, time.Now().UTC().Round(0))
	var duplicate *queue.DuplicateError
	if err := s.sched.Submit(r.Context(), b, entries); errors.As(err, &duplicate) {
		return nil, duplicate // it says all
	} else if err != nil {
		return nil, err
	}
	stored, total, err := s.store.List(r.Context(), queue.Filter{Batch: b.ID, Limit: len(entries)})
	return client.Jobs{Jobs: stored, Total: total}, err
}

// badWorkflow returns what is wrong with how the jobs hang together.
func badWorkflow(in *client.Submission) (bad []error) {
	for _, f := range in.Workflow.Validate() {
		bad = append(bad, fmt.Errorf("%w: workflow.%s: %s", errBadRequest, f.Field, f.Message))
	}
	if len(bad) > 0 {
		return bad
	}
	joined := len(in.Workflow.Teams) > 0 || len(in.Workflow.Pipelines) > 0
	for i := range in.Jobs {
		joined = joined || !in.Jobs[i].Flow.Alone()
	}
	for i := range in.Jobs {
		in.Jobs[i].Flow.Joined = joined
	}
	for _, p := range workflow.Check(in.Jobs, &in.Workflow) {
		bad = append(bad, fmt.Errorf("%w: %w", errBadRequest, p))
	}
	for i := range in.Workflow.Pipelines {
		for _, p := range pipeline.Check(&in.Workflow.Pipelines[i], in.Jobs) {
			bad = append(bad, fmt.Errorf("%w: pipeline %s: %w", errBadRequest, in.Workflow.Pipelines[i].ID, p))
		}
	}
	return bad
}
