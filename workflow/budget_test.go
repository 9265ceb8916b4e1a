package workflow_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// TestExpressionsAreBounded: whatever an expression says, in whatever place, the
// job ends with a message that names the expression and the bound, in little memory.
func TestExpressionsAreBounded(t *testing.T) {
	const steps, deep, memory = "takes more than 2000000 steps", "more than 1000 deep", "makes more than 1000000 elements"
	long := "jobs.a.output.text" // 200 kB
	list := "jobs.a.output.list" // 20,000 numbers
	for name, c := range map[string]struct{ expression, want string }{
		"uniq":                   {"len(uniq(1..900000)) > 0", steps},
		"uniq of objects":        {"len(uniq(map(1..90000, ({a: #})))) > 0", steps},
		"flatten":                {"len(flatten(map(1..1000, " + list + "))) > 0", steps},
		"flatten what is shared": {"len(flatten(reduce(1..40, [#acc, #acc], [1]))) > 0", steps},
		"equality":               {"reduce(1..40, [#acc, #acc], [1]) == reduce(1..40, [#acc, #acc], [1])", steps},
		"order":                  {"count(1..100000, " + long + " <= " + long + ") > 0", steps},
		"in":                     {"count(1..100000, # in " + list + ") > 0", steps},
		"not in":                 {"count(1..100000, # not in " + list + ") > 0", steps},
		"contains":               {"count(1..100000, " + long + " contains 'y') > 0", steps},
		"matches":                {"count(1..1000, " + long + " matches '(x+x+)+y') > 0", steps},
		"a large pattern":        {long + " matches '((x{0,30}){0,30})y'", steps},
		"many patterns":          {"count(1..100000, 'x' matches string(#) + 'abcdefghijklmnopqrstuvwxyz') > 0", steps},
		"upper":                  {"count(1..100000, len(upper(" + long + ")) > 0) > 0", steps},
		"split":                  {"len(map(1..1000, split(" + long + ", ''))) > 0", steps},
		"fromJSON":               {"let text = '[' + join(map(" + list + ", '[]'), ',') + ']'; len(map(1..1000, fromJSON(text))) > 0", steps},
		"string":                 {"len(string(reduce(1..40, [#acc, #acc], [1]))) > 0", steps},
		"sum":                    {"count(1..100000, sum(" + list + ") > 0) > 0", steps},
		"max":                    {"count(1..100000, max(" + list + ") > 0) > 0", steps},
		"sort":                   {"count(1..100000, len(sort(" + list + ")) > 0) > 0", memory + "|" + steps},
		"concat":                 {"len(reduce(1..100000, concat(#acc, [#]), [])) > 0", memory + "|" + steps},
		"toPairs":                {"len(map(1..100000, toPairs(jobs.a.output))) + len(map(1..100000, toPairs(jobs.a.output))) > 0", steps},
		"objects":                {"len(map(1..150000, ({a: {b: {c: #}}}))) > 0", steps},
		"lists":                  {"len(map(1..150000, [[[[[[#]]]]]])) > 0", memory + "|" + steps},
		"a large predicate":      {"count(1..190000, " + strings.Repeat("# > 0 or ", 100) + "true) > 0", steps},
		"predicates":             {"count(1..1000, count(1..1000, count(1..1000, true) > 0) > 0) > 0", "looks at more than 200000 elements|" + steps},
		"joined":                 {"len(map(1..100000, join(" + list + ", ','))) > 0", steps},
		"as JSON":                {"len(map(1..100000, toJSON(" + list + "))) > 0", steps},
		"deep":                   {"len(toJSON(reduce(1..100000, [#acc], 1))) > 0", deep},
		"deep text":              {"len(string(reduce(1..100000, [#acc], 1))) > 0", deep},
		"memory":                 {"len(1..2000000) > 0", memory},
	} {
		t.Run(name, func(t *testing.T) {
			x := spec("x", "a")
			x.Flow.If = c.expression
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := failsAt(t, x)
			runtime.ReadMemStats(&after)
			said := false
			for _, want := range strings.Split(c.want, "|") {
				said = said || strings.Contains(got, want)
			}
			if !said || !strings.Contains(got, c.expression[:10]) {
				t.Errorf("got %q, want the expression and %q", got, c.want)
			}
			// What was allocated, not what was in use at once, which is less.
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 400 {
				t.Errorf("%d MiB were allocated", mib)
			}
		})
	}
}

// TestBoundsHoldInEachPlace: each place that evaluates is bounded, and a text as a
// whole.
func TestBoundsHoldInEachPlace(t *testing.T) {
	const hostile = "len(uniq(1..900000)) > 0"
	for field, edit := range map[string]func(*job.Spec){
		"its condition (if)": func(s *job.Spec) { s.Flow.If = hostile },
		"for_each.items": func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"${{ uniq(1..900000) }}"`), Max: 10}
		},
		"item 1: instructions": func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`[1]`), Max: 10}
			s.Instructions = "${{ " + hostile + " }}"
		},
		"loop.until": func(s *job.Spec) { s.Flow.Loop = &job.Loop{Until: hostile, MaxIterations: 3} },
		"turn 1: verify": func(s *job.Spec) {
			s.Flow.Loop = &job.Loop{Until: "true", MaxIterations: 3}
			s.Verify = "${{ " + hostile + " }}"
		},
		"instructions":     func(s *job.Spec) { s.Instructions = "${{ " + hostile + " }}" },
		"system_prompt":    func(s *job.Spec) { s.SystemPrompt = "${{ " + hostile + " }}" },
		"verify":           func(s *job.Spec) { s.Verify = "${{ " + hostile + " }}" },
		"input.a":          func(s *job.Spec) { s.Flow.Input = json.RawMessage(`{"a": "${{ ` + hostile + ` }}"}`) },
		"input.b: ${{ red": func(s *job.Spec) { s.Flow.Input = json.RawMessage(`{"b": "${{ reduce(1..100000, [#acc], 1) }}"}`) },
		"instructions: ${{ count": func(s *job.Spec) {
			s.Instructions = strings.Repeat("${{ count(1..100000, # > 1) }} ", 20) // each is within the bounds
		},
	} {
		t.Run(field, func(t *testing.T) {
			x := spec("x", "a")
			edit(&x)
			got := failsAt(t, x)
			if !strings.Contains(got, field) || !strings.Contains(got, "takes more than") && !strings.Contains(got, "deep") {
				t.Errorf("got %q, want %q and the bound", got, field)
			}
		})
	}
}

// failsAt returns why the job x, which needs a, fails, and that it has for good.
func failsAt(t *testing.T, x job.Spec) string {
	t.Helper()
	numbers := strings.TrimSuffix(strings.Repeat("7,", 20_000), ",")
	output := fmt.Sprintf(`{"text": "%s", "list": [%s]}`, strings.Repeat("x", 200_000), numbers)
	w := newWorld([]job.Spec{spec("a"), x}, func(j *workflow.Job) { j.Output = json.RawMessage(output) })
	finish(t, w)
	j := w.find("x")
	if j.Exit != job.ExitFailed || j.Class != job.Config {
		t.Fatalf("got %s %s %q, want a failure of class %s", j.Exit, j.Class, j.Message, job.Config)
	}
	return j.Message
}

// TestOrdinaryExpressionsFit: what people compute of what agents answer is far
// within the bounds.
func TestOrdinaryExpressionsFit(t *testing.T) {
	for expression, want := range map[string]string{
		"len(uniq(map(1..5000, # % 100)))":                                    "100",
		"len(uniq(map(1..2000, ({a: # % 10, b: 'x'}))))":                      "10",
		"len(uniq([1, 1.0, '1', true, nil, nil, [1], [1.0], {a: 1}]))":        "6",
		"len(filter(1..1000, # in filter(1..100, # % 2 == 0)))":               "50",
		"count(jobs.a.output.list, # == 7)":                                   "20000",
		"len(sort(jobs.a.output.list))":                                       "20000",
		"jobs.a.output.text contains 'y' or jobs.a.output.text matches 'xx$'": "true",
		"jobs.a.output.nothing matches 'x'":                                   "false",
		"len(flatten([jobs.a.output.list, [[1, 2], 3]]))":                     "20003",
		"join(sortBy(toPairs({b: 1, a: 2}), #[0]) | map(string(#[0])), ',')":  "a,b",
		"sum(map(groupBy(1..100, # % 3) | values(), len(#)))":                 "100",
		"'a' + upper(trim(' b ')) + string(len(split('x,y', ',')))":           "aB2",
	} {
		x := spec("x", "a")
		x.Instructions = "${{ " + expression + " }}"
		numbers := strings.TrimSuffix(strings.Repeat("7,", 20_000), ",")
		w := newWorld([]job.Spec{spec("a"), x}, func(j *workflow.Job) {
			if j.Spec.Name == "a" {
				j.Output = json.RawMessage(fmt.Sprintf(`{"text": "%s", "list": [%s]}`, strings.Repeat("x", 10_000), numbers))
			}
		})
		finish(t, w)
		j := w.find("x")
		if r := w.resolved["x"]; r == nil || r.Instructions != want {
			t.Errorf("%s: got %+v %q, want %s", expression, r, j.Message, want)
		}
	}
}
