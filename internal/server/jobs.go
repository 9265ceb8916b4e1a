package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (s *Server) jobRoutes() {
	get(s, route{id: "list-jobs", method: "GET", path: "/v1/jobs", role: read, tag: "jobs",
		about: "List jobs, page by page.\nnext of an answer is the cursor of the next page. total is counted on the first page alone; it is -1 on others."}, s.list)
	get(s, route{id: "get-job", method: "GET", path: "/v1/jobs/{job}", role: read, tag: "jobs", about: "Return a job and its attempts."}, s.job)
	get(s, route{id: "list-events", method: "GET", path: "/v1/jobs/{job}/events", role: read, tag: "jobs",
		about: "List the events of a job after a cursor."}, s.events)
	get(s, route{id: "list-steps", method: "GET", path: "/v1/jobs/{job}/steps", role: read, tag: "jobs",
		about: "List the durable steps of a job, and which attempts took them from the store."}, s.steps)
	stream(s, route{id: "get-artifact", method: "GET", path: "/v1/jobs/{job}/attempts/{attempt}/artifacts/{name}", role: read, tag: "jobs",
		about: "Return the text of a file that an attempt left, such as patch or stdout.\nA patch or answer that is not as the attempt left it is answered with artifact_changed."}, textType, s.artifact)
	post(s, route{id: "checkpoint-job", method: "POST", path: "/v1/jobs/{job}/checkpoint", role: operate, tag: "jobs",
		about: "Ask a job that runs to stop at the boundary of its next step.\nThe answer, which is the job as it is now, does not wait for that."}, s.checkpoint)
	get(s, route{id: "cancel-job", method: "POST", path: "/v1/jobs/{job}/cancel", role: operate, tag: "jobs",
		about: "Cancel a job."}, s.cancel)
	post(s, route{id: "cancel-key", method: "POST", path: "/v1/jobs/cancel", role: operate, tag: "jobs",
		about: "Cancel the unfinished jobs of a tenant that have a key, all or none.\nThe answer is the jobs as they are then; not_found if there are none."}, s.cancelKey)
	get(s, route{id: "retry-job", method: "POST", path: "/v1/jobs/{job}/retry", role: operate, tag: "jobs", status: http.StatusCreated,
		about: "Do a job that has ended again, as a new job.\nA dead letter is requeued; another that stands alone is submitted again."}, s.retry)
	post(s, route{id: "answer-job", method: "POST", path: "/v1/jobs/{job}/answer", role: operate, tag: "approvals",
		about: "Approve or reject what a job has made."}, s.decide)
	get(s, route{id: "list-approvals", method: "GET", path: "/v1/approvals", role: read, tag: "approvals",
		about: "List the jobs that wait for a person, the one that was submitted first first."}, s.approvals)
}

// JobPath is the part of a path that names a job.
type JobPath struct {
	Job string `path:"job" doc:"an id, 8 or more characters of its end or its beginning, or a name, of which the newest is meant"`
}

// Limit bounds a list.
type Limit struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"at most so many"`
}

// After is where a list of a log begins.
type After struct {
	After int64 `query:"after" minimum:"0" doc:"what is after this place in the log"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"at most so many"`
}

type listQuery struct {
	Limit
	Cursor      string           `query:"cursor" maxLength:"200" doc:"next of the page before; absent: the first page"`
	State       []job.EntryState `query:"state,explode" enum:"queued,dispatched,completed,expired,cancelled" doc:"any of these states"`
	Status      []job.RunState   `query:"status,explode" enum:"pending,running,waiting_approval,checkpointed,completed,failed,cancelled" doc:"whose latest run is in any of these states"`
	Tenant      job.Tenant       `query:"tenant" doc:"of this tenant"`
	Worker      job.WorkerKind   `query:"worker" doc:"whose current worker, or first choice, is of this kind"`
	Agent       job.AgentID      `query:"agent" doc:"of this agent"`
	Batch       job.BatchID      `query:"batch" doc:"of this batch"`
	Search      string           `query:"q" maxLength:"200" doc:"text to look for in name, tenant, worker and instructions, or the beginning or the end of the id"`
	Newest      bool             `query:"newest" doc:"the newest first"`
	DeadLetters bool             `query:"dead_letters" doc:"what failed and waits for somebody"`
}

func (s *Server) list(ctx context.Context, q *listQuery) (api.Jobs, error) {
	f := queue.Filter{
		States: q.State, Runs: q.Status, Tenant: q.Tenant, Worker: q.Worker, Agent: q.Agent, Batch: q.Batch, Search: q.Search,
		Newest: q.Newest, DeadLetters: q.DeadLetters, Limit: q.Limit.Limit,
	}
	if len(f.States) == 0 {
		f.States = queue.EntryStates(f.Runs) // for the indexes
	}
	entries, next, total, err := s.opt.Store.Page(ctx, f, q.Cursor)
	if errors.Is(err, queue.ErrBadCursor) {
		err = badField("query.cursor", "%v", err)
	}
	return api.Jobs{Jobs: s.stand(ctx, entries), Total: total, Next: next}, err
}

// stand returns entries as the API has them, and how their jobs stand now.
func (s *Server) stand(ctx context.Context, entries []queue.Entry) []api.Job {
	status := s.opt.Sched.Explain.Statuses(ctx)
	for i := range entries {
		st := status(&entries[i])
		entries[i].Status = &st
	}
	return JobsOf(entries)
}

func (s *Server) standing(ctx context.Context, e queue.Entry) api.Job {
	return s.stand(ctx, []queue.Entry{e})[0]
}

// some has an empty list written as one, not as null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s *Server) find(ctx context.Context, in *JobPath) (queue.Entry, error) {
	e, err := queue.Find(ctx, s.opt.Store, in.Job)
	if _, several := errors.AsType[*queue.AmbiguousError](err); several {
		return e, badField("path.job", "%v", err)
	}
	return e, err
}

func (s *Server) job(ctx context.Context, in *JobPath) (api.JobDetail, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.JobDetail{}, err
	}
	attempts, err := s.opt.Store.Attempts(ctx, e.ID)
	return api.JobDetail{Job: s.standing(ctx, e), Attempts: some(attempts)}, err
}

type eventsQuery struct {
	JobPath
	After
}

func (s *Server) events(ctx context.Context, in *eventsQuery) (api.Events, error) {
	e, err := s.find(ctx, &in.JobPath)
	if err != nil {
		return api.Events{}, err
	}
	events, err := s.opt.Store.Events(ctx, e.ID, in.After.After, in.Limit)
	return api.Events{Events: EventsOf(events)}, err
}

func (s *Server) steps(ctx context.Context, in *JobPath) (api.Steps, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.Steps{}, err
	}
	list, err := StepsOf(ctx, s.opt.Store, &e)
	return api.Steps{Steps: list}, err
}

func (s *Server) cancel(ctx context.Context, in *JobPath) (api.JobDetail, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.JobDetail{}, err
	}
	if e.State.Terminal() {
		return api.JobDetail{}, queue.Refuse("job %s is %s already", e.Spec.Name, stateWord(&e))
	}
	if err := s.opt.Sched.Cancel(ctx, e.ID); err != nil {
		return api.JobDetail{}, err
	}
	e, err = s.opt.Store.Get(ctx, e.ID)
	return api.JobDetail{Job: s.standing(ctx, e)}, err
}

func (s *Server) cancelKey(ctx context.Context, _ *struct{}, in *api.CancelKey) (api.Jobs, error) {
	if in.Key == "" {
		return api.Jobs{}, badField("body.key", "is empty, want the key of the jobs to cancel")
	}
	tenant := cmp.Or(in.Tenant, job.DefaultTenant)
	if err := job.ValidTenant(tenant); err != nil {
		return api.Jobs{}, badField("body.tenant", "%v", err)
	}
	ids, err := s.opt.Sched.CancelKey(ctx, tenant, in.Key)
	if err != nil {
		return api.Jobs{}, err
	}
	done := api.Jobs{Total: len(ids)}
	for _, id := range ids {
		e, err := s.opt.Store.Get(ctx, id)
		if err != nil {
			return api.Jobs{}, err
		}
		done.Jobs = append(done.Jobs, s.standing(ctx, e))
	}
	return done, nil
}

func (s *Server) checkpoint(ctx context.Context, in *JobPath, body *api.Checkpoint) (api.JobDetail, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.JobDetail{}, err
	}
	reason := body.Reason
	if reason == "" {
		reason = "asked for by the user"
	}
	asked, err := s.opt.Sched.Checkpoint(ctx, e.ID, reason)
	switch {
	case errors.Is(err, queue.ErrIllegalTransition):
		return api.JobDetail{}, queue.Refuse("job %s is %s; only a running job can stop at its next step", e.Spec.Name, stateWord(&e))
	case err != nil:
		return api.JobDetail{}, fmt.Errorf("checkpoint job %s: %w", e.Spec.Name, err)
	case !asked:
		return api.JobDetail{}, queue.Refuse("job %s cannot stop at its next step: its worker keeps no steps, or has not started yet", e.Spec.Name)
	}
	return api.JobDetail{Job: s.standing(ctx, e)}, nil
}

func (s *Server) approvals(ctx context.Context, _ *struct{}) (api.Jobs, error) {
	list, err := scheduler.AwaitingApproval(ctx, s.opt.Store)
	return api.Jobs{Jobs: s.stand(ctx, list), Total: len(list)}, err
}

func (s *Server) decide(ctx context.Context, in *JobPath, a *api.Answer) (api.JobDetail, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.JobDetail{}, err
	}
	if s.opt.Who != nil {
		a.By = cmp.Or(s.opt.Who(ctx), a.By)
	}
	e, err = s.opt.Sched.Approvals.Decide(ctx, e.ID, *a)
	if errors.Is(err, scheduler.ErrNoComment) {
		err = badField("body.comment", "%v", err)
	}
	return api.JobDetail{Job: s.standing(ctx, e)}, err
}

// stateWord is the state of a job in a word, as `scheduler ls` has it.
func stateWord(e *queue.Entry) string { return string(scheduler.StatusOf(e, time.Now()).State) }

const textType = "text/plain; charset=utf-8"

type artifactPath struct {
	JobPath
	Attempt int    `path:"attempt" minimum:"1" doc:"the number of the attempt, from 1"`
	Name    string `path:"name" doc:"as the attempt's outcome has it: patch, whole, stdout, stderr, answer"`
}

// artifact writes a file that the outcome of the attempt names, and no other: the
// file lies in the attempt's own folder, whatever links there are.
func (s *Server) artifact(w http.ResponseWriter, r *http.Request, in *artifactPath) error {
	if s.opt.Artifacts == nil {
		return fmt.Errorf("artifacts: %w", errNoSuch)
	}
	e, err := s.find(r.Context(), &in.JobPath)
	if err != nil {
		return err
	}
	attempts, err := s.opt.Store.Attempts(r.Context(), e.ID)
	if err != nil {
		return err
	}
	if in.Attempt > len(attempts) {
		return fmt.Errorf("attempt %d of job %s: %w: it has had %d", in.Attempt, e.Spec.Name, queue.ErrNotFound, len(attempts))
	}
	a := &attempts[in.Attempt-1]
	missing := fmt.Errorf("artifact %q of attempt %d of job %s: %w", in.Name, in.Attempt, e.Spec.Name, queue.ErrNotFound)
	if a.Outcome == nil {
		return missing
	}
	found, ok := a.Outcome.Artifact(in.Name)
	if !ok {
		return missing
	}
	folder := s.opt.Artifacts(a.Job, a.Number)
	name, err := filepath.Rel(folder, found.Path)
	if err != nil {
		return missing
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return missing
	}
	defer root.Close()
	plain, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would be waited for
	if err != nil {
		return missing
	}
	info, err := plain.Stat()
	if err != nil || !info.Mode().IsRegular() {
		plain.Close()
		return missing
	}
	file, err := statedir.Checked(plain, found)
	if changed := (*statedir.ChangedError)(nil); errors.As(err, &changed) {
		// Paths of this host are not told.
		return newProblem("artifact_changed", http.StatusConflict, "artifact %q of attempt %d of job %s was changed after the attempt ended: found %s, recorded %s; do the job again",
			in.Name, in.Attempt, e.Spec.Name, changed.Found, changed.Recorded)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Type", textType)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox") // whatever a browser makes of it
	http.ServeContent(w, r, "", info.ModTime(), file)
	return nil
}
