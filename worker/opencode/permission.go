package opencode

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// rules are permission rules in order: the last that matches decides. A value
// is "allow", "ask", "deny" or further rules.
type rules []rule

type rule struct {
	key   string
	value any
}

const (
	allow = "allow"
	ask   = "ask"
	deny  = "deny"
)

// MarshalJSON writes an object whose members keep their order.
func (r rules) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(one.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(one.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// permissions maps the task's capabilities: what they grant in the program's own terms is allowed, and about all else it
// asks. Each command of "a && b", and of what $( ) encloses, is matched for itself. Commands that are allowed run
// without a sandbox: they can write wherever the user can, and reach the
// network. dataDir is the program's own, where it keeps the rest of a long
// output.
func permissions(t *worker.Task, dataDir string) rules {
	r := rules{{"*", ask}}
	patterns, anyCommand := t.CommandPatterns()
	outside := any(rules{{"*", ask}, {dataDir + "/tool-output/*", allow}})
	if anyCommand {
		outside = allow // any command could go there anyway
	}
	r = append(r, rule{"external_directory", outside})
	if t.Can(job.CanRead) {
		r = append(r,
			rule{"read", rules{{"*", allow}, {"*.env", ask}, {"*.env.*", ask}, {"*.env.example", allow}}}, // as the program itself has it
			rule{"glob", allow}, rule{"grep", allow}, rule{"list", allow}, rule{"todowrite", allow}, rule{"todoread", allow})
	}
	if t.Can(job.CanRead) || len(t.Settings.Subagents) > 0 {
		r = append(r, rule{"task", starts(t)})
	}
	if t.Can(job.CanEdit) {
		r = append(r, rule{"edit", allow})
	}
	switch {
	case anyCommand:
		r = append(r, rule{"bash", allow})
	case len(patterns) > 0:
		r = append(r, rule{"bash", commands(patterns)})
	}
	if t.Can(job.CanUseNetwork) {
		r = append(r, rule{"webfetch", allow}, rule{"websearch", allow}, rule{"codesearch", allow})
	}
	if t.Tools != nil {
		r = append(r, rule{t.Tools.Name + "_*", allow})
	}
	return r
}

// explorer are the rules of the subagent that only looks: it must not change what it looks at.
func explorer(r rules) rules {
	return append(slices.Clone(r), rule{"edit", deny}, rule{"task", deny}, rule{"todowrite", deny})
}

// starts are the rules about which subagents may be started: none may do more than the job.
func starts(t *worker.Task) rules {
	r := rules{{"*", ask}}
	if t.Can(job.CanRead) {
		r = append(r, rule{"explore", allow}, rule{"general", allow})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Settings.Subagents)) {
		r = append(r, rule{name, allow})
	}
	return r
}

// narrowed are the rules of a subagent that may do less than the job of t: what it lacks is denied, since what the program asks about
// is answered by what the job may.
func narrowed(r rules, t, its *worker.Task) rules {
	r = append(slices.Clone(r), rule{"task", deny})
	for _, of := range []struct {
		needs job.Capability
		tools []string
	}{
		{job.CanRead, []string{"read", "glob", "grep", "list", "todowrite", "todoread"}},
		{job.CanEdit, []string{"edit"}},
		{job.CanUseNetwork, []string{"webfetch", "websearch", "codesearch"}},
	} {
		if t.Can(of.needs) && !its.Can(of.needs) {
			for _, tool := range of.tools {
				r = append(r, rule{tool, deny})
			}
		}
	}
	if t.Tools != nil && !its.Can(job.CanUseScheduler) {
		r = append(r, rule{t.Tools.Name + "_*", deny})
	}
	all, anyOfAll := t.CommandPatterns()
	patterns, anyCommand := its.CommandPatterns()
	switch {
	case anyOfAll == anyCommand && len(all) == len(patterns):
	case len(patterns) == 0:
		r = append(r, rule{"bash", deny})
	default:
		only := commands(patterns)
		for i := range only {
			if only[i].value == ask {
				only[i].value = deny
			}
		}
		r = append(r, rule{"bash", only})
	}
	return r
}

// commands returns the rules of command patterns: "go test *" stands for `go
// test` alone as well. A redirection is part of what a pattern is matched
// with, so that an asterisk would let any allowed command write any file:
// those are asked about, but for patterns that say so themselves.
func commands(patterns []string) rules {
	r := rules{{"*", ask}}
	var redirecting rules
	for _, p := range patterns {
		p = strings.TrimSpace(p)
		to := &r
		if strings.Contains(p, ">") {
			to = &redirecting
		}
		if base, ok := strings.CutSuffix(p, " *"); ok && base != "" {
			*to = append(*to, rule{base, allow})
		}
		*to = append(*to, rule{p, allow})
	}
	r = append(r, rule{"*>*", ask})
	return append(r, redirecting...)
}
