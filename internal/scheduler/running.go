package scheduler

import "github.com/agentsched/agentsched/job"

// Running returns how many jobs are given to cores, by the kind of worker that
// each runs on.
func (s *Scheduler) Running() map[job.WorkerKind]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := map[job.WorkerKind]int{}
	for _, f := range s.live {
		running[f.choice.Worker]++
	}
	return running
}
