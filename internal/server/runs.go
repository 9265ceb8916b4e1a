package server

import (
	"context"
	"net/http"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// runs answers about the runs of `scheduler run`.
type runs struct {
	store   queue.Store
	sched   *scheduler.Scheduler
	checked checker
	parcels parcels
	maxBody int64
}

func (u runs) routes(r *router) {
	get(r, route{id: "list-runs", method: "GET", path: "/v1/runs", role: read, answered: fromStore, tag: "runs",
		about: "List the runs of `scheduler run` that are not closed, the newest first."}, u.list)
	postReply(r, route{id: "open-run", method: "POST", path: "/v1/runs", role: operate, tag: "runs", status: http.StatusCreated, other: http.StatusOK, body: u.maxBody, maxJobs: u.checked.maxJobs,
		about: "Open a run of `scheduler run`, or continue its unfinished jobs.\nThe same source and jobs are the same run until it is closed."}, u.open)
	post(r, route{id: "continue-run", method: "POST", path: "/v1/runs/{batch}/continue", role: operate, tag: "runs",
		about: "Continue a run that was stopped or that waits for its variables."}, u.resume)
	post(r, route{id: "stop-run", method: "POST", path: "/v1/runs/{batch}/stop", role: operate, tag: "runs", bodyOptional: true,
		about: "Stop the running jobs of a run until it is continued.\nInterrupted attempts do not count."}, u.stop)
	get(r, route{id: "close-run", method: "POST", path: "/v1/runs/{batch}/close", role: operate, tag: "runs",
		about: "Close a run whose summary was shown: the same jobs are then a new run.\nA run with unfinished jobs stays open."}, u.close)
}

func (u runs) list(ctx context.Context, _ *struct{}) (api.Runs, error) {
	list, err := RunsOf(ctx, u.store)
	return api.Runs{Runs: list}, err
}

func (u runs) open(ctx context.Context, _ *struct{}, in *api.Run) (out reply[api.OpenedRun], err error) {
	if in.Source == "" || in.Digest == "" {
		return out, badField("body.source", "source and digest are needed: they say which run it is")
	}
	if err := u.checked.check(&in.Submission); err != nil {
		return out, err
	}
	if err := u.parcels.complete(ctx, in.Jobs); err != nil {
		return out, err
	}
	out.body, err = u.sched.Runs.Open(ctx, &scheduler.Run{Source: in.Source, Digest: in.Digest, Specs: in.Jobs, Workflow: in.Workflow, Fresh: in.Fresh}, in.Env)
	if out.body.Continued {
		out.status = http.StatusOK
	}
	return out, err
}

// runPath names a run.
type runPath struct {
	Batch job.BatchID `path:"batch" doc:"the batch of the run"`
}

func (u runs) resume(ctx context.Context, p *runPath, in *api.ContinueRun) (api.OpenedRun, error) {
	return u.sched.Runs.Continue(ctx, p.Batch, in.Env)
}

func (u runs) stop(ctx context.Context, p *runPath, in *api.StopRun) (api.StopRun, error) {
	return *in, u.sched.Runs.Stop(ctx, p.Batch, in.Now)
}

func (u runs) close(ctx context.Context, p *runPath) (api.ClosedRun, error) {
	return api.ClosedRun{Batch: p.Batch}, u.sched.Runs.Close(ctx, p.Batch)
}

// RunsOf returns the runs that are not closed, the newest first.
func RunsOf(ctx context.Context, store queue.Store) ([]api.RunStatus, error) {
	list := []api.RunStatus{}
	batches, err := store.Batches(ctx, "")
	if err != nil {
		return list, err
	}
	for i := range batches {
		b := &batches[i]
		if b.ClosedAt != nil || !b.Private && b.Workflow.Caller == nil {
			continue
		}
		run := api.RunStatus{Source: b.Source, Stopped: b.Private}
		if run.OpenedRun, err = scheduler.RunOf(ctx, store, b); err != nil {
			return list, err
		}
		if b.Workflow.Caller != nil {
			run.Env = b.Workflow.Caller.Env
		}
		teams, err := scheduler.FailedTeams(ctx, store, b.ID)
		if err != nil {
			return list, err
		}
		for _, t := range teams {
			run.FailedTeams = append(run.FailedTeams, api.FailedTeam(t))
		}
		list = append(list, run)
	}
	return list, nil
}
