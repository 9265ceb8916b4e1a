package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// CheckDomains returns the jobs whose domain, or whose evaluation's, is not among
// those that are known: a misspelt one would get the rules and the weights of jobs
// without a domain. The domains of a job's agent are known for it. No known domains
// mean that any will do.
func CheckDomains(specs []job.Spec, w *job.Workflow, known []string) []Problem {
	if len(known) == 0 {
		return nil
	}
	agents := map[job.AgentID][]string{}
	if w != nil {
		for i := range w.Agents {
			p := &w.Agents[i]
			agents[p.Name] = p.Domains
		}
	}
	var problems []Problem
	for i := range specs {
		s := &specs[i]
		given := []struct{ field, domain string }{{"domain", s.Domain}}
		if e := s.Flow.Evaluation; e != nil {
			given = append(given, struct{ field, domain string }{"evaluation.domain", e.Domain})
		}
		for _, g := range given {
			if g.domain == "" || slices.Contains(known, g.domain) || slices.Contains(agents[s.Agent], g.domain) {
				continue
			}
			all := append(slices.Clone(known), agents[s.Agent]...)
			slices.Sort(all)
			problems = append(problems, Problem{s.Name, g.field, fmt.Sprintf("%q is no known domain%s; known here: %s. An agent's domains, recovery.domains and evaluation.weights of the configuration add others",
				g.domain, didYouMean(g.domain, all), strings.Join(slices.Compact(all), ", "))})
		}
	}
	return problems
}
