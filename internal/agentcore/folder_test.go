package agentcore_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestHungWorkspace: a job whose workspace's file system does not answer is refused,
// with the reason, and keeps no other from its permit.
func TestHungWorkspace(t *testing.T) {
	hung := make(chan struct{})
	defer close(hung)
	c := start(t, func(cfg *agentcore.Config) {
		cfg.RealPath = func(path string) (string, error) {
			if path == "/hung" {
				<-hung
			}
			return filepath.EvalSymlinks(path)
		}
	})
	c.hello()
	c.configure(nil)
	in := func(s *job.Spec) { s.Workspace = job.Workspace{Isolation: job.Direct, Path: "/hung"} }
	for range 40 { // more than are served at once
		a := c.request("a", 1, spec("true", in))
		if r := a.Rejection; r == nil || r.Reason != job.WorkspaceBusy || r.RetryAfterMS == 0 || !strings.Contains(r.Message, "/hung") {
			t.Fatalf("answered %+v, want WORKSPACE_BUSY and the folder", a)
		}
	}
	if a := c.request("b", 1, spec("true", nil)); a.Permit == nil {
		t.Errorf("another job: %+v", a.Rejection)
	}
	c.end()
}

// TestHungLimit: a limit of a folder whose file system does not answer keeps no core from
// being configured.
func TestHungLimit(t *testing.T) {
	hung := make(chan struct{})
	defer close(hung)
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(cfg *agentcore.Config) {
		cfg.RealPath = func(path string) (string, error) {
			switch path {
			case "/hung":
				<-hung
			case "/alias": // which only this function resolves
				return real, nil
			}
			return filepath.EvalSymlinks(path)
		}
	})
	c.hello()
	c.configure(func(s *ipc.Configure) { s.Limits.PerWorkspace = map[string]int{"/hung": 1, "/alias": 1} })
	in := func(s *job.Spec) { s.Workspace = job.Workspace{Isolation: job.Worktree, Path: real} }
	if a := c.request("a", 1, spec("true", in)); a.Permit == nil {
		t.Fatalf("a job elsewhere: %+v", a.Rejection)
	}
	if a := c.request("b", 1, spec("true", in)); a.Rejection == nil {
		t.Error("a folder takes more jobs than its limit, which has another name of it")
	}
	c.end()
}
