package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

func (s *Server) pipelineRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/pipelines", s.answer(s.pipelines))
	mux.HandleFunc("GET /v1/pipelines/{pipeline}/events", s.answer(s.pipelineEvents))
	mux.HandleFunc("POST /v1/pipelines/{pipeline}/replay", s.answer(s.replayStage))
}

func (s *Server) pipelines(r *http.Request) (any, error) {
	list, err := scheduler.Pipelines(r.Context(), s.store, r.URL.Query().Get("name"))
	return client.Pipelines{Pipelines: append([]scheduler.Pipeline{}, list...)}, err
}

func (s *Server) pipelineEvents(r *http.Request) (any, error) {
	after, err1 := number(r, "after", 0)
	limit, err2 := number(r, "limit", 1000)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	events, err := scheduler.PipelineEvents(r.Context(), s.store, r.PathValue("pipeline"), after, int(min(max(limit, 1), 1000)))
	return client.PipelineEvents{Events: append([]pipeline.Event{}, events...)}, err
}

func (s *Server) replayStage(r *http.Request) (any, error) {
	var in scheduler.Rewind
	if err := decode(r, &in, maxBody); err != nil {
		return nil, err
	}
	first, err := s.sched.ReplayStage(r.Context(), r.PathValue("pipeline"), in)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		err = fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return client.Rewound{First: first}, err
}
