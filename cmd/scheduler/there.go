package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// there is a scheduler that is asked over its API.
type there struct {
	m       *Main
	door    *client.Client
	patient bool
}

func (t *there) Name() string        { return t.m.server }
func (t *there) Pace() time.Duration { return time.Second }
func (t *there) BePatient()          { t.patient = true }

func (t *there) Close() error {
	t.door.Close()
	return nil
}

func (t *there) Jobs(ctx context.Context, q jobQuery) (client.Jobs, error) {
	return q.collect(func(n int, cursor string) (client.Jobs, error) {
		return ask(ctx, t, func() (client.Jobs, error) {
			return t.door.List(ctx, client.ListQuery{States: q.states, Tenant: q.tenant, Batch: q.batch, Newest: !q.oldest, Limit: n, Cursor: cursor})
		})
	})
}

// patience is how long a scheduler may be away before a command that follows it
// gives up.
const patience = 2 * time.Minute

// ask asks a question, again and again if need be and t is patient.
func ask[T any](ctx context.Context, t *there, question func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		answer, err := question()
		if err == nil || !t.patient || !away(err) || time.Since(began) > patience || pause(ctx, t.Pace()) != nil {
			return answer, t.refused(err)
		}
	}
}

// away reports whether a scheduler that is asked again later may answer.
func away(err error) bool {
	p, ok := errors.AsType[*client.Problem](err)
	return !ok || p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
}

// refused names the scheduler that cannot be reached.
func (t *there) refused(err error) error {
	if errors.Is(err, client.ErrNotRunning) {
		return failure(fmt.Errorf("no scheduler answers at %s", t.m.server))
	}
	return refused(err)
}

func (t *there) Job(ctx context.Context, ref string) (client.Job, error) {
	j, err := ask(ctx, t, func() (client.Job, error) { return t.door.Job(ctx, ref) })
	return j, meant(ctx, t, ref, err)
}

func (t *there) Events(ctx context.Context, id job.ID, after int64) ([]queue.StoredEvent, error) {
	page, err := ask(ctx, t, func() (client.Events, error) { return t.door.Events(ctx, string(id), after, 1000) })
	return page.Events, err
}

func (t *there) Folder(*job.Attempt) string { return "" }

func (t *there) Long(ctx context.Context, a *job.Attempt, art job.Artifact) (string, error) {
	return ask(ctx, t, func() (string, error) {
		file, err := t.door.Artifact(ctx, string(a.Job), a.Number, art.Name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		text, err := io.ReadAll(file)
		return string(text), err
	})
}

func (t *there) Approvals(ctx context.Context) ([]queue.Entry, error) {
	list, err := t.door.Approvals(ctx)
	return list.Jobs, t.refused(err)
}

func (t *there) Status(ctx context.Context) (scheduler.Status, error) {
	st, err := t.door.Status(ctx)
	return st, t.refused(err)
}

func (t *there) Tenants(ctx context.Context) ([]client.Tenant, error) {
	list, err := t.door.Tenants(ctx)
	return list, t.refused(err)
}

func (t *there) Workers(ctx context.Context) ([]client.Worker, error) {
	list, err := t.door.Workers(ctx)
	return list, t.refused(err)
}

func (t *there) Usage(ctx context.Context, f queue.AccountFilter) (client.Usage, error) {
	used, err := t.door.Usage(ctx, f)
	return used, t.refused(err)
}

// Submit sends the text of the job files: the scheduler reads it on its own host,
// one file after the other, so that those before one that is refused stay.
func (t *there) Submit(ctx context.Context, in submission) ([]queue.Entry, error) {
	files, err := in.texts()
	if err != nil {
		return nil, err
	}
	var all []queue.Entry
	for i, f := range files {
		key := in.key
		if key != "" && i > 0 {
			key = fmt.Sprintf("%s-%d", in.key, i+1)
		}
		jobs, err := t.door.SubmitFile(ctx, f, withKey(key)...)
		all = append(all, jobs.Jobs...)
		if errors.Is(err, client.ErrNotRunning) {
			return all, t.refused(err)
		}
		if err != nil {
			return all, refusedJobs(err)
		}
	}
	return all, nil
}

func (t *there) CancelKey(ctx context.Context, in client.CancelKey) (client.Jobs, error) {
	done, err := t.door.CancelKey(ctx, in)
	return done, failure(err)
}

func (t *there) Cancel(ctx context.Context, ref string) (queue.Entry, error) {
	j, err := t.door.Cancel(ctx, ref)
	return j.Job, meant(ctx, t, ref, t.refused(err))
}

func (t *there) Retry(ctx context.Context, ref string) (queue.Entry, error) {
	j, err := t.door.Retry(ctx, ref)
	return j.Job, meant(ctx, t, ref, t.refused(err))
}

func (t *there) Decide(ctx context.Context, ref string, a scheduler.Answer) (queue.Entry, error) {
	j, err := t.door.Decide(ctx, ref, a)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Status == 400 {
		return j.Job, usage(err, `give it with -m, e.g. scheduler reject `+ref+` -m "the tests are missing"`)
	}
	return j.Job, meant(ctx, t, ref, t.refused(err))
}

func (t *there) Pause(ctx context.Context, p client.Pause) (isolation.Isolation, error) {
	i, err := t.door.Pause(ctx, p)
	return i, t.refused(err)
}

func (t *there) Resume(ctx context.Context, scope string) (isolation.Isolation, error) {
	i, err := t.door.Resume(ctx, scope)
	return i, t.refused(err)
}
