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

// onNodes returns what is isolated on each node that has something isolated; Global is all of it.
func (s *Isolations) onNodes() map[string][]isolation.Scope {
	var out map[string][]isolation.Scope
	for _, i := range s.book.List(time.Now()) {
		if name, what, ok := i.Scope.Host(); ok {
			if out == nil {
				out = map[string][]isolation.Scope{}
			}
			out[name] = append(out[name], what)
		}
	}
	return out
}

// bounded returns the escalation of a node's core as it is, or, if that has put a lot of its host out of use already,
// as one of the whole host: what a node says is not kept without end.
func (s *Isolations) bounded(node string, x isolation.Escalation) isolation.Escalation {
	if _, known := s.Isolated(x.Scope); known || x.Action == isolation.Notify || len(s.onNodes()[node]) < maxOnNode {
		return x
	}
	x.Scope, x.Action = isolation.NodeScope(node), isolation.IsolateNode
	return x
}

// maxOnNode is how much may be out of use on one node before all of it is.
const maxOnNode = 64

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
