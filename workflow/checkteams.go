package workflow

import (
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// teams looks at who is a member of what.
func (c *checker) teams(teams []job.Team) {
	byID := map[job.Name]int{}
	var ids []string
	for i, t := range teams {
		if first, ok := byID[t.ID]; ok {
			c.failTeam(fmt.Sprintf("teams[%d].id", i), "%q is the id of teams[%d] already", t.ID, first)
			continue
		}
		if c.byName[t.ID] != nil {
			c.failTeam(fmt.Sprintf("teams[%d].id", i), "%q is the id of a job already", t.ID)
		}
		byID[t.ID] = i
		ids = append(ids, string(t.ID))
	}
	of := map[string]string{} // "job a" or "team t": where it is a member
	for i, t := range teams {
		for j, m := range t.Members {
			field := fmt.Sprintf("teams[%d].members[%d]", i, j)
			kind, name, names := "job", m.Job, c.names
			_, there := c.byName[m.Job]
			if m.Team != "" {
				kind, name, names = "team", m.Team, ids
				_, there = byID[m.Team]
			}
			switch first, taken := of[kind+" "+string(name)]; {
			case m.Job != "" && m.Team != "", m.Job == "" && m.Team == "":
				c.failTeam(field, "want either a job or a team")
			case !there:
				c.failTeam(field, "there is no %s %q%s", kind, name, didYouMean(string(name), names))
			case taken:
				c.failTeam(field, "%s %q is a member already, at %s; a member has one team", kind, name, first)
			default:
				of[kind+" "+string(name)] = field
			}
		}
	}
	c.teamCycles(teams, byID)
}

// teamCycles finds teams that are in themselves.
func (c *checker) teamCycles(teams []job.Team, byID map[job.Name]int) {
	specs := make([]*job.Spec, len(teams))
	for i, t := range teams {
		specs[i] = &job.Spec{Name: t.ID}
		if byID[t.ID] != i {
			continue // another one has its id
		}
		for _, m := range t.Members {
			if m.Team != "" {
				specs[i].Flow.Needs = append(specs[i].Flow.Needs, m.Team)
			}
		}
	}
	slices.Reverse(specs) // of equal ids the first one counts
	g := newGraph(specs)
	_, cycles := g.order()
	for _, cycle := range cycles {
		c.failTeam(fmt.Sprintf("teams[%d].members", byID[g.names[cycle[0]]]), "the team is in itself: %s", g.text(cycle))
	}
}

func (c *checker) failTeam(field, format string, args ...any) {
	c.problems = append(c.problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}
