package server

import (
	"fmt"
	"net/http"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
)

// checkpoint asks a job that runs to stop at the boundary of its next step. The
// answer, which is the job as it is now, does not wait for that.
func (s *Server) checkpoint(r *http.Request) (any, error) {
	var in client.Checkpoint
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
	return client.Job{Job: e}, nil
}
