package scheduler

import (
	"github.com/agentsched/agentsched/schedule"
)

// OnNodes returns how many jobs each node has, by its name: those that it was given, and those that an earlier
// scheduler has left there and nobody has heard of since.
func (s *Scheduler) OnNodes() map[string]int {
	nodes, counts := s.fleet.onNodes()
	for _, r := range s.loop.runs() {
		if name := nodes[r.Core]; name != "" {
			counts[name]++
		}
	}
	return counts
}

// StopOnNode asks what runs on a node to stop, and returns how many jobs the node has: at the boundary of its next step,
// which leaves runs alone that keep none, or else in stages; neither counts as an attempt. Close the node
// first: the machine gives it no job after that.
func (s *Scheduler) StopOnNode(name string, atBoundary bool, reason string) (running int) {
	how := schedule.Interrupt
	if atBoundary {
		how = schedule.OnlyBoundary
	}
	nodes, left := s.fleet.onNodes()
	for _, r := range s.loop.runs() {
		if nodes[r.Core] == name {
			s.loop.post(schedule.Stop{Job: r.Entry.ID, How: how, Reason: reason})
			running++
		}
	}
	return running + left[name]
}

// onNodes returns the nodes of the cores that are on one, and how many jobs an earlier scheduler has left on
// nodes that have not come since.
func (f *fleet) onNodes() (nodes map[schedule.CoreID]string, left map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes, left = map[schedule.CoreID]string{}, map[string]int{}
	for _, m := range f.members {
		if m.Node() != "" {
			nodes[m.id] = m.Node()
		}
	}
	for name, runs := range f.orphans {
		left[name] = len(runs)
	}
	return nodes, left
}
