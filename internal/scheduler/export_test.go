package scheduler

// Remembered returns how much is noted of jobs that are not in flight.
func (s *Scheduler) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.late) + len(s.blocked) + len(s.parked) + len(s.lateStarts)
}
