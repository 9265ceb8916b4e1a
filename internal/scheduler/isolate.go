package scheduler

import (
	"time"

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

// nodes returns the nodes that are isolated.
func (s *Isolations) nodes() map[string]bool {
	var names map[string]bool
	for _, i := range s.book.List(time.Now()) {
		if name, ok := i.Scope.Node(); ok {
			if names == nil {
				names = map[string]bool{}
			}
			names[name] = true
		}
	}
	return names
}

// NodeIsolated implements supervisor.AwayHandler: all cores of a node are in a crash loop until then, or, with a
// zero until, one is tried again.
func (f *fleet) NodeIsolated(name string, until time.Time, why string) {
	scope := isolation.NodeScope(name)
	if !until.IsZero() {
		f.isolations.escalate(nil, isolation.Escalation{Scope: scope, Cause: isolation.CauseCoreCrashes, Action: isolation.IsolateNode, Message: why, Time: now(), Until: now().Add(time.Until(until))})
		return
	}
	if i, ok := f.isolations.book.Settle(scope, isolation.CauseCoreCrashes); ok {
		f.isolations.lifted(i, "its agentcores are tried again")
		f.isolations.change()
	}
}
