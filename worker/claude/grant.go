package claude

import (
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// grant is what a task's capabilities come to in the program's own terms.
type grant struct {
	tools []string // those that exist at all for the model
	allow []string // permission rules; what none of them allows is denied
}

// grantOf maps the task's capabilities. Files can be read and changed in the
// workspace only. Commands are matched as the program itself parses them: each
// part of "a && b" must be allowed, and so must what a redirection writes.
// Commands that are allowed run without a sandbox: they can write wherever the
// user can, and reach the network.
func grantOf(t *worker.Task) (grant, error) {
	var g grant
	if t.Can(job.CanRead) {
		g.tools = append(g.tools, "Read", "Glob", "Grep")
		g.allow = append(g.allow, "Read(./**)")
	}
	if t.Can(job.CanEdit) {
		g.tools = append(g.tools, "Edit", "Write", "NotebookEdit")
		g.allow = append(g.allow, "Edit(./**)")
	}
	patterns, anyCommand := t.CommandPatterns()
	switch {
	case anyCommand:
		g.tools = append(g.tools, "Bash")
		g.allow = append(g.allow, "Bash")
	case len(patterns) > 0:
		g.tools = append(g.tools, "Bash")
		for _, p := range patterns {
			if strings.ContainsAny(p, "\n\x00") || strings.TrimSpace(p) == "" {
				return grant{}, &worker.Failure{Class: job.Config,
					Message: "allow_commands: claude cannot match a pattern that is empty or has several lines", Hint: "write one command a pattern"}
			}
			g.allow = append(g.allow, rules(strings.TrimSpace(p))...)
		}
	}
	if t.Can(job.CanUseNetwork) {
		g.tools = append(g.tools, "WebFetch", "WebSearch")
		g.allow = append(g.allow, "WebFetch", "WebSearch")
	}
	return g, nil
}

// rules returns the permission rules of a command pattern: "go test *" stands
// for `go test` alone as well.
func rules(pattern string) []string {
	if base, ok := strings.CutSuffix(pattern, " *"); ok && base != "" {
		return []string{"Bash(" + base + ")", "Bash(" + pattern + ")"}
	}
	return []string{"Bash(" + pattern + ")"}
}
