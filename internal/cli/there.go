package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

// there is a scheduler at --server.
type there struct{ *reader }

// Submit sends the text of the job files: the scheduler reads it on its own host,
// one file after the other, so that those before one that is refused stay.
func (t *there) Submit(ctx context.Context, in submission) ([]api.Job, error) {
	files, err := in.texts()
	if err != nil {
		return nil, err
	}
	var all []api.Job
	for i, f := range files {
		key := in.key
		if key != "" && i > 0 {
			key = fmt.Sprintf("%s-%d", in.key, i+1)
		}
		jobs, err := t.Client.SubmitFile(ctx, f, withKey(key)...)
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

func (t *there) CancelKey(ctx context.Context, in api.CancelKey) (api.Jobs, error) {
	done, err := t.Client.CancelKey(ctx, in)
	return done, failure(err)
}

func (t *there) Cancel(ctx context.Context, ref string) (api.Job, error) {
	j, err := t.Client.Cancel(ctx, ref)
	return j.Job, meant(ctx, t.reader, ref, t.refused(err))
}

func (t *there) Retry(ctx context.Context, ref string) (api.Job, error) {
	j, err := t.Client.Retry(ctx, ref)
	return j.Job, meant(ctx, t.reader, ref, t.refused(err))
}

func (t *there) Decide(ctx context.Context, ref string, a api.Answer) (api.Job, error) {
	j, err := t.Client.Decide(ctx, ref, a)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Status == 400 {
		return j.Job, usage(err, `give it with -m, e.g. scheduler reject `+ref+` -m "the tests are missing"`)
	}
	return j.Job, meant(ctx, t.reader, ref, t.refused(err))
}

func (t *there) Pause(ctx context.Context, p api.Pause) (api.Isolation, error) {
	i, err := t.Client.Pause(ctx, p)
	return i, t.refused(err)
}

func (t *there) Resume(ctx context.Context, scope string) (api.Isolation, error) {
	i, err := t.Client.Resume(ctx, scope)
	return i, t.refused(err)
}
