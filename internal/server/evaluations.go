package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/queue"
)

// TakeEvaluations makes the server take evaluations from people, for e. It is
// called before Serve.
func (s *Server) TakeEvaluations(e *eval.Evaluator) { s.evaluator = e }

func (s *Server) evaluationRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/jobs/{job}/evaluations", s.answer(s.evaluations))
	mux.HandleFunc("POST /v1/jobs/{job}/evaluations", s.answer(s.evaluate))
	mux.HandleFunc("GET /v1/reputations", s.answer(s.reputations))
}

// errNoEvaluations: the store keeps no records, or nobody judges.
var errNoEvaluations = fmt.Errorf("evaluations: %w: this scheduler keeps none", queue.ErrNotFound)

func (s *Server) journal() (queue.Journal, error) {
	if j, ok := s.store.(queue.Journal); ok {
		return j, nil
	}
	return nil, errNoEvaluations
}

func (s *Server) evaluations(r *http.Request) (any, error) {
	j, err := s.journal()
	if err != nil {
		return nil, err
	}
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	list, err := eval.Evaluations(r.Context(), j, e.ID)
	return client.Evaluations{Evaluations: append([]eval.Evaluation{}, list...)}, err
}

// evaluate takes what somebody says of a job that has ended; its body is an
// eval.Given.
func (s *Server) evaluate(r *http.Request) (any, error) {
	if s.evaluator == nil {
		return nil, errNoEvaluations
	}
	var given eval.Given
	if err := decode(r, &given, maxBody); err != nil {
		return nil, err
	}
	if err := given.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	attempts, err := s.store.Attempts(r.Context(), e.ID)
	if err != nil {
		return nil, err
	}
	v, err := s.evaluator.Report(r.Context(), &e, attempts, given)
	if errors.Is(err, eval.ErrNothing) {
		err = fmt.Errorf("%w: %w", queue.ErrIllegalTransition, err)
	}
	return client.Evaluations{Evaluations: v.Evaluations, Reputations: v.Reputations, Alerts: v.Alerts}, err
}

// reputations answers GET /v1/reputations?subject=…&kind=…&domain=…
func (s *Server) reputations(r *http.Request) (any, error) {
	j, err := s.journal()
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	list, err := eval.Reputations(r.Context(), j, eval.Filter{Name: q.Get("subject"), Kind: eval.Kind(q.Get("kind")), Domain: q.Get("domain")})
	return client.Reputations{Reputations: append([]eval.Reputation{}, list...)}, err
}
