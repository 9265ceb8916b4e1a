package agentcore

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/watchdog"
)

// guard says who may begin a run besides the limits: it is the gate's Defence,
// and asks the isolations first, then the staged defence. Signals become
// escalations, which it enforces before it tells of them.
type guard struct {
	log         zerolog.Logger
	gate        *permit.Gate
	defence     *watchdog.Defence
	escalations *watchdog.Escalations
	clock       func() Clock
	tell        func(ipc.Escalation)

	telling sync.Mutex     // escalations are told in the order of their numbers
	book    isolation.Book // changed with mu held

	mu sync.Mutex // guards what follows
	// ours are the isolations that this core decided and that the scheduler's list
	// does not take into account yet.
	ours   map[isolation.Scope]decided
	told   uint64 // the number of the last escalation
	listed uint64 // the version of the scheduler's list
	before Clock  // of the last look
}

// decided is an isolation with the number of the escalation that tells of it.
type decided struct {
	isolation.Isolation
	seq uint64
}

func newGuard(gate *permit.Gate, clock func() Clock, tell func(ipc.Escalation), log zerolog.Logger) *guard {
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
	if i, blocked := g.book.Blocked(isolation.Run{Kind: r.Choice.Worker, Tenant: r.Tenant, Workspace: r.Workspace}, now); blocked {
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

// observe takes a signal. An isolation that follows is enforced before it is reported.
func (g *guard) observe(now time.Time, s watchdog.Signal) {
	for _, x := range g.escalations.Observe(now, s) {
		g.escalate(now, x)
	}
}

func (g *guard) escalate(now time.Time, x isolation.Escalation) {
	g.telling.Lock()
	defer g.telling.Unlock()
	seq := g.isolate(now, x.Isolation())
	g.log.Error().Str("scope", string(x.Scope)).Str("cause", string(x.Cause)).Str("action", string(x.Action)).
		Time("until", x.Until).Bool("again", x.Again).Msg(x.Message)
	g.tell(ipc.Escalation{Escalation: x, Seq: seq})
}

// isolate puts i out of use and returns the number of the escalation that is to
// tell of it.
func (g *guard) isolate(now time.Time, i isolation.Isolation) uint64 {
	g.mu.Lock()
	g.told++
	seq := g.told
	changed := g.book.Apply(now, i)
	if changed {
		for _, kept := range g.book.List(now) {
			if kept.Scope == i.Scope {
				g.ours[i.Scope] = decided{kept, seq}
			}
		}
	}
	g.mu.Unlock()
	if changed {
		g.withdraw(i)
	}
	return seq
}

// withdraw revokes the permits that were not used yet and that i touches: no
// run begins there any more. What runs goes on.
func (g *guard) withdraw(i isolation.Isolation) {
	cause := fmt.Errorf("%s is isolated: %s", i.Scope, i.Message)
	g.gate.RevokeUnused(cause, func(p *permit.Permit) bool {
		return i.Scope.Touches(isolation.Run{Kind: p.Choice.Worker, Tenant: p.Tenant, Workspace: p.Workspace})
	})
}

// replace takes over the scheduler's list of what is out of use, unless it has a
// later one. What this core has decided and the list does not take into account
// stays. The ends are put on this process's monotonic clock: a cool-down lasts as
// long as the scheduler said, wherever the wall clocks of both stand.
func (g *guard) replace(now time.Time, l ipc.Isolations) {
	g.mu.Lock()
	if l.Version < g.listed {
		g.mu.Unlock()
		return
	}
	g.listed = l.Version
	if l.At.IsZero() {
		l.At = now
	}
	list := slices.Clone(l.Isolations)
	for n := range list {
		if i := &list[n]; !i.Until.IsZero() {
			i.Until = now.Add(i.Until.Sub(l.At))
		}
	}
	for scope, mine := range g.ours {
		if mine.seq <= l.Heard {
			delete(g.ours, scope)
		} else {
			list = append(list, mine.Isolation)
		}
	}
	g.book.Replace(list)
	g.mu.Unlock()
	for _, i := range g.book.List(now) {
		g.withdraw(i)
	}
}

// expire lets end what has cooled down.
func (g *guard) expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.book.Expire(now) {
		if !g.ours[i.Scope].Until.After(now) {
			delete(g.ours, i.Scope)
		}
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
