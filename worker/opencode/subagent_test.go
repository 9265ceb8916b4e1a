package opencode

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestSubagents checks that what a subagent lacks of what the job may is denied, and not asked about: the job would be allowed.
func TestSubagents(t *testing.T) {
	all := []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands, job.CanRunTests, job.CanUseScheduler}
	tk := &worker.Task{Capabilities: all, Tools: &worker.ToolServer{Name: "scheduler"}, Settings: job.WorkerSettings{Subagents: map[string]job.Subagent{"finder": {When: "finds things"}}}}
	granted := permissions(tk, "/d")
	if text := asJSON(t, granted); !strings.Contains(text, `"task":{"*":"ask","explore":"allow","general":"allow","finder":"allow"}`) {
		t.Errorf("the job's rules are %s", text)
	}
	for name, c := range map[string]struct {
		can        []job.Capability
		has, lacks []string
	}{
		"all":    {nil, []string{`"task":"deny"`}, []string{`"edit":"deny"`, `"bash":"deny"`, `"read":"deny"`, `"scheduler_*":"deny"`}},
		"more":   {[]job.Capability{job.CanRead, job.CanUseNetwork}, []string{`"edit":"deny"`, `"bash":"deny"`}, []string{`"webfetch":"allow"`, `"read":"deny"`}},
		"tests":  {[]job.Capability{job.CanRunTests}, []string{`"read":"deny"`, `"bash":{"*":"deny"`}, []string{`"bash":"deny"`}},
		"none":   {[]job.Capability{}, []string{`"read":"deny"`, `"edit":"deny"`, `"bash":"deny"`, `"scheduler_*":"deny"`}, nil},
		"writes": {[]job.Capability{job.CanEdit}, []string{`"read":"deny"`, `"bash":"deny"`}, []string{`"edit":"deny"`}},
	} {
		a := job.Subagent{Capabilities: c.can}
		_, after, _ := strings.Cut(asJSON(t, narrowed(granted, tk, tk.Of(&a))), `"task":"deny"`)
		after = `"task":"deny"` + after // the last rule counts
		for _, want := range c.has {
			if !strings.Contains(after, want) {
				t.Errorf("%s: no %s in %s", name, want, after)
			}
		}
		for _, bad := range c.lacks {
			if strings.Contains(after, bad) {
				t.Errorf("%s: %s in %s", name, bad, after)
			}
		}
	}
}

// TestSubagentsCommands: the patterns of a job's commands are a subagent's only if that may run commands.
func TestSubagentsCommands(t *testing.T) {
	tk := &worker.Task{Capabilities: []job.Capability{job.CanRead, job.CanRunCommands}, AllowCommands: []string{"cat *"}}
	for _, c := range []struct {
		can    []job.Capability
		denied bool
	}{{nil, false}, {[]job.Capability{job.CanRunCommands}, false}, {[]job.Capability{job.CanRead}, true}} {
		rules := asJSON(t, narrowed(permissions(tk, "/d"), tk, tk.Of(&job.Subagent{Capabilities: c.can})))
		if strings.Contains(rules, `"bash":"deny"`) != c.denied {
			t.Errorf("a subagent with %v has the rules %s", c.can, rules)
		}
	}
}

// TestSubagentsAreConfigured checks that the program is told of them, and that none takes the place of the run's own agent.
func TestSubagentsAreConfigured(t *testing.T) {
	tk, _ := task(t)
	tk.Settings.Subagents = map[string]job.Subagent{"finder": {When: "finds things", Instructions: "Look."}, agentName: {When: "takes over"}}
	start(t, tk)
	agents, _ := config(t, tk)["agent"].(map[string]any)
	finder, _ := agents["finder"].(map[string]any)
	own, _ := agents[agentName].(map[string]any)
	if finder["mode"] != "subagent" || finder["description"] != "finds things" || finder["prompt"] != "Look." || own["mode"] != "primary" {
		t.Errorf("agents %v", agents)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
