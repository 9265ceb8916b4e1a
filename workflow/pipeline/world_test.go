package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// world is what is around a pipeline: a store, and the jobs that it runs.
type world interface {
	pipeline.Store
	pipeline.Jobs
	// claim takes a part that is queued, as the n-th of them; false if there is none.
	claim(n int) (queue.Entry, bool, error)
	// finish ends it: with an answer, or as given up after its attempts.
	finish(e queue.Entry, answer string, class job.ErrorClass) error
	// recover takes back what was claimed by a process that is gone.
	recover() error
}

// memory is a world without files, so that it can be crashed a thousand times.
type memory struct {
	mu      sync.Mutex
	jobs    []queue.Entry // in the order of submission
	answers map[job.Name]string
	records map[string]map[string]queue.Record
	undo    []func() // of the Apply under way
	applied int
	// fail, if not nil, is asked before each Apply: whether to do it, and what to
	// return.
	fail func(n int) (do bool, err error)
	// skip, if not nil, keeps a part from being claimed.
	skip func(name job.Name) bool
}

func newMemory(nodes ...queue.Entry) *memory {
	return &memory{jobs: nodes, answers: map[job.Name]string{}, records: map[string]map[string]queue.Record{}}
}

func (m *memory) Apply(ctx context.Context, ops ...queue.Op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.applied++
	var failed error
	if m.fail != nil {
		var do bool
		if do, failed = m.fail(m.applied); !do {
			return failed
		}
	}
	jobs := slices.Clone(m.jobs)
	m.undo = m.undo[:0]
	for _, op := range ops {
		if err := m.apply(op); err != nil {
			for _, undo := range slices.Backward(m.undo) {
				undo()
			}
			m.jobs = jobs
			return err
		}
	}
	return failed
}

func (m *memory) apply(op queue.Op) error {
	switch op := op.(type) {
	case queue.Write:
		r := op.Record
		space := m.records[r.Space]
		if space == nil {
			space = map[string]queue.Record{}
			m.records[r.Space] = space
		}
		if old, there := space[r.Key]; there && op.Once && !bytes.Equal(old.Value, r.Value) {
			return fmt.Errorf("write %s of %s: %w", r.Key, r.Space, queue.ErrExists)
		}
		m.undo = append(m.undo, func() { delete(space, r.Key) })
		if old, there := space[r.Key]; there {
			m.undo[len(m.undo)-1] = func() { space[r.Key] = old }
		}
		space[r.Key] = r
	case queue.Spawn:
		for _, e := range op.Entries {
			if m.index(func(old *queue.Entry) bool { return old.Spec.Name == e.Spec.Name }) < 0 {
				m.jobs = append(m.jobs, e)
			}
		}
	case queue.Conclude:
		return m.update(op.ID, func(e *queue.Entry) bool {
			ok := e.State == job.Queued && e.Held == job.HeldForParts
			e.State, e.ExitKind, e.Result, e.DeadLetter, e.ErrorClass = job.Completed, op.Exit, op.Result, op.DeadLetter, op.Class
			return ok
		})
	case queue.Cancel:
		return m.update(op.ID, func(e *queue.Entry) bool {
			ok := !e.State.Terminal()
			if e.CancelRequested = true; e.State == job.Queued {
				e.State = job.Cancelled
			}
			return ok
		})
	case queue.Keep:
		return m.update(op.ID, func(e *queue.Entry) bool {
			e.Held = op.For
			return e.State == job.Queued
		})
	case queue.Drop:
		return m.update(op.ID, func(e *queue.Entry) bool {
			ok := e.DeadLetter != "" && e.DroppedAt == nil
			e.DroppedAt = &op.Now
			return ok
		})
	default:
		return fmt.Errorf("unexpected op %T", op)
	}
	return nil
}

func (m *memory) index(match func(*queue.Entry) bool) int {
	for i := range m.jobs {
		if match(&m.jobs[i]) {
			return i
		}
	}
	return -1
}

func (m *memory) update(id job.ID, change func(*queue.Entry) bool) error {
	i := m.index(func(e *queue.Entry) bool { return e.ID == id })
	if i < 0 {
		return queue.ErrNotFound
	}
	if e := m.jobs[i]; change(&e) {
		m.jobs[i] = e
		return nil
	}
	return queue.ErrIllegalTransition
}

func (m *memory) Record(_ context.Context, space, key string) (queue.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, there := m.records[space][key]
	if !there {
		return r, fmt.Errorf("record %s of %s: %w", key, space, queue.ErrNotFound)
	}
	return r, nil
}

func (m *memory) Records(_ context.Context, space, after string, limit int) ([]queue.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []queue.Record
	for _, key := range slices.Sorted(maps.Keys(m.records[space])) {
		if key > after && len(all) < limit {
			all = append(all, m.records[space][key])
		}
	}
	return all, nil
}

func (m *memory) Spaces(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.records)), func(s string) bool { return !strings.HasPrefix(s, prefix) }), nil
}

func (m *memory) Job(_ context.Context, name job.Name) (queue.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(func(e *queue.Entry) bool { return e.Spec.Name == name }); i >= 0 {
		return m.jobs[i], nil
	}
	return queue.Entry{}, queue.ErrNotFound
}

func (m *memory) Answer(_ context.Context, e *queue.Entry) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answers[e.Spec.Name], nil
}

func (m *memory) claim(n int) (queue.Entry, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ready []int
	for i := range m.jobs {
		if e := &m.jobs[i]; e.State == job.Queued && e.Held == "" && (m.skip == nil || !m.skip(e.Spec.Name)) {
			ready = append(ready, i)
		}
	}
	if len(ready) == 0 {
		return queue.Entry{}, false, nil
	}
	e := &m.jobs[ready[n%len(ready)]]
	e.State = job.Dispatched
	return *e, true, nil
}

func (m *memory) finish(e queue.Entry, answer string, class job.ErrorClass) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied++
	var failed error
	if m.fail != nil {
		var do bool
		if do, failed = m.fail(m.applied); !do {
			return failed
		}
	}
	err := m.update(e.ID, func(e *queue.Entry) bool {
		e.State, e.ExitKind, e.Attempts = job.Completed, job.ExitSucceeded, e.Attempts+1
		if e.CancelRequested {
			e.ExitKind = job.ExitCancelled
		} else if class != "" {
			e.ExitKind, e.ErrorClass, e.DeadLetter = job.ExitFailed, class, answer
		}
		return true
	})
	m.answers[e.Spec.Name] = answer
	return errors.Join(err, failed)
}

func (m *memory) recover() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.jobs {
		if e := &m.jobs[i]; e.State == job.Dispatched {
			e.State = job.Queued
			if e.CancelRequested {
				e.State = job.Cancelled
			}
		}
	}
	return nil
}

// node returns the job of a stage, as it stands when the pipeline runs.
func node(batch job.BatchID, name job.Name, input string) queue.Entry {
	return queue.Entry{
		ID: job.NewID(), Batch: batch, State: job.Queued, Held: job.HeldForParts, CreatedAt: start, RunnableAt: start,
		Spec: job.Spec{
			Name: name, Tenant: job.DefaultTenant, Type: job.WorkerTask, Worker: "shell", Instructions: "work",
			Workspace: job.Workspace{Isolation: job.NoWorkspace},
			Flow:      job.Flow{Joined: true, Input: []byte(input)},
			Limits:    job.Limits{Timeout: job.DefaultTimeout, MaxAttempts: 1},
		},
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func check(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
