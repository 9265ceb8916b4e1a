package agentcore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestPermitsLapse: a scheduler that asks for no heartbeat loses its runs, and
// nothing else. The attempt does not count.
func TestPermitsLapse(t *testing.T) {
	c := start(t)
	var hello ipc.HelloResult
	c.must(ipc.MethodHello, ipc.Hello{Protocol: ipc.ProtocolVersion, Instance: c.instance, StateDir: c.state}, &hello)
	if !hello.PermitsLapse {
		t.Errorf("the core does not say that permits lapse: %+v", hello)
	}
	valid := func(d time.Duration) {
		c.configure(func(s *ipc.Configure) { s.PermitValidity = job.Duration(d) })
	}
	once := func(s *job.Spec) { s.Limits.MaxAttempts = 1 }
	lasting := spec("trap 'exit 0' INT; sleep 300 & echo up; wait", once)
	valid(time.Hour)
	c.run("a", lasting)
	c.await(saying("up"))
	valid(500 * time.Millisecond)
	o := c.outcome()
	if o.State != job.RunCancelled || o.Class != job.CancelledClass || !strings.Contains(o.Message, "the permit lapsed") {
		t.Fatalf("the run of a scheduler that is not heard of: %+v", o)
	}
	c.nothingLeft()
	if a := c.request("a", 2, lasting); a.Rejection == nil || a.Rejection.Reason != job.RateLimited || a.Rejection.Waiting != job.WaitPermit {
		t.Fatalf("a permit before the scheduler is heard of: %+v", a)
	}
	c.must(ipc.MethodHeartbeat, ipc.Heartbeat{Seq: 1}, nil)
	if a := c.request("a", 2, lasting); a.Rejection == nil {
		t.Fatalf("a permit after a heartbeat that renews none: %+v", a)
	}
	c.must(ipc.MethodHeartbeat, ipc.Heartbeat{Seq: 1, Renew: true, Sent: job.Duration(proc.Uptime() - 500*time.Millisecond)}, nil)
	if a := c.request("a", 2, lasting); a.Rejection == nil {
		t.Fatalf("a permit after a heartbeat that has waited for as long as it renews permits: %+v", a)
	}

	valid(time.Hour)
	c.permit("a", 2, lasting) // its only attempt was not counted
	valid(500 * time.Millisecond)
	for seq := int64(2); ; seq++ { // it may lapse between the two calls
		c.must(ipc.MethodHeartbeat, ipc.Heartbeat{Seq: seq, Renew: true}, nil)
		if a := c.request("b", 1, lasting); a.Permit != nil {
			break
		}
	}

	// A node knows that its permits have lapsed, whatever they were valid for.
	valid(time.Hour)
	c.run("d", lasting)
	c.await(saying("up"))
	c.must(ipc.MethodHeartbeat, ipc.Heartbeat{Seq: 1000, Lapse: true}, nil)
	if o := c.outcome(); o.State != job.RunCancelled || !strings.Contains(o.Message, "out of the scheduler's reach") {
		t.Fatalf("the run of a node that was cut off: %+v", o)
	}
	if a := c.request("e", 1, lasting); a.Rejection == nil {
		t.Fatalf("a permit of a node that was cut off: %+v", a)
	}

	// Settings are said by a scheduler that works; without a validity nothing lapses.
	c.configure(nil)
	c.run("c", spec("sleep 1; echo done", once))
	if o := c.outcome(); !o.Succeeded() {
		t.Errorf("a run without a validity: %+v", o)
	}
	c.end()
}

// TestLostAfterItsEnd: a scheduler that says that an attempt is lost is believed, also if its run has ended by itself.
func TestLostAfterItsEnd(t *testing.T) {
	c := start(t)
	defer c.end()
	c.hello()
	c.configure(nil)
	fails := spec("exit 1", func(s *job.Spec) { s.Limits.MaxAttempts = 1 })
	c.run("a", fails)
	if o := c.outcome(); o.State != job.RunFailed {
		t.Fatalf("%+v", o)
	}
	lost := func(attempt int, lost bool) {
		c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: attempt, Reason: "its claim has ended", Lost: lost}, nil)
	}
	refused := func(why string) {
		t.Helper()
		if a := c.request("a", 2, fails); a.Rejection == nil || a.Rejection.Reason != job.LimitExceeded {
			t.Errorf("a second attempt %s: %+v", why, a)
		}
	}
	refused("of one")
	lost(1, false)
	refused("after the first was cancelled when it had ended")
	lost(2, true)
	refused("after another one was lost")
	lost(1, true)
	lost(1, true)
	c.permit("a", 2, fails)
}
