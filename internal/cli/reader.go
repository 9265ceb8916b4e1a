package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// reader reads what a scheduler knows, over its API: of the one at --server, or of
// the one of a state directory. While none runs on that, this process answers itself.
type reader struct {
	*client.Client
	m       *Main
	offline *offline // of the state directory; nil: with --server
	patient bool
}

// reader returns a reader of the scheduler that the flags name.
func (m *Main) reader() (*reader, error) {
	if m.server != "" {
		c, err := m.dial()
		return &reader{Client: c, m: m}, err
	}
	dir, err := m.existing()
	if err != nil {
		return nil, err
	}
	o := &offline{m: m, dir: dir}
	c, err := client.Dial(client.Options{Socket: dir.Socket(), Else: o.dial})
	return &reader{Client: c, m: m, offline: o}, failure(err)
}

// read calls f with a reader of the scheduler that the flags name. Its error has an
// exit code.
func (m *Main) read(f func(*reader) error) error {
	r, err := m.reader()
	if err != nil {
		return err
	}
	return errors.Join(r.refused(f(r)), r.Close())
}

// idOf returns the id of the job that ref names.
func (m *Main) idOf(ctx context.Context, ref string) (id job.ID, err error) {
	err = m.read(func(r *reader) error {
		j, err := r.Job(ctx, ref)
		id = j.Job.ID
		return err
	})
	return id, err
}

func (r *reader) reads() *reader { return r }

// Close ends the connections.
func (r *reader) Close() error {
	r.Client.Close()
	if r.offline == nil {
		return nil
	}
	return failure(r.offline.Close())
}

// Name is what a person calls the scheduler.
func (r *reader) Name() string {
	if r.offline == nil {
		return r.m.server
	}
	return r.offline.dir.Path()
}

// Pace is how long to wait before it is looked at again.
func (r *reader) Pace() time.Duration {
	if r.offline == nil {
		return time.Second
	}
	return followEvery
}

// BePatient has questions wait for a scheduler that does not answer for a while, as
// during its restart: for a command that follows what happens.
func (r *reader) BePatient() { r.patient = true }

// patience is how long a scheduler may be away before a command that follows it
// gives up.
const patience = 2 * time.Minute

// ask asks a question, again and again if need be and r is patient.
func ask[T any](ctx context.Context, r *reader, question func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		answer, err := question()
		if err == nil || !r.patient || !away(err) || time.Since(began) > patience || pause(ctx, r.Pace()) != nil {
			return answer, r.refused(err)
		}
	}
}

// away reports whether a scheduler that is asked again later may answer.
func away(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return !ok || p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
}

// refused gives an error that has no exit code its own, and names the scheduler that
// cannot be reached.
func (r *reader) refused(err error) error {
	if err == nil {
		return nil
	}
	if r.offline != nil {
		err = r.offline.why(err)
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	if r.offline == nil && errors.Is(err, client.ErrNotRunning) {
		return failure(fmt.Errorf("no scheduler answers at %s", r.m.server))
	}
	return refused(err)
}

// Jobs returns the jobs that q selects.
func (r *reader) Jobs(ctx context.Context, q jobQuery) (api.Jobs, error) {
	return q.collect(func(n int, cursor string) (api.Jobs, error) {
		return ask(ctx, r, func() (api.Jobs, error) {
			return r.List(ctx, client.ListQuery{States: q.states, Tenant: q.tenant, Batch: q.batch, Newest: !q.oldest, Limit: n, Cursor: cursor})
		})
	})
}

// Job returns the job that ref names, with its attempts.
func (r *reader) Job(ctx context.Context, ref string) (api.JobDetail, error) {
	j, err := ask(ctx, r, func() (api.JobDetail, error) { return r.Client.Job(ctx, ref) })
	return j, meant(ctx, r, ref, err)
}

// Attempts returns the attempts of a job.
func (r *reader) Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error) {
	j, err := r.Job(ctx, string(id))
	return j.Attempts, err
}

// Events returns at most 1000 events of a job behind the cursor.
func (r *reader) Events(ctx context.Context, id job.ID, after int64) ([]api.Event, error) {
	page, err := ask(ctx, r, func() (api.Events, error) { return r.Client.Events(ctx, string(id), after, 1000) })
	return page.Events, err
}

// Folder returns where on this host an attempt has left its files, or "".
func (r *reader) Folder(a *job.Attempt) string {
	if r.offline == nil {
		return ""
	}
	return attemptFolder(r.offline.dir, a)
}

// Long returns the whole of an answer that is too long for its outcome.
func (r *reader) Long(ctx context.Context, a *job.Attempt, art job.Artifact) (string, error) {
	return ask(ctx, r, func() (string, error) {
		file, err := r.Artifact(ctx, string(a.Job), a.Number, art.Name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		text, err := io.ReadAll(file)
		return string(text), err
	})
}
