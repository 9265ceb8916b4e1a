package scheduler

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/statedir"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestIsolationsOfAnotherClock: a cool-down that was written down while the
// wall clock stood ahead is no longer than it was then.
func TestIsolationsOfAnotherClock(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	ahead := time.Now().Add(2 * time.Hour)
	var b isolation.Book
	b.Apply(ahead, isolation.Isolation{Scope: isolation.Global, Action: isolation.SafeStop, Since: ahead.UTC(), Until: ahead.Add(30 * time.Second).UTC()})
	b.Apply(ahead, isolation.Isolation{Scope: isolation.WorkerScope("codex"), Action: isolation.IsolateKind, Since: ahead.UTC()})
	if err := SaveIsolations(t.Context(), statedir.NewSoleWriter(docs, statedir.IsolationsFile), &b); err != nil {
		t.Fatal(err)
	}
	again, _, err := LoadIsolations(t.Context(), docs)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.List(time.Now().Add(31 * time.Second)); len(got) != 1 || got[0].Scope != isolation.WorkerScope("codex") {
		t.Errorf("after the cool-down there are %+v, want the one that an operator has to lift", got)
	}
}

// TestClockWatch sees that the clock stood ahead, also if it was put right
// between two looks of the loop, and says so once.
func TestClockWatch(t *testing.T) {
	var w clockWatch
	w.note(0)
	w.note(2 * time.Hour) // somebody wrote down a time meanwhile
	for _, step := range []struct{ stands, by time.Duration }{
		{0, -2 * time.Hour}, {0, 0}, {10 * time.Millisecond, 0}, {3 * time.Second, 3 * time.Second}, {3 * time.Second, 0},
		{0, -3 * time.Second}, {-time.Hour, -time.Hour}, {0, time.Hour}, {0, 0},
	} {
		if by := w.look(step.stands); by != step.by {
			t.Errorf("the clock stands %s ahead: set by %s, want %s", step.stands, by, step.by)
		}
	}
}

func TestIsolationsFile(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	b, keep, err := LoadIsolations(t.Context(), docs)
	if err != nil || len(b.List(midnight)) != 0 {
		t.Fatalf("without a file: %v, %v", b.List(midnight), err)
	}
	b.Apply(midnight, isolation.Isolation{Scope: isolation.WorkerScope("codex"), Action: isolation.IsolateKind, Message: "it crashed", Since: midnight})
	if err := SaveIsolations(t.Context(), keep, b); err != nil {
		t.Fatal(err)
	}
	again, _, err := LoadIsolations(t.Context(), docs)
	if err != nil || len(again.List(midnight)) != 1 {
		t.Fatalf("read back: %v, %v", again, err)
	}
	if _, err := LiftIsolation(again, "worker:claude"); !errors.Is(err, ErrNotIsolated) || !strings.Contains(err.Error(), "worker:codex") {
		t.Errorf("lifting what is not isolated: %v, want ErrNotIsolated and what is", err)
	}
	if _, err := LiftIsolation(again, "codex"); err == nil || errors.Is(err, ErrNotIsolated) || !strings.Contains(err.Error(), "worker:KIND") {
		t.Errorf("lifting no scope: %v, want what a scope looks like", err)
	}
	if i, err := LiftIsolation(again, "worker:codex"); err != nil || i.Message != "it crashed" {
		t.Errorf("lifting: %+v, %v", i, err)
	}
	path := docs.Where(statedir.IsolationsFile)
	if err := os.WriteFile(path, []byte(`[{"scope":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadIsolations(t.Context(), docs); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a torn file: %v, want an error that names it", err)
	}
	left, err := filepath.Glob(path + "-*")
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files stay behind: %v, %v", left, err)
	}
}

// TestIsolationsOfASuccessor: a scheduler whose place another has taken does not
// overwrite what that has isolated.
func TestIsolationsOfASuccessor(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	deposed := pausedIn(t, "", docs)
	if _, err := deposed.Isolations.Pause("worker:codex", "", 0); err != nil {
		t.Fatal(err)
	}
	successor := pausedIn(t, "", docs)
	if _, err := successor.Isolations.Pause("worker:shell", "", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := deposed.Isolations.Resume("worker:codex"); err != nil { // in force where it was said
		t.Fatal(err)
	}
	if err := deposed.Isolations.save(); !errors.Is(err, statedir.ErrChanged) || !strings.Contains(err.Error(), "somebody else has written it") {
		t.Errorf("saved: %v", err)
	}
	b, _, err := LoadIsolations(t.Context(), docs)
	if err != nil || len(b.List(time.Now())) != 2 {
		t.Errorf("kept are %+v, %v; want both", b.List(time.Now()), err)
	}
}
