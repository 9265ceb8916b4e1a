package job_test

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestNames: a name that could be taken for something else, in a table, a log, a path
// or an owner, is refused wherever a job comes from.
func TestNames(t *testing.T) {
	bad := []string{"a\nb", "\x1b]0;x\a", "a\u202eb", "a\x00", "\xff"}
	for field, set := range map[string]func(*job.Spec, string){
		"tenant":         func(s *job.Spec, v string) { s.Tenant = job.Tenant(v) },
		"worker":         func(s *job.Spec, v string) { s.Worker = job.WorkerKind(v) },
		"fallback[0]":    func(s *job.Spec, v string) { s.Fallback = []job.Choice{{Worker: job.WorkerKind(v)}} },
		"model":          func(s *job.Spec, v string) { s.Model = v },
		"class":          func(s *job.Spec, v string) { s.Class = job.Class(v) },
		"key":            func(s *job.Spec, v string) { s.Key, s.OnDuplicate = v, job.Reject },
		"turn":           func(s *job.Spec, v string) { s.Turn, s.OnDuplicate = v, job.Reject },
		"domain":         func(s *job.Spec, v string) { s.Domain = v },
		"agent":          func(s *job.Spec, v string) { s.Agent = job.AgentID(v) },
		"trace":          func(s *job.Spec, v string) { s.Trace = v },
		"env[0]":         func(s *job.Spec, v string) { s.Env = []string{v} },
		"workspace.base": func(s *job.Spec, v string) { s.Workspace = job.Workspace{Path: "/r", Isolation: job.Worktree, Base: v} },
		"id":             func(s *job.Spec, v string) { s.Name = job.Name(v) },
	} {
		values := bad
		if field == "tenant" || field == "worker" || field == "id" {
			values = append([]string{"a/b", "../x", strings.Repeat("x", 129), " "}, bad...)
		}
		for _, v := range values {
			s := job.Spec{Name: "x", Type: job.WorkerTask, Worker: "codex", Workspace: job.Workspace{Isolation: job.NoWorkspace}, Instructions: "x"}
			if errs := s.Validate(); len(errs) != 0 {
				t.Fatal(errs[0])
			}
			set(&s, v)
			found := false
			for _, e := range s.Validate() {
				found = found || e.Field == field
			}
			if !found {
				t.Errorf("%s: %q is taken", field, v)
			}
		}
	}
}

func TestAgentNames(t *testing.T) {
	if job.ValidAgent("agent-7") != nil || job.ValidAgent("a\nb") == nil {
		t.Error("the name of an agent is not checked")
	}
}
