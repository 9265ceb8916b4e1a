package server

import (
	"context"
	"errors"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// jobPath is the part of a path that names a job.
type jobPath struct {
	Job string `path:"job" doc:"an id, 8 or more characters of its end or its beginning, or a name, which selects its newest job"`
}

// limit bounds a list.
type limit struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"the most to return"`
}

// after is where a list of a log begins.
type after struct {
	After int64 `query:"after" minimum:"0" doc:"only what follows this position in the log"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"the most to return"`
}

// entries finds jobs, and returns them as the API has them.
type entries struct {
	store queue.Store
	sched *scheduler.Scheduler
}

// find returns the job that a path names.
func (x entries) find(ctx context.Context, ref string) (queue.Entry, error) {
	e, err := queue.Find(ctx, x.store, ref)
	if _, several := errors.AsType[*queue.AmbiguousError](err); several {
		return e, badField("path.job", "%v", err)
	}
	return e, err
}

// list returns entries with their present status.
func (x entries) list(ctx context.Context, list []queue.Entry) []api.Job {
	status := x.sched.Explain.Statuses(ctx)
	for i := range list {
		st := status(&list[i])
		list[i].Status = &st
	}
	return JobsOf(list)
}

func (x entries) one(ctx context.Context, e queue.Entry) api.Job {
	return x.list(ctx, []queue.Entry{e})[0]
}

// detail returns a job as the store has it by now, without its attempts.
func (x entries) detail(ctx context.Context, id job.ID) (api.JobDetail, error) {
	e, err := x.store.Get(ctx, id)
	return api.JobDetail{Job: x.one(ctx, e)}, err
}

// jobs returns jobs as the store has them by now.
func (x entries) jobs(ctx context.Context, ids []job.ID) (api.Jobs, error) {
	list := make([]queue.Entry, len(ids))
	for i, id := range ids {
		var err error
		if list[i], err = x.store.Get(ctx, id); err != nil {
			return api.Jobs{}, err
		}
	}
	return api.Jobs{Jobs: x.list(ctx, list), Total: len(ids)}, nil
}

// batch returns the first n jobs of a batch.
func (x entries) batch(ctx context.Context, b job.BatchID, n int) (api.Jobs, error) {
	list, _, err := x.store.List(ctx, queue.Filter{Batch: b, Limit: n})
	return api.Jobs{Jobs: x.list(ctx, list), Total: len(list)}, err
}

// ofJob returns a handler that is given the job of the path.
func ofJob[T any](x entries, handle func(context.Context, *queue.Entry) (T, error)) func(context.Context, *jobPath) (T, error) {
	return func(ctx context.Context, in *jobPath) (none T, err error) {
		e, err := x.find(ctx, in.Job)
		if err != nil {
			return none, err
		}
		return handle(ctx, &e)
	}
}

// toJob is ofJob for a handler with a body.
func toJob[B, T any](x entries, handle func(context.Context, *queue.Entry, *B) (T, error)) func(context.Context, *jobPath, *B) (T, error) {
	return func(ctx context.Context, in *jobPath, body *B) (T, error) {
		return ofJob(x, func(ctx context.Context, e *queue.Entry) (T, error) { return handle(ctx, e, body) })(ctx, in)
	}
}

// stateWord is the state of a job in a word, as `scheduler ls` has it.
func stateWord(e *queue.Entry) string { return string(scheduler.StatusOf(e, time.Now()).State) }

// some has an empty list written as one, not as null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
