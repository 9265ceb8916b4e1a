package scheduler

// Remembered returns how much is noted of jobs that are not in flight.
func (s *Scheduler) Remembered() int {
	s.turns.mu.Lock()
	notes := s.turns.machine.Notes()
	s.turns.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return notes + len(s.late) + len(s.blocked) + len(s.lateStarts)
}

// KnowAtMost bounds how many jobs of workflows are known between looks.
func (s *Scheduler) KnowAtMost(jobs int) { s.flows.most = jobs }

// Followed returns of how many workflows the jobs are known. Its loops must have ended.
func (s *Scheduler) Followed() int { return len(s.flows.followed) }
