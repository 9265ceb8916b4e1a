package workflow_test

import (
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func TestCheckDomains(t *testing.T) {
	w := &job.Workflow{Agents: []job.Profile{{Name: "ann", Domains: []string{"tax"}}}}
	known := []string{"legal", "security"}
	const add = ". An agent's domains, recovery.domains and evaluation.weights of the configuration add others"
	for _, c := range []struct {
		domain, evaluation string
		agent              job.AgentID
		want               string
	}{
		{"", "", "", ""},
		{"legal", "security", "", ""},
		{"tax", "tax", "ann", ""},
		{"legl", "", "", `job x: domain: "legl" is no known domain; did you mean legal?; known here: legal, security` + add},
		{"", "zzz", "", `job x: evaluation.domain: "zzz" is no known domain; known here: legal, security` + add},
		{"tax", "", "bob", `job x: domain: "tax" is no known domain; known here: legal, security` + add},
		{"taxe", "", "ann", `job x: domain: "taxe" is no known domain; did you mean tax?; known here: legal, security, tax` + add},
	} {
		s := spec("x")
		s.Domain, s.Agent = c.domain, c.agent
		if c.evaluation != "" {
			s.Flow.Evaluation = &job.Evaluation{Domain: c.evaluation}
		}
		got := ""
		for _, p := range workflow.CheckDomains([]job.Spec{s}, w, known) {
			got += p.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c, got, c.want)
		}
		if problems := workflow.CheckDomains([]job.Spec{s}, w, nil); len(problems) > 0 {
			t.Errorf("%+v without known domains: %v", c, problems)
		}
	}
}
