package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// jobs answers what concerns single jobs.
type jobs struct {
	entries entries
	sched   *scheduler.Scheduler
	who     func(context.Context) string // Options.Who
}

func (j jobs) routes(r *router) {
	get(r, route{id: "list-jobs", method: "GET", path: "/v1/jobs", role: read, answered: fromStore, tag: "jobs",
		about: "List jobs, page by page.\nnext of an answer is the cursor of the next page. total is counted on the first page only; it is -1 on others."}, j.list)
	get(r, route{id: "get-job", method: "GET", path: "/v1/jobs/{job}", role: read, answered: fromStore, tag: "jobs", about: "Return a job and its attempts."}, ofJob(j.entries, j.get))
	get(r, route{id: "list-events", method: "GET", path: "/v1/jobs/{job}/events", role: read, answered: fromStore, tag: "jobs",
		about: "List the events of a job after a cursor, or its last ones."}, j.events)
	get(r, route{id: "list-steps", method: "GET", path: "/v1/jobs/{job}/steps", role: read, answered: fromStore, tag: "jobs",
		about: "List the durable steps of a job, and which attempts reused their stored results."}, ofJob(j.entries, j.steps))
	get(r, route{id: "get-replay", method: "GET", path: "/v1/replays/{ref}", role: read, answered: fromStore, tag: "jobs",
		about: "Return which results of a job or a batch were computed anew, and which came from the store."}, j.entries.replay)
	post(r, route{id: "checkpoint-job", method: "POST", path: "/v1/jobs/{job}/checkpoint", role: operate, tag: "jobs",
		about: "Ask a running job to stop at the boundary of its next step.\nThe answer, which is the job as it is now, does not wait for that."}, toJob(j.entries, j.checkpoint))
	get(r, route{id: "cancel-job", method: "POST", path: "/v1/jobs/{job}/cancel", role: operate, tag: "jobs",
		about: "Cancel a job."}, ofJob(j.entries, j.cancel))
	post(r, route{id: "cancel-key", method: "POST", path: "/v1/jobs/cancel", role: operate, tag: "jobs",
		about: "Cancel the unfinished jobs of a tenant that have a key, all or none.\nThe answer is the jobs as they are then; not_found if there are none."}, j.cancelKey)
	get(r, route{id: "retry-job", method: "POST", path: "/v1/jobs/{job}/retry", role: operate, tag: "jobs", status: http.StatusCreated,
		about: "Run a finished job again, as a new job.\nA dead letter is requeued; another job is submitted again, unless it belongs to a workflow."}, ofJob(j.entries, j.retry))
	post(r, route{id: "answer-job", method: "POST", path: "/v1/jobs/{job}/answer", role: operate, tag: "approvals",
		about: "Approve or reject the result of a job."}, toJob(j.entries, j.decide))
	get(r, route{id: "list-approvals", method: "GET", path: "/v1/approvals", role: read, answered: fromStore, tag: "approvals",
		about: "List the jobs that wait for approval, in the order of their submission."}, j.approvals)
	j.grantRoutes(r)
	j.talkRoutes(r)
}

type listQuery struct {
	limit
	Cursor      string           `query:"cursor" maxLength:"200" doc:"next of the previous page; absent: the first page"`
	State       []job.EntryState `query:"state,explode" enum:"queued,dispatched,completed,expired,cancelled" doc:"only jobs in one of these states"`
	Status      []job.RunState   `query:"status,explode" enum:"pending,running,waiting_approval,checkpointed,completed,failed,cancelled" doc:"only jobs whose latest run is in one of these states"`
	Tenant      job.Tenant       `query:"tenant" doc:"only this tenant"`
	Worker      job.WorkerKind   `query:"worker" doc:"only jobs whose current worker, or first choice, is of this kind"`
	Agent       job.AgentID      `query:"agent" doc:"only this agent"`
	Batch       job.BatchID      `query:"batch" doc:"only this batch"`
	Search      string           `query:"q" maxLength:"200" doc:"a text in the name, tenant, worker or instructions, or the beginning or the end of the id"`
	Newest      bool             `query:"newest" doc:"the newest first"`
	DeadLetters bool             `query:"dead_letters" doc:"only dead letters"`
}

func (j jobs) list(ctx context.Context, q *listQuery) (api.Jobs, error) {
	f := queue.Filter{
		States: q.State, Runs: q.Status, Tenant: q.Tenant, Worker: q.Worker, Agent: q.Agent, Batch: q.Batch, Search: q.Search,
		Newest: q.Newest, DeadLetters: q.DeadLetters, Limit: q.Limit,
	}
	if len(f.States) == 0 {
		f.States = queue.EntryStates(f.Runs) // for the indexes
	}
	list, next, total, err := j.entries.store.Page(ctx, f, q.Cursor)
	if errors.Is(err, queue.ErrBadCursor) {
		err = badField("query.cursor", "%v", err)
	}
	return api.Jobs{Jobs: j.entries.list(ctx, list), Total: total, Next: next}, err
}

func (j jobs) get(ctx context.Context, e *queue.Entry) (api.JobDetail, error) {
	attempts, err := j.entries.store.Attempts(ctx, e.ID)
	return api.JobDetail{Job: j.entries.one(ctx, *e), Attempts: some(attempts)}, err
}

type eventsQuery struct {
	jobPath
	after
	Last int `query:"last" minimum:"1" maximum:"1000" doc:"only so many, the last of all; it replaces after and limit"`
}

func (j jobs) events(ctx context.Context, in *eventsQuery) (api.Events, error) {
	e, err := j.entries.find(ctx, in.Job)
	if err != nil {
		return api.Events{}, err
	}
	var events []queue.StoredEvent
	if in.Last > 0 {
		events, err = j.entries.store.LastEvents(ctx, e.ID, in.Last)
	} else {
		events, err = j.entries.store.Events(ctx, e.ID, in.After, in.Limit)
	}
	return api.Events{Events: EventsOf(events)}, err
}

func (j jobs) steps(ctx context.Context, e *queue.Entry) (api.Steps, error) {
	list, err := StepsOf(ctx, j.entries.store, e)
	return api.Steps{Steps: list}, err
}

func (j jobs) cancel(ctx context.Context, e *queue.Entry) (api.JobDetail, error) {
	if e.State.Terminal() {
		return api.JobDetail{}, queue.Refuse("job %s is %s already", e.Spec.Name, stateWord(e))
	}
	if err := j.sched.Cancel(ctx, e.ID); err != nil {
		return api.JobDetail{}, err
	}
	return j.entries.detail(ctx, e.ID)
}

func (j jobs) cancelKey(ctx context.Context, _ *struct{}, in *api.CancelKey) (api.Jobs, error) {
	if in.Key == "" {
		return api.Jobs{}, badField("body.key", "is empty, want the key of the jobs to cancel")
	}
	tenant := cmp.Or(in.Tenant, job.DefaultTenant)
	if err := job.ValidTenant(tenant); err != nil {
		return api.Jobs{}, badField("body.tenant", "%v", err)
	}
	ids, err := j.sched.CancelKey(ctx, tenant, in.Key)
	if err != nil {
		return api.Jobs{}, err
	}
	return j.entries.jobs(ctx, ids)
}

func (j jobs) checkpoint(ctx context.Context, e *queue.Entry, in *api.Checkpoint) (api.JobDetail, error) {
	asked, err := j.sched.Checkpoint(ctx, e.ID, cmp.Or(in.Reason, "asked for by the user"))
	switch {
	case errors.Is(err, queue.ErrIllegalTransition):
		return api.JobDetail{}, queue.Refuse("job %s is %s; only a running job can stop at its next step", e.Spec.Name, stateWord(e))
	case err != nil:
		return api.JobDetail{}, fmt.Errorf("checkpoint job %s: %w", e.Spec.Name, err)
	case !asked:
		return api.JobDetail{}, queue.Refuse("job %s cannot stop at its next step: its worker keeps no steps, or has not started yet", e.Spec.Name)
	}
	return api.JobDetail{Job: j.entries.one(ctx, *e)}, nil
}

func (j jobs) approvals(ctx context.Context, _ *struct{}) (api.Jobs, error) {
	list, err := scheduler.AwaitingApproval(ctx, j.entries.store)
	return api.Jobs{Jobs: j.entries.list(ctx, list), Total: len(list)}, err
}

func (j jobs) decide(ctx context.Context, e *queue.Entry, a *api.Answer) (api.JobDetail, error) {
	if j.who != nil {
		a.By = cmp.Or(j.who(ctx), a.By)
	}
	decided, err := j.sched.Approvals.Decide(ctx, e.ID, 0, *a)
	if errors.Is(err, scheduler.ErrNoComment) {
		err = badField("body.comment", "%v", err)
	}
	return api.JobDetail{Job: j.entries.one(ctx, decided)}, err
}

// retry runs a finished job again.
func (j jobs) retry(ctx context.Context, e *queue.Entry) (api.JobDetail, error) {
	at := time.Now().UTC().Round(0)
	var done []queue.Entry
	var err error
	switch {
	case !e.State.Terminal():
		err = queue.Refuse("job %s is %s; only a job that has ended can be run again", e.Spec.Name, stateWord(e))
	case scheduler.IsDeadLetter(e):
		if err = scheduler.WaitsForSomebody(e); err == nil {
			done, err = scheduler.Requeue(ctx, j.sched.Submit, []scheduler.Again{{Letter: *e}}, at)
		}
	case e.Spec.Flow.Joined || !e.Spec.Flow.Alone():
		err = queue.Refuse("job %s belongs to a workflow; submit the workflow again", e.Spec.Name)
	default:
		again := afresh(e.Spec, at)
		granted, failed := j.sched.Grants.Networks(ctx, e)
		if failed != nil {
			return api.JobDetail{}, failed
		}
		again.Widen(granted)
		var b queue.Batch
		b, done = scheduler.NewBatch("submitted: retry of "+string(e.ID), "", []job.Spec{again}, job.Workflow{}, at)
		err = j.sched.Submit(ctx, b, done)
	}
	if err != nil {
		return api.JobDetail{}, err
	}
	fresh, err := j.entries.detail(ctx, done[0].ID)
	fresh.Attempts = []job.Attempt{}
	return fresh, err
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
