package scheduler

import (
	"github.com/agentsched/agentsched/schedule"
)

// OnNodes returns how many jobs each node has, by its name: those that it was given, and those that an earlier
// scheduler has left there and nobody has heard of since.
func (s *Scheduler) OnNodes() map[string]int {
	counts := s.fleet.left()
	for _, r := range s.loop.runs() {
		if r.Node != "" {
			counts[r.Node]++
		}
	}
	return counts
}

// StopOnNode asks what runs on a node to stop, and returns how many jobs the node has: at the boundary of its next step,
// which leaves runs alone that keep none, or else in stages; neither counts as an attempt. What has not begun does not
// begin there. Close the node first: the machine gives it no job after that.
func (s *Scheduler) StopOnNode(name string, atBoundary bool, reason string) (running int) {
	how := schedule.Interrupt
	if atBoundary {
		how = schedule.OnlyBoundary
	}
	for _, r := range s.loop.runs() {
		if r.Node == name {
			s.loop.post(schedule.Stop{Job: r.Entry.ID, How: how, Reason: reason, Unbegun: true})
			running++
		}
	}
	return running + s.fleet.left()[name]
}

// left counts what an earlier scheduler has left on nodes that have not come since.
func (f *fleet) left() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for name, runs := range f.orphans {
		counts[name] = len(runs)
	}
	return counts
}
