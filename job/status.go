package job

import "strings"

// Status is how a job stands, in the words that every view of it uses: the
// command line, the dashboard and the API.
type Status struct {
	// State is that of the job's latest run. A job that was not started before
	// its deadline is RunFailed, one that was not to run RunCancelled; Note says so.
	State RunState `json:"state"`
	// Waiting is what the job waits for; nil if it runs or has ended.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Worker is the kind of worker of the latest attempt; "" if that is the job's
	// own choice, or there was none.
	Worker WorkerKind `json:"worker,omitempty"`
	// Note says more about a job that does not wait, in one line; "" if there is
	// nothing to say.
	Note string `json:"note,omitempty"`
}

// Line says in one line why the job is where it is; "" if there is nothing to say.
func (s *Status) Line() string {
	if s.Waiting != nil {
		return s.Waiting.String()
	}
	return s.Note
}

// Waiting is what keeps a job from running.
type Waiting struct {
	Reason WaitingReason `json:"reason"` // one word for it
	// Text says more, e.g. "2 of 2 slots are taken"; "" if there is nothing to say.
	Text string `json:"text,omitempty"`
}

// String returns a sentence that ParseWaiting reads, such as
// "waiting for a slot: 2 of 2 slots are taken".
func (w Waiting) String() string {
	if w.Text == "" {
		return waitingFor + w.Reason.Words()
	}
	return waitingFor + w.Reason.Words() + ": " + w.Text
}

const waitingFor = "waiting for "

// ParseWaiting reads what String returns; false if text is something else.
func ParseWaiting(text string) (Waiting, bool) {
	rest, ok := strings.CutPrefix(text, waitingFor)
	if !ok {
		return Waiting{}, false
	}
	words, more, _ := strings.Cut(rest, ": ")
	for _, r := range waitingReasons {
		if r.words == words {
			return Waiting{r.reason, more}, true
		}
	}
	return Waiting{}, false
}

// WaitingReason is one word for what a job waits for.
type WaitingReason string

const (
	// WaitTurn: nothing keeps it from running, but others come first.
	WaitTurn WaitingReason = "turn"
	// WaitTime: it was submitted to run later.
	WaitTime WaitingReason = "time"
	// WaitSlot: as many run as may, of all jobs or of its worker, tenant or folder.
	WaitSlot WaitingReason = "slot"
	// WaitFolder: another job works in its folder, in one above or in one below.
	WaitFolder WaitingReason = "folder"
	// WaitDependency: jobs that it needs have not ended.
	WaitDependency WaitingReason = "dependency"
	// WaitParts: it stands for its parts, which have not all ended.
	WaitParts WaitingReason = "parts"
	// WaitPipeline: its stage has nothing to work on yet.
	WaitPipeline WaitingReason = "pipeline"
	// WaitTeam: its team was stopped and decides what follows.
	WaitTeam WaitingReason = "team"
	// WaitKey: another job of its key has not ended.
	WaitKey WaitingReason = "key"
	// WaitApproval: a person has to look at what it has made.
	WaitApproval WaitingReason = "approval"
	// WaitWords: somebody has interrupted it, and it goes on when it is told something.
	WaitWords WaitingReason = "words"
	// WaitPerson: a person has taken it over, and it goes on when they hand it back.
	WaitPerson WaitingReason = "person"
	// WaitRetry: an attempt failed and the next one has its time.
	WaitRetry WaitingReason = "retry"
	// WaitRate: a rate of requests is used up.
	WaitRate WaitingReason = "rate"
	// WaitCostWindow: as much was spent within a cost window as may be.
	WaitCostWindow WaitingReason = "cost_window"
	// WaitBudget: a grant, or the policy's budget, is used up.
	WaitBudget WaitingReason = "budget"
	// WaitUsageLimit: the provider's account has used up what it has until a reset.
	WaitUsageLimit WaitingReason = "usage_limit"
	// WaitCircuit: the circuit breaker of its worker is open.
	WaitCircuit WaitingReason = "circuit"
	// WaitLoad: the host is overloaded.
	WaitLoad WaitingReason = "load"
	// WaitIsolation: what it would use was put out of use.
	WaitIsolation WaitingReason = "isolation"
	// WaitPause: an operator has paused what it would use.
	WaitPause WaitingReason = "pause"
	// WaitCore: no agentcore takes work.
	WaitCore WaitingReason = "core"
	// WaitNode: no node can take it that satisfies what it requires.
	WaitNode WaitingReason = "node"
	// WaitPermit: its permit expired before it could begin, or all permits of its core
	// have lapsed.
	WaitPermit WaitingReason = "permit"
	// WaitCommand: the command that submitted it was stopped, or has to give it its variables again.
	WaitCommand WaitingReason = "command"
	// WaitProgram: it is of type External, and no program has claimed it.
	WaitProgram WaitingReason = "program"
	// WaitScheduler: no scheduler is running, or the one that runs is about to end.
	WaitScheduler WaitingReason = "scheduler"
)

// waitingReasons are all reasons, with the words that follow "waiting for".
var waitingReasons = []struct {
	reason WaitingReason
	words  string
}{
	{WaitTurn, "its turn"}, {WaitTime, "its start time"}, {WaitSlot, "a slot"}, {WaitFolder, "its folder"},
	{WaitDependency, "jobs that it needs"}, {WaitParts, "its parts"}, {WaitPipeline, "its pipeline"}, {WaitTeam, "its team"},
	{WaitKey, "a job of the same key"}, {WaitApproval, "approval"}, {WaitWords, "somebody to go on"}, {WaitPerson, "a person to hand it back"}, {WaitRetry, "a retry"}, {WaitRate, "a rate limit"},
	{WaitCostWindow, "a cost window"}, {WaitBudget, "a budget"}, {WaitUsageLimit, "a usage limit"}, {WaitCircuit, "a circuit breaker"},
	{WaitLoad, "less load"}, {WaitIsolation, "the end of an isolation"}, {WaitPause, "the end of a pause"}, {WaitCore, "a core"},
	{WaitNode, "a node"}, {WaitPermit, "another permit"}, {WaitCommand, "the command that submitted it"}, {WaitProgram, "a program"}, {WaitScheduler, "a scheduler"},
}

// WaitingReasons lists all reasons.
func WaitingReasons() []WaitingReason {
	list := make([]WaitingReason, len(waitingReasons))
	for i, r := range waitingReasons {
		list[i] = r.reason
	}
	return list
}

// Words returns what stands behind "waiting for", e.g. "a slot".
func (r WaitingReason) Words() string {
	for _, known := range waitingReasons {
		if known.reason == r {
			return known.words
		}
	}
	return string(r)
}
