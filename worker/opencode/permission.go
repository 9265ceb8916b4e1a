package opencode

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// rules are permission rules in order: the last that matches decides. A value
// is "allow", "deny" or further rules.
type rules []rule

type rule struct {
	key   string
	value any
}

const (
	allow = "allow"
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

// permissions maps the task's capabilities. Each command of "a && b", and of
// what $( ) encloses, is matched for itself. Commands that are allowed run
// without a sandbox: they can write wherever the user can, and reach the
// network. dataDir is the program's own, where it keeps the rest of a long
// output.
func permissions(t *worker.Task, dataDir string) rules {
	r := rules{{"*", deny}}
	patterns, anyCommand := t.CommandPatterns()
	outside := any(rules{{"*", deny}, {dataDir + "/tool-output/*", allow}})
	if anyCommand {
		outside = allow // any command could go there anyway
	}
	r = append(r, rule{"external_directory", outside})
	if t.Can(job.CanRead) {
		r = append(r,
			rule{"read", rules{{"*", allow}, {"*.env", deny}, {"*.env.*", deny}, {"*.env.example", allow}}}, // as the program itself has it
			rule{"glob", allow}, rule{"grep", allow}, rule{"list", allow}, rule{"todowrite", allow}, rule{"todoread", allow})
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
	return r
}

// commands returns the rules of command patterns: "go test *" stands for `go
// test` alone as well. A redirection is part of what a pattern is matched
// with, so that an asterisk would let any allowed command write any file:
// those are denied, but for patterns that say so themselves.
func commands(patterns []string) rules {
	r := rules{{"*", deny}}
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
	r = append(r, rule{"*>*", deny})
	return append(r, redirecting...)
}
