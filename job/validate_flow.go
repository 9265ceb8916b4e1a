package job

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// validName looks at the name of s, which may be that of a part or of a restart
// only if s is one.
func (s *Spec) validName() error {
	if s.Flow.Node != "" || s.Flow.Restart > 0 {
		return ValidPartName(s.Name)
	}
	return ValidName(string(s.Name))
}

// derived is what PartName and RestartName append, in any number: a part can
// be restarted and a restart can have parts.
var derived = regexp.MustCompile(`^([@+][1-9][0-9]{0,8})*$`)

// ValidPartName reports why name is neither a job's name nor one that PartName
// or RestartName make of it, or nil.
func ValidPartName(name Name) error {
	base, rest := string(name), ""
	if i := strings.IndexAny(base, "@+"); i >= 0 {
		base, rest = base[:i], base[i:]
	}
	if !derived.MatchString(rest) {
		return fmt.Errorf("%q is not the name of a part, want a job's name with @ and a number, or + and a number, after it", name)
	}
	return ValidName(base)
}

// validateFlow looks at how s hangs together with other jobs, as far as s alone
// tells: whether those exist, and what expressions mean, is for package workflow.
func (s *Spec) validateFlow(bad func(string, string, ...any)) {
	f := &s.Flow
	if f.Best {
		s.validateBest(bad)
	}
	s.validateNames("needs", f.Needs, bad)
	if f.If != "" && strings.TrimSpace(f.If) == "" {
		bad("if", "is blank, want a condition such as jobs.review.output.ok")
	}
	f.ForEach.validate(bad)
	s.validateLoop(bad)
	if len(f.Input) > 0 && !json.Valid(f.Input) {
		bad("input", "is not JSON")
	}
	s.validateFrom(bad)
	f.Oversight.validate("oversight", bad)
	s.validateEvaluation(bad)
	s.validatePart(bad)
}

// validateBest looks at the candidates, of which reputation chooses.
func (s *Spec) validateBest(bad func(string, string, ...any)) {
	choices := s.Choices()
	for i, c := range choices {
		if slices.Index(choices, c) < i {
			bad(fmt.Sprintf("candidates[%d]", i), "%s is a candidate already; name each once", c)
		}
	}
}

// String returns c as a job file writes it: "worker" or "worker:model".
func (c Choice) String() string {
	if c.Model == "" {
		return string(c.Worker)
	}
	return string(c.Worker) + ":" + c.Model
}

// validateNames looks at a list of jobs: each must have a name that a job of
// the same batch can have, and stand there once.
func (s *Spec) validateNames(field string, list []Name, bad func(string, string, ...any)) {
	for i, name := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		valid := ValidPartName(name)
		if s.Flow.Node == "" && s.Flow.Restart == 0 {
			valid = ValidName(string(name))
		}
		switch {
		case valid != nil:
			bad(at, "%v", valid)
		case slices.Index(list, name) < i:
			bad(at, "%q is in the list already; name each job once", name)
		}
	}
}

func (e *ForEach) validate(bad func(string, string, ...any)) {
	if e == nil {
		return
	}
	var list []json.RawMessage
	var text string
	switch {
	case json.Unmarshal(e.Items, &list) == nil && list != nil:
		if e.Max > 0 && len(list) > e.Max {
			bad("for_each.items", "has %d items, at most %d are allowed; raise for_each.max if they are meant", len(list), e.Max)
		}
	case json.Unmarshal(e.Items, &text) != nil || strings.TrimSpace(text) == "":
		bad("for_each.items", "is neither a list nor an expression, want one such as ${{ jobs.find.output }}")
	}
}

func (s *Spec) validateLoop(bad func(string, string, ...any)) {
	l := s.Flow.Loop
	if l == nil {
		return
	}
	if s.Flow.ForEach != nil {
		bad("loop", "is not for a job with for_each; let the items be jobs of their own, or loop in the instructions")
	}
	checks := 0
	for _, c := range []struct{ field, value string }{{"command", l.Command}, {"file", l.File}, {"until", l.Until}} {
		if c.value == "" {
			continue
		}
		checks++
		switch {
		case strings.TrimSpace(c.value) == "":
			bad("loop."+c.field, "is blank, want the check that ends the loop")
		case c.field != "until" && s.Type == LLM:
			bad("loop."+c.field, "is not for a job of type LLM, which has no files; want until")
		case c.field == "file":
			localFile("loop.file", c.value, bad)
		}
	}
	if checks != 1 {
		bad("loop", "has %d checks, want one of command, file and until", checks)
	}
}

// localFile refuses a path that leads out of the workspace.
func localFile(field, path string, bad func(string, string, ...any)) {
	if !filepath.IsLocal(path) {
		bad(field, "%q is not a path within the workspace, want one such as build/report.json", path)
	}
}

// validateFrom looks at the patches that s builds on. They are put into a folder
// of its own, never into the user's.
func (s *Spec) validateFrom(bad func(string, string, ...any)) {
	f := &s.Flow
	if len(f.From) > 0 && s.Workspace.Isolation != Worktree && s.Workspace.Isolation != Copy {
		bad("workspace.from", "needs a folder of the job's own to put patches into: isolation worktree or copy, not %s", s.Workspace.Isolation)
	}
	s.validateNames("workspace.from", f.From, bad)
	for i, name := range f.From {
		if f.Node == "" && !slices.Contains(f.Needs, name) {
			bad(fmt.Sprintf("workspace.from[%d]", i), "%q is not among the needs; add it there, so that its patch is complete", name)
		}
	}
	switch f.OnConflict {
	case "":
	case FailOnConflict, ResolveConflict:
		if len(f.From) == 0 {
			bad("workspace.on_conflict", "%q has no use without patches that can conflict, want workspace.from beside it", f.OnConflict)
		}
	default:
		bad("workspace.on_conflict", "%q is unknown, want %s or %s", f.OnConflict, FailOnConflict, ResolveConflict)
	}
}

// validate reports what does not go together in o, with the paths of its fields
// within field; a nil o breaks no rule.
func (o *Oversight) validate(field string, bad func(field, format string, args ...any)) {
	if o == nil {
		return
	}
	if o.Probability != nil && o.Mode != SpotCheck && slices.Contains(OversightModes(), o.Mode) {
		bad(field+".probability", "has no use with mode %s, only with %s", o.Mode, SpotCheck)
	}
	if o.Default != "" && o.Timeout == 0 {
		bad(field+".default", "%q has no use without a timeout after which it holds", o.Default)
	}
}

func (s *Spec) validateEvaluation(bad func(string, string, ...any)) {
	e := s.Flow.Evaluation
	if e == nil {
		return
	}
	if e.Report != "" {
		localFile("evaluation.report", e.Report, bad)
	}
	if e.Judge != "" {
		if err := ValidName(string(e.Judge)); err != nil {
			bad("evaluation.judge", "%v", err)
		} else if e.Judge == s.Name {
			bad("evaluation.judge", "%q is the job itself, want another job", e.Judge)
		}
	}
}

// validatePart looks at what only the scheduler sets.
func (s *Spec) validatePart(bad func(string, string, ...any)) {
	f := &s.Flow
	if f.Node != "" {
		if err := ValidPartName(f.Node); err != nil {
			bad("flow.node", "%v", err)
		}
	}
	if f.Part < 0 || f.Part > 0 && f.Node == "" || f.Part == 0 && f.Node != "" {
		bad("flow.part", "is %d with the node %q, want both or neither", f.Part, f.Node)
	}
	if f.Restart < 0 {
		bad("flow.restart", "is %d, want 0 or more", f.Restart)
	}
}
