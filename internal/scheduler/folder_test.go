package scheduler_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/realpath"
	"github.com/agentsched/agentsched/internal/scheduler"
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
		if took := time.Since(began); took > realpath.Patience {
			t.Errorf("the submission waited %s for a folder", took)
		}
		synctest.Wait()
		w.wantState(ids[0], job.Dispatched)
		w.wantState(ids[1], job.Dispatched)
		w.sched.Status()
		w.submit(task("third", time.Second, in(dir)))
		e := w.get(ids[0])
		w.sched.Blocking(&e)
		w.wait(3 * time.Second)
		w.wantState(ids[1], job.Completed)
		w.wantState(ids[0], job.Dispatched)
	})
}
