package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
)

// escalated takes an escalation of a core.
func (s *Isolations) escalated(c *supervisor.Core, x ipc.Escalation) {
	if c != nil && c.Node() != "" {
		x.Escalation = s.bounded(c.Node(), x.OnNode(c.Node()))
	}
	s.escalate(c, x.Escalation)
	s.mu.Lock()
	if a := s.cores[c]; a != nil {
		a.heard = x.Seq
	}
	s.mu.Unlock()
	s.tellCores() // the core waits for a list that takes it into account
}

// escalate takes an escalation of the core, nil for our own: what it isolates is
// kept, told to every core, and everybody who watches hears of it. It must not
// wait for a core.
func (s *Isolations) escalate(c *supervisor.Core, x isolation.Escalation) {
	if s.book.Apply(time.Now(), x.Isolation()) {
		s.change()
	}
	if x.Again || s.toldBy(c, x) {
		return
	}
	s.log.Error().Str("scope", string(x.Scope)).Str("cause", string(x.Cause)).Str("action", string(x.Action)).Time("until", x.Until).Msg("on_escalation: " + x.Message)
	s.mu.Lock()
	if s.escalations = append(s.escalations, x); len(s.escalations) > maxEscalations {
		s.escalations = s.escalations[1:]
	}
	s.mu.Unlock()
	s.feed.publish(api.Update{Kind: api.UpdateEscalation, Time: now(), Text: escalationText(x), Escalation: &api.Escalation{Scope: string(x.Scope), Cause: string(x.Cause), Message: x.Message, Action: string(x.Action), Time: x.Time, Until: x.Until, Again: x.Again}})
	if s.onEscalation != nil {
		s.onEscalation(x)
	}
	if x.Action == isolation.SafeStop {
		s.safeStop("safe stop: " + x.Message)
	}
}

// maxEscalations is how many of the latest escalations are remembered.
const maxEscalations = 100

// Escalations returns the latest that this scheduler has told of, at most 100,
// the newest last.
func (s *Isolations) Escalations() []isolation.Escalation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.escalations)
}

// sameFact is how long after one core another may tell of the same: a full disk
// or a jump of the clock is seen by all of them.
const sameFact = 10 * time.Second

// toldBy reports whether another core has just told of what this one tells.
func (s *Isolations) toldBy(c *supervisor.Core, x isolation.Escalation) bool {
	if c == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fact{x.Scope, x.Cause}
	last, known := s.facts[key]
	at := time.Now() // with its monotonic reading: one of these facts is a jump of the wall clock
	if known && last.by != c && at.Sub(last.at) < sameFact {
		return true
	}
	maps.DeleteFunc(s.facts, func(_ fact, t teller) bool { return at.Sub(t.at) >= sameFact })
	s.facts[key] = teller{c, at}
	return false
}

type fact struct {
	isolation.Scope
	isolation.Cause
}

type teller struct {
	by *supervisor.Core
	at time.Time
}

func escalationText(x isolation.Escalation) string {
	text := string(x.Scope) + ": " + x.Message
	switch {
	case x.Action == isolation.Notify:
		return text
	case x.Until.IsZero():
		return text + fmt.Sprintf("; isolated until `scheduler resume %s`", x.Scope)
	}
	return text + "; isolated until " + x.Until.Local().Format("15:04:05")
}
