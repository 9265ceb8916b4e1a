package scheduler

import "github.com/agentsched/agentsched/schedule"

// Remembered returns how much is noted of jobs that are not in flight.
func (s *Scheduler) Remembered() (n int) {
	s.loop.ask(func(m *schedule.Machine) { n = m.Notes() })
	return n
}

// KnowAtMost bounds how many jobs of workflows are known between looks.
func (s *Scheduler) KnowAtMost(jobs int) { s.Followers.most = jobs }

// Followed returns of how many workflows the jobs are known. Its loops must have ended.
func (s *Scheduler) Followed() int { return len(s.Followers.followed) }

// RenewPermits reports whether heartbeats renew the permits of runs.
func (s *Scheduler) RenewPermits() bool { return s.renewsPermits() }
