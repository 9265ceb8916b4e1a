package scheduler_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
)

// TestHungFolder: a folder whose file system does not answer holds up no other job,
// no write to the store and no question about the state; its own jobs are left to
// the core, which says what is wrong.
func TestHungFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, dir := make(chan struct{}), t.TempDir()
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) {
			c.RealPath = func(path string) (string, error) {
				if path == "/hung" {
					<-hung
				}
				return filepath.EvalSymlinks(path)
			}
		})
		w.start()
		defer w.end()
		defer close(hung)
		in := func(path string) func(*job.Spec) {
			return func(s *job.Spec) { s.Workspace = job.Workspace{Isolation: job.Worktree, Path: path} }
		}
		began := time.Now()
		ids := w.submit(task("hung", time.Minute, in("/hung"), priority(1)), task("other", time.Second, in(dir)))
		if took := time.Since(began); took > workspace.ResolveTime {
			t.Errorf("the submission waited %s for a folder", took)
		}
		synctest.Wait()
		w.wantState(ids[0], job.Dispatched)
		w.wantState(ids[1], job.Dispatched)
		w.sched.Status()
		w.submit(task("third", time.Second, in(dir)))
		e := w.get(ids[0])
		w.sched.Isolations.Blocking(&e)
		w.wait(3 * time.Second)
		w.wantState(ids[1], job.Completed)
		w.wantState(ids[0], job.Dispatched)
	})
}

// TestMaintenanceIsAlone: a job of type MAINTENANCE begins when nothing works in its
// folder or from it, nothing that comes after it begins there before it has ended,
// and other folders go on.
func TestMaintenanceIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, elsewhere := t.TempDir(), t.TempDir()
		below := filepath.Join(dir, "below")
		if err := os.Mkdir(below, 0o700); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, openStore(t), 1, nil)
		w.start()
		defer w.end()
		in := func(path string, how job.Isolation) func(*job.Spec) {
			return func(s *job.Spec) { s.Workspace = job.Workspace{Isolation: how, Path: path} }
		}
		upkeep := func(s *job.Spec) { s.Type = job.Maintenance }
		first := w.submit(task("first", 10*time.Second, in(dir, job.Worktree), priority(9)))[0]
		synctest.Wait()
		w.wantState(first, job.Dispatched)
		ids := w.submit(
			task("upkeep", 10*time.Second, in(dir, job.Direct), upkeep, priority(5)),
			task("after", 10*time.Second, in(dir, job.Worktree)), task("below", 10*time.Second, in(below, job.Direct)), task("elsewhere", time.Second, in(elsewhere, job.Direct)))
		w.wait(5 * time.Second)
		for i, want := range []job.EntryState{job.Queued, job.Queued, job.Queued, job.Completed} {
			w.wantState(ids[i], want)
		}
		w.wait(10 * time.Second)
		w.wantState(first, job.Completed)
		for i, want := range []job.EntryState{job.Dispatched, job.Queued, job.Queued} {
			w.wantState(ids[i], want)
		}
		w.wait(10 * time.Second)
		for i, want := range []job.EntryState{job.Completed, job.Dispatched, job.Dispatched} {
			w.wantState(ids[i], want)
		}
		w.wait(15 * time.Second)
		w.wantState(ids[1], job.Completed)
		w.wantState(ids[2], job.Completed)
	})
}
