package scheduler

import (
	"github.com/agentsched/agentsched/internal/isolation"
)

// Isolate puts out of use what somebody beside the scheduler has found, and tells
// everybody of it.
func (s *Isolations) Isolate(x isolation.Escalation) { s.escalate(nil, x) }

// Isolated returns the isolation of a scope, if that itself is isolated.
func (s *Isolations) Isolated(scope isolation.Scope) (isolation.Isolation, bool) {
	for _, i := range s.list() {
		if i.Scope == scope {
			return i, true
		}
	}
	return isolation.Isolation{}, false
}
