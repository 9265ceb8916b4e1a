package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// Run is what `scheduler run` asks for: that the jobs of a source run to their
// end, going on with those of an earlier run of it that is unfinished.
type Run struct {
	Source   string // what the jobs are known by, e.g. the paths of their files
	Digest   string // a hash over the jobs
	Specs    []job.Spec
	Workflow job.Workflow
	// Fresh cancels what an earlier run of the source has left, and starts over.
	Fresh bool
}

// ErrRunChanged is what a *RunChangedError wraps.
var ErrRunChanged = errors.New("the jobs of the source have changed")

// RunChangedError says that the jobs of a source are not those of its unfinished run.
type RunChangedError struct {
	Since            time.Time // when that run was submitted
	Unfinished, Jobs int       // of it
}

func (e *RunChangedError) Error() string {
	return fmt.Sprintf("the jobs of this source have changed since a run of %s that is unfinished: %d of its %d jobs",
		e.Since.Local().Format(time.DateTime), e.Unfinished, e.Jobs)
}

func (e *RunChangedError) Unwrap() error { return ErrRunChanged }

// RunStore does what a Run needs beyond reading.
type RunStore struct {
	queue.Reader
	// Add makes a new batch durable, Drop cancels what is unfinished of one and closes it.
	Add  func(context.Context, queue.Batch, []queue.Entry) error
	Drop func(context.Context, job.BatchID) error
}

// Open finds the unfinished batch of the same jobs, or adds a new one. The error
// may be a *RunChangedError, or that of Add.
func (s RunStore) Open(ctx context.Context, r *Run) (api.OpenedRun, error) {
	batches, err := s.Batches(ctx, r.Source)
	if err != nil {
		return api.OpenedRun{}, err
	}
	for _, b := range batches {
		if b.ClosedAt != nil {
			continue
		}
		opened, err := RunOf(ctx, s, &b)
		switch {
		case err != nil:
			return opened, err
		case r.Fresh || opened.Unfinished == 0 && b.Digest != r.Digest:
			if err := s.Drop(ctx, b.ID); err != nil {
				return opened, err
			}
		case b.Digest != r.Digest:
			return opened, &RunChangedError{Since: b.CreatedAt, Unfinished: opened.Unfinished, Jobs: opened.Jobs}
		default:
			return opened, nil
		}
	}
	b, entries := NewBatch(r.Source, r.Digest, r.Specs, r.Workflow, now())
	return api.OpenedRun{Batch: b.ID, CreatedAt: b.CreatedAt, Jobs: len(entries), Unfinished: len(entries)}, s.Add(ctx, b, entries)
}

// RunOf counts the jobs of a batch that is there already.
func RunOf(ctx context.Context, store queue.Reader, b *queue.Batch) (api.OpenedRun, error) {
	r := api.OpenedRun{Batch: b.ID, Continued: true, CreatedAt: b.CreatedAt}
	var err error
	if _, r.Jobs, err = store.List(ctx, queue.Filter{Batch: b.ID, Limit: 1}); err != nil {
		return r, err
	}
	_, r.Unfinished, err = store.List(ctx, queue.Filter{Batch: b.ID, States: unfinishedStates(), Limit: 1})
	return r, err
}

func unfinishedStates() []job.EntryState { return []job.EntryState{job.Queued, job.Dispatched} }

// AdoptRuns shares what unfinished runs have left, for a scheduler that works on
// everything. A run that was handed to such a scheduler and stopped stays stopped.
func AdoptRuns(ctx context.Context, store queue.Store) error {
	batches, err := store.Batches(ctx, "")
	if err != nil {
		return err
	}
	ops := []queue.Op{queue.Adopt{}}
	for _, b := range batches {
		if b.ClosedAt == nil && b.Private && b.Workflow.Caller != nil {
			ops = append(ops, queue.SetPrivate{ID: b.ID, Private: true, Waiting: job.Waiting{Reason: job.WaitCommand, Text: stoppedRun}.String()})
		}
	}
	return store.Apply(ctx, ops...)
}

// stoppedRun is why a job of a run waits that was handed over and does not go on by itself.
const stoppedRun = "stopped; the same command continues it"

// ErrNoServer: the scheduler ends with jobs of its own, and takes no runs.
var ErrNoServer = errors.New("this scheduler ends with its own jobs and takes no run; submit the jobs to it, or wait for its end")

// ErrNoRun: no run was handed over under that id.
var ErrNoRun = errors.New("no such run was handed to this scheduler")

// Runs are the runs that other processes have handed to this scheduler. It owns the
// values of their variables, which are kept nowhere else, and has
// the machine hold back those that were stopped.
type Runs struct {
	store    queue.Store
	own      job.BatchID // "": the scheduler ends with no jobs of its own, and takes runs
	apply    func(context.Context, ...queue.Op) error
	submit   func(context.Context, queue.Batch, []queue.Entry) error
	cancel   func(context.Context, job.ID) error
	post     func(schedule.Event)
	follow   func(job.BatchID) // finds what follows in a batch
	dispatch func()            // has the dispatcher look at the queue

	opening sync.Mutex // held while one is opened, so that two of the same are one

	mu sync.Mutex // guards what follows
	// env holds the values of the variables that the jobs of a run name in their env,
	// as its caller has them.
	env map[job.BatchID]map[string]string
}

// environ returns the values for a job's env; nil: those of this process.
func (r *Runs) environ(e *queue.Entry) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	given, ok := r.env[e.Batch]
	if !ok || len(e.Spec.Env) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, name := range e.Spec.Env {
		if v, ok := given[name]; ok {
			values[name] = v
		}
	}
	return values
}

// take keeps the values of a run that goes on.
func (r *Runs) take(b job.BatchID, env map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env[b] = env
	r.post(schedule.Hold{Batch: b})
}

// forget drops what is known of a run.
func (r *Runs) forget(b job.BatchID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.env, b)
	r.post(schedule.Hold{Batch: b})
}

func (r *Runs) known() []job.BatchID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []job.BatchID
	for b := range r.env {
		list = append(list, b)
	}
	return list
}

// Open takes over a run of another process: its jobs run beside all others, its
// variables have the values of env. When it returns nil the jobs are durable and
// go on, after a Stop as well. The error may be a *RunChangedError or ErrNoServer.
func (r *Runs) Open(ctx context.Context, in *Run, env map[string]string) (api.OpenedRun, error) {
	if r.own != "" {
		return api.OpenedRun{}, ErrNoServer
	}
	r.opening.Lock()
	defer r.opening.Unlock()
	r.forgetEnded(ctx)
	store := RunStore{
		Reader: r.store, Drop: r.drop,
		Add: func(ctx context.Context, b queue.Batch, entries []queue.Entry) error {
			b.Workflow.Caller = &job.Caller{Env: envNames(entries)}
			r.take(b.ID, env) // before a job of it can run
			err := r.submit(ctx, b, entries)
			if err != nil {
				r.forget(b.ID)
			}
			return err
		},
	}
	opened, err := store.Open(ctx, in)
	if err != nil || !opened.Continued {
		return opened, err
	}
	return opened, r.goOn(ctx, opened.Batch, env)
}

// Continue lets a run go on that was handed over earlier.
func (r *Runs) Continue(ctx context.Context, id job.BatchID, env map[string]string) (api.OpenedRun, error) {
	if r.own != "" {
		return api.OpenedRun{}, ErrNoServer
	}
	r.opening.Lock()
	defer r.opening.Unlock()
	b, err := r.find(ctx, id)
	if err != nil {
		return api.OpenedRun{}, err
	}
	opened, err := RunOf(ctx, r.store, &b)
	if err != nil {
		return opened, err
	}
	return opened, r.goOn(ctx, id, env)
}

func (r *Runs) goOn(ctx context.Context, id job.BatchID, env map[string]string) error {
	r.take(id, env)
	if err := r.apply(ctx, queue.SetPrivate{ID: id}); err != nil {
		return fmt.Errorf("go on with run %s: %w", id, err)
	}
	r.follow(id)
	r.dispatch()
	return nil
}

// find returns an open batch that is or was a run.
func (r *Runs) find(ctx context.Context, id job.BatchID) (queue.Batch, error) {
	batches, err := r.store.Batches(ctx, "")
	if err != nil {
		return queue.Batch{}, err
	}
	known := slices.Contains(r.known(), id)
	i := slices.IndexFunc(batches, func(b queue.Batch) bool {
		return b.ID == id && b.ClosedAt == nil && (known || b.Workflow.Caller != nil)
	})
	if i < 0 {
		return queue.Batch{}, fmt.Errorf("run %s: %w", id, ErrNoRun)
	}
	return batches[i], nil
}

// Stop lets nothing more of a run begin, and stops what runs of it, to go on when
// the run is opened again: at the next boundary of its steps where the worker
// keeps some, else in stages; with now, at once. It does not wait for that.
func (r *Runs) Stop(ctx context.Context, id job.BatchID, now bool) error {
	if _, err := r.find(ctx, id); err != nil {
		return err
	}
	r.post(schedule.Hold{Batch: id, Why: stoppedRun})
	if err := r.apply(ctx, queue.SetPrivate{ID: id, Private: true, Waiting: job.Waiting{Reason: job.WaitCommand, Text: stoppedRun}.String()}); err != nil {
		r.post(schedule.Hold{Batch: id})
		return fmt.Errorf("stop run %s: %w", id, err)
	}
	r.dispatch()
	how := schedule.Boundary
	if now {
		how = schedule.AtOnce
	}
	r.post(schedule.Stop{Batch: id, How: how, Reason: "the run was stopped"})
	return nil
}

// Close marks a run as done with: its summary was given. One with unfinished
// jobs stays open.
func (r *Runs) Close(ctx context.Context, id job.BatchID) error {
	b, err := r.find(ctx, id)
	if err != nil {
		return err
	}
	if opened, err := RunOf(ctx, r.store, &b); err != nil || opened.Unfinished > 0 {
		return err
	}
	if err := r.apply(ctx, queue.CloseBatch{ID: id, Now: now()}); err != nil {
		return fmt.Errorf("close run %s: %w", id, err)
	}
	r.forget(id)
	return nil
}

// drop cancels what is unfinished of a run and closes it.
func (r *Runs) drop(ctx context.Context, id job.BatchID) error {
	entries, _, err := r.store.List(ctx, queue.Filter{Batch: id, States: unfinishedStates(), Limit: 1 << 30})
	if err != nil {
		return err
	}
	for i := range entries {
		if err := r.cancel(ctx, entries[i].ID); err != nil && !errors.Is(err, queue.ErrIllegalTransition) {
			return err
		}
	}
	r.forget(id)
	return r.apply(ctx, queue.CloseBatch{ID: id, Now: now()})
}

// forgetEnded drops the values of runs whose jobs have ended: whoever handed them
// over has gone without closing them.
func (r *Runs) forgetEnded(ctx context.Context) {
	for _, b := range r.known() {
		if _, left, err := r.store.List(ctx, queue.Filter{Batch: b, States: unfinishedStates(), Limit: 1}); err == nil && left == 0 {
			r.forget(b)
		}
	}
}

// hold keeps back the jobs of runs whose callers' variables an earlier scheduler
// had in its memory: they would run with the values of this one's.
func (r *Runs) hold(ctx context.Context) error {
	batches, err := r.store.Batches(ctx, "")
	if err != nil {
		return fmt.Errorf("look for runs that were handed over: %w", err)
	}
	var ops []queue.Op
	for _, b := range batches {
		if b.ClosedAt == nil && !b.Private && b.ID != r.own && b.Workflow.Caller != nil && len(b.Workflow.Caller.Env) > 0 {
			ops = append(ops, queue.SetPrivate{ID: b.ID, Private: true, Waiting: job.Waiting{Reason: job.WaitCommand, Text: "it gave the job its variables; run the same command again"}.String()})
		}
	}
	if err := r.store.Apply(ctx, ops...); err != nil {
		return fmt.Errorf("keep back runs that were handed over: %w", err)
	}
	return nil
}

// envNames returns the variables that jobs name, each once, sorted.
func envNames(entries []queue.Entry) []string {
	var names []string
	for i := range entries {
		names = append(names, entries[i].Spec.Env...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
