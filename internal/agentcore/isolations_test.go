package agentcore

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/watchdog"
)

// inBubble gives f a guard with its gate, in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, g *guard)) {
	synctest.Test(t, func(t *testing.T) {
		gate := permit.NewGate(permit.Limits{MaxConcurrent: 4, TTL: time.Second})
		still := func() Clock { return Clock{} }
		g := newGuard(gate, still, func(ipc.Escalation) {}, zerolog.Nop())
		gate.SetDefence(g)
		f(t, g)
	})
}

// out reports whether everything is out of use.
func (g *guard) out() bool {
	return g.blocked(permit.Request{Choice: job.Choice{Worker: "codex"}}) != nil
}

// ofWire is what comes out of JSON: without a monotonic clock.
func ofWire(i isolation.Isolation) isolation.Isolation {
	i.Since, i.Until = i.Since.Round(0).UTC(), i.Until.Round(0).UTC()
	return i
}

func global(until time.Time) isolation.Isolation {
	return isolation.Isolation{Scope: isolation.Global, Action: isolation.SafeStop, Message: "test", Since: time.Now(), Until: until}
}

// TestOwnDecisionsStayUntilHeard: what this core has decided stays, for however
// long, until the scheduler's list takes it into account; that list decides.
func TestOwnDecisionsStayUntilHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard) {
		var told []ipc.Escalation
		g.tell = func(x ipc.Escalation) { told = append(told, x) }
		g.observe(time.Now(), watchdog.Ghost{Detail: "pid 7"})
		g.observe(time.Now(), watchdog.Ghost{Detail: "pid 8"})
		if len(told) != 2 || told[0].Seq != 1 || told[1].Seq != 2 {
			t.Fatalf("told %+v", told)
		}
		shorter := ofWire(global(time.Now().Add(time.Minute)))
		for _, list := range []ipc.Isolations{{}, {Heard: 0, Isolations: []isolation.Isolation{shorter}}, {Heard: 0, Version: 7}} {
			g.replace(time.Now(), list)
			time.Sleep(time.Hour)
			if !g.out() {
				t.Fatalf("the list %+v lifted it", list)
			}
		}
		g.replace(time.Now(), ipc.Isolations{Heard: 2, Version: 6})
		if !g.out() {
			t.Error("a list that is older than the last one lifted it")
		}
		g.replace(time.Now(), ipc.Isolations{Heard: 2, Version: 8})
		if g.out() {
			t.Error("the list that takes it into account did not lift it")
		}
	})
}

// TestClocksMayDisagree: neither where the scheduler's wall clock stands, nor
// where this core's stood when it told, makes an isolation longer or shorter.
func TestClocksMayDisagree(t *testing.T) {
	const coolDown = time.Second
	for _, skew := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		inBubble(t, func(t *testing.T, g *guard) {
			at := time.Now().UTC().Add(skew)
			g.replace(time.Now(), ipc.Isolations{At: at, Isolations: []isolation.Isolation{ofWire(global(at.Add(coolDown)))}})
			if time.Sleep(coolDown - 1); !g.out() {
				t.Errorf("listed by a clock that is %v off: lifted too early", skew)
			}
			if time.Sleep(1 * time.Nanosecond); g.out() {
				t.Errorf("listed by a clock that is %v off: not lifted", skew)
			}
			// As the core decides it; its clock is put right before the scheduler's list comes,
			// which was made before it heard.
			g.isolate(time.Now(), isolation.Isolation{Scope: isolation.Global, Action: isolation.SafeStop, Since: at, Until: at.Add(coolDown)})
			g.replace(time.Now(), ipc.Isolations{Version: 1})
			if time.Sleep(coolDown - 1); !g.out() {
				t.Errorf("decided by a clock that is %v off: lifted too early", skew)
			}
			if time.Sleep(1 * time.Nanosecond); g.out() {
				t.Errorf("decided by a clock that is %v off: not lifted", skew)
			}
		})
	}
}

// TestCoolDownsEndByThemselves, and are as long as they were told to be.
func TestCoolDownsEndByThemselves(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard) {
		i := ofWire(global(time.Now().Add(time.Minute)))
		for range 3 { // told again, they get no longer
			g.replace(time.Now(), ipc.Isolations{Isolations: []isolation.Isolation{i}})
			time.Sleep(15 * time.Second)
		}
		time.Sleep(15*time.Second - time.Nanosecond)
		if !g.out() {
			t.Error("lifted before its time")
		}
		time.Sleep(time.Nanosecond)
		if g.out() {
			t.Error("not lifted at its time")
		}
		g.expire(time.Now())
		if left := g.book.List(time.Time{}); len(left) != 0 {
			t.Errorf("%v is left in the book", left)
		}
	})
}

// TestGateAsksTheGuard, which is told of a permit that nobody used when its
// kind is put out of use.
func TestGateAsksTheGuard(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard) {
		request := permit.Request{Job: "a", Attempt: 1, Choice: job.Choice{Worker: "codex"}}
		p, err := g.gate.Request(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		g.isolate(time.Now(), isolation.Isolation{Scope: "worker:codex", Action: isolation.IsolateKind, Message: "test"})
		if p.Context().Err() == nil {
			t.Error("the unused permit was not revoked")
		}
		var refused *permit.Rejection
		if _, err := g.gate.Request(t.Context(), request); !errors.As(err, &refused) || refused.Reason != job.CircuitOpen {
			t.Errorf("got %v, want CIRCUIT_OPEN", err)
		}
		if unused, running := g.gate.Counts(); unused+running != 0 {
			t.Errorf("%d unused and %d running permits are left", unused, running)
		}
	})
}

// TestNoPermitSlipsThrough: what is put out of use while the gate decides is
// out of use for that request too.
func TestNoPermitSlipsThrough(t *testing.T) {
	c := New(Config{In: io.NopCloser(strings.NewReader("")), Out: discard{}, Log: zerolog.Nop()})
	c.life = t.Context()
	released := 0
	p, err := c.grant(permit.Request{Job: "a", Attempt: 1, Choice: job.Choice{Worker: "codex"}, Reserve: func() (func(), error) {
		c.guard.isolate(time.Now(), isolation.Isolation{Scope: "worker:codex", Action: isolation.IsolateKind})
		return func() { released++ }, nil
	}})
	var refused *permit.Rejection
	if !errors.As(err, &refused) || refused.Reason != job.CircuitOpen {
		t.Errorf("got %v and %v, want CIRCUIT_OPEN", p, err)
	}
	if unused, running := c.gate.Counts(); unused+running != 0 || released != 1 {
		t.Errorf("%d unused and %d running permits are left, %d released", unused, running, released)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// TestRefusal: what each decision means for a job with and without another choice.
func TestRefusal(t *testing.T) {
	degrade := watchdog.Decision{Action: watchdog.Degrade, Reason: job.GlobalShed}
	sick := watchdog.Decision{Action: watchdog.Degrade, Reason: job.CircuitOpen}
	isolated := watchdog.Decision{Action: watchdog.Reject, Reason: job.CircuitOpen}
	tests := []struct {
		name              string
		decision          watchdog.Decision
		smaller, degraded bool
		want              permit.Action // "": it runs
	}{
		{"accepted", watchdog.Decision{Action: watchdog.Accept}, true, false, ""},
		{"shed", watchdog.Decision{Action: watchdog.Reject, Reason: job.GlobalShed}, true, false, "reject"},
		{"deferred", watchdog.Decision{Action: watchdog.Defer, Reason: job.QueueStall}, true, false, "defer"},
		{"degraded to another choice", degrade, true, false, "degrade"},
		{"without another choice", degrade, false, false, ""},
		{"it is the other choice", degrade, false, true, ""},
		{"it is the other choice of several", degrade, true, true, ""},
		{"a sick kind with another choice", sick, true, false, "degrade"},
		{"a sick kind as the other choice", sick, true, true, "degrade"},
		{"a sick kind without another choice", sick, false, true, "defer"},
		{"an isolated kind with another choice", isolated, true, false, "degrade"},
		{"an isolated kind without another choice", isolated, false, false, "reject"},
	}
	for _, tt := range tests {
		r := refusal(tt.decision, permit.Request{Smaller: tt.smaller, Degraded: tt.degraded})
		if (r == nil) != (tt.want == "") || r != nil && (r.Action != tt.want || r.Reason != tt.decision.Reason) {
			t.Errorf("%s: %+v, want action %q", tt.name, r, tt.want)
		}
	}
}
