package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// What a node says of itself is shown, and does nothing to a terminal.
func TestPrintNodes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := api.FleetNode{
		Name: "a", State: api.NodeConnected, Host: "a\x1b[31m", OS: "linux", Arch: "amd64", CPUs: 8, Memory: 3 << 30, Slots: 4, Running: 3,
		Labels: map[string]string{"gpu": "no", "docker": ""}, Version: "1.2.0", Sandbox: "standard", Seen: now.Add(-2 * time.Second), Since: now, Lost: 1, RoundTrip: job.Duration(3 * time.Millisecond),
		Workers: []api.NodeWorker{{Kind: "shell", Ready: true, Version: "5"}, {Kind: "claude", Why: "not logged in\x1b]0;x\x07"}},
		Cordon:  &api.Cordon{Why: "a new kernel", By: "anna", Since: now},
		IsolatedParts: []api.Isolation{
			{Scope: "node:a/worker:codex", Message: "3 crashes\x1b[31m", Since: now, Until: now.Add(time.Hour)}, {Scope: "node:a/workspace:/srv/x", Message: "a ghost", Since: now},
		},
		Cores: []api.Core{{Index: 65, Node: "a", Place: 1, PID: 7, State: "up"}},
	}
	var out strings.Builder
	if err := printNodes(&out, []api.FleetNode{a, {Name: "b", State: api.NodeUnknown}}, now); err != nil {
		t.Fatal(err)
	}
	want := `NODE  STATE      RUNS  SLOTS  OS           CPUS  MEMORY  WORKERS  LABELS         SEEN  VERSION  NOTE
a     connected  3     4      linux/amd64  8     3 GiB   shell    docker,gpu=no  2s    1.2.0    cordoned by anna: a new kernel; isolated on it: worker:codex, workspace:/srv/x; lost 1 time
b     unknown    0     0      -            -     -       -        -              -     -        
`
	if out.String() != want {
		t.Errorf("nodes ls:\n%s\nwant:\n%s", &out, want)
	}
	out.Reset()
	if err := showNode(&out, &a, now); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"jobs:        3 of 4\n", "host:        a\n", "memory for jobs 3 GiB\n", "claude  no     -        not logged in\n", "shell   yes    5", "\na/1   7", "by anna a new kernel\n", "round trip:  3ms\n", "isolated:    worker:codex since ", "`scheduler resume node:a/worker:codex`: 3 crashes\n", "isolated:    workspace:/srv/x since "} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("lacks %q:\n%s", line, &out)
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Errorf("it reaches the terminal: %q", &out)
	}
}

func TestParseCore(t *testing.T) {
	for text, want := range map[string]api.RestartCores{"1": {Core: 1}, "65": {Core: 65}, "a/2": {Node: "a", Core: 2}, "a/": {Node: "a"}} {
		var got api.RestartCores
		if err := parseCore(text, &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "a", "/1", "/", "a/0", "a/b", "a/1/2"} {
		if err := parseCore(text, &api.RestartCores{}); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
