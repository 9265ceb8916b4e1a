package workflow

import (
	"strings"

	"github.com/agentsched/agentsched/job"
)

// graph is who needs whom, by positions in a list of jobs. A need that is not
// in the list has no edge.
type graph struct {
	names []job.Name
	at    map[job.Name]int
	needs [][]int
}

// newGraph returns the graph over the jobs; of those with the same name the last
// one counts.
func newGraph(specs []*job.Spec) *graph {
	g := &graph{names: make([]job.Name, len(specs)), at: make(map[job.Name]int, len(specs)), needs: make([][]int, len(specs))}
	for i, s := range specs {
		g.names[i] = s.Name
		g.at[s.Name] = i
	}
	for i, s := range specs {
		for _, need := range s.Flow.Needs {
			if n, ok := g.at[need]; ok {
				g.needs[i] = append(g.needs[i], n)
			}
		}
	}
	return g
}

// order returns the jobs so that each stands behind its needs, and otherwise as
// they were given, and the cycles that there are: each as the positions along
// which one needs the next, the first of them again at the end. Jobs of a cycle,
// and those behind one, stand in the order, too.
func (g *graph) order() (order []int, cycles [][]int) {
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(g.needs))
	type frame struct{ node, next int }
	var path []frame
	for root := range g.needs {
		if state[root] != unseen {
			continue
		}
		state[root] = open
		path = append(path, frame{node: root})
		for len(path) > 0 {
			f := &path[len(path)-1]
			if f.next == len(g.needs[f.node]) {
				state[f.node] = done
				order = append(order, f.node)
				path = path[:len(path)-1]
				continue
			}
			need := g.needs[f.node][f.next]
			f.next++
			switch state[need] {
			case unseen:
				state[need] = open
				path = append(path, frame{node: need})
			case open:
				var cycle []int
				for i := range path {
					if len(cycle) > 0 || path[i].node == need {
						cycle = append(cycle, path[i].node)
					}
				}
				cycles = append(cycles, append(cycle, need))
			}
		}
	}
	return order, cycles
}

// text writes a cycle as "a -> b -> a": a needs b.
func (g *graph) text(cycle []int) string {
	words := make([]string, len(cycle))
	for i, n := range cycle {
		words[i] = string(g.names[n])
	}
	return strings.Join(words, " -> ")
}
