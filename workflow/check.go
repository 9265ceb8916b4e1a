package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/types"

	"github.com/agentsched/agentsched/job"
)

// Problem is something in a workflow that cannot be right.
type Problem struct {
	Job     job.Name // "" if it is in no job
	Field   string   // path inside the job, or the file, as the file writes it, e.g. "needs[1]"
	Message string   // what is there and what would be right
}

// Error returns "job NAME: field: message".
func (p Problem) Error() string {
	if p.Job == "" {
		return p.Field + ": " + p.Message
	}
	return fmt.Sprintf("job %s: %s: %s", p.Job, p.Field, p.Message)
}

// Check returns what is wrong with how the jobs of a batch hang together: needs
// that do not exist or go in a circle, expressions that cannot be evaluated or
// are of a wrong type, references to jobs that are not among the needs; and with
// the teams of w, which may be nil. What stands in one job alone, such as
// a max_iterations below 1, is job.Spec.Validate's to say.
func Check(specs []job.Spec, w *job.Workflow) []Problem {
	c := newChecker(specs, w)
	for i := range specs {
		c.job(&specs[i])
	}
	c.cycles()
	c.keys()
	if w != nil {
		c.teams(w.Teams)
	}
	return c.problems
}

// checker looks at one batch.
type checker struct {
	specs    []*job.Spec
	byName   map[job.Name]*job.Spec
	names    []string
	known    map[string]bool
	profiles map[job.AgentID]*job.Profile
	problems []Problem
}

func newChecker(specs []job.Spec, w *job.Workflow) *checker {
	c := &checker{byName: map[job.Name]*job.Spec{}, known: map[string]bool{}, profiles: map[job.AgentID]*job.Profile{}}
	for i := range specs {
		c.specs = append(c.specs, &specs[i])
		c.byName[specs[i].Name] = &specs[i]
		c.known[string(specs[i].Name)] = true
	}
	c.names = slices.Sorted(maps.Keys(c.known))
	if w != nil {
		for i := range w.Agents {
			c.profiles[w.Agents[i].Name] = &w.Agents[i]
		}
	}
	return c
}

func (c *checker) fail(s *job.Spec, field, format string, args ...any) {
	c.problems = append(c.problems, Problem{s.Name, field, fmt.Sprintf(format, args...)})
}

func (c *checker) job(s *job.Spec) {
	c.needs(s)
	c.from(s)
	c.judge(s)
	if s.Flow.Alone() {
		c.alone(s)
		return
	}
	if s.Flow.ForEach != nil && s.Flow.Loop != nil {
		c.fail(s, "loop", "has no place beside for_each: let one job make the list and loop in another")
		return
	}
	sc := c.scope(s)
	if s.Flow.If != "" {
		c.expression(s, "if", s.Flow.If, sc, reflect.Bool)
	}
	if f := s.Flow.ForEach; f != nil {
		sc.vars["item"], sc.vars["index"] = c.items(s, f, sc), types.Int
	}
	if l := s.Flow.Loop; l != nil {
		if l.Until != "" {
			until := &scope{vars: types.Map{"output": c.untilType(s), "loop": types.Map{"turn": types.Int}}, known: c.known, turn: true}
			c.expression(s, "loop.until", l.Until, until, reflect.Bool)
		}
		sc.vars["loop"] = types.Map{"turn": types.Int, "last": c.answerType(s), "failure": types.String}
	}
	for _, f := range []struct{ field, text string }{{"instructions", s.Instructions}, {"system_prompt", s.SystemPrompt}, {"verify", s.Verify}} {
		c.text(s, f.field, f.text, sc)
	}
	if len(s.Flow.Input) > 0 {
		var value any
		if err := json.Unmarshal(s.Flow.Input, &value); err != nil {
			c.fail(s, "input", "is not JSON: %v", err)
		}
		c.input(s, "input", value, sc)
	}
}

func (c *checker) needs(s *job.Spec) {
	for i, need := range s.Flow.Needs {
		field := fmt.Sprintf("needs[%d]", i)
		switch {
		case slices.Index(s.Flow.Needs, need) < i:
			c.fail(s, field, "%q is there twice", need)
		case c.byName[need] == nil:
			c.fail(s, field, "there is no job %q%s", need, didYouMean(string(need), c.names))
		}
	}
}

func (c *checker) from(s *job.Spec) {
	for i, from := range s.Flow.From {
		field := fmt.Sprintf("workspace.from[%d]", i)
		switch {
		case slices.Index(s.Flow.From, from) < i:
			c.fail(s, field, "%q is there twice", from)
		case c.byName[from] == nil:
			c.fail(s, field, "there is no job %q%s", from, didYouMean(string(from), c.names))
		case !slices.Contains(s.Flow.Needs, from):
			c.fail(s, field, "%q is not among the job's needs; add it: needs: %s", from, withNeed(s, from))
		case c.byName[from].Workspace.Isolation == job.NoWorkspace:
			c.fail(s, field, "%q has no workspace, so it makes no patch", from)
		}
	}
	if iso := s.Workspace.Isolation; len(s.Flow.From) > 0 && iso != job.Worktree && iso != job.Copy {
		c.fail(s, "workspace.from", "has no use with isolation %s: patches are applied to a fresh worktree or copy", iso)
	}
}

// judge looks at who judges the job: one that runs when the job has ended.
func (c *checker) judge(s *job.Spec) {
	e := s.Flow.Evaluation
	if e == nil || e.Judge == "" {
		return
	}
	switch j := c.byName[e.Judge]; {
	case j == nil:
		c.fail(s, "evaluation.judge", "there is no job %q%s", e.Judge, didYouMean(string(e.Judge), c.names))
	case j == s:
		c.fail(s, "evaluation.judge", "%q is the job itself, want another one", e.Judge)
	case !slices.Contains(j.Flow.Needs, s.Name):
		c.fail(s, "evaluation.judge", "%q does not wait for the work that it judges; add the job to its needs: needs: %s", e.Judge, withNeed(j, s.Name))
	}
}

func withNeed(s *job.Spec, need job.Name) string {
	words := []string{}
	for _, n := range append(slices.Clone(s.Flow.Needs), need) {
		words = append(words, string(n))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// alone looks for words that name another job, in a job whose texts are taken as
// they are since nothing lets it wait for any.
func (c *checker) alone(s *job.Spec) {
	for _, f := range []struct{ field, text string }{{"instructions", s.Instructions}, {"system_prompt", s.SystemPrompt}, {"verify", s.Verify}} {
		pieces, err := split(f.text)
		if err != nil {
			continue
		}
		for _, p := range pieces {
			if name := c.mentioned(p); p.expression && name != "" {
				c.fail(s, f.field, "${{ %s }}: %s is not among the job's needs; add it: needs: [%s]", clip(p.text, 80), name, name)
			}
		}
	}
}

// mentioned returns the job that an expression begins with, or "".
func (c *checker) mentioned(p piece) string {
	rest, ok := strings.CutPrefix(p.text, "jobs.")
	if !ok {
		return ""
	}
	if name := nameAt(rest, func(n string) bool { return c.known[n] }); c.known[name] {
		return name
	}
	return ""
}

func (c *checker) cycles() {
	g := newGraph(c.specs)
	_, cycles := g.order()
	for _, cycle := range cycles {
		c.fail(c.specs[cycle[0]], "needs", "go in a circle: %s", g.text(cycle))
	}
}

// expression checks a text that is one expression as a whole and returns the
// type of its value.
func (c *checker) expression(s *job.Spec, field, text string, sc *scope, want reflect.Kind) types.Type {
	inner, err := whole(text)
	if err != nil {
		c.fail(s, field, "%v", err)
		return types.Any
	}
	n, err := sc.check(inner, want)
	if err != nil {
		c.fail(s, field, "${{ %s }}: %v", clip(inner, 80), err)
		return types.Any
	}
	return found{n}
}

// text checks the expressions in a text.
func (c *checker) text(s *job.Spec, field, text string, sc *scope) {
	pieces, err := split(text)
	if err != nil {
		c.fail(s, field, "%v", err)
		return
	}
	for _, p := range pieces {
		if !p.expression {
			continue
		}
		if _, err := sc.check(p.text, reflect.Invalid); err != nil {
			c.fail(s, field, "${{ %s }}: %v", clip(p.text, 80), err)
		}
	}
}

// input checks the texts in a JSON value.
func (c *checker) input(s *job.Spec, field string, value any, sc *scope) {
	switch v := value.(type) {
	case string:
		c.text(s, field, v, sc)
	case []any:
		for i, e := range v {
			c.input(s, fmt.Sprintf("%s[%d]", field, i), e, sc)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			c.input(s, field+"."+k, v[k], sc)
		}
	}
}

// items checks the list of a for_each and returns the type of an item.
func (c *checker) items(s *job.Spec, f *job.ForEach, sc *scope) types.Type {
	list, text, err := itemsOf(f)
	switch {
	case err != nil:
		c.fail(s, "for_each.items", "%v", err)
	case text != "":
		return elementType(c.expression(s, "for_each.items", text, sc, reflect.Slice))
	case len(list) > maxItems(f):
		c.fail(s, "for_each.items", "has %d items, at most %d are allowed (for_each.max)", len(list), maxItems(f))
	default:
		for i, item := range list {
			if text, err := encode(item); err == nil && strings.Contains(string(text), opening) {
				c.fail(s, fmt.Sprintf("for_each.items[%d]", i), "%s is taken as it is; let the whole list be one expression, such as ${{ [jobs.NAME.output, 'b'] }}", clip(string(text), 80))
			}
		}
		return literalType(list)
	}
	return types.Any
}
