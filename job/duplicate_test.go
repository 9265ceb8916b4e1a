package job

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDuplicates(t *testing.T) {
	derived := func() string { s := validSpec(); return DeriveKey(&s) }()
	for _, c := range []struct {
		key    string
		on     DuplicatePolicy
		policy DuplicatePolicy
		want   string
	}{
		{"", RunEach, RunEach, ""},
		{"k", RunEach, Coalesce, "k"},
		{"k", Reject, Reject, "k"},
		{"", Coalesce, Coalesce, derived},
		{"", LatestWins, LatestWins, derived},
	} {
		s := validSpec()
		s.Key, s.OnDuplicate = c.key, c.on
		if policy, key := s.Duplicates(); policy != c.policy || key != c.want {
			t.Errorf("key %q with policy %q: got %q on %q, want %q on %q", c.key, c.on, policy, key, c.policy, c.want)
		}
	}
}

// TestDeriveKey changes one thing after the other: what is asked for makes
// another key, at its place; who asks, when, and under which bounds does not.
func TestDeriveKey(t *testing.T) {
	task, llm := validSpec(), Spec{Type: LLM, Worker: "claude", Model: "small", Instructions: "why?", Workspace: Workspace{Isolation: NoWorkspace}}
	task.Capabilities, task.AllowCommands, task.Env = []Capability{CanRead, CanRunCommands}, []string{"ls", "go test *"}, []string{"A", "B"}
	moment := time.Unix(1, 0)
	for _, c := range []struct {
		what      string
		change    func(*Spec)
		task, llm int // index of the part that differs; -1 none
	}{
		{"name", func(s *Spec) { s.Name = "other" }, -1, -1},
		{"tenant", func(s *Spec) { s.Tenant = "other" }, -1, -1},
		{"priority and class", func(s *Spec) { s.Priority, s.Class = 7, Batch }, -1, -1},
		{"times", func(s *Spec) { s.RunnableAt, s.Deadline = &moment, &moment }, -1, -1},
		{"limits", func(s *Spec) { s.Limits.MaxAttempts = 9 }, -1, -1},
		{"fallback", func(s *Spec) { s.Fallback = []Choice{{Worker: "x"}} }, -1, -1},
		{"trace", func(s *Spec) { s.Trace = "t" }, -1, -1},
		{"key and policy", func(s *Spec) { s.Key, s.OnDuplicate = "k", Reject }, -1, -1},
		{"worker", func(s *Spec) { s.Worker = "other" }, 0, 0},
		{"model", func(s *Spec) { s.Model = "other" }, 2, 1},
		{"instructions", func(s *Spec) { s.Instructions += "!" }, 2, 2},
		{"system prompt", func(s *Spec) { s.SystemPrompt = "be brief" }, 2, 2},
		{"output", func(s *Spec) { s.Output = []byte(`{}`) }, 2, 2},
		{"verify", func(s *Spec) { s.Verify = "true" }, 2, 3},
		{"capabilities", func(s *Spec) { s.Capabilities = append(s.Capabilities, CanEdit) }, 3, 3},
		{"commands", func(s *Spec) { s.AllowCommands = append(s.AllowCommands, "make") }, 3, 3},
		{"variables", func(s *Spec) { s.Env = append(s.Env, "C") }, 3, 3},
		{"folder", func(s *Spec) { s.Workspace.Path += "/x" }, 1, 3},
		{"isolation", func(s *Spec) { s.Workspace.Isolation = Copy }, 1, 3},
		{"base", func(s *Spec) { s.Workspace.Base = "v1" }, 1, 3},
		{"order and repetition", func(s *Spec) {
			if len(s.Env) > 0 {
				s.Env, s.AllowCommands, s.Capabilities = []string{"B", "A", "B"}, []string{"go test *", "ls"}, []Capability{CanRunCommands, CanRead}
			}
		}, -1, -1},
		{"turn", func(s *Spec) { s.Turn = "7" }, 3, 4},
	} {
		for _, base := range []struct {
			spec Spec
			part int
		}{{task, c.task}, {llm, c.llm}} {
			before := strings.Split(DeriveKey(&base.spec), ":")
			changed := base.spec
			changed.Env = append([]string(nil), base.spec.Env...)
			changed.AllowCommands = append([]string(nil), base.spec.AllowCommands...)
			changed.Capabilities = append([]Capability(nil), base.spec.Capabilities...)
			c.change(&changed)
			after := strings.Split(DeriveKey(&changed), ":")
			for i := range max(len(before), len(after)) {
				same := i < len(before) && i < len(after) && before[i] == after[i]
				if same == (i == base.part) {
					t.Errorf("%s of a %s: %s after %s, want them to differ in part %d alone", c.what, changed.Type, after, before, base.part)
					break
				}
			}
		}
	}
}

// TestDeriveKeyTellsApart: texts that only look alike when put together.
func TestDeriveKeyTellsApart(t *testing.T) {
	keys := map[string]string{}
	for _, s := range []Spec{
		{Type: WorkerTask, Instructions: "ab"},
		{Type: WorkerTask, Instructions: "a", SystemPrompt: "b"},
		{Type: WorkerTask, Model: "a", Instructions: "b"},
		{Type: Tool, Instructions: "ab"},
		{Type: WorkerTask, Env: []string{"AB"}},
		{Type: WorkerTask, Env: []string{"A", "B"}},
		{Type: WorkerTask, AllowCommands: []string{"A", "B"}},
		{Type: WorkerTask, Env: []string{"1:A,1:B,"}},
		{Type: LLM, Worker: "a", Model: "b:c"},
		{Type: LLM, Worker: "a", Model: "b%3Ac"},
		{Type: LLM, Worker: "a:b", Model: "c"},
	} {
		key, what := DeriveKey(&s), fmt.Sprintf("%+v", s)
		if other, twice := keys[key]; twice {
			t.Errorf("one key, %s, for %s and %s", key, what, other)
		}
		keys[key] = what
	}
}

func ExampleDeriveKey() {
	question := Spec{Type: LLM, Worker: "claude", Model: "sonnet", Instructions: "Why is the sky blue?", Turn: "turn-7"}
	task := Spec{Type: WorkerTask, Worker: "codex", Instructions: "Fix it.", Workspace: Workspace{Path: "/site", Isolation: Worktree}}
	fmt.Println(DeriveKey(&question))
	fmt.Println(DeriveKey(&task))
	// Output:
	// claude:sonnet:83cfe3f7904e7d46:8a1dfe9f3c6f0a5c:turn-7
	// codex:bead574f612e80fe:746fbba36e306c58:cfab8113c8b7068b
}
