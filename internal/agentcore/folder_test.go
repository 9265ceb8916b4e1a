package agentcore_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
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
