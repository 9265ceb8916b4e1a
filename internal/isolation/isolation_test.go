package isolation

import (
	"encoding/json"
	"testing"
	"time"
)

func TestScopes(t *testing.T) {
	for text, want := range map[string]Scope{
		"global": Global, "worker:codex": WorkerScope("codex"), "workspace:/a/b/": WorkspaceScope("/a/b"),
		"trigger:nightly": TriggerScope("nightly"),
	} {
		if got, err := ParseScope(text); got != want || err != nil {
			t.Errorf("ParseScope(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "everything", "worker:", "worker", "workspace:", "workspace:a/b", "global ", "trigger:", "trigger:a b"} {
		if got, err := ParseScope(text); err == nil {
			t.Errorf("ParseScope(%q) = %q, want an error", text, got)
		}
	}
}

func TestBookRefusesBadFiles(t *testing.T) {
	for _, text := range []string{
		`{}`, `[{"scope":"everything"}]`, `[{"scope":"global"},{"scope":"global"}]`, `[`,
	} {
		s := &Book{}
		if err := json.Unmarshal([]byte(text), s); err == nil {
			t.Errorf("%s was read: %v", text, s.List(time.Now()))
		}
	}
	empty, err := json.Marshal(&Book{})
	if err != nil || string(empty) != "[]" {
		t.Errorf("an empty book is written %s, %v", empty, err)
	}
}

// TestReplace takes over a list and refuses none of it: a core gets the
// scheduler's whole book each time that it changes.
func TestReplace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b Book
	b.Apply(now, Isolation{Scope: Global, Action: SafeStop})
	b.Replace([]Isolation{{Scope: WorkspaceScope("/w")}, {Scope: WorkerScope("codex"), Until: now.Add(time.Minute)}})
	if _, blocked := b.Blocked(Run{Kind: "claude", Workspace: "/else"}, now); blocked {
		t.Error("the global isolation outlived the replacement")
	}
	if i, blocked := b.Blocked(Run{Kind: "codex", Workspace: "/w/sub"}, now); !blocked || i.Scope != WorkerScope("codex") {
		t.Errorf("blocked by %+v, want the kind, which is wider than the workspace", i)
	}
	if i, blocked := b.Blocked(Run{Kind: "codex", Workspace: "/w/sub"}, now.Add(time.Minute)); !blocked || i.Scope != WorkspaceScope("/w") {
		t.Errorf("after the cool-down: blocked by %+v, want the workspace", i)
	}
}
