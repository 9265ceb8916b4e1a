package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
)

// Checkpoint is the body of POST /v1/jobs/{job}/checkpoint.
type Checkpoint struct {
	Reason string `json:"reason,omitempty"` // for the worker and the log
}

// checkpoint asks a job that runs to stop at the boundary of its next step. The
// answer, which is the job as it is now, does not wait for that.
func (s *Server) checkpoint(r *http.Request) (any, error) {
	var in Checkpoint
	if err := decode(r, &in, maxBody); err != nil {
		return nil, err
	}
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	reason := in.Reason
	if reason == "" {
		reason = "asked for by the user"
	}
	asked, err := s.sched.Checkpoint(r.Context(), e.ID, reason)
	switch {
	case err != nil:
		return nil, fmt.Errorf("job %s is %s: %w", e.Spec.Name, scheduler.StateOf(&e), err)
	case !asked:
		return nil, fmt.Errorf("job %s cannot stop at a step's boundary now: its worker keeps no steps, or does not run yet: %w", e.Spec.Name, queue.ErrIllegalTransition)
	}
	return Job{Job: e}, nil
}

// Checkpoint asks the job that ref names to stop at the boundary of its next step.
// The error is ErrNotRunning or a *Problem.
func (c *Client) Checkpoint(ctx context.Context, ref string, in Checkpoint) (Job, error) {
	var j Job
	err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(ref)+"/checkpoint", in, &j)
	return j, err
}
