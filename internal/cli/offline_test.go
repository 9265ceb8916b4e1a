package cli

import (
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestOffline: a state directory on which no scheduler answers is read over the API
// although its lock is held. Nothing can be changed, and no file appears.
func TestOffline(t *testing.T) {
	m := newTestMain(t, io.Discard)
	o, err := m.local.own(t.Context())
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
		list, err := os.ReadDir(m.local.stateDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			names = append(names, f.Name())
		}
		return names
	}
	before := files()
	err = m.at.do(func(r *peer) error {
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
		if f, err := r.Fleet(t.Context()); err != nil || f.Leader != nil || len(f.Members) != 0 {
			t.Errorf("fleet %+v: %v", f, err)
		}
		// The lock is held: a scheduler is about to listen, so that this is asked again.
		for name, ask := range map[string]func() error{
			"cancel": func() error { _, err := r.Cancel(t.Context(), "fix"); return err },
			"pause":  func() error { _, err := r.Pause(t.Context(), api.Pause{Scope: "global"}); return err },
		} {
			if err := r.refused(ask()); !isLocked(err) {
				t.Errorf("%s while the lock is held: %v", name, err)
			}
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

func isLocked(err error) bool {
	_, locked := errors.AsType[*statedir.LockedError](err)
	return locked
}

// TestChangedOffline: what is changed while no scheduler runs is changed under the
// directory's lock, which is free afterwards, and is in the audit log.
func TestChangedOffline(t *testing.T) {
	m := newTestMain(t, io.Discard)
	o, err := m.local.own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := utcNow()
	e := queue.Entry{ID: job.NewID(), CreatedAt: at, RunnableAt: at, Spec: job.Spec{Name: "fix", Worker: "shell", Instructions: "true"}}
	if err := o.store.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID(), CreatedAt: at}, []queue.Entry{e}); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"cancel fix", "retry fix", "grant website --cost 20"} {
		if code, said := sayIn(t, m, strings.Fields(line)...); code != exitOK {
			t.Errorf("%s: exit code %d: %s", line, code, said)
		}
	}
	for _, line := range []string{"pause", "checkpoint fix", "restart-core", "ui", "triggers"} {
		if code, said := sayIn(t, m, strings.Fields(line)...); code != exitUsage || !strings.Contains(said, "no scheduler is running on this state directory") {
			t.Errorf("%s: exit code %d: %s", line, code, said)
		}
	}
	_, said := sayIn(t, m, "audit", "tail")
	for _, want := range []string{`cli +request +/v1/jobs/fix/cancel`, `cli +request +/v1/jobs/fix/retry`, `cli +request +/v1/grants`} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("the audit log has no %q:\n%s", want, said)
		}
	}
	if o, err = m.local.own(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if now, err := o.store.Get(t.Context(), e.ID); err != nil || now.State != job.Cancelled {
		t.Errorf("the job is %s: %v", now.State, err)
	}
}
