package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// paused is a scheduler whose cores are never started.
func paused(t *testing.T, batch job.BatchID) *Scheduler {
	return pausedIn(t, batch, statedir.Files(t.TempDir()))
}

// pausedIn is paused with isolations that are kept in docs.
func pausedIn(t *testing.T, batch job.BatchID, docs statedir.Documents) *Scheduler {
	t.Helper()
	book, keep, err := LoadIsolations(t.Context(), docs)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Batch: batch, Isolations: book, KeepIsolations: keep, Traits: map[string]job.WorkerTraits{"codex": {}, "shell": {}}, Supervise: func(h supervisor.Handler) Cores {
		return supervisor.New(supervisor.Config{Handler: h})
	}})
}

// TestPause puts a scope out of use until its time is over or somebody resumes
// it, over restarts too, and tells whoever listens.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := statedir.Files(t.TempDir())
		s := pausedIn(t, "", docs)
		updates, stop := s.Feed.Subscribe(16)
		defer stop()
		for _, bad := range []struct {
			scope string
			d     time.Duration
		}{{"", 0}, {"everything", 0}, {"core:1", 0}, {"workspace:here", 0}, {"global", -time.Second}} {
			if i, err := s.Isolations.Pause(bad.scope, "", bad.d); err == nil {
				t.Errorf("paused %q for %v: %+v", bad.scope, bad.d, i)
			}
		}
		_, err := s.Isolations.Pause("worker:codx@ann", "", 0)
		if want := `there is no worker "codx", want one of codex, shell; did you mean codex?`; err == nil || err.Error() != want {
			t.Errorf("pause a worker that nobody has: %v, want %s", err, want)
		}
		i, err := s.Isolations.Pause("worker:codex", "a new key is coming", time.Hour)
		if err != nil || i.Cause != isolation.CausePaused || i.Action != isolation.IsolateKind || i.Until.Sub(i.Since) != time.Hour {
			t.Fatalf("paused %+v, %v", i, err)
		}
		if u := <-updates; u.Kind != api.UpdateEscalation || u.ID == "" {
			t.Errorf("listeners hear %+v", u)
		}
		e := queue.Entry{Spec: job.Spec{Worker: "codex"}}
		if _, blocked := s.Isolations.Blocking(&e); !blocked {
			t.Error("codex may begin")
		}
		if _, err := s.Isolations.Pause("worker:codex", "", time.Minute); !errors.Is(err, queue.ErrIllegalTransition) {
			t.Errorf("a shorter pause: %v", err)
		}
		if i, err = s.Isolations.Pause("worker:codex", "", 0); err != nil || !i.Until.IsZero() {
			t.Errorf("a longer pause: %+v, %v", i, err)
		}
		again, _, err := LoadIsolations(t.Context(), docs)
		if err != nil || len(again.List(time.Now())) != 1 {
			t.Errorf("after a restart: %+v, %v", again, err)
		}
		_, err = s.Isolations.Resume("worker:codex")
		if _, blocked := s.Isolations.Blocking(&e); err != nil || blocked {
			t.Errorf("resumed: %v", err)
		}
		s.loop.step(schedule.Cores{{ID: 1, Index: 1, Takes: true}})
		if _, err := s.Isolations.Pause("global", "", time.Minute); err != nil {
			t.Error(err)
		}
		if n, why := s.loop.slots(); n != 0 || why.Reason != job.WaitPause {
			t.Errorf("everything is paused, and there is room for %d: %v", n, why)
		}
		time.Sleep(time.Minute + time.Second)
		s.Isolations.expire()
		if list := s.Isolations.list(); len(list) != 0 {
			t.Errorf("after its end: %+v", list)
		}
	})
}

// TestPausedRunWaits: a run that waits for an operator's own pause goes on waiting;
// one that waits for a person to look at a failure ends.
func TestPausedRunWaits(t *testing.T) {
	s := paused(t, "b")
	if _, err := s.Isolations.Pause("global", "", 0); err != nil {
		t.Fatal(err)
	}
	if err := s.stuck(); err != nil {
		t.Errorf("paused: %v", err)
	}
	if _, err := s.Isolations.Resume("global"); err != nil {
		t.Fatal(err)
	}
	s.cfg.Isolations.Apply(time.Now(), isolation.Isolation{Scope: isolation.Global, Cause: isolation.CauseGhost, Action: isolation.SafeStop})
	if err := s.stuck(); !errors.Is(err, ErrFatal) {
		t.Errorf("after a ghost: %v", err)
	}
}
