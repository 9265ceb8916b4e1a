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
