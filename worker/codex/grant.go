package codex

import (
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// grant is what a task's capabilities come to in Codex's own terms.
type grant struct {
	sandbox   string // read-only, workspace-write or, where another one holds the run, danger-full-access
	network   bool   // the sandbox lets commands reach the network
	tools     bool   // there are tools at all
	overrides []string
}

// toolFeatures are Codex's switches for tools that act; sideDoors those for
// tools that act outside the sandbox or reach the network by themselves.
// A name that a version does not know is a warning to it, not an error.
var (
	toolFeatures = []string{"shell_tool", "unified_exec", "view_image", "multi_agent", "goals", "sleep_tool"}
	sideDoors    = []string{
		"apps", "plugins", "hooks", "image_generation", "browser_use", "computer_use",
		"unbounded_connection_retries", // waits for a network for ever; retries are ours
	}
)

// grantOf maps the task's capabilities. Codex reads and edits files by shell
// commands, so what a job may do is what the sandbox lets those do: read-only,
// or writing in the workspace alone. Codex has no list of allowed commands: its
// rules can forbid some, and those they allow run outside the sandbox, while
// all others still run. A job that needs such a list is refused. Of a confined run
// the outer sandbox says what it may do, in the same way.
func grantOf(t *worker.Task) (grant, error) {
	patterns, anyCommand := t.CommandPatterns()
	if len(patterns) > 0 && !anyCommand {
		return grant{}, &worker.Failure{Class: job.Config,
			Message: "codex cannot limit a job to the commands " + list(patterns) + ": it has a sandbox, but no list of allowed commands",
			Hint:    "grant run_commands without allow_commands, so that any command runs inside codex's sandbox, or use worker claude or opencode"}
	}
	g := grant{sandbox: "read-only", tools: len(t.Capabilities) > 0, network: t.Can(job.CanUseNetwork)}
	switch {
	case t.Confined:
		g.sandbox = "danger-full-access" // it cannot be nested
	case t.Can(job.CanEdit):
		g.sandbox = "workspace-write"
	}
	for _, f := range sideDoors {
		g.overrides = append(g.overrides, "features."+f+"=false")
	}
	if !g.tools {
		for _, f := range toolFeatures {
			g.overrides = append(g.overrides, "features."+f+"=false")
		}
	}
	web, net := "disabled", "false"
	if g.network {
		web, net = "live", "true"
	}
	g.overrides = append(g.overrides,
		`approval_policy="never"`, // no person answers questions: what the sandbox refuses stays refused
		`web_search="`+web+`"`)
	if !t.Confined {
		g.overrides = append(g.overrides, "sandbox_workspace_write.network_access="+net)
	}
	return g, nil
}

// list names the first few patterns.
func list(patterns []string) string {
	const most = 3
	if len(patterns) > most {
		return strings.Join(patterns[:most], ", ") + ", …"
	}
	return strings.Join(patterns, ", ")
}
