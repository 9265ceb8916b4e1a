package isolation

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestScopes(t *testing.T) {
	for text, want := range map[string]Scope{
		"global": Global, "worker:codex": WorkerScope("codex"), "workspace:/a/b/": WorkspaceScope("/a/b"),
		"trigger:nightly": TriggerScope("nightly"), "node:node-a": NodeScope("node-a"),
		"node:node-a/worker:codex@ann": "node:node-a/worker:codex@ann", "node:node-a/workspace:/a/b/": "node:node-a/workspace:/a/b",
	} {
		if got, err := ParseScope(text); got != want || err != nil {
			t.Errorf("ParseScope(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "everything", "worker:", "worker", "workspace:", "workspace:a/b", "global ", "trigger:", "trigger:a b", "node:", "node:a b", "node:a/1",
		"node:a/", "node:/worker:codex", "node:a/global", "node:a/node:b", "node:a/node:b/worker:codex", "node:a/trigger:nightly", "node:a/worker:"} {
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

// TestOnNode: what a node's core says of its host puts that node out of use, and on the node everything.
func TestOnNode(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b Book
	ghost := Escalation{Scope: Global, Cause: CauseGhost, Action: SafeStop, Time: now, Message: strings.Repeat("ü", 4000)}.OnNode("a")
	if len(ghost.Message) > 600 || !utf8.ValidString(ghost.Message) {
		t.Errorf("its message has %d bytes: %q", len(ghost.Message), ghost.Message)
	}
	for _, c := range []struct {
		scope     Scope
		asks      Remedy
		there     Scope
		isolating Remedy
	}{
		{WorkerScope("codex"), IsolateKind, "node:a/worker:codex", IsolateKind},
		{TenantScope("codex", "ann"), SafeStop, "node:a/worker:codex@ann", IsolateKind},
		{WorkspaceScope("/w"), LockWorkspace, "node:a/workspace:/w", LockWorkspace},
		{Global, Notify, "node:a", Notify},
		// What only a core that is not what it should be would say.
		{TriggerScope("nightly"), HoldTrigger, "node:a", Notify},
		{NodeScope("b"), IsolateNode, "node:a", Notify},
		{"node:b/worker:codex", IsolateKind, "node:a", Notify},
		{"everything", SafeStop, "node:a", Notify},
		{WorkspaceScope("/" + strings.Repeat("w", 4000)), LockWorkspace, "node:a", Notify},
	} {
		if x := (Escalation{Scope: c.scope, Action: c.asks}).OnNode("a"); x.Scope != c.there || x.Action != c.isolating {
			t.Errorf("%s, %s became %s, %s; want %s, %s", c.scope, c.asks, x.Scope, x.Action, c.there, c.isolating)
		}
	}
	b.Apply(now, ghost.Isolation())
	b.Apply(now, Isolation{Scope: WorkerScope("codex"), Action: IsolateKind})
	b.Apply(now, Isolation{Scope: "node:b/worker:claude@ann", Action: IsolateKind})
	for _, r := range []struct {
		run     Run
		blocked bool
	}{{Run{Node: "a"}, true}, {Run{Node: "b"}, false}, {Run{}, false}, {Run{Kind: "codex", Node: "b"}, true},
		{Run{Kind: "claude", Tenant: "ann", Node: "b"}, true}, {Run{Kind: "claude", Tenant: "bob", Node: "b"}, false}, {Run{Kind: "claude", Tenant: "ann"}, false}} {
		if i, blocked := b.Blocked(r.run, now); blocked != r.blocked {
			t.Errorf("%+v: blocked %v by %+v", r.run, blocked, i)
		}
	}
	for node, want := range map[string][]Scope{"a": {Global, WorkerScope("codex")}, "b": {TenantScope("claude", "ann"), WorkerScope("codex")}, "": {WorkerScope("codex")}} {
		var got []Scope
		for _, i := range ForHost(node, b.List(now)) {
			got = append(got, i.Scope)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the cores of host %q enforce %v, want %v", node, got, want)
		}
	}
	if _, ok := b.Settle(NodeScope("a"), CauseCoreCrashes); ok {
		t.Error("a ghost was settled as a crash loop")
	}
	if _, ok := b.Settle(NodeScope("a"), CauseGhost); !ok {
		t.Error("the ghost was not settled")
	}
	for scope, want := range map[string]Remedy{
		"global": SafeStop, "worker:codex": IsolateKind, "workspace:/w": LockWorkspace, "trigger:nightly": HoldTrigger,
		"node:a/worker:codex": IsolateKind, "node:a/workspace:/w": LockWorkspace,
	} {
		if i, err := Paused(scope, "", now, 0); err != nil || i.Action != want {
			t.Errorf("%s is paused by %s, %v; want %s", scope, i.Action, err, want)
		}
	}
	if _, err := Paused("node:a", "", now, 0); err == nil || !strings.Contains(err.Error(), "nodes cordon a") {
		t.Errorf("a node was paused: %v", err)
	}
}
