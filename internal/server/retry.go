package server

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// retry does a job that has ended again.
func (s *Server) retry(ctx context.Context, in *JobPath) (api.JobDetail, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.JobDetail{}, err
	}
	at := time.Now().UTC().Round(0)
	var done []queue.Entry
	switch {
	case !e.State.Terminal():
		err = queue.Refuse("job %s is %s; only a job that has ended can be run again", e.Spec.Name, stateWord(&e))
	case scheduler.IsDeadLetter(&e):
		if err = scheduler.WaitsForSomebody(&e); err == nil {
			done, err = scheduler.Requeue(ctx, s.opt.Sched.Submit, []scheduler.Again{{Letter: e}}, at)
		}
	case e.Spec.Flow.Joined || !e.Spec.Flow.Alone():
		err = queue.Refuse("job %s belongs to a workflow; submit the workflow again", e.Spec.Name)
	default:
		var b queue.Batch
		b, done = scheduler.NewBatch("submitted: retry of "+string(e.ID), "", []job.Spec{afresh(e.Spec, at)}, job.Workflow{}, at)
		err = s.opt.Sched.Submit(ctx, b, done)
	}
	if err != nil {
		return api.JobDetail{}, err
	}
	fresh, err := s.opt.Store.Get(ctx, done[0].ID)
	return api.JobDetail{Job: s.standing(ctx, fresh), Attempts: []job.Attempt{}}, err
}

// afresh is a specification that was done before. A point in time that has passed
// is forgotten: a deadline would let the job expire at once.
func afresh(spec job.Spec, at time.Time) job.Spec {
	spec.Trigger = job.ByResume
	if spec.Deadline != nil && !spec.Deadline.After(at) {
		spec.Deadline = nil
	}
	if spec.RunnableAt != nil && !spec.RunnableAt.After(at) {
		spec.RunnableAt = nil
	}
	return spec
}
