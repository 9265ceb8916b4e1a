package job

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fieldsOf returns where the errors are, and fails the test for one that says nothing.
func fieldsOf(t *testing.T, errs []*FieldError) []string {
	t.Helper()
	var list []string
	for _, e := range errs {
		list = append(list, e.Field)
		if e.Message == "" {
			t.Errorf("%s: an error without a message", e.Field)
		}
	}
	return list
}

// TestValidateFlow breaks one rule after the other.
func TestValidateFlow(t *testing.T) {
	half := 0.5
	loop := func(l Loop) func(*Spec) {
		return func(s *Spec) { s.Flow.Loop = &l }
	}
	each := func(items string, limit, parallel int) func(*Spec) {
		return func(s *Spec) { s.Flow.ForEach = &ForEach{json.RawMessage(items), limit, parallel} }
	}
	oversight := func(o Oversight) func(*Spec) {
		return func(s *Spec) { s.Flow.Oversight = &o }
	}
	for name, c := range map[string]struct {
		change func(*Spec)
		want   []string
	}{
		"needs":               {func(s *Spec) { s.Flow.Needs = []Name{"a", "b.c"} }, nil},
		"needs a part":        {func(s *Spec) { s.Flow.Needs = []Name{"a@1"} }, []string{"needs[0]"}},
		"needs a restart":     {func(s *Spec) { s.Flow.Needs = []Name{"a", "a+1"} }, []string{"needs[1]"}},
		"needs twice":         {func(s *Spec) { s.Flow.Needs = []Name{"a", "a"} }, []string{"needs[1]"}},
		"blank condition":     {func(s *Spec) { s.Flow.If = "\t" }, []string{"if"}},
		"list":                {each(`[1, {"a": 2}]`, 2, 1), nil},
		"expression":          {each(`"${{ jobs.a.output }}"`, 1, 0), nil},
		"too many items":      {each(`[1, 2, 3]`, 2, 0), []string{"for_each.items"}},
		"items of an object":  {each(`{"a": 1}`, 2, 0), []string{"for_each.items"}},
		"items of nothing":    {each(`null`, 2, 0), []string{"for_each.items"}},
		"no items":            {each(``, 2, 0), []string{"for_each.items"}},
		"blank items":         {each(`" "`, 2, 0), []string{"for_each.items"}},
		"bad numbers of each": {each(`[]`, 0, -1), []string{"for_each.max", "for_each.max_parallel"}},
		"loop":                {loop(Loop{Until: "output.ok", MaxIterations: 1, MaxSame: 2, MaxFiles: 1}), nil},
		"loop without check":  {loop(Loop{MaxIterations: 1}), []string{"loop"}},
		"loop of all checks":  {loop(Loop{Command: "a", File: "b", Until: "c", MaxIterations: 1}), []string{"loop"}},
		"file outside":        {loop(Loop{File: "/a", MaxIterations: 1}), []string{"loop.file"}},
		"file above":          {loop(Loop{File: "a/../../b", MaxIterations: 1}), []string{"loop.file"}},
		"bad numbers of loop": {loop(Loop{Command: "a", MaxIterations: 0, MaxSame: 1, MaxFiles: -1}), []string{"loop.max_iterations", "loop.max_same", "loop.max_files"}},
		"loop of each":        {func(s *Spec) { loop(Loop{Command: "a", MaxIterations: 1})(s); each(`[1]`, 1, 0)(s) }, []string{"loop"}},
		"input":               {func(s *Spec) { s.Flow.Input = json.RawMessage(` {"a": 1}`) }, nil},
		"input that is none":  {func(s *Spec) { s.Flow.Input = json.RawMessage(`{"a":`) }, []string{"input"}},
		"from": {func(s *Spec) {
			s.Flow.Needs, s.Flow.From, s.Flow.OnConflict = []Name{"a"}, []Name{"a"}, ResolveConflict
		}, nil},
		"from none of needs": {func(s *Spec) { s.Flow.From = []Name{"a"} }, []string{"workspace.from[0]"}},
		"from into a folder of the user": {func(s *Spec) {
			s.Flow.Needs, s.Flow.From = []Name{"a"}, []Name{"a"}
			s.Workspace.Isolation, s.Workspace.Base = Direct, ""
		}, []string{"workspace.from"}},
		"conflict of nothing":  {func(s *Spec) { s.Flow.OnConflict = FailOnConflict }, []string{"workspace.on_conflict"}},
		"unknown conflict":     {func(s *Spec) { s.Flow.OnConflict = "ours" }, []string{"workspace.on_conflict"}},
		"best":                 {func(s *Spec) { s.Flow.Best, s.Fallback = true, []Choice{{"claude", ""}, {"claude", "x"}} }, nil},
		"best of the same":     {func(s *Spec) { s.Flow.Best, s.Fallback = true, []Choice{{"claude", "x"}, {"codex", ""}} }, []string{"candidates[2]"}},
		"oversight":            {oversight(Oversight{Mode: SpotCheck, Probability: &half, Timeout: 1, Default: "approve"}), nil},
		"oversight of no mode": {oversight(Oversight{MaxRetries: -1}), []string{"oversight.mode", "oversight.max_retries"}},
		"unknown oversight":    {oversight(Oversight{Mode: "none", MinConfidence: math.NaN()}), []string{"oversight.mode", "oversight.min_confidence"}},
		"draw without a use":   {oversight(Oversight{Mode: Supervised, Probability: &half}), []string{"oversight.probability"}},
		"default without end":  {oversight(Oversight{Mode: Supervised, Default: "reject"}), []string{"oversight.default"}},
		"unknown default":      {oversight(Oversight{Mode: Supervised, Timeout: -1, Default: "no"}), []string{"oversight.timeout", "oversight.default"}},
		"evaluation":           {func(s *Spec) { s.Flow.Evaluation = &Evaluation{"legal", 1, "x", "a/b.json", "judge"} }, nil},
		"bad evaluation": {func(s *Spec) { s.Flow.Evaluation = &Evaluation{"-", -1, " ", "../a", "a b"} },
			[]string{"evaluation.domain", "evaluation.sla", "evaluation.command", "evaluation.report", "evaluation.judge"}},
		"judge of itself":      {func(s *Spec) { s.Flow.Evaluation = &Evaluation{Judge: s.Name} }, []string{"evaluation.judge"}},
		"part":                 {func(s *Spec) { s.Name, s.Flow.Node, s.Flow.Part = "a@3", "a", 3 }, nil},
		"restart":              {func(s *Spec) { s.Name, s.Flow.Restart = "a+2", 2 }, nil},
		"part of a restart":    {func(s *Spec) { s.Name, s.Flow.Node, s.Flow.Part, s.Flow.From = "a+2@1", "a+2", 1, []Name{"a+2@7"} }, nil},
		"part without a node":  {func(s *Spec) { s.Name, s.Flow.Part = "a@3", 3 }, []string{"id", "flow.part"}},
		"node without a part":  {func(s *Spec) { s.Flow.Node = "a" }, []string{"flow.part"}},
		"odd part":             {func(s *Spec) { s.Name, s.Flow.Node, s.Flow.Part = "a@03", "a@", -1 }, []string{"id", "flow.node", "flow.part"}},
		"less than no restart": {func(s *Spec) { s.Flow.Restart = -1 }, []string{"flow.restart"}},
	} {
		s := validSpec()
		c.change(&s)
		if got := fieldsOf(t, s.Validate()); !slices.Equal(got, c.want) {
			t.Errorf("%s: faults at %v, want %v", name, got, c.want)
		}
	}
}

// TestLoopOfLLM: without files only the answer can end it.
func TestLoopOfLLM(t *testing.T) {
	s := Spec{Name: "a", Type: LLM, Worker: "x", Instructions: "y", Workspace: Workspace{Isolation: NoWorkspace}}
	for check, want := range map[Loop][]string{
		{Until: "output.ok", MaxIterations: 1}: nil,
		{Command: "true", MaxIterations: 1}:    {"loop.command"},
		{File: "done", MaxIterations: 1}:       {"loop.file"},
	} {
		s.Flow.Loop = &check
		if got := fieldsOf(t, s.Validate()); !slices.Equal(got, want) {
			t.Errorf("%+v: faults at %v, want %v", check, got, want)
		}
	}
}

// TestPartNames: what the scheduler makes of a valid name is a valid part's name
// and nobody's who submits.
func TestPartNames(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		name := Name(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,63}`).Draw(r, "name"))
		for range rapid.IntRange(1, 3).Draw(r, "times") {
			n := rapid.IntRange(1, 1000).Draw(r, "number")
			if rapid.Bool().Draw(r, "restart") {
				name = RestartName(name, n)
			} else {
				name = PartName(name, n)
			}
		}
		s := validSpec()
		s.Name, s.Flow.Restart = name, 1
		if errs := s.Validate(); len(errs) > 0 {
			r.Fatalf("%s: %v", name, errs[0])
		}
		s.Flow.Restart = 0
		if errs := s.Validate(); len(errs) != 1 || errs[0].Field != "id" {
			r.Fatalf("%s can be submitted: %v", name, errs)
		}
	})
	for _, bad := range []Name{"", "@1", "a@", "a@0", "a@1x", "a@-1", "a+1.lock", "a..b@1", "a@1234567890"} {
		s := validSpec()
		s.Name, s.Flow.Restart = bad, 1
		if len(s.Validate()) == 0 {
			t.Errorf("%q is taken for the name of a part", bad)
		}
	}
}

func TestValidateWorkflow(t *testing.T) {
	good := Workflow{
		Teams:  []Team{{"t", RestForOne, 0, 1, []Member{{Job: "a", Restart: Permanent}, {Team: "a", Restart: Temporary, Shutdown: 1}}}},
		Agents: []Profile{{Name: "pid:7", Domains: []string{"legal"}, Worker: "codex", Model: "m"}, {Name: "b"}},
	}
	if errs := good.Validate(); len(errs) > 0 {
		t.Errorf("a good workflow: %v", errs[0])
	}
	bad := Workflow{
		Teams: []Team{
			{"a@1", "all", -1, 0, nil},
			{"t", OneForOne, 0, 1, []Member{{Job: "a", Team: "b", Restart: Transient}, {Restart: Transient}, {Job: "x y", Restart: "often", Shutdown: -1}, {Job: "a", Restart: Transient}, {Job: "a", Restart: Permanent}}},
		},
		Agents: []Profile{{
			Name: "a b", Capabilities: []Capability{"fly"}, Domains: []string{"legal", ""}, Input: []byte(`{`), Output: []byte(`x`),
			Fallback: []Choice{{Worker: "x"}}, Oversight: &Oversight{Mode: "x"}, EvaluationDomain: " ",
		}},
	}
	want := strings.Fields(`teams[0].strategy teams[0].max_restarts teams[0].max_seconds teams[0].members teams[0].id
		teams[1].members[2].restart teams[1].members[2].shutdown teams[1].members[0] teams[1].members[1] teams[1].members[2].job teams[1].members[4]
		agents[0].name agents[0].capabilities[0] agents[0].domains[1] agents[0].oversight.mode agents[0].evaluation_domain agents[0].input agents[0].output agents[0].worker`)
	if got := fieldsOf(t, bad.Validate()); !slices.Equal(got, want) {
		t.Errorf("faults at\n%v, want\n%v", got, want)
	}
}
