package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// peer is the scheduler that a command asks, over its API: the one at --server, or the
// one of a state directory. While none runs on that, this process answers itself.
//
// A ref is what a user calls a job: its name, its id or a part of that. Errors have
// their exit codes.
type peer struct {
	*client.Client
	at      *target
	offline *offline // of the state directory; nil: with --server
	patient bool
}

// open returns the scheduler that the flags name.
func (at *target) open() (*peer, error) {
	if at.server != "" {
		c, err := at.dial()
		return &peer{Client: c, at: at}, err
	}
	dir, err := at.local.existing()
	if err != nil {
		return nil, err
	}
	o := &offline{at: at, dir: dir}
	c, err := client.Dial(client.Options{Socket: dir.Socket(), Else: o.dial})
	return &peer{Client: c, at: at, offline: o}, failure(err)
}

// do calls f with the scheduler that the flags name.
func (at *target) do(f func(*peer) error) error {
	p, err := at.open()
	if err != nil {
		return err
	}
	return errors.Join(p.refused(f(p)), p.Close())
}

// dial returns a client of the scheduler at --server.
func (at *target) dial() (*client.Client, error) {
	token, err := at.token()
	if err != nil {
		return nil, usage(err)
	}
	c, err := client.Dial(client.Options{URL: at.server, Token: token, CAFile: at.caFile})
	if err != nil {
		return nil, usage(fmt.Errorf("--server %s: %w", at.server, err))
	}
	return c, nil
}

// running returns a client of the scheduler that the flags name. If none runs, its
// errors wrap client.ErrNotRunning.
func (at *target) running() (*client.Client, error) {
	if at.server != "" {
		return at.dial()
	}
	dir, err := at.local.existing()
	if err != nil {
		return nil, err
	}
	return client.New(dir.Socket()), nil
}

// existing opens the layout of the state directory, which must be there.
func (local *local) existing() (*statedir.Dir, error) {
	path, err := local.statePath()
	if err != nil {
		return nil, err
	}
	dir, err := statedir.OpenExisting(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noJobsYet(path)
	case err != nil:
		return nil, usage(err)
	}
	return dir, nil
}

// noJobsYet says that nothing was ever stored in a state directory.
func noJobsYet(path string) error {
	return usage(fmt.Errorf("no jobs yet in state directory %s", path), "`scheduler run FILE` or `scheduler serve` makes it; --state DIR names another one")
}

// Close ends the connections.
func (p *peer) Close() error {
	p.Client.Close()
	if p.offline == nil {
		return nil
	}
	return failure(p.offline.Close())
}

// Name is what a person calls the scheduler.
func (p *peer) Name() string {
	if p.offline == nil {
		return p.at.server
	}
	return p.offline.dir.Path()
}

// Pace is how long to wait before it is looked at again.
func (p *peer) Pace() time.Duration {
	if p.offline == nil {
		return time.Second
	}
	return followEvery
}

// BePatient has questions wait for a scheduler that does not answer for a while, as
// during its restart: for a command that follows what happens.
func (p *peer) BePatient() { p.patient = true }

// patience is how long a scheduler may be away before a command that follows it
// gives up.
const patience = 2 * time.Minute

// ask asks a question, again and again if need be and p is patient.
func ask[T any](ctx context.Context, p *peer, question func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		answer, err := question()
		if err == nil || !p.patient || !away(err) || time.Since(began) > patience || pause(ctx, p.Pace()) != nil {
			return answer, p.refused(err)
		}
	}
}

// change has something changed, again as long as the state directory is held by a
// scheduler that does not answer yet.
func change[T any](ctx context.Context, p *peer, do func() (T, error)) (out T, err error) {
	for began := time.Now(); ; {
		out, err = do()
		err = p.refused(err)
		var locked *statedir.LockedError
		if !errors.As(err, &locked) || time.Since(began) > answerTime || pause(ctx, followEvery) != nil {
			return out, err
		}
	}
}

// changeJob is change of the job that ref names.
func changeJob(ctx context.Context, p *peer, ref string, do func() (api.JobDetail, error)) (api.Job, error) {
	j, err := change(ctx, p, do)
	return j.Job, meant(ctx, p, ref, err)
}

// away reports whether a scheduler that is asked again later may answer.
func away(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return !ok || p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
}

// refused gives an error that has no exit code its own, and names the scheduler that
// cannot be reached.
func (p *peer) refused(err error) error {
	if err == nil {
		return nil
	}
	if p.offline != nil {
		err = p.offline.why(err)
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	if !errors.Is(err, client.ErrNotRunning) {
		return refused(err)
	}
	if p.offline == nil {
		return failure(fmt.Errorf("no scheduler answers at %s", p.at.server))
	}
	return notRunning(err)
}

// refused gives what a scheduler answered its exit code: 2 where the user mends
// the question.
func refused(err error) error {
	if err == nil {
		return nil
	}
	p, ok := errors.AsType[*api.Problem](err)
	switch {
	case !ok:
	case p.Status == http.StatusUnauthorized && p.Name() != "key_required": // that says where the key is
		return usage(err, "the token is that of "+tokenVariable+", or of the file that --token-file names; `scheduler token create` makes one on the scheduler's host")
	case p.Status == http.StatusUnauthorized, p.Status == http.StatusForbidden:
		return usage(err)
	}
	return failure(err)
}

// mends marks an error about what was asked for as one that the user mends.
func mends(err error, hints ...string) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && slices.Contains([]int{http.StatusConflict, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge}, p.Status) {
		return usage(p, hints...)
	}
	return err
}

// notRunning says what to do where only a running scheduler can help.
func notRunning(err error, hints ...string) error {
	if errors.Is(err, client.ErrNotRunning) {
		return usage(client.ErrNotRunning, append(hints, "`scheduler serve` starts one")...)
	}
	return refused(err)
}

// jobQuery selects jobs.
type jobQuery struct {
	states []job.EntryState
	tenant job.Tenant
	agent  job.AgentID
	batch  job.BatchID
	oldest bool // the oldest first
	limit  int  // 0: all
	// keep selects more closely than the other fields can; nil: all of them.
	keep func(*api.Job) bool
}

// maxPage is how many jobs a page has at most.
const maxPage = 1000

// Jobs returns the jobs that q selects. The total is -1 if it is not known since
// there may be more.
func (p *peer) Jobs(ctx context.Context, q jobQuery) (api.Jobs, error) {
	all := api.Jobs{Jobs: []api.Job{}}
	for cursor, first := "", true; first || cursor != ""; first = false {
		n := maxPage
		if q.limit > 0 && q.keep == nil {
			if n = min(q.limit-len(all.Jobs), maxPage); n == 0 {
				break
			}
		}
		page, err := ask(ctx, p, func() (api.Jobs, error) {
			return p.List(ctx, client.ListQuery{States: q.states, Tenant: q.tenant, Agent: q.agent, Batch: q.batch, Newest: !q.oldest, Limit: n, Cursor: cursor})
		})
		if err != nil {
			return all, err
		}
		if first {
			all.Total = page.Total
		}
		for i := range page.Jobs {
			switch {
			case q.keep != nil && !q.keep(&page.Jobs[i]):
			case q.limit > 0 && len(all.Jobs) == q.limit:
				all.Total = -1
				return all, nil
			default:
				all.Jobs = append(all.Jobs, page.Jobs[i])
			}
		}
		cursor = page.Next
	}
	if q.keep != nil {
		all.Total = len(all.Jobs)
	}
	return all, nil
}

// JobsOf returns the jobs of batches.
func (p *peer) JobsOf(ctx context.Context, batches []job.BatchID) ([]api.Job, error) {
	var all []api.Job
	for _, b := range batches {
		list, err := p.Jobs(ctx, jobQuery{batch: b, oldest: true})
		if err != nil {
			return all, err
		}
		all = append(all, list.Jobs...)
	}
	return all, nil
}

// Job returns the job that ref names, with its attempts.
func (p *peer) Job(ctx context.Context, ref string) (api.JobDetail, error) {
	j, err := ask(ctx, p, func() (api.JobDetail, error) { return p.Client.Job(ctx, ref) })
	return j, meant(ctx, p, ref, err)
}

// Attempts returns the attempts of a job.
func (p *peer) Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error) {
	j, err := p.Job(ctx, string(id))
	return j.Attempts, err
}

// Events returns at most 1000 events of a job behind the cursor.
func (p *peer) Events(ctx context.Context, id job.ID, after int64) ([]api.Event, error) {
	page, err := ask(ctx, p, func() (api.Events, error) { return p.Client.Events(ctx, string(id), after, 1000) })
	return page.Events, err
}

// Folder returns where on this host an attempt has left its files, or "".
func (p *peer) Folder(a *job.Attempt) string {
	if p.offline == nil {
		return ""
	}
	return attemptFolder(p.offline.dir, a)
}

// Long returns the whole of an answer that is too long for its outcome.
func (p *peer) Long(ctx context.Context, a *job.Attempt, art job.Artifact) (string, error) {
	return ask(ctx, p, func() (string, error) {
		file, err := p.Artifact(ctx, string(a.Job), a.Number, art.Name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		text, err := io.ReadAll(file)
		return string(text), err
	})
}
