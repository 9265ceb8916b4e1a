package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// here is the state directory of this host: what changes goes through the scheduler
// that runs, or else into the store.
type here struct {
	*reader
	dir   *statedir.Dir
	store *sqlite.Store // to read; nil until it is needed
}

func (h *here) Close() error {
	err := h.reader.Close()
	if h.store != nil {
		err = errors.Join(err, failure(h.store.Close()))
	}
	return err
}

// open returns the store to read.
func (h *here) open(ctx context.Context) (*sqlite.Store, error) {
	if h.store == nil {
		_, store, err := h.m.look(ctx)
		if err != nil {
			return nil, err
		}
		h.store = store
	}
	return h.store, nil
}

// running calls f with a client of the scheduler that runs; ErrNotRunning.
func (h *here) running(f func(*client.Client) error) error {
	door := client.New(h.dir.Socket())
	defer door.Close()
	return f(door)
}

func (h *here) Submit(ctx context.Context, in submission) ([]api.Job, error) {
	m := h.m
	cfg, err := m.loadConfig()
	if err != nil {
		return nil, err
	}
	src, err := in.read(m, &cfg)
	if err != nil {
		return nil, err
	}
	if err := m.checkJobs(ctx, src.specs, &cfg, nil); err != nil {
		return nil, err
	}
	if err := m.checkPipelines(&src.workflow, src.specs, &cfg); err != nil {
		return nil, err
	}
	digest, err := src.digest()
	if err != nil {
		return nil, failure(err)
	}
	var jobs api.Jobs
	err = onceOpen(ctx, h.dir, func() error {
		return h.running(func(c *client.Client) error {
			out := api.Submission{Source: submittedPrefix + src.name, Digest: digest, Jobs: src.specs, Workflow: src.workflow}
			jobs, err = c.Submit(ctx, out, withKey(in.key)...)
			return err
		})
	})
	return jobs.Jobs, refusedJobs(err)
}

// withKey is what goes along with a submission that has a key.
func withKey(key string) []client.SubmitOption {
	if key == "" {
		return nil
	}
	return []client.SubmitOption{client.WithKey(key)}
}

// refusedJobs gives the refusal of a submission its exit code: the user mends it.
func refusedJobs(err error) error {
	var p *api.Problem
	if errors.As(err, &p) && slices.Contains([]int{http.StatusConflict, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge}, p.Status) {
		return usage(err)
	}
	return notRunning(err, "`scheduler run FILE` runs the jobs and ends with them")
}

func (h *here) Cancel(ctx context.Context, ref string) (api.Job, error) {
	var j api.JobDetail
	_, err := h.m.change(ctx, func(c *client.Client) (err error) { j, err = c.Cancel(ctx, ref); return err }, func(o *owned) error {
		e, err := queue.Find(ctx, o.store, ref)
		if err != nil {
			return err
		}
		if e.State.Terminal() {
			return fmt.Errorf("job %s is %s already", e.Spec.Name, scheduler.StatusOf(&e, time.Now()).State)
		}
		if err := o.store.Apply(ctx, queue.Cancel{ID: e.ID, Now: utcNow()}); err != nil {
			return err
		}
		h.m.did(ctx, o.dir, aboutJob(deedCancel, e.ID, e.Spec.Name, nil))
		e, err = o.store.Get(ctx, e.ID)
		j.Job = stored(e)[0]
		return err
	})
	return j.Job, h.meant(ctx, ref, err)
}

func (h *here) CancelKey(ctx context.Context, in api.CancelKey) (done api.Jobs, err error) {
	_, err = h.m.change(ctx, func(c *client.Client) (err error) { done, err = c.CancelKey(ctx, in); return err }, func(o *owned) error {
		list, err := queue.CancelKey(ctx, o.store, in.Tenant, in.Key, utcNow())
		if err != nil {
			return err
		}
		for _, was := range list {
			h.m.did(ctx, o.dir, aboutJob(deedCancel, was.ID, was.Spec.Name, map[string]any{"key": in.Key}))
			e, err := o.store.Get(ctx, was.ID)
			if err != nil {
				return err
			}
			done.Jobs = append(done.Jobs, stored(e)...)
		}
		return nil
	})
	return done, err
}

// meant is like the function, unless there is no store to look into.
func (h *here) meant(ctx context.Context, ref string, err error) error {
	if !isNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return meant(ctx, h.reader, ref, err)
}

func (h *here) Retry(ctx context.Context, ref string) (api.Job, error) {
	var j api.JobDetail
	_, err := h.m.change(ctx, func(c *client.Client) (err error) { j, err = c.Retry(ctx, ref); return err }, func(o *owned) error {
		was, err := queue.Find(ctx, o.store, ref)
		switch {
		case err != nil:
			return err
		case !was.State.Terminal():
			return fmt.Errorf("job %s is %s; only a job that has ended can be run again", was.Spec.Name, scheduler.StatusOf(&was, time.Now()).State)
		case !scheduler.IsDeadLetter(&was):
			return usage(fmt.Errorf("job %s is no dead letter: %w, and only a running one submits it again", was.Spec.Name, client.ErrNotRunning), "`scheduler serve` starts one")
		}
		if err := scheduler.WaitsForSomebody(&was); err != nil {
			return err
		}
		out := h.m.requeueIn(ctx, o, []scheduler.Again{{Letter: was}})
		if len(out.Jobs) == 0 {
			return errors.New(firstLine(fmt.Sprint(out.Refused)))
		}
		j.Job = out.Jobs[0]
		return nil
	})
	return j.Job, h.meant(ctx, ref, err)
}

func (h *here) Decide(ctx context.Context, ref string, a api.Answer) (api.Job, error) {
	var j api.JobDetail
	_, err := h.m.change(ctx, func(c *client.Client) (err error) { j, err = c.Decide(ctx, ref, a); return err }, func(o *owned) error {
		e, err := queue.Find(ctx, o.store, ref)
		if err != nil {
			return err
		}
		if e, err = scheduler.Decide(ctx, o.store, e.ID, a); err == nil {
			h.m.did(ctx, o.dir, aboutJob(deedAnswer, e.ID, e.Spec.Name, a))
		}
		j.Job = stored(e)[0]
		return err
	})
	if p, ok := errors.AsType[*api.Problem](err); errors.Is(err, scheduler.ErrNoComment) || ok && p.Status == http.StatusBadRequest {
		return j.Job, usage(err, `give it with -m, e.g. scheduler reject `+ref+` -m "the tests are missing"`)
	}
	return j.Job, h.meant(ctx, ref, err)
}

func (h *here) Pause(ctx context.Context, p api.Pause) (i api.Isolation, err error) {
	err = h.running(func(c *client.Client) error { i, err = c.Pause(ctx, p); return err })
	return i, notRunning(err, "nothing begins while none runs")
}

func (h *here) Resume(ctx context.Context, scope string) (i api.Isolation, err error) {
	err = h.running(func(c *client.Client) error { i, err = c.Resume(ctx, scope); return err })
	if errors.Is(err, client.ErrNotRunning) {
		i, err = h.m.resumeInFile(h.dir, scope)
	}
	return i, failure(err) // it names what is isolated
}

// configuredWorkers are the kinds that a job may name.
func (m *Main) configuredWorkers(cfg *config.Config, isolated []isolation.Isolation) []api.Worker {
	list := []api.Worker{}
	for _, name := range m.workerKinds(cfg) {
		kind := job.WorkerKind(name)
		settings := cfg.Workers[kind]
		w := api.Worker{
			Kind: kind, Adapter: cfg.AdapterOf(kind), Model: settings.Model, Max: cfg.WorkerLimit(kind),
			Circuits: []api.Circuit{}, Isolations: []api.Isolation{},
		}
		if a := m.adapters[w.Adapter]; a == nil {
			w.Problem = fmt.Sprintf("there is no adapter %q", w.Adapter)
		} else if program, err := a.Locate(settings); err != nil {
			w.Problem = err.Error()
		} else {
			w.Program = program
		}
		for _, i := range isolated {
			if of, _, ok := i.Scope.Worker(); i.Scope == isolation.Global || ok && of == kind {
				w.Isolations = append(w.Isolations, server.IsolationOf(&i))
			}
		}
		list = append(list, w)
	}
	return list
}
