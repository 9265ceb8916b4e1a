package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
)

// approvals answers GET /v1/approvals with the jobs that wait for a person.
func (s *Server) approvals(r *http.Request) (any, error) {
	list, err := scheduler.Approvals(r.Context(), s.store)
	return client.Jobs{Jobs: append([]queue.Entry{}, list...), Total: len(list)}, err
}

// decide answers POST /v1/jobs/{job}/answer, whose body is a scheduler.Answer,
// with the job as it is then.
func (s *Server) decide(r *http.Request) (any, error) {
	var a scheduler.Answer
	if err := decode(r, &a, maxBody); err != nil {
		return nil, err
	}
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	e, err = s.sched.Decide(r.Context(), e.ID, a)
	if errors.Is(err, scheduler.ErrNoComment) {
		err = fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return client.Job{Job: e}, err
}
