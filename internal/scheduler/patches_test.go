package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// left is a store with what jobs have left.
type left struct {
	queue.Reader
	entries  map[job.ID]queue.Entry
	attempts map[job.ID][]job.Attempt
}

func (l left) Get(_ context.Context, id job.ID) (queue.Entry, error) {
	e, ok := l.entries[id]
	if !ok {
		return e, queue.ErrNotFound
	}
	return e, nil
}

func (l left) Attempts(_ context.Context, id job.ID) ([]job.Attempt, error) {
	return l.attempts[id], nil
}

// TestReadPatch: a core reads the patches that a run of its own builds on or names, and nothing else; a file that another
// scheduler has is brought first.
func TestReadPatch(t *testing.T) {
	dir := t.TempDir()
	ids := []job.ID{job.NewID(), job.NewID(), job.NewID()} // whom it builds on, whom it names, and another batch's
	store := left{entries: map[job.ID]queue.Entry{}, attempts: map[job.ID][]job.Attempt{}}
	var paths []string
	for i, id := range ids {
		path := filepath.Join("/of/another/host/jobs", string(id), "1", "patch")
		batch := job.BatchID("mine")
		if i == 2 {
			batch = "other"
		}
		store.entries[id] = queue.Entry{ID: id, Batch: batch, Spec: job.Spec{Name: job.Name(fmt.Sprint("job", i))}}
		store.attempts[id] = []job.Attempt{{Job: id, Number: 1, Outcome: &job.Outcome{Artifacts: []job.Artifact{{Name: job.ArtifactPatch, Path: path, Bytes: 3}}}}}
		paths = append(paths, path)
	}
	mine := new(supervisor.Core)
	entry := queue.Entry{ID: "a", Batch: "mine", Resolved: &job.Resolved{Instructions: "look at " + paths[1] + " and " + paths[2], Patches: []job.Patch{{Job: "job0", Path: paths[0], Bytes: 3}}}}
	unreached := errors.New("the store is away")
	here := func(_ context.Context, a job.Artifact) (job.Artifact, error) {
		if away := strings.Contains(a.Path, string(ids[1])); away {
			return a, unreached
		}
		a.Path = filepath.Join(dir, "patch")
		return a, os.WriteFile(a.Path, []byte("abc"), 0o600)
	}
	p := &patches{store: store, here: here, runOn: func(c *supervisor.Core, id job.ID, attempt int) (*schedule.Run, error) {
		if c != mine || id != "a" || attempt != 1 {
			return nil, errors.New("the attempt is over")
		}
		return &schedule.Run{Entry: entry}, nil
	}}
	ask := func(c *supervisor.Core, path string, offset int64) (ipc.ReadPatchResult, error) {
		return p.read(t.Context(), c, ipc.ReadPatch{Job: "a", Attempt: 1, Path: path, Offset: offset})
	}
	for offset, want := range []string{"abc", "bc", "c", ""} {
		if r, err := ask(mine, paths[0], int64(offset)); err != nil || string(r.Data) != want {
			t.Errorf("at %d: %q, %v", offset, r.Data, err)
		}
	}
	if _, err := ask(mine, paths[1], 0); !errors.Is(err, unreached) {
		t.Errorf("one that is not reached: %v", err)
	}
	for what, path := range map[string]string{"another batch's": paths[2], "none": "", "any file": "/etc/passwd"} {
		if r, err := ask(mine, path, 0); err == nil {
			t.Errorf("%s is answered with %q", what, r.Data)
		}
	}
	if _, err := ask(new(supervisor.Core), paths[0], 0); err == nil {
		t.Error("another core is answered")
	}
	p.here = nil
	if r, err := ask(mine, paths[0], 0); err != nil || r.Missing == "" {
		t.Errorf("one that is gone: %+v, %v", r, err)
	}
	// What an earlier attempt of its own has left of the session, and no other session's.
	moved := &schedule.Run{Entry: entry, Choice: job.Choice{Worker: "codex"}}
	moved.Entry.Session, moved.Entry.SessionWorker, moved.Entry.SessionNode = "s2", "codex", "gone"
	kept := func(session string, paths ...string) *job.Outcome {
		return &job.Outcome{Session: session, Artifacts: []job.Artifact{{Name: job.ArtifactSession, Path: paths[0], Bytes: 1}, {Name: job.ArtifactPatch, Path: paths[1], Bytes: 2}}}
	}
	store.attempts["a"] = []job.Attempt{
		{Choice: moved.Choice, Outcome: kept("s2", "/old/session", "/old/patch")}, {Choice: moved.Choice, Outcome: kept("s2", "/s", "/p")},
		{Choice: moved.Choice, Outcome: kept("s1", "/other", "/other/patch")}, {Choice: job.Choice{Worker: "claude"}, Outcome: kept("s2", "/x", "/y")}, {Choice: moved.Choice},
	}
	give := ipc.SubmitJob{Session: "s2", Elsewhere: true}
	p.give(t.Context(), moved, true, &give)
	if c := give.Carried; !give.KeepSession || c == nil || c.Session.Path != "/s" || c.Patch.Path != "/p" || c.Patch.Bytes != 2 {
		t.Errorf("what is carried: %+v", give.Carried)
	}
	for path, want := range map[string]string{"/s": "session", "/p": "patch", "/old/session": "", "/other": "", "/x": "", paths[0]: "patch"} {
		if a, err := p.given(t.Context(), moved, path); err != nil || a.Name != want {
			t.Errorf("%s is given as %q, %v", path, a.Name, err)
		}
	}
	moved.Choice.Worker = "claude" // it does not go on with it
	if a, err := p.given(t.Context(), moved, "/s"); err != nil || a.Path != "" {
		t.Errorf("a session that it does not go on with: %+v, %v", a, err)
	}
	var submit ipc.SubmitJob
	p.give(t.Context(), &schedule.Run{Entry: entry}, true, &submit)
	if !submit.Away || len(submit.Named) != 1 || submit.Named[0] != (job.Patch{Job: "job1", Path: paths[1], Bytes: 3}) {
		t.Errorf("the core is told %+v", submit)
	}
}
