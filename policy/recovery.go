package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// Action is what is done about a failed attempt. Every action but the last has
// a further attempt, for as long as the job has attempts left.
type Action string

// The actions, from the one that trusts most in what there was to the one that
// leaves all to a person.
const (
	// DoRestart: the same worker goes on with the agent's own session, after the backoff.
	DoRestart Action = "restart"
	// DoRetry: the same worker begins anew, after the backoff.
	DoRetry Action = "retry"
	// DoFeedback: the same, told why this attempt was not good enough.
	DoFeedback Action = "feedback"
	// DoFallback: the job's next worker, at once; without one, as DoRetry.
	DoFallback Action = "fallback"
	// DoFallbackOrEscalate: the job's next worker, at once; without one, as DoEscalate.
	DoFallbackOrEscalate Action = "fallback_or_escalate"
	// DoEscalate: a person decides. The job is a dead letter at once.
	DoEscalate Action = "escalate"
)

// Actions lists every action, the least strict one first.
func Actions() []Action {
	return []Action{DoRestart, DoRetry, DoFeedback, DoFallback, DoFallbackOrEscalate, DoEscalate}
}

// FieldTag lists every action.
func (Action) FieldTag() reflect.StructTag { return fields.Enum(Actions()...) }

func (a Action) rank() int { return slices.Index(Actions(), a) }

// fallsBack reports whether the action goes on with the job's next worker.
func (a Action) fallsBack() bool { return a == DoFallback || a == DoFallbackOrEscalate }

// ends reports whether the action gives a job up that has no next worker.
func (a Action) ends() bool { return a == DoFallbackOrEscalate || a == DoEscalate }

// Rule says what is done about failures of one class.
type Rule struct {
	Action Action
	// Resume lets DoRetry and DoFeedback go on with the agent's own session, too.
	Resume bool
	// Afresh gives a job that would be given up one more chance, if this attempt
	// had resumed a session and got nowhere: the session may be what fails.
	Afresh bool
	// AtOnce skips the backoff.
	AtOnce bool
	// Floor is the least delay, doubled with each attempt that counts, where
	// the provider named no time to come back at: what a second does not heal.
	Floor time.Duration
}

// resumes reports whether the next attempt may go on with the session of this one.
func (r Rule) resumes() bool {
	return r.Action == DoRestart || r.Resume && (r.Action == DoRetry || r.Action == DoFeedback)
}

// Rules is what is done about each class.
type Rules map[job.ErrorClass]Rule

// DefaultRules is what is done about each class unless a table says otherwise.
func DefaultRules() Rules {
	return Rules{
		job.RateLimit:         {Action: DoRetry, Resume: true, Floor: 15 * time.Second},
		job.Server:            {Action: DoRetry, Resume: true},
		job.Network:           {Action: DoRetry, Resume: true},
		job.Timeout:           {Action: DoRetry, Resume: true},
		job.Stalled:           {Action: DoRetry, Resume: true},
		job.Crash:             {Action: DoRestart},
		job.InvalidOutput:     {Action: DoFeedback, Resume: true},
		job.ResourceExhausted: {Action: DoFallback},
		job.ConflictClass:     {Action: DoEscalate}, // the same patches do not fit the next time either
		job.Auth:              {Action: DoFallbackOrEscalate, Afresh: true},
		job.VerifyFailed:      {Action: DoFeedback, Resume: true},
		job.HumanRejected:     {Action: DoFeedback, Resume: true, AtOnce: true},
		job.Budget:            {Action: DoEscalate, Afresh: true},
		job.SandboxClass:      {Action: DoEscalate, Afresh: true}, // what its model was told is in the session
		job.CancelledClass:    {Action: DoEscalate, Afresh: true},
		job.Config:            {Action: DoFallbackOrEscalate, Afresh: true},
		job.Unknown:           {Action: DoRetry, Resume: true},
	}
}

// of returns the rule for a class. What no table knows is left to a person.
func (t Rules) of(c job.ErrorClass) Rule {
	if r, ok := t[c]; ok {
		return r
	}
	return Rule{Action: DoEscalate, Afresh: true}
}

// NotLess returns nil if r, in the place of o, never does less, and otherwise
// what is wrong. Of two decisions about the same end of an attempt, made with
// the same draw, the first does less if its level is lower:
//
//	1  another attempt of the same worker with the agent's session
//	2  another attempt of the same worker, begun anew
//	3  an attempt of the next worker
//	4  a dead letter: a person decides
//
// or if both are of level 1, or both of level 2, and the first is runnable
// earlier. What the next attempt is told does not count.
func (r Rule) NotLess(o Rule) error {
	lenient := Actions()[max(o.Action.rank(), 0):]
	switch {
	case r.Action.rank() < o.Action.rank():
		return fmt.Errorf("%s is less strict than %s; want %s", r.Action, o.Action, orList(lenient))
	case r.resumes() && !o.resumes():
		return fmt.Errorf("%s with resume is less strict than %s without; leave resume out", r.Action, o.Action)
	case r.keepsAfresh() && !r.mayBeAfresh(o):
		return fmt.Errorf("%s with afresh is less strict than %s; leave afresh out", r.Action, o.Action)
	case r.triesAgain() && o.triesAgain() && r.AtOnce && !o.AtOnce:
		return fmt.Errorf("%s at_once is less strict than %s after a backoff; leave at_once out", r.Action, o.Action)
	case r.triesAgain() && o.triesAgain() && r.Floor < o.Floor:
		return fmt.Errorf("%s with floor %s is less strict than %s with floor %s", r.Action, r.Floor, o.Action, o.Floor)
	}
	return nil
}

// triesAgain reports whether the rule ever has another attempt of the same worker.
func (r Rule) triesAgain() bool { return !r.Action.ends() || r.Afresh }

// keepsAfresh reports whether Afresh means anything in the rule.
func (r Rule) keepsAfresh() bool { return r.Action.ends() && r.Afresh }

// mayBeAfresh reports whether the chance that r gives is no less than what o
// does: o has the same, or would have begun anew with the same worker.
func (r Rule) mayBeAfresh(o Rule) bool {
	switch {
	case o.Action == r.Action:
		return o.Afresh
	case o.Action == DoFallback:
		return r.Action == DoFallbackOrEscalate // which goes to the next worker first, too
	}
	return !o.Action.fallsBack()
}

func orList(list []Action) string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = string(a)
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
