package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// site is the scheduler that a command changes something of: that of the state
// directory, whether it runs or not (here), or one at --server (there).
//
// A ref is what a user calls a job: its name, its id or a beginning of that. The
// errors have their exit codes.
type site interface {
	// reads returns what reads of it.
	reads() *reader

	Submit(ctx context.Context, in submission) ([]api.Job, error)
	Cancel(ctx context.Context, ref string) (api.Job, error)
	CancelKey(ctx context.Context, in api.CancelKey) (api.Jobs, error)
	// Retry does a job that has ended again and returns the new one.
	Retry(ctx context.Context, ref string) (api.Job, error)
	Decide(ctx context.Context, ref string, a api.Answer) (api.Job, error)
	Pause(ctx context.Context, p api.Pause) (api.Isolation, error)
	Resume(ctx context.Context, scope string) (api.Isolation, error)

	Close() error
}

// jobQuery selects jobs.
type jobQuery struct {
	states []job.EntryState
	tenant job.Tenant
	batch  job.BatchID
	oldest bool // the oldest first
	limit  int  // 0: all
	// keep selects more closely than the other fields can; nil: all of them.
	keep func(*api.Job) bool
}

// page returns a page of at most n jobs behind a cursor.
type page func(n int, cursor string) (api.Jobs, error)

// collect reads pages until q has what it asks for. The total is -1 if it is not
// known since there may be more.
func (q *jobQuery) collect(next page) (api.Jobs, error) {
	all := api.Jobs{Jobs: []api.Job{}}
	for cursor, first := "", true; ; first = false {
		n := maxPage
		if q.limit > 0 && q.keep == nil {
			n = min(q.limit-len(all.Jobs), maxPage)
		}
		p, err := next(n, cursor)
		if err != nil {
			return all, err
		}
		if first {
			all.Total = p.Total
		}
		for i := range p.Jobs {
			if q.keep != nil && !q.keep(&p.Jobs[i]) {
				continue
			}
			if q.limit > 0 && len(all.Jobs) == q.limit {
				all.Total = -1
				return all, nil
			}
			all.Jobs = append(all.Jobs, p.Jobs[i])
		}
		if cursor = p.Next; cursor == "" || q.keep == nil && q.limit > 0 && len(all.Jobs) >= q.limit {
			break
		}
	}
	if q.keep != nil {
		all.Total = len(all.Jobs)
	}
	return all, nil
}

// maxPage is how many jobs a page has at most.
const maxPage = 1000

// site returns the scheduler that the flags name.
func (m *Main) site() (site, error) {
	r, err := m.reader()
	switch {
	case err != nil:
		return nil, err
	case r.offline == nil:
		return &there{r}, nil
	}
	return &here{reader: r, dir: r.offline.dir}, nil
}

// on calls f with the scheduler that the flags name.
func (m *Main) on(f func(site) error) error {
	s, err := m.site()
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// dial returns a client of the scheduler at --server.
func (m *Main) dial() (*client.Client, error) {
	token := m.variable(tokenVariable)
	if m.tokenFile != "" {
		text, err := os.ReadFile(m.tokenFile)
		if err != nil {
			return nil, usage(fmt.Errorf("--token-file: %w", err))
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return nil, usage(fmt.Errorf("--token-file %s is empty, want a token as `scheduler token create` prints it", m.tokenFile))
		}
	}
	door, err := client.Dial(client.Options{URL: m.server, Token: token, CAFile: m.caFile})
	if err != nil {
		return nil, usage(fmt.Errorf("--server %s: %w", m.server, err))
	}
	return door, nil
}

// knock returns a client of the scheduler that the flags name, which must be
// running: for what only a running one can do.
func (m *Main) knock() (*client.Client, error) {
	if m.server != "" {
		return m.dial()
	}
	dir, err := m.existing()
	if err != nil {
		return nil, err
	}
	return client.New(dir.Socket()), nil
}

// refused gives what a scheduler answered its exit code: 2 where the user mends
// the question.
func refused(err error) error {
	if err == nil {
		return nil
	}
	var p *api.Problem
	if errors.As(err, &p) {
		switch {
		case p.Name() == "key_required": // which says where the key is
			return usage(err)
		case p.Status == http.StatusUnauthorized:
			return usage(err, "the token is that of "+tokenVariable+", or of the file that --token-file names; `scheduler token create` makes one on the scheduler's host")
		case p.Status == http.StatusForbidden:
			return usage(err)
		}
	}
	return failure(err)
}

// notRunning says what to do where only a running scheduler can help.
func notRunning(err error, hints ...string) error {
	if errors.Is(err, client.ErrNotRunning) {
		return usage(err, append(hints, "`scheduler serve` starts one")...)
	}
	return refused(err)
}
