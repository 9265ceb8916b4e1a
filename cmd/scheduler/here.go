package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// here is the state directory of this host: what is stored is read from the
// store, whether a scheduler runs or not; what changes goes through the one that
// runs, or else into the store.
type here struct {
	m     *Main
	dir   *statedir.Dir
	store *sqlite.Store // to read; nil until it is needed
	// follows says that the same is asked again and again: mostly the store alone is.
	follows bool
	asked   time.Time // when the scheduler was asked last how jobs stand
	told    map[job.ID]*queue.Entry
}

func (h *here) Name() string        { return h.dir.Path() }
func (h *here) Pace() time.Duration { return followEvery }
func (h *here) BePatient()          { h.follows = true } // the store is always there

func (h *here) Close() error {
	if h.store == nil {
		return nil
	}
	return failure(h.store.Close())
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

func (h *here) Jobs(ctx context.Context, q jobQuery) (client.Jobs, error) {
	store, err := h.open(ctx)
	if err != nil {
		return client.Jobs{}, err
	}
	return q.collect(func(n int, cursor string) (p client.Jobs, err error) {
		f := queue.Filter{States: q.states, Tenant: q.tenant, Batch: q.batch, Newest: !q.oldest, Limit: n}
		p.Jobs, p.Next, p.Total, err = store.Page(ctx, f, cursor)
		h.stand(ctx, p.Jobs, &q)
		return p, failure(err)
	})
}

// stand has entries of a query tell how their jobs stand: what they wait for is known
// to the scheduler that runs. Without one, only the store tells.
func (h *here) stand(ctx context.Context, entries []queue.Entry, q *jobQuery) {
	var err error
	open := slices.ContainsFunc(entries, func(e queue.Entry) bool { return !e.State.Terminal() })
	if open && !(h.follows && time.Since(h.asked) < askEvery) {
		told := map[job.ID]*queue.Entry{}
		h.asked, h.told = time.Now(), told
		err = h.running(func(c *client.Client) error {
			live := client.ListQuery{States: []job.EntryState{job.Queued, job.Dispatched}, Tenant: q.tenant, Batch: q.batch, Newest: !q.oldest, Limit: maxPage}
			list, err := c.List(ctx, live)
			for i := range list.Jobs {
				told[list.Jobs[i].ID] = &list.Jobs[i]
			}
			return err
		})
	}
	for i := range entries {
		e := &entries[i]
		if live := h.told[e.ID]; live != nil && live.State == e.State && live.Held == e.Held && live.Attempts == e.Attempts && live.Status != nil {
			e.Status = live.Status
			continue
		}
		h.standAlone(ctx, e, errors.Is(err, client.ErrNotRunning) && !h.follows)
	}
}

// askEvery is how often the scheduler is asked by a command that follows what happens.
const askEvery = 5 * time.Second

// standAlone has an entry tell how its job stands as far as the store knows; idle
// says that no scheduler runs.
func (h *here) standAlone(ctx context.Context, e *queue.Entry, idle bool) {
	st := scheduler.StatusOf(e, time.Now())
	st.Worker = scheduler.LatestWorker(ctx, h.store, e)
	e.Status = &st
	switch w := st.Waiting; {
	case !idle:
	case e.State == job.Dispatched:
		st.Note = "as last known: no scheduler is running"
	case w != nil && e.Held == "" && e.WaitsFor == "" && !e.RunnableAt.After(time.Now()) && !slices.Contains(outlasts, w.Reason):
		st.Waiting = &job.Waiting{Reason: job.WaitScheduler, Text: "none is running"}
	}
}

// outlasts are what a job waits for although a scheduler is started.
var outlasts = []job.WaitingReason{job.WaitScheduler, job.WaitCommand, job.WaitProgram}

func (h *here) Job(ctx context.Context, ref string) (client.Job, error) {
	store, err := h.open(ctx)
	if err != nil {
		return client.Job{}, err
	}
	e, err := queue.Find(ctx, store, ref)
	if err != nil {
		return client.Job{}, meant(ctx, h, ref, failure(err))
	}
	if !h.follows && !e.State.Terminal() {
		err = h.running(func(c *client.Client) error {
			live, err := c.Job(ctx, string(e.ID))
			if err == nil && live.Job.State == e.State {
				e.Status = live.Job.Status
			}
			return err
		})
	}
	if e.Status == nil {
		h.standAlone(ctx, &e, errors.Is(err, client.ErrNotRunning))
	}
	attempts, err := store.Attempts(ctx, e.ID)
	return client.Job{Job: e, Attempts: append([]job.Attempt{}, attempts...)}, failure(err)
}

func (h *here) Events(ctx context.Context, id job.ID, after int64) ([]queue.StoredEvent, error) {
	store, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	events, err := store.Events(ctx, id, after, 1000)
	return events, failure(err)
}

func (h *here) Folder(a *job.Attempt) string { return attemptFolder(h.dir, a) }

func (h *here) Long(_ context.Context, _ *job.Attempt, art job.Artifact) (string, error) {
	text, err := readAnswer(art)
	return text, failure(err)
}

func (h *here) Approvals(ctx context.Context) ([]queue.Entry, error) {
	store, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	list, err := scheduler.Approvals(ctx, store)
	return list, failure(err)
}

// Status of a scheduler that does not run has no pid, and what is isolated.
func (h *here) Status(ctx context.Context) (st scheduler.Status, err error) {
	err = h.running(func(c *client.Client) error { st, err = c.Status(ctx); return err })
	if !errors.Is(err, client.ErrNotRunning) {
		return st, failure(err)
	}
	book, err := scheduler.LoadIsolations(h.dir.Isolations())
	if err != nil {
		return st, failure(err)
	}
	return scheduler.Status{Isolations: book.List(time.Now())}, nil
}

// Tenants without a running scheduler have no shares: the policy is its own.
func (h *here) Tenants(ctx context.Context) (list []client.Tenant, err error) {
	err = h.running(func(c *client.Client) error { list, err = c.Tenants(ctx); return err })
	if !errors.Is(err, client.ErrNotRunning) {
		return list, failure(err)
	}
	store, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	return storedTenants(ctx, store, utcNow())
}

// storedTenants is what the store knows of tenants.
func storedTenants(ctx context.Context, store *sqlite.Store, now time.Time) ([]client.Tenant, error) {
	tenants := map[job.Tenant]*client.Tenant{}
	of := func(name job.Tenant) *client.Tenant {
		if tenants[name] == nil {
			tenants[name] = &client.Tenant{Tenant: name}
		}
		return tenants[name]
	}
	census, err := store.Census(ctx)
	if err != nil {
		return nil, failure(err)
	}
	for i := range census.Tenants {
		c := &census.Tenants[i]
		t := of(c.Tenant)
		t.Queued, t.Running, t.Oldest = c.Queued, c.Dispatched, c.Oldest
	}
	accounts, err := store.Accounts(ctx, queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Since: now.Truncate(24 * time.Hour)})
	if err != nil {
		return nil, failure(err)
	}
	for _, a := range accounts {
		of(a.Tenant).Today = a
	}
	grants, err := store.Grants(ctx)
	if err != nil {
		return nil, failure(err)
	}
	for _, g := range grants {
		if g.Agent == "" {
			of(g.Tenant).Grant = &g
		}
	}
	list := []client.Tenant{}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		list = append(list, *tenants[name])
	}
	return list, nil
}

// Workers without a running scheduler are those of the configuration, and which
// programs there are.
func (h *here) Workers(ctx context.Context) (list []client.Worker, err error) {
	err = h.running(func(c *client.Client) error { list, err = c.Workers(ctx); return err })
	if !errors.Is(err, client.ErrNotRunning) {
		return list, failure(err)
	}
	book, err := scheduler.LoadIsolations(h.dir.Isolations())
	if err != nil {
		return nil, failure(err)
	}
	cfg, err := h.m.loadConfig()
	if err != nil {
		return nil, err
	}
	return h.m.configuredWorkers(&cfg, book.List(time.Now())), nil
}

// configuredWorkers are the kinds that a job may name.
func (m *Main) configuredWorkers(cfg *config.Config, isolated []isolation.Isolation) []client.Worker {
	list := []client.Worker{}
	for _, name := range m.workerKinds(cfg) {
		kind := job.WorkerKind(name)
		settings := cfg.Workers[kind]
		w := client.Worker{
			Kind: kind, Adapter: cfg.AdapterOf(kind), Model: settings.Model, Max: cfg.WorkerLimit(kind),
			Circuits: []ipc.Circuit{}, Isolations: []isolation.Isolation{},
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
				w.Isolations = append(w.Isolations, i)
			}
		}
		list = append(list, w)
	}
	return list
}

func (h *here) Usage(ctx context.Context, f queue.AccountFilter) (client.Usage, error) {
	store, err := h.open(ctx)
	if err != nil {
		return client.Usage{}, err
	}
	used, err := server.UsageOf(ctx, store, f)
	return used, failure(err)
}

func (h *here) Submit(ctx context.Context, in submission) ([]queue.Entry, error) {
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
	if err := checkPipelines(&src.workflow, src.specs, &cfg); err != nil {
		return nil, err
	}
	digest, err := src.digest()
	if err != nil {
		return nil, failure(err)
	}
	var jobs client.Jobs
	err = h.running(func(c *client.Client) error {
		out := client.Submission{Source: submittedPrefix + src.name, Digest: digest, Jobs: src.specs, Workflow: src.workflow}
		jobs, err = c.Submit(ctx, out, withKey(in.key)...)
		return err
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
	var p *client.Problem
	if errors.As(err, &p) && slices.Contains([]int{http.StatusConflict, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge}, p.Status) {
		return usage(err)
	}
	return notRunning(err, "`scheduler run FILE` runs the jobs and ends with them")
}

func (h *here) Cancel(ctx context.Context, ref string) (e queue.Entry, err error) {
	err = patiently(ctx, func() error { e, err = h.m.cancelJob(ctx, ref); return err })
	return e, h.meant(ctx, ref, err)
}

func (h *here) CancelKey(ctx context.Context, in client.CancelKey) (done client.Jobs, err error) {
	err = patiently(ctx, func() error { done, err = h.cancelKey(ctx, in); return err })
	return done, err
}

func (h *here) cancelKey(ctx context.Context, in client.CancelKey) (done client.Jobs, err error) {
	err = h.running(func(c *client.Client) error { done, err = c.CancelKey(ctx, in); return err })
	if !errors.Is(err, client.ErrNotRunning) {
		return done, failure(err)
	}
	o, err := h.m.own(ctx)
	if err != nil {
		return done, err
	}
	defer o.Close()
	list, err := queue.CancelKey(ctx, o.store, in.Tenant, in.Key, utcNow())
	if err != nil {
		return done, failure(err)
	}
	for _, was := range list {
		h.m.did(ctx, o.dir, aboutJob(deedCancel, was.ID, was.Spec.Name, map[string]any{"key": in.Key}))
		e, err := o.store.Get(ctx, was.ID)
		if err != nil {
			return done, failure(err)
		}
		done.Jobs = append(done.Jobs, e)
	}
	return done, nil
}

// meant is like the function, unless there is no store to look into.
func (h *here) meant(ctx context.Context, ref string, err error) error {
	if !isNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return meant(ctx, h, ref, err)
}

func (h *here) Retry(ctx context.Context, ref string) (e queue.Entry, err error) {
	err = patiently(ctx, func() error { e, err = h.retry(ctx, ref); return err })
	return e, err
}

func (h *here) retry(ctx context.Context, ref string) (e queue.Entry, err error) {
	var j client.Job
	err = h.running(func(c *client.Client) error { j, err = c.Retry(ctx, ref); return err })
	if !errors.Is(err, client.ErrNotRunning) {
		return j.Job, h.meant(ctx, ref, failure(err))
	}
	was, err := h.Job(ctx, ref)
	switch {
	case err != nil:
		return e, err
	case !was.Job.State.Terminal():
		return e, failure(fmt.Errorf("job %s is %s; only what has ended is done again", was.Job.Spec.Name, stateWord(&was.Job)))
	case !scheduler.IsDeadLetter(&was.Job):
		return e, usage(fmt.Errorf("job %s is no dead letter: %w, and only a running one submits it again", was.Job.Spec.Name, client.ErrNotRunning), "`scheduler serve` starts one")
	}
	if err := scheduler.WaitsForSomebody(&was.Job); err != nil {
		return e, failure(err)
	}
	out, err := h.m.requeueInStore(ctx, []scheduler.Again{{Letter: was.Job}})
	switch {
	case err != nil:
		return e, err
	case len(out.Jobs) == 0:
		return e, failure(errors.New(firstLine(fmt.Sprint(out.Refused))))
	}
	return out.Jobs[0], nil
}

func (h *here) Decide(ctx context.Context, ref string, a scheduler.Answer) (e queue.Entry, err error) {
	err = patiently(ctx, func() error { e, err = h.m.decide(ctx, ref, a); return err })
	return e, h.meant(ctx, ref, err)
}

func (h *here) Pause(ctx context.Context, p client.Pause) (i isolation.Isolation, err error) {
	err = h.running(func(c *client.Client) error { i, err = c.Pause(ctx, p); return err })
	return i, notRunning(err, "nothing begins while none runs")
}

func (h *here) Resume(ctx context.Context, scope string) (i isolation.Isolation, err error) {
	err = h.running(func(c *client.Client) error { i, err = c.Resume(ctx, scope); return err })
	if errors.Is(err, client.ErrNotRunning) {
		i, err = h.m.resumeInFile(h.dir, scope)
	}
	return i, failure(err) // it names what is isolated
}
