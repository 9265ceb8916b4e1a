package team

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Tree is the teams of one workflow, put together. It does not change.
type Tree struct {
	tops  []*node
	teams map[job.Name]*node
}

// node is a team, or a job, at its place in the tree.
type node struct {
	name    job.Name
	team    *job.Team  // nil: a job
	as      job.Member // how its team has it; zero at the top
	parent  *node
	place   int // among the members, from 0
	members []*node
}

// New puts the teams of a workflow together. Each team is a member of at most one
// other, each job of at most one, and nothing has the name of something else. The
// error names the team, the member and what would be right.
func New(teams []job.Team) (*Tree, error) {
	t := &Tree{teams: map[job.Name]*node{}}
	for i := range teams {
		team := &teams[i]
		if err := check(team); err != nil {
			return nil, fmt.Errorf("team %q: %w", team.ID, err)
		}
		if t.teams[team.ID] != nil {
			return nil, fmt.Errorf("team %q: there are two of this id, want another for one of them", team.ID)
		}
		t.teams[team.ID] = &node{name: team.ID, team: team}
	}
	jobs := map[job.Name]job.Name{}
	for i := range teams {
		if err := t.join(t.teams[teams[i].ID], jobs); err != nil {
			return nil, fmt.Errorf("team %q: %w", teams[i].ID, err)
		}
	}
	for i := range teams {
		n := t.teams[teams[i].ID]
		if n.parent == nil {
			t.tops = append(t.tops, n)
		}
		if circle := n.circle(); circle != "" {
			return nil, fmt.Errorf("team %q: is a member of itself (%s), want teams nested without a circle", n.name, circle)
		}
	}
	return t, nil
}

// check looks at one team by itself.
func check(t *job.Team) error {
	switch {
	case !slices.Contains(job.Strategies(), t.Strategy):
		return fmt.Errorf("strategy %q is unknown, want one_for_one, one_for_all or rest_for_one", t.Strategy)
	case t.MaxRestarts < 0:
		return fmt.Errorf("max_restarts %d is negative, want 0 or more", t.MaxRestarts)
	case t.MaxSeconds < 1:
		return fmt.Errorf("max_seconds %d is too short, want 1 or more", t.MaxSeconds)
	case len(t.Members) == 0:
		return fmt.Errorf("has no members, want at least one")
	}
	for i, m := range t.Members {
		switch {
		case (m.Job == "") == (m.Team == ""):
			return fmt.Errorf("members[%d] names the job %q and the team %q, want exactly one of them", i, m.Job, m.Team)
		case !slices.Contains(job.RestartTypes(), m.Restart):
			return fmt.Errorf("members[%d]: restart %q is unknown, want permanent, transient or temporary", i, m.Restart)
		}
	}
	return nil
}

// join adds the members of n to it. jobs tells which team has a job already.
func (t *Tree) join(n *node, jobs map[job.Name]job.Name) error {
	for i, m := range n.team.Members {
		c := t.teams[m.Team]
		switch {
		case m.Job != "" && t.teams[m.Job] != nil:
			return fmt.Errorf("members[%d]: the job %q has the name of a team, want names of their own", i, m.Job)
		case m.Job != "" && jobs[m.Job] != "":
			return fmt.Errorf("members[%d]: the job %q is a member of the team %q already, want it in one", i, m.Job, jobs[m.Job])
		case m.Job != "":
			jobs[m.Job] = n.name
			c = &node{name: m.Job}
		case c == nil:
			return fmt.Errorf("members[%d]: there is no team %q, want the id of another team", i, m.Team)
		case c.parent != nil:
			return fmt.Errorf("members[%d]: the team %q is a member of the team %q already, want it in one", i, m.Team, c.parent.name)
		}
		c.as, c.parent, c.place = m, n, i
		n.members = append(n.members, c)
	}
	return nil
}

// circle returns the way from n up to itself; "" if there is none.
func (n *node) circle() string {
	way, seen := []string{string(n.name)}, map[*node]bool{n: true}
	for p := n.parent; p != nil; p = p.parent {
		way = append(way, string(p.name))
		if p == n {
			slices.Reverse(way)
			return strings.Join(way, " > ")
		}
		if seen[p] {
			return "" // the circle is above n, and found from there
		}
		seen[p] = true
	}
	return ""
}

// jobs yields the jobs at and below n in the order of their start.
func (n *node) jobs() iter.Seq[*node] {
	return func(yield func(*node) bool) { n.each(yield) }
}

func (n *node) each(yield func(*node) bool) bool {
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
func (n *node) below() iter.Seq[*node] {
	return func(yield func(*node) bool) { n.eachTeam(yield) }
}

func (n *node) eachTeam(yield func(*node) bool) bool {
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
