package isolation

import (
	"fmt"
	"strings"
	"time"
)

// Cause is which condition was met.
type Cause string

// The causes of an escalation.
const (
	CauseWorkerCrashes Cause = "worker_crashes"
	CauseGhost         Cause = "ghost_process"
	CauseLatestWins    Cause = "latest_wins"
	CauseCoreCrashes   Cause = "core_crash_loop"
	CauseDisk          Cause = "disk_nearly_full"
	CauseClock         Cause = "clock_jump"
	CauseOverload      Cause = "overload"
	// CauseUsageLimit: the provider's account has used up what it has until a reset.
	CauseUsageLimit Cause = "usage_limit"
	// CauseTrigger: the jobs that a trigger submits keep failing.
	CauseTrigger Cause = "trigger_failures"
	// CausePaused: an operator has asked for it.
	CausePaused Cause = "paused"
)

// Paused returns the isolation of a scope (see ParseScope) that an operator asks
// for, at a moment, for so long; 0: until it is resumed.
func Paused(scope, reason string, at time.Time, d time.Duration) (Isolation, error) {
	parsed, err := ParseScope(scope)
	if err != nil {
		return Isolation{}, err
	}
	if name, ok := parsed.Node(); ok {
		return Isolation{}, fmt.Errorf("%s cannot be paused; `scheduler nodes cordon %s` gives it no new jobs", parsed, name)
	}
	i := Isolation{Scope: parsed, Cause: CausePaused, Message: "paused by an operator", Action: remedy(parsed), Since: at}
	if reason != "" {
		i.Message += ": " + reason
	}
	if d > 0 {
		i.Until = at.Add(d)
	}
	return i, nil
}

// Remedy is what is to be done about an escalation.
type Remedy string

const (
	// IsolateKind: no run of this kind begins.
	IsolateKind Remedy = "isolate_kind"
	// LockWorkspace: no run begins in this folder.
	LockWorkspace Remedy = "lock_workspace"
	// IsolateNode: no run begins on this node; what runs there goes on.
	IsolateNode Remedy = "isolate_node"
	// HoldTrigger: no firing of the trigger is submitted.
	HoldTrigger Remedy = "hold_trigger"
	// SafeStop: no permit is given out; what runs goes on.
	SafeStop Remedy = "safe_stop"
	// Notify: only tell.
	Notify Remedy = "notify"
)

// Escalation is something that a person must know.
type Escalation struct {
	Scope   Scope     `json:"scope"`
	Cause   Cause     `json:"cause"`
	Message string    `json:"message"`
	Action  Remedy    `json:"action"`
	Time    time.Time `json:"time"`
	// Until is when the cool-down ends; zero: only an operator ends it.
	Until time.Time `json:"until,omitzero"`
	// Again says that the condition was told before and lasts: the isolation is
	// prolonged, and need not be shown again.
	Again bool `json:"again,omitempty"`
}

// OnNode returns the escalation of a core that is on a node: it can put that node out of use, or a
// kind of worker or a folder there, and nothing of other hosts, whatever it says. Its text is no
// longer than a person reads.
func (e Escalation) OnNode(name string) Escalation {
	const most = 500
	if len(e.Message) > most {
		e.Message = strings.ToValidUTF8(e.Message[:most], "") + "…"
	}
	scope, _ := ParseScope(string(e.Scope)) // "" is on no host
	there, ok := scope.On(name)
	if !ok || len(there) > most {
		e.Scope, e.Action = NodeScope(name), Notify
		return e
	}
	if e.Scope = there; e.Action != Notify {
		e.Action = remedy(there)
	}
	return e
}

// remedy returns what isolates a scope.
func remedy(s Scope) Remedy {
	_, what, onNode := s.Host()
	if _, _, ok := what.Worker(); ok {
		return IsolateKind
	} else if _, ok := what.Workspace(); ok {
		return LockWorkspace
	} else if _, ok := what.Trigger(); ok {
		return HoldTrigger
	} else if onNode {
		return IsolateNode
	}
	return SafeStop
}

// Isolation returns what the escalation puts out of use.
func (e Escalation) Isolation() Isolation {
	return Isolation{Scope: e.Scope, Cause: e.Cause, Message: e.Message, Action: e.Action, Since: e.Time, Until: e.Until}
}
