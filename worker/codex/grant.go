package codex

import (
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// grant is what a task's capabilities come to in Codex's own terms.
type grant struct {
	sandbox   string // read-only, workspace-write or, where another one holds the run, danger-full-access
	network   bool   // the sandbox lets commands reach the network
	asks      bool   // each command and each change of a file is asked about
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
// or writing in the workspace alone. Of a confined run the outer sandbox says what it
// may do, in the same way. Codex has no list of allowed commands: a job that has one, or
// people or rules who answer, is asked about each command and each change of a file. What
// is allowed then is held by the outer sandbox alone.
func grantOf(t *worker.Task) grant {
	patterns, anyCommand := t.CommandPatterns()
	g := grant{sandbox: "read-only", tools: len(t.Capabilities) > 0 || t.Asked, network: t.Can(job.CanUseNetwork),
		asks: t.Asked || len(patterns) > 0 && !anyCommand}
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
	if t.Asked {
		g.overrides = append(g.overrides, "features.default_mode_request_user_input=true")
	}
	web, net := "disabled", "false"
	if g.network {
		web, net = "live", "true"
	}
	g.overrides = append(g.overrides, `web_search="`+web+`"`)
	if !t.Confined {
		g.overrides = append(g.overrides, "sandbox_workspace_write.network_access="+net)
	}
	return g
}

// approval is Codex's policy: it asks about everything, or about nothing, and what its sandbox
// refuses stays refused.
func (g grant) approval() string {
	if g.asks {
		return "untrusted"
	}
	return "never"
}
