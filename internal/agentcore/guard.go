package agentcore

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/watchdog"
	"github.com/agentsched/agentsched/watchdog/sample"
)

// guard says who may begin a run besides the limits: it is the gate's Defence,
// and asks the isolations first, then the staged defence. Signals become
// escalations, which it enforces before it tells of them.
type guard struct {
	log         zerolog.Logger
	gate        *permit.Gate
	defence     *watchdog.Defence
	escalations *watchdog.Escalations
	clock       func() sample.Clock
	tell        func(isolation.Escalation)

	book isolation.Book // changed with mu held

	mu sync.Mutex // guards what follows
	// ours are the isolations that this core decided and that no list of the
	// scheduler had yet.
	ours   map[isolation.Scope]decided
	before sample.Clock // of the last look
}

type decided struct {
	isolation.Isolation
	at time.Time
}

// answerTime is how long the scheduler may take to answer an escalation with a
// list that has it. After that its list counts as it is: an operator may have
// lifted the isolation meanwhile.
const answerTime = 10 * time.Second

func newGuard(gate *permit.Gate, clock func() sample.Clock, tell func(isolation.Escalation), log zerolog.Logger) *guard {
	cfg := watchdog.Default()
	return &guard{
		log: log, gate: gate, clock: clock, tell: tell, before: clock(),
		defence: watchdog.NewDefence(cfg.Defence), escalations: watchdog.NewEscalations(cfg.Escalation),
		ours: map[isolation.Scope]decided{},
	}
}

func (g *guard) configure(cfg watchdog.Config) {
	g.defence.Configure(cfg.Defence)
	g.escalations.Configure(cfg.Escalation)
}

// Admit returns why r may not run now, or nil. It looks at the clock before:
// a deadline must not be judged by one that has just jumped.
func (g *guard) Admit(r permit.Request) *permit.Rejection {
	g.lookAtClock(time.Now())
	if refused := g.blocked(r); refused != nil {
		return refused
	}
	return refusal(g.defence.Admit(watchdog.Request{Kind: r.Choice.Worker, Tenant: r.Tenant, Class: r.Class}), r)
}

// blocked returns the refusal of an isolation, or nil.
func (g *guard) blocked(r permit.Request) *permit.Rejection {
	now := time.Now()
	if i, blocked := g.book.Blocked(r.Choice.Worker, r.Workspace, now); blocked {
		return refusal(watchdog.Refuse(i, now), r)
	}
	return nil
}

// refusal is what a decision means for r. To degrade it takes another choice;
// without one the job runs as it is, unless its kind of worker is out of use.
func refusal(d watchdog.Decision, r permit.Request) *permit.Rejection {
	action := d.Action
	switch {
	case action == watchdog.Accept:
		return nil
	case d.Reason == job.CircuitOpen && r.Smaller:
		action = watchdog.Degrade
	case action != watchdog.Degrade:
	case d.Reason == job.CircuitOpen:
		action = watchdog.Defer
	case r.Degraded || !r.Smaller:
		return nil
	}
	return &permit.Rejection{Reason: d.Reason, RetryAfter: d.RetryAfter, Message: d.Message, Action: permit.Action(action)}
}

// observe takes a signal. What it puts out of use is so before anybody is told.
func (g *guard) observe(now time.Time, s watchdog.Signal) {
	for _, x := range g.escalations.Observe(now, s) {
		g.isolate(now, x.Isolation())
		g.log.Error().Str("scope", string(x.Scope)).Str("cause", string(x.Cause)).Str("action", string(x.Action)).
			Time("until", x.Until).Bool("again", x.Again).Msg(x.Message)
		g.tell(x)
	}
}

func (g *guard) isolate(now time.Time, i isolation.Isolation) {
	g.mu.Lock()
	changed := g.book.Apply(now, i)
	if changed {
		g.ours[i.Scope] = decided{i, now}
	}
	g.mu.Unlock()
	if changed {
		g.withdraw(i)
	}
}

// withdraw revokes the permits that were not used yet and that i touches: no
// run begins there any more. What runs goes on.
func (g *guard) withdraw(i isolation.Isolation) {
	cause := fmt.Errorf("%s is isolated: %s", i.Scope, i.Message)
	g.gate.RevokeUnused(cause, func(p *permit.Permit) bool { return i.Scope.Touches(p.Choice.Worker, p.Workspace) })
}

// replace takes over the scheduler's list of what is out of use.
//
// What this core has decided and the scheduler has not heard of yet stays. A
// time that is known already keeps its monotonic clock, and one that is new
// gets it: a cool-down is as long as it was when it was told, however the wall
// clock jumps.
func (g *guard) replace(now time.Time, list []isolation.Isolation) {
	list = slices.Clone(list)
	g.mu.Lock()
	known := map[isolation.Scope]isolation.Isolation{}
	for _, i := range g.book.List(now) {
		known[i.Scope] = i
	}
	listed := map[isolation.Scope]bool{}
	for n := range list {
		i := &list[n]
		listed[i.Scope] = true
		switch mine, unanswered := g.ours[i.Scope]; {
		case unanswered && lasts(mine.Isolation, *i) && now.Sub(mine.at) < answerTime:
			*i = mine.Isolation
		case i.Until.IsZero():
			delete(g.ours, i.Scope)
		case known[i.Scope].Until.Equal(i.Until):
			i.Until = known[i.Scope].Until
			delete(g.ours, i.Scope)
		default:
			i.Until = now.Add(i.Until.Sub(now))
			delete(g.ours, i.Scope)
		}
	}
	for scope, mine := range g.ours {
		if !listed[scope] && now.Sub(mine.at) < answerTime {
			list = append(list, mine.Isolation)
		}
	}
	g.book.Replace(list)
	g.mu.Unlock()
	for _, i := range list {
		g.withdraw(i)
	}
}

// lasts reports whether a ends after b.
func lasts(a, b isolation.Isolation) bool {
	return !b.Until.IsZero() && (a.Until.IsZero() || a.Until.After(b.Until))
}

// expire lets end what has cooled down.
func (g *guard) expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for scope, mine := range g.ours {
		if now.Sub(mine.at) >= answerTime {
			delete(g.ours, scope)
		}
	}
	for _, i := range g.book.Expire(now) {
		g.log.Info().Str("scope", string(i.Scope)).Str("cause", string(i.Cause)).Msg("isolation has cooled down")
	}
}

// lookAtClock notices that the wall clock jumped since the last look.
func (g *guard) lookAtClock(now time.Time) {
	g.mu.Lock()
	c := g.clock()
	jump := c.JumpSince(g.before)
	g.before = c
	g.mu.Unlock()
	g.observe(now, watchdog.ClockJump{By: jump})
}
