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

// pipelines answers about event pipelines.
type pipelines struct {
	store queue.Store
	sched *scheduler.Scheduler
}

func (p pipelines) routes(r *router) {
	get(r, route{id: "list-pipelines", method: "GET", path: "/v1/pipelines", role: read, answered: fromStore, tag: "pipelines", about: "List pipelines with the state of their stages."}, p.list)
	get(r, route{id: "list-pipeline-events", method: "GET", path: "/v1/pipelines/{pipeline}/events", role: read, answered: fromStore, tag: "pipelines",
		about: "List the events of a pipeline after a sequence number."}, p.events)
	post(r, route{id: "replay-stage", method: "POST", path: "/v1/pipelines/{pipeline}/replay", role: operate, tag: "pipelines",
		about: "Replay events to a stage."}, p.replay)
	post(r, route{id: "replay-pipeline", method: "POST", path: "/v1/pipelines/{pipeline}/runs", role: operate, tag: "pipelines", status: http.StatusCreated,
		about: "Replay a pipeline: give its recorded events to its stages again, in a new run."}, p.rerun)
}

type pipelinesQuery struct {
	Name job.Name `query:"name" doc:"only pipelines of this name, or of the batch whose id begins with it"`
}

func (p pipelines) list(ctx context.Context, q *pipelinesQuery) (api.Pipelines, error) {
	list, err := scheduler.Pipelines(ctx, p.store, string(q.Name))
	return api.Pipelines{Pipelines: PipelinesOf(list)}, err
}

// pipelinePath is the part of a path that names a pipeline.
type pipelinePath struct {
	Pipeline string `path:"pipeline" doc:"its name, which selects the newest pipeline of that name, or 8 or more characters of the beginning or the end of its batch's id"`
}

type pipelineEventsQuery struct {
	pipelinePath
	after
}

func (p pipelines) events(ctx context.Context, in *pipelineEventsQuery) (api.PipelineEvents, error) {
	events, err := scheduler.PipelineEvents(ctx, p.store, in.Pipeline, in.After, in.Limit)
	return api.PipelineEvents{Events: PipelineEventsOf(events)}, err
}

func (p pipelines) replay(ctx context.Context, in *pipelinePath, r *api.Rewind) (api.Rewound, error) {
	first, err := p.sched.Followers.ReplayStage(ctx, in.Pipeline, *r)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		err = badField("body", "%v", err)
	}
	return api.Rewound{First: first}, err
}

// rerun replays a pipeline in a new run.
func (p pipelines) rerun(ctx context.Context, in *pipelinePath, r *api.Replay) (api.Replayed, error) {
	run, err := scheduler.ReplayPipeline(ctx, p.store, p.sched.Submit, in.Pipeline, *r, time.Now().UTC().Round(0))
	if bad, ok := errors.AsType[*pipeline.SelectionError](err); ok {
		err = badField("body."+bad.Field, "%s", bad.Message)
	}
	return run, err
}
