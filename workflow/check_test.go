package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

const reviewSchema = `{"type":"object","properties":{
	"ok":{"type":"boolean"},"score":{"type":"number"},"n":{"type":"integer"},"title":{"type":"string"},
	"findings":{"type":"array","items":{"type":"object","properties":{"file":{"type":"string"}},"additionalProperties":false}},
	"free":{"type":"object"},"open":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true},
	"maybe":{"type":["string","null"]},"self":{"$ref":"#"},"kind":{"enum":["x","y"]}},"required":["ok"]}`

// base is a batch to check jobs in: fix-login answers words, review JSON, fan a
// list of JSON.
func base() []job.Spec {
	fix, review, fan := spec("fix-login"), spec("review"), spec("fan", "review")
	review.Output = json.RawMessage(reviewSchema)
	fan.Output = json.RawMessage(reviewSchema)
	fan.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"jobs.review.output.findings"`)}
	return []job.Spec{fix, review, fan, spec("2nd.try"), spec("other")}
}

// TestExpressions checks one expression in the instructions of a job that needs
// all of base but other; "" is no problem.
func TestExpressions(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{"jobs.fix-login.output", ""},
		{`jobs["fix-login"].patch`, ""},
		{"jobs.2nd.try.output", ""},
		{"jobs.fix-login.files[0]", ""},
		{"len(jobs.fix-login.files) - 1", ""},
		{"jobs.review.output.ok ? 'yes' : 'no'", ""},
		{"jobs.review.output.n % 2 == 0", ""},
		{"jobs.review.output.score > 0.5 && jobs.review.output.ok", ""},
		{"jobs.review.output.findings[0].file", ""},
		{"map(jobs.review.output.findings, .file)", ""},
		{"join(map(jobs.review.output.findings, .file), ', ')", ""},
		{"jobs.review.output.free.anything.at.all", ""},
		{"jobs.review.output.open.other", ""},
		{"jobs.review.output.maybe + 'x'", ""},
		{"jobs.review.output.self.self.ok", ""},
		{"jobs.review.output.kind + 'x'", ""},
		{"jobs.fan.output[0].title", ""},
		{"toJSON(jobs.fan.output)", ""},
		{"jobs.review.state == 'failed' ? jobs.review.error : ''", ""},
		{"success() || failure() || cancelled() || always()", ""},
		{"let r = jobs.review.output; r.title + r.title", ""},
		{"{'a': {'b': 1}}['a']", ""},
		{"'}}'", ""},

		{"jobs.review.output.okk", "column 20: okk is not there; did you mean ok? There are findings, free, kind, maybe, n, ok, open, score, self, title"},
		{"jobs.review.output.findings[0].line", "column 32: line is not there; did you mean file? There are file"},
		{"map(jobs.review.output.findings, .line)", "column 35: line is not there"},
		{"jobs.fan.output.title", "column 17: array elements can only be selected using an integer (got string)"},
		{"jobs.fix-login.outptu", "column 16: outptu is not there; did you mean output?"},
		{"1 +\n jobs.fix-login.outptu", "line 2, column 17: outptu is not there"},
		{"jobs.fix-login.output > 3", "column 23: invalid operation: > (mismatched types string and int)"},
		{"jobs.other.output", "column 1: other is not among the job's needs; add it: needs: [fix-login, review, fan, 2nd.try, other]"},
		{"jobs.fix-lgoin.output", "column 1: there is no job fix-lgoin; did you mean fix-login?"},
		{"jobs.x.output", "column 1: jobs.x is this job itself, which has not run yet"},
		{"keys(jobs)", "column 6: jobs stands alone"},
		{"jobs[item]", "column 1: jobs stands alone"},
		{"$env", "column 1: unknown name $env"},
		{"env.HOME", "column 1: unknown name env"},
		{"item", "column 1: unknown name item"},
		{"loop.turn", "column 1: unknown name loop"},
		{"now()", "column 1: unknown name now"},
		{"repeat('x', 1000000)", "column 1: unknown name repeat"},
		{"jobs.fix-login.output +", "unexpected token EOF"},
		{"'" + strings.Repeat("x", 9000) + "'", "has 9002 bytes, at most 8192 are allowed"},
	} {
		x := spec("x", "fix-login", "review", "fan", "2nd.try")
		x.Instructions = "do ${{ " + c.expression + " }} now"
		problems := workflow.Check(append(base(), x), nil)
		if c.want == "" && len(problems) == 0 {
			continue
		}
		if len(problems) != 1 || c.want == "" || problems[0].Field != "instructions" || !strings.Contains(problems[0].Message, c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.expression, problems, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	with := func(edit func(*job.Spec)) []job.Spec {
		x := spec("x", "fix-login", "review")
		edit(&x)
		return append(base(), x)
	}
	for name, c := range map[string]struct {
		specs []job.Spec
		want  []string // none: no problem
	}{
		"fine":         {with(func(*job.Spec) {}), nil},
		"unknown need": {with(func(s *job.Spec) { s.Flow.Needs = []job.Name{"fix-login", "reveiw"} }), []string{`job x: needs[1]: there is no job "reveiw"; did you mean review?`}},
		"a need twice": {with(func(s *job.Spec) { s.Flow.Needs = []job.Name{"review", "review"} }), []string{`job x: needs[1]: "review" is there twice`}},
		"needs itself": {with(func(s *job.Spec) { s.Flow.Needs = []job.Name{"x"} }), []string{"job x: needs: go in a circle: x -> x"}},
		"two circles":  {[]job.Spec{spec("a", "b"), spec("b", "a"), spec("c", "d"), spec("d", "c"), spec("e", "a", "d")}, []string{"job a: needs: go in a circle: a -> b -> a", "job c: needs: go in a circle: c -> d -> c"}},
		"if":           {with(func(s *job.Spec) { s.Flow.If = "${{ jobs.review.output.ok }}" }), nil},
		"if bare":      {with(func(s *job.Spec) { s.Flow.If = "always() && jobs.review.output.free.x" }), nil},
		"if of a text": {with(func(s *job.Spec) { s.Flow.If = "jobs.review.output.title" }), []string{"job x: if: ${{ jobs.review.output.title }}: gives a text, want true or false"}},
		"if and more":  {with(func(s *job.Spec) { s.Flow.If = "${{ true }} && ${{ true }}" }), []string{`job x: if: "${{ true }} && ${{ true }}" is more than one expression`}},
		"item in if":   {with(func(s *job.Spec) { s.Flow.If = "item"; s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`[1]`)} }), []string{"job x: if: ${{ item }}: column 1: unknown name item"}},
		"not closed":   {with(func(s *job.Spec) { s.Verify = "test ${{ 1 " }), []string{`job x: verify: "${{ 1 " is not closed by }}`}},
		"empty":        {with(func(s *job.Spec) { s.SystemPrompt = "${{ }}" }), []string{"job x: system_prompt: ${{ }} is empty"}},
		"escaped":      {with(func(s *job.Spec) { s.Instructions = "write $${{ github.ref }}" }), nil},
		"input":        {with(func(s *job.Spec) { s.Flow.Input = json.RawMessage(`{"a":[1,{"b":"x ${{ jobs.review.nope }}"}]}`) }), []string{"job x: input.a[1].b: ${{ jobs.review.nope }}: column 13: nope is not there"}},
		"items": {with(func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"${{ jobs.review.output.findings }}"`)}
			s.Instructions = "${{ item.file }} ${{ index + 1 }}"
		}), nil},
		"item's type": {with(func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"jobs.review.output.findings"`)}
			s.Instructions = "${{ item.line }}"
		}), []string{"job x: instructions: ${{ item.line }}: column 6: line is not there"}},
		"literal items": {with(func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`["a","b"]`)}
			s.Instructions = "${{ item > 1 }}"
		}), []string{"mismatched types string and int"}},
		"no list":  {with(func(s *job.Spec) { s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"jobs.review.output"`)} }), []string{"job x: for_each.items: ${{ jobs.review.output }}: gives an object, want a list"}},
		"no items": {with(func(s *job.Spec) { s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`{"a":1}`)} }), []string{"job x: for_each.items: want a list"}},
		"items in text": {with(func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"all ${{ jobs.review.output.findings }}"`)}
		}), []string{"job x: for_each.items: \"all ${{ jobs.review.output.findings }}\" is more than one"}},
		"too many": {with(func(s *job.Spec) { s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`[1,2,3]`), Max: 2} }), []string{"job x: for_each.items: has 3 items, at most 2 are allowed (for_each.max)"}},
		"in an item": {with(func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`["a","${{ jobs.review.state }}"]`)}
		}), []string{"job x: for_each.items[1]: \"${{ jobs.review.state }}\" is taken as it is"}},
		"both": {with(func(s *job.Spec) {
			s.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`[1]`)}
			s.Flow.Loop = &job.Loop{Command: "true"}
		}), []string{"job x: loop: has no place beside for_each"}},
		"loop": {with(func(s *job.Spec) {
			s.Flow.Loop = &job.Loop{Until: "output.ok && loop.turn > 1"}
			s.Instructions = "${{ loop.turn }} ${{ loop.last }} ${{ loop.failure }}"
		}), nil},
		"until's type": {with(func(s *job.Spec) {
			s.Output = json.RawMessage(reviewSchema)
			s.Flow.Loop = &job.Loop{Until: "output.score"}
		}), []string{"job x: loop.until: ${{ output.score }}: gives a number, want true or false"}},
		"until's field": {with(func(s *job.Spec) {
			s.Output = json.RawMessage(reviewSchema)
			s.Flow.Loop = &job.Loop{Until: "output.sc > 1"}
		}), []string{"job x: loop.until: ${{ output.sc > 1 }}: column 8: sc is not there"}},
		"from":         {with(func(s *job.Spec) { s.Flow.From = []job.Name{"review", "fix-login"} }), nil},
		"from no need": {with(func(s *job.Spec) { s.Flow.From = []job.Name{"other"} }), []string{`job x: workspace.from[0]: "other" is not among the job's needs; add it: needs: [fix-login, review, other]`}},
		"from nobody":  {with(func(s *job.Spec) { s.Flow.From = []job.Name{"othr"} }), []string{`job x: workspace.from[0]: there is no job "othr"; did you mean other?`}},
		"from, direct": {with(func(s *job.Spec) { s.Flow.From = []job.Name{"review"}; s.Workspace.Isolation = job.Direct }), []string{"job x: workspace.from: has no use with isolation direct"}},
		"judge":        {with(func(s *job.Spec) { s.Flow.Evaluation = &job.Evaluation{Judge: "fan"} }), []string{`job x: evaluation.judge: "fan" does not wait for the work that it judges; add the job to its needs: needs: [review, x]`}},
		"judge nobody": {with(func(s *job.Spec) { s.Flow.Evaluation = &job.Evaluation{Judge: "fann"} }), []string{`job x: evaluation.judge: there is no job "fann"; did you mean fan?`}},
		"judge self":   {with(func(s *job.Spec) { s.Flow.Evaluation = &job.Evaluation{Judge: "x"} }), []string{`job x: evaluation.judge: "x" is the job itself`}},
		"alone":        {with(func(s *job.Spec) { s.Flow.Needs = nil; s.Instructions = "use ${{ jobs.fix-login.output }}" }), []string{"job x: instructions: ${{ jobs.fix-login.output }}: fix-login is not among the job's needs; add it: needs: [fix-login]"}},
		"alone, else's": {with(func(s *job.Spec) {
			s.Flow.Needs = nil
			s.Instructions = "write ${{ secrets.TOKEN }} and ${{ jobs.build.outputs.x }} and ${{"
		}), nil},
	} {
		t.Run(name, func(t *testing.T) { wantProblems(t, workflow.Check(c.specs, nil), c.want) })
	}
}

func TestCheckTeams(t *testing.T) {
	jobs := []job.Spec{spec("a"), spec("b")}
	team := func(id job.Name, members ...job.Member) job.Team { return job.Team{ID: id, Members: members} }
	j := func(n job.Name) job.Member { return job.Member{Job: n} }
	in := func(n job.Name) job.Member { return job.Member{Team: n} }
	for name, c := range map[string]struct {
		teams []job.Team
		want  []string
	}{
		"fine":         {[]job.Team{team("t", j("a"), in("u")), team("u", j("b"))}, nil},
		"same id":      {[]job.Team{team("t"), team("t")}, []string{`teams[1].id: "t" is the id of teams[0] already`}},
		"a job's id":   {[]job.Team{team("a")}, []string{`teams[0].id: "a" is the id of a job already`}},
		"no such job":  {[]job.Team{team("t", j("a"), j("bb"))}, []string{`teams[0].members[1]: there is no job "bb"; did you mean b?`}},
		"no such team": {[]job.Team{team("team1", in("team2"))}, []string{`teams[0].members[0]: there is no team "team2"; did you mean team1?`}},
		"twice":        {[]job.Team{team("t", j("a")), team("u", j("b"), j("a"))}, []string{`teams[1].members[1]: job "a" is a member already, at teams[0].members[0]; a member has one team`}},
		"a team twice": {[]job.Team{team("t", in("v")), team("u", in("v")), team("v")}, []string{`teams[1].members[0]: team "v" is a member already`}},
		"in itself":    {[]job.Team{team("t", in("t"))}, []string{"teams[0].members: the team is in itself: t -> t"}},
		"in a circle":  {[]job.Team{team("t", in("u")), team("u", in("t"))}, []string{"teams[1].members: the team is in itself: u -> t -> u"}},
		"neither":      {[]job.Team{team("t", job.Member{})}, []string{"teams[0].members[0]: want either a job or a team"}},
		"both":         {[]job.Team{team("t", job.Member{Job: "a", Team: "t"})}, []string{"teams[0].members[0]: want either a job or a team", "in itself"}},
	} {
		t.Run(name, func(t *testing.T) { wantProblems(t, workflow.Check(jobs, &job.Workflow{Teams: c.teams}), c.want) })
	}
}

// wantProblems compares by what the problems' texts contain.
func wantProblems(t *testing.T, got []workflow.Problem, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d problems, want %d: %v", len(got), len(want), got)
	}
	for i, p := range got {
		if !strings.Contains(p.Error(), want[i]) {
			t.Errorf("got  %s\nwant %s", p.Error(), want[i])
		}
	}
}

// TestAProfilesSchemaGivesTheType: a job may leave its output schema to its
// agent's profile.
func TestAProfilesSchemaGivesTheType(t *testing.T) {
	a, x := spec("a"), spec("x", "a")
	a.Agent = "judge"
	x.Instructions = "${{ jobs.a.output.nope }}"
	w := &job.Workflow{Agents: []job.Profile{{Name: "judge", Output: json.RawMessage(reviewSchema)}}}
	wantProblems(t, workflow.Check([]job.Spec{a, x}, w), []string{"nope is not there"})
}
