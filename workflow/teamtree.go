package workflow

import (
	"iter"

	"github.com/agentsched/agentsched/job"
)

// Teams is the teams of one workflow, put together. It does not change.
type Teams struct {
	tops  []*teamNode
	teams map[job.Name]*teamNode
}

// teamNode is a team, or a job, at its place in the tree.
type teamNode struct {
	name    job.Name
	team    *job.Team  // nil: a job
	as      job.Member // how its team has it; zero at the top
	parent  *teamNode
	place   int // among the members, from 0
	members []*teamNode
}

// NewTeams puts the teams of a workflow together, with which Check has found nothing
// wrong.
func NewTeams(teams []job.Team) *Teams {
	t := &Teams{teams: map[job.Name]*teamNode{}}
	for i := range teams {
		t.teams[teams[i].ID] = &teamNode{name: teams[i].ID, team: &teams[i]}
	}
	for i := range teams {
		n := t.teams[teams[i].ID]
		for place, m := range teams[i].Members {
			c := t.teams[m.Team]
			if m.Job != "" {
				c = &teamNode{name: m.Job}
			}
			if c == nil || c.parent != nil {
				continue // Check refuses it; so there is no circle below tops
			}
			c.as, c.parent, c.place = m, n, place
			n.members = append(n.members, c)
		}
	}
	for i := range teams {
		if n := t.teams[teams[i].ID]; n.parent == nil {
			t.tops = append(t.tops, n)
		}
	}
	return t
}

// jobs yields the jobs at and below n in the order of their start.
func (n *teamNode) jobs() iter.Seq[*teamNode] {
	return func(yield func(*teamNode) bool) { n.each(yield) }
}

func (n *teamNode) each(yield func(*teamNode) bool) bool {
	if n.team == nil {
		return yield(n)
	}
	for _, m := range n.members {
		if !m.each(yield) {
			return false
		}
	}
	return true
}

// below yields the teams at and below n.
func (n *teamNode) below() iter.Seq[*teamNode] {
	return func(yield func(*teamNode) bool) { n.eachTeam(yield) }
}

func (n *teamNode) eachTeam(yield func(*teamNode) bool) bool {
	if n.team == nil {
		return true
	}
	if !yield(n) {
		return false
	}
	for _, m := range n.members {
		if !m.eachTeam(yield) {
			return false
		}
	}
	return true
}
