package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

func (s *Server) runRoutes() {
	postAny(s, route{id: "open-run", method: "POST", path: "/v1/runs", role: operate, tag: "runs", status: http.StatusCreated, other: http.StatusOK, body: s.opt.MaxBody, maxJobs: func() int { return s.bounds().Submission },
		about: "Take over the jobs of a `scheduler run`, or go on with its unfinished ones.\nThe same source and jobs are the same run until it is closed."}, s.openRun)
	post(s, route{id: "continue-run", method: "POST", path: "/v1/runs/{batch}/continue", role: operate, tag: "runs",
		about: "Go on with a run that was stopped, or that waits for its variables."}, s.continueRun)
	post(s, route{id: "stop-run", method: "POST", path: "/v1/runs/{batch}/stop", role: operate, tag: "runs", bodyOptional: true,
		about: "Stop what runs of a run, to go on when it is continued.\nAttempts that are cut short do not count."}, s.stopRun)
	get(s, route{id: "close-run", method: "POST", path: "/v1/runs/{batch}/close", role: operate, tag: "runs",
		about: "Say that the summary of a run was given: the same jobs are then another run.\nA run with unfinished jobs stays open."}, s.closeRun)
}

// openedRun is the answer to POST /v1/runs.
type openedRun struct {
	Status int
	Body   api.OpenedRun
}

func (s *Server) openRun(ctx context.Context, _ *struct{}, in *api.Run) (*openedRun, error) {
	if in.Source == "" || in.Digest == "" {
		return nil, badField("body.source", "source and digest are needed: they say which run it is")
	}
	if err := s.bounds().CheckSubmission(len(in.Jobs)); err != nil {
		return nil, err
	}
	if err := s.checkSubmission(&in.Submission); err != nil {
		return nil, err
	}
	for i := range in.Jobs {
		in.Jobs[i].Tenant = cmp.Or(in.Jobs[i].Tenant, job.DefaultTenant)
	}
	opened, err := s.opt.Sched.Runs.Open(ctx, &scheduler.Run{Source: in.Source, Digest: in.Digest, Specs: in.Jobs, Workflow: in.Workflow, Fresh: in.Fresh}, in.Env)
	out := &openedRun{Status: http.StatusCreated, Body: opened}
	if opened.Continued {
		out.Status = http.StatusOK
	}
	return out, err
}

// runPath names a run.
type runPath struct {
	Batch job.BatchID `path:"batch" doc:"the batch of the run"`
}

func (s *Server) continueRun(ctx context.Context, p *runPath, in *api.ContinueRun) (api.OpenedRun, error) {
	return s.opt.Sched.Runs.Continue(ctx, p.Batch, in.Env)
}

func (s *Server) stopRun(ctx context.Context, p *runPath, in *api.StopRun) (api.StopRun, error) {
	return *in, s.opt.Sched.Runs.Stop(ctx, p.Batch, in.Now)
}

func (s *Server) closeRun(ctx context.Context, p *runPath) (api.ClosedRun, error) {
	return api.ClosedRun{Batch: p.Batch}, s.opt.Sched.Runs.Close(ctx, p.Batch)
}
