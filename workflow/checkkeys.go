package workflow

import (
	"github.com/agentsched/agentsched/job"
)

// keys refuses a job that stands in line before one that it needs: with one key,
// the later waits for the end, or the result, of the earlier.
func (c *checker) keys() {
	place := map[job.Name]int{}
	for i, s := range c.specs {
		place[s.Name] = i
	}
	for i, s := range c.specs {
		policy, key := s.Duplicates()
		if policy == job.RunEach {
			continue
		}
		for _, need := range c.allNeeds(s) {
			p, k := need.Duplicates()
			if p == job.RunEach || k != key || need.Tenant != s.Tenant || place[need.Name] < i {
				continue
			}
			c.fail(s, "key", "%q is also that of %s, which this job needs and which waits in line behind it, so that neither could begin; put %s before it, or give it another key", key, need.Name, need.Name)
			break
		}
	}
}

// allNeeds returns what a job needs, directly or through others.
func (c *checker) allNeeds(s *job.Spec) (all []*job.Spec) {
	seen := map[job.Name]bool{s.Name: true}
	var walk func(*job.Spec)
	walk = func(s *job.Spec) {
		for _, name := range s.Flow.Needs {
			if n := c.byName[name]; n != nil && !seen[name] {
				seen[name] = true
				all = append(all, n)
				walk(n)
			}
		}
	}
	walk(s)
	return all
}
