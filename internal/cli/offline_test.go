package cli

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestOffline: a state directory on which no scheduler answers is read over the API
// although its lock is held. Nothing can be changed, and no file appears.
func TestOffline(t *testing.T) {
	m := newTestMain(t, io.Discard)
	o, err := m.own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close() // it keeps the lock, and the log of the store
	at := utcNow()
	e := queue.Entry{ID: job.NewID(), CreatedAt: at, RunnableAt: at, Spec: job.Spec{Name: "fix", Worker: "shell", Instructions: "true"}}
	if err := o.store.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID(), CreatedAt: at}, []queue.Entry{e}); err != nil {
		t.Fatal(err)
	}
	files := func() (names []string) {
		list, err := os.ReadDir(m.stateDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			names = append(names, f.Name())
		}
		return names
	}
	before := files()
	err = m.read(func(r *reader) error {
		j, err := r.Job(t.Context(), "fix")
		if err != nil {
			return err
		}
		if w := statusOf(&j.Job).Waiting; w == nil || w.Reason != job.WaitScheduler {
			t.Errorf("the job waits for %v, want a scheduler", w)
		}
		if st, err := r.Status(t.Context()); err != nil || st.PID != 0 {
			t.Errorf("status has pid %d: %v", st.PID, err)
		}
		_, err = r.Cancel(t.Context(), "fix")
		if err = r.refused(err); !errors.Is(err, client.ErrNotRunning) {
			t.Errorf("cancel: %v, want %v", err, client.ErrNotRunning)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := files(); !slices.Equal(before, after) {
		t.Errorf("files are %v, were %v", after, before)
	}
	if now, err := o.store.Get(t.Context(), e.ID); err != nil || now.State != job.Queued {
		t.Errorf("the job is %s: %v", now.State, err)
	}
}
