package claude

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// grant is what a task's capabilities come to in the program's own terms.
type grant struct {
	tools []string // those that exist at all for the model
	allow []string // permission rules; what none of them allows is asked about
	ask   []string // rules for what the program would allow by itself
	// agents are the subagents, as JSON; "": there are none.
	agents string
}

var (
	readers = []string{"Read", "Glob", "Grep"}
	editors = []string{"Edit", "Write", "NotebookEdit"}
	web     = []string{"WebFetch", "WebSearch"}
)

// grantOf maps the task's capabilities. Files can be read and changed in the
// workspace only. Commands are matched as the program itself parses them: each
// part of "a && b" must be allowed, and so must what a redirection writes.
// Commands that are allowed run without a sandbox: they can write wherever the
// user can, and reach the network. The tools of a job that may ask are all there: it
// asks before it uses those that it was not granted.
func grantOf(t *worker.Task) (grant, error) {
	var g grant
	if t.Can(job.CanRead) {
		g.allow = append(g.allow, "Read(./**)")
	} else if t.Asked {
		g.ask = append(g.ask, readers...)
	}
	if t.Can(job.CanRead) || t.Asked {
		g.tools = append(g.tools, readers...)
	}
	if t.Can(job.CanEdit) {
		g.allow = append(g.allow, "Edit(./**)")
	}
	if t.Can(job.CanEdit) || t.Asked {
		g.tools = append(g.tools, editors...)
	}
	patterns, anyCommand := t.CommandPatterns()
	if anyCommand || len(patterns) > 0 || t.Asked {
		g.tools = append(g.tools, "Bash")
	}
	switch {
	case anyCommand:
		g.allow = append(g.allow, "Bash")
	case len(patterns) == 0 && t.Asked:
		g.ask = append(g.ask, "Bash") // a rule to ask counts before one that allows
	default:
		for _, p := range patterns {
			if strings.ContainsAny(p, "\n\x00") || strings.TrimSpace(p) == "" {
				return grant{}, &worker.Failure{Class: job.Config,
					Message: "allow_commands: claude cannot match a pattern that is empty or has several lines", Hint: "write one command a pattern"}
			}
			g.allow = append(g.allow, rules(strings.TrimSpace(p))...)
		}
	}
	if t.Can(job.CanUseNetwork) {
		g.allow = append(g.allow, web...)
	}
	if t.Can(job.CanUseNetwork) || t.Asked {
		g.tools = append(g.tools, web...)
	}
	if t.Asked {
		g.tools = append(g.tools, "AskUserQuestion")
	}
	if t.Tools != nil {
		g.allow = append(g.allow, "mcp__"+t.Tools.Name)
	}
	if len(t.Settings.Subagents) > 0 {
		g.tools = append(g.tools, starter)
		g.allow = append(g.allow, starter)
	}
	return g, nil
}

// starter is the tool that starts a subagent. The model knows it as Agent.
const starter = "Task"

// subagent is one in the program's own terms.
type subagent struct {
	Description string   `json:"description"`
	Prompt      string   `json:"prompt"`
	Tools       []string `json:"tools"`
}

// subagents returns those of the settings as JSON, "" if there are none. None has more tools than the job, and what these may do is
// decided as for the job itself.
func subagents(t *worker.Task) (string, error) {
	if len(t.Settings.Subagents) == 0 {
		return "", nil
	}
	all := map[string]subagent{}
	for name, a := range t.Settings.Subagents {
		its := t.Of(&a)
		its.Asked = t.Asked && a.Capabilities == nil // else it would be given tools only to be asked about
		g, err := grantOf(its)
		if err != nil {
			return "", err
		}
		all[name] = subagent{Description: a.When, Prompt: cmp.Or(a.Instructions, a.When), Tools: append([]string{}, g.tools...)}
	}
	text, err := json.Marshal(all)
	if err == nil && len(text) > maxArgument {
		err = &worker.Failure{Class: job.Config, Message: fmt.Sprintf("subagents of %d bytes: claude takes at most %d", len(text), maxArgument), Hint: "shorten their instructions in workers.*.subagents"}
	}
	return string(text), err
}

// rules returns the permission rules of a command pattern: "go test *" stands
// for `go test` alone as well.
func rules(pattern string) []string {
	if base, ok := strings.CutSuffix(pattern, " *"); ok && base != "" {
		return []string{"Bash(" + base + ")", "Bash(" + pattern + ")"}
	}
	return []string{"Bash(" + pattern + ")"}
}
