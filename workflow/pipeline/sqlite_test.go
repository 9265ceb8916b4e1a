package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// onDisk is a world in a real SQLite store.
type onDisk struct {
	*sqlite.Store
	t     testing.TB
	path  string
	batch job.BatchID
	// killAt is the number of the write that the process does not survive; killed
	// after it is on disk, or before.
	mu             sync.Mutex
	writes, killAt int
	after          bool
}

func newOnDisk(t testing.TB, batch job.BatchID, nodes []queue.Entry) *onDisk {
	d := &onDisk{t: t, path: filepath.Join(t.TempDir(), "queue.db"), batch: batch}
	d.open()
	t.Cleanup(func() { check(t, d.Close()) })
	check(t, d.Enqueue(context.Background(), queue.Batch{ID: batch, Source: "test", CreatedAt: start}, nodes))
	return d
}

func (d *onDisk) open() {
	store, err := sqlite.Open(context.Background(), d.path, sqlite.Options{Log: zerolog.Nop()})
	check(d.t, err)
	d.Store = store
}

func (d *onDisk) Apply(ctx context.Context, ops ...queue.Op) error {
	d.mu.Lock()
	d.writes++
	killed := d.writes == d.killAt
	d.mu.Unlock()
	if !killed {
		return d.Store.Apply(ctx, ops...)
	}
	if d.after {
		check(d.t, d.Store.Apply(ctx, ops...))
	}
	return errCrash
}

func (d *onDisk) Job(ctx context.Context, name job.Name) (queue.Entry, error) {
	entries, _, err := d.List(ctx, queue.Filter{Batch: d.batch, Name: name})
	if err == nil && len(entries) == 0 {
		err = queue.ErrNotFound
	}
	if err != nil {
		return queue.Entry{}, err
	}
	return entries[0], nil
}

func (d *onDisk) Answer(ctx context.Context, e *queue.Entry) (string, error) {
	attempts, err := d.Attempts(ctx, e.ID)
	if err != nil || len(attempts) == 0 {
		return "", fmt.Errorf("attempts of %s: %d, %w", e.Spec.Name, len(attempts), err)
	}
	return attempts[len(attempts)-1].Outcome.Answer, nil
}

func (d *onDisk) claim(int) (queue.Entry, bool, error) {
	// The clock of the runner moves by seconds: all is runnable by then.
	claims, err := d.Claim(context.Background(), queue.ClaimSpec{Holder: "test", Max: 1, Now: start.Add(24 * time.Hour), Lease: time.Hour})
	if err != nil || len(claims.Entries) == 0 {
		return queue.Entry{}, false, err
	}
	return claims.Entries[0], true, nil
}

func (d *onDisk) finish(e queue.Entry, answer string, class job.ErrorClass) error {
	now, number := start.Add(24*time.Hour), e.Attempts+1
	outcome := job.Outcome{State: job.RunCompleted, Answer: answer, StartedAt: now, EndedAt: now}
	exit, letter := job.ExitSucceeded, ""
	if class != "" {
		outcome.State, outcome.Class, outcome.Message, exit, letter = job.RunFailed, class, answer, job.ExitFailed, answer
	}
	err := d.Apply(context.Background(),
		queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: number, Fence: e.Fence, State: job.Pending, Started: now}},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: number, To: job.Running})
	if err != nil {
		return err
	}
	return d.Apply(context.Background(), queue.Finish{
		ID: e.ID, Fence: e.Fence, Attempt: number, Outcome: outcome, Now: now, Exit: exit, DeadLetter: letter,
	})
}

// recover opens the store anew, as the next process does.
func (d *onDisk) recover() error {
	err := d.Close()
	d.open()
	return errors.Join(err, d.Store.Apply(context.Background(), queue.Reclaim{Now: start.Add(24 * time.Hour), Holders: []string{"test"}, Message: "the scheduler was killed"}))
}

func newWebOnDisk(t testing.TB, stages *webStages) (*runner, *onDisk) {
	r := newWeb(t, stages)
	d := newOnDisk(t, r.batch, r.world.(*memory).jobs)
	r.world = d
	return r, d
}

// TestWebTestingOnDisk runs the pipeline in a real store, whole and then killed at
// writes all along its way.
func TestWebTestingOnDisk(t *testing.T) {
	stages := newWebStages(t)
	r, d := newWebOnDisk(t, stages)
	r.run()
	r.wantReport()
	events := len(r.events())
	// The other tests kill it at every write; here it is the store that counts.
	for _, at := range []int{2, d.writes / 3, d.writes / 2, d.writes - 1} {
		t.Run(fmt.Sprintf("killed at write %d", at), func(t *testing.T) {
			r, d := newWebOnDisk(t, stages)
			d.killAt, d.after = at, at%2 == 0
			r.run()
			if r.crashes != 1 {
				t.Fatalf("%d crashes", r.crashes)
			}
			r.wantReport()
			if n := len(r.events()); n != events {
				t.Errorf("%d events in the log, want %d", n, events)
			}
		})
	}
}
