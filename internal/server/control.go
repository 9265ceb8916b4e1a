package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/policy"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10

// decode reads the body of a request, one JSON object of at most limit bytes,
// into v.
func decode(r *http.Request, v any, limit int64) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, limit))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: body: %w", errBadRequest, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: body: more than one JSON object", errBadRequest)
	}
	return nil
}

func (s *Server) status(*http.Request) (any, error) {
	st := s.sched.Status()
	// An empty list is written as one, not as null.
	st.Cores = append([]scheduler.CoreStatus{}, st.Cores...)
	st.Isolations = append([]isolation.Isolation{}, st.Isolations...)
	st.Circuits = append([]ipc.Circuit{}, st.Circuits...)
	st.Shares = append([]policy.Share{}, st.Shares...)
	return st, nil
}

func (s *Server) resume(r *http.Request) (any, error) {
	var body client.Resume
	if err := decode(r, &body, maxBody); err != nil {
		return nil, err
	}
	i, err := s.sched.Resume(r.Context(), body.Scope)
	if err != nil && !errors.Is(err, scheduler.ErrNotIsolated) {
		return nil, fmt.Errorf("%w: %w", errBadRequest, err) // it names no scope
	}
	return i, err
}

func (s *Server) restart(r *http.Request) (any, error) {
	var body client.RestartCores
	if err := decode(r, &body, maxBody); err != nil {
		return nil, err
	}
	if n := len(s.sched.Status().Cores); body.Core < 0 || body.Core > n {
		return nil, fmt.Errorf("%w: there is no core %d, want 1 to %d, or 0 for all", errBadRequest, body.Core, n)
	}
	if err := s.sched.RestartCore(r.Context(), body.Core, body.Drain); err != nil {
		return nil, fmt.Errorf("restart cores: %w", err)
	}
	return s.status(r)
}
