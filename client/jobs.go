package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// SubmitOption is something said beside a submission, or another request that may have a key.
type SubmitOption func(*request)

// WithKey makes a request safe to be sent again: the same jobs with the same
// key, 1 to 255 printable ASCII characters, are stored once, and the second answer
// is the first's; the same credits are added once.
func WithKey(key string) SubmitOption {
	return func(r *request) { r.header[idempotencyKey] = key }
}

// WithTraceparent gives jobs that have no trace id that of a W3C traceparent.
func WithTraceparent(value string) SubmitOption {
	return func(r *request) { r.header["traceparent"] = value }
}

// Submit gives jobs to the running scheduler. When it returns nil they are durable.
func (c *Client) Submit(ctx context.Context, in api.Submission, options ...SubmitOption) (api.Jobs, error) {
	return c.submit(ctx, "/v1/jobs", in, options)
}

// SubmitFile gives the jobs of a job file to the running scheduler.
func (c *Client) SubmitFile(ctx context.Context, f api.JobFile, options ...SubmitOption) (api.Jobs, error) {
	return c.submit(ctx, "/v1/job-files", f, options)
}

func (c *Client) submit(ctx context.Context, path string, body any, options []SubmitOption) (api.Jobs, error) {
	var out api.Jobs
	err := c.post(ctx, path, body, &out, options...)
	return out, err
}

// ListQuery selects jobs; zero fields select everything.
type ListQuery struct {
	Limit       int              // of a page, 1 to 1000; 0: 100
	Cursor      string           // Jobs.Next of the page before
	Status      []job.RunState   // of the latest run
	States      []job.EntryState // of the entry
	Tenant      job.Tenant
	Worker      job.WorkerKind
	Agent       job.AgentID
	Batch       job.BatchID
	Search      string // in name, id, tenant, worker and instructions
	Newest      bool   // first
	DeadLetters bool
}

func (q *ListQuery) values() url.Values {
	v := query{}.number("limit", int64(q.Limit)).add("cursor", q.Cursor).add("tenant", string(q.Tenant)).add("worker", string(q.Worker)).
		add("agent", string(q.Agent)).add("batch", string(q.Batch)).add("q", q.Search).flag("newest", q.Newest).flag("dead_letters", q.DeadLetters)
	for _, s := range q.States {
		v.add("state", string(s))
	}
	for _, s := range q.Status {
		v.add("status", string(s))
	}
	return url.Values(v)
}

// List returns a page of jobs.
func (c *Client) List(ctx context.Context, q ListQuery) (api.Jobs, error) {
	var out api.Jobs
	err := c.get(ctx, "/v1/jobs", q.values(), &out)
	return out, err
}

// All goes through the jobs that q selects, page by page. Its last pair has the
// error that ended it, if one did.
func (c *Client) All(ctx context.Context, q ListQuery) iter.Seq2[api.Job, error] {
	return func(yield func(api.Job, error) bool) {
		for {
			page, err := c.List(ctx, q)
			if err != nil {
				yield(api.Job{}, err)
				return
			}
			for _, e := range page.Jobs {
				if !yield(e, nil) {
					return
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}
}

// Job returns the job that ref names: an id, 8 or more characters of its end or its
// beginning, or a name, of which the newest is meant.
func (c *Client) Job(ctx context.Context, ref string) (api.JobDetail, error) {
	var j api.JobDetail
	err := c.get(ctx, jobPath(ref, ""), nil, &j)
	return j, err
}

// Events returns the events of a job after a cursor, at most limit, 1 to 1000.
func (c *Client) Events(ctx context.Context, ref string, after int64, limit int) (api.Events, error) {
	var out api.Events
	err := c.get(ctx, jobPath(ref, "/events"), url.Values(query{}.number("after", after).number("limit", int64(limit))), &out)
	return out, err
}

// Steps returns the durable steps of a job.
func (c *Client) Steps(ctx context.Context, ref string) (api.Steps, error) {
	var out api.Steps
	err := c.get(ctx, jobPath(ref, "/steps"), nil, &out)
	return out, err
}

// ReplayOf tells what of the work of a job or a batch was done anew, and what came
// from the store.
func (c *Client) ReplayOf(ctx context.Context, ref string) (api.ReplayReport, error) {
	var out api.ReplayReport
	err := c.get(ctx, "/v1/replays/"+url.PathEscape(ref), nil, &out)
	return out, err
}

// Artifact opens a file that an attempt left, such as job.ArtifactPatch. The caller
// closes it.
func (c *Client) Artifact(ctx context.Context, ref string, attempt int, name string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, request{method: http.MethodGet, path: jobPath(ref, "/attempts/"+strconv.Itoa(attempt)+"/artifacts/"+url.PathEscape(name))})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Cancel cancels the job that ref names and returns it as it is then.
func (c *Client) Cancel(ctx context.Context, ref string) (api.JobDetail, error) {
	return c.change(ctx, ref, "/cancel", nil)
}

// CancelKey cancels the unfinished jobs of a tenant that have a key, and returns them
// as they are then.
func (c *Client) CancelKey(ctx context.Context, in api.CancelKey) (api.Jobs, error) {
	var out api.Jobs
	err := c.post(ctx, "/v1/jobs/cancel", in, &out)
	return out, err
}

// Retry does a job that has ended again, and returns the new one.
func (c *Client) Retry(ctx context.Context, ref string) (api.JobDetail, error) {
	return c.change(ctx, ref, "/retry", nil)
}

// Checkpoint asks the job that ref names to stop at the boundary of its next step.
func (c *Client) Checkpoint(ctx context.Context, ref string, in api.Checkpoint) (api.JobDetail, error) {
	return c.change(ctx, ref, "/checkpoint", in)
}

// Decide answers what the job that ref names waits for, and returns it as it is
// then.
func (c *Client) Decide(ctx context.Context, ref string, a api.Answer) (api.JobDetail, error) {
	return c.change(ctx, ref, "/answer", a)
}

func (c *Client) change(ctx context.Context, ref, what string, body any) (api.JobDetail, error) {
	var j api.JobDetail
	err := c.post(ctx, jobPath(ref, what), body, &j)
	return j, err
}

// Approvals returns the jobs that wait for a person.
func (c *Client) Approvals(ctx context.Context) (api.Jobs, error) {
	var out api.Jobs
	err := c.get(ctx, "/v1/approvals", nil, &out)
	return out, err
}

// LetterQuery selects dead letters; zero fields select everything.
type LetterQuery struct {
	Tenant  job.Tenant
	Worker  job.WorkerKind
	Classes []job.ErrorClass // any of these
	// Older and Newer are how long ago they were given up.
	Older, Newer job.Duration
	Grep         string // a regular expression
	Limit        int    // 1 to 1000; 0: 100
	Offset       int    // leaves out so many at the beginning
}

// DeadLetter returns the dead letter that ref names: as Job does, but by a name the
// newest dead letter.
func (c *Client) DeadLetter(ctx context.Context, ref string) (api.DeadLetter, error) {
	var out api.DeadLetter
	err := c.get(ctx, "/v1/dead-letters/"+url.PathEscape(ref), nil, &out)
	return out, err
}

// DeadLetters returns the jobs that were given up and wait for somebody.
func (c *Client) DeadLetters(ctx context.Context, q LetterQuery) (api.Jobs, error) {
	v := query{}.add("tenant", string(q.Tenant)).add("worker", string(q.Worker)).add("grep", q.Grep).number("limit", int64(q.Limit)).number("offset", int64(q.Offset))
	for _, class := range q.Classes {
		v.add("class", string(class))
	}
	if q.Older != 0 {
		v.add("older", q.Older.String())
	}
	if q.Newer != 0 {
		v.add("newer", q.Newer.String())
	}
	var out api.Jobs
	err := c.get(ctx, "/v1/dead-letters", url.Values(v), &out)
	return out, err
}

// Requeue lets the scheduler do dead letters again. When it returns nil the new
// jobs are durable.
func (c *Client) Requeue(ctx context.Context, in api.Requeue) (api.Requeued, error) {
	var out api.Requeued
	err := c.post(ctx, "/v1/dead-letters/requeue", in, &out)
	return out, err
}

// Drop says that nothing more is to be done about dead letters, and returns them
// as they are then.
func (c *Client) Drop(ctx context.Context, ids []job.ID) (api.Jobs, error) {
	var out api.Jobs
	err := c.post(ctx, "/v1/dead-letters/drop", api.Drop{IDs: ids}, &out)
	return out, err
}

// Evaluate says what somebody thinks of a job that has ended.
func (c *Client) Evaluate(ctx context.Context, id job.ID, g api.Judgement) (api.Evaluations, error) {
	var out api.Evaluations
	err := c.post(ctx, jobPath(string(id), "/evaluations"), g, &out)
	return out, err
}

// Evaluations returns what was found of a job's work.
func (c *Client) Evaluations(ctx context.Context, ref string) (api.Evaluations, error) {
	var out api.Evaluations
	err := c.get(ctx, jobPath(ref, "/evaluations"), nil, &out)
	return out, err
}
