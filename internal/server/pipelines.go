package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

func (s *Server) pipelineRoutes() {
	get(s, route{id: "list-pipelines", method: "GET", path: "/v1/pipelines", role: read, tag: "pipelines", about: "List pipelines and how their stages stand."}, s.pipelines)
	get(s, route{id: "list-pipeline-events", method: "GET", path: "/v1/pipelines/{pipeline}/events", role: read, tag: "pipelines",
		about: "List the events of a pipeline after a sequence number."}, s.pipelineEvents)
	post(s, route{id: "replay-stage", method: "POST", path: "/v1/pipelines/{pipeline}/replay", role: operate, tag: "pipelines",
		about: "Have a stage do its events again."}, s.replayStage)
	post(s, route{id: "replay-pipeline", method: "POST", path: "/v1/pipelines/{pipeline}/runs", role: operate, tag: "pipelines", status: http.StatusCreated,
		about: "Replay a pipeline: give its recorded events to its stages again, in a new run."}, s.replayPipeline)
}

type pipelinesQuery struct {
	Name job.Name `query:"name" doc:"of this name, or of the batch whose id begins so"`
}

func (s *Server) pipelines(ctx context.Context, q *pipelinesQuery) (api.Pipelines, error) {
	list, err := scheduler.Pipelines(ctx, s.opt.Store, string(q.Name))
	return api.Pipelines{Pipelines: PipelinesOf(list)}, err
}

// PipelinePath is the part of a path that names a pipeline.
type PipelinePath struct {
	Pipeline string `path:"pipeline" doc:"its name, of which the newest is meant, or 8 or more characters of the beginning or the end of its batch's id"`
}

type pipelineEventsQuery struct {
	PipelinePath
	After
}

func (s *Server) pipelineEvents(ctx context.Context, in *pipelineEventsQuery) (api.PipelineEvents, error) {
	events, err := scheduler.PipelineEvents(ctx, s.opt.Store, in.Pipeline, in.After.After, in.Limit)
	return api.PipelineEvents{Events: PipelineEventsOf(events)}, err
}

func (s *Server) replayStage(ctx context.Context, in *PipelinePath, r *api.Rewind) (api.Rewound, error) {
	first, err := s.opt.Sched.Followers.ReplayStage(ctx, in.Pipeline, *r)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		err = badField("body", "%v", err)
	}
	return api.Rewound{First: first}, err
}

func (s *Server) replayPipeline(ctx context.Context, in *PipelinePath, r *api.Replay) (api.Replayed, error) {
	run, err := scheduler.ReplayPipeline(ctx, s.opt.Store, s.opt.Sched.Submit, in.Pipeline, *r, time.Now().UTC().Round(0))
	if bad, ok := errors.AsType[*pipeline.SelectionError](err); ok {
		err = badField("body."+bad.Field, "%s", bad.Message)
	}
	return run, err
}
