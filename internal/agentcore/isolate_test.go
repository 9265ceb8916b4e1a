package agentcore_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

// list isolates the scopes until an operator lifts them.
func list(scopes ...isolation.Scope) []isolation.Isolation {
	all := []isolation.Isolation{}
	for _, s := range scopes {
		all = append(all, isolation.Isolation{Scope: s, Message: "by the test", Action: isolation.SafeStop, Since: time.Now().UTC()})
	}
	return all
}

// isolate tells the list of a scheduler that has heard everything.
func (c *client) isolate(list []isolation.Isolation) {
	c.t.Helper()
	c.must(ipc.MethodIsolate, ipc.Isolations{Isolations: list, Heard: math.MaxUint64}, nil)
}

// escalation returns the next one, which must be of the cause.
func (c *client) escalation(want isolation.Cause) ipc.Escalation {
	c.t.Helper()
	select {
	case x := <-c.escalated:
		if x.Cause != want || x.Message == "" {
			c.t.Fatalf("escalation %+v, want one for %s", x, want)
		}
		return x
	case <-testrun.After(c.t):
		c.t.Fatalf("nobody was told of %s", want)
		panic("unreachable")
	}
}

// TestIsolationsAreEnforced from the first configure on, and until the
// scheduler lifts them.
func TestIsolationsAreEnforced(t *testing.T) {
	dir := t.TempDir()
	in := func(r *ipc.PermitRequest) {
		r.Workspace = job.Workspace{Path: dir + "/./", Isolation: job.Copy}
	}
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) { s.Isolations.Isolations = list("worker:coder") })
	if r := c.refused("the kind", job.CircuitOpen, nil); !strings.Contains(r.Message, "worker:coder") || r.Action != ipc.ActionReject {
		t.Errorf("rejection %+v", r)
	}
	if r := c.refused("the kind of a job with another choice", job.CircuitOpen, func(r *ipc.PermitRequest) { r.Smaller = true }); r.Action != ipc.ActionDegrade {
		t.Errorf("rejection %+v, want to degrade", r)
	}
	other := func(r *ipc.PermitRequest) { r.Choice.Worker = "shell" }
	c.granted("another kind", other)

	c.isolate(list(isolation.WorkspaceScope(dir)))
	c.refused("the workspace", job.WorkspaceBusy, in)
	c.granted("elsewhere", nil)
	c.isolate(list(isolation.Global))
	if r := c.refused("anything", job.FatalMode, other); r.Action != ipc.ActionReject {
		t.Errorf("rejection %+v", r)
	}
	c.isolate(nil)
	c.granted("anything after it was lifted", in)

	soon := list(isolation.Global)
	soon[0].Until = time.Now().Add(300 * time.Millisecond).UTC()
	c.isolate(soon)
	// It ends by itself, and no earlier.
	for refused := true; refused; {
		refused = c.ask(nil).Rejection != nil
		if !refused && time.Now().Before(soon[0].Until) {
			t.Error("granted before the end of the cool-down")
		}
	}
	c.end()
}

// TestIsolationRevokesUnusedPermits: no run begins with a permit from before;
// what runs goes on.
func TestIsolationRevokesUnusedPermits(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("running", spec("echo up; sleep 0.2; echo done", nil))
	c.await(saying("up"))
	touched := c.permit("touched", 1, spec("true", nil))
	other := c.ask(nil)
	c.isolate(list("worker:shell"))
	c.wantCode(ipc.CodePermitUnknown, ipc.MethodSubmitJob, ipc.SubmitJob{Permit: touched.ID, Job: "touched", Attempt: 1, Choice: shellChoice, Spec: spec("true", nil)})
	var h ipc.HeartbeatResult
	c.must(ipc.MethodHeartbeat, ipc.Heartbeat{}, &h)
	if other.Permit == nil || h.Permits != 1 {
		t.Errorf("%d permits are unused, want that of the other kind", h.Permits)
	}
	if o := c.outcome(); !o.Succeeded() {
		t.Errorf("what ran when its kind was isolated: %+v", o)
	}
	c.end()
}

// TestCrashesIsolateTheirKind if they are of several tenants, and the scheduler's
// older list does not lift that before it has heard of it.
func TestCrashesIsolateTheirKind(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Watchdog = watching(func(w *watchdog.Config) { w.Escalation.WorkerCrashes.Count = 2 })
		s.Breaker = []byte(`{"min_requests": 1000}`)
	})
	parrots := func(r *ipc.PermitRequest) { r.Choice.Worker = "parrot" }
	of := func(tenant job.Tenant) func(*job.Spec) { return func(s *job.Spec) { s.Tenant = tenant } }
	crash := func(id job.ID, tenant job.Tenant) {
		c.runAs(id, "parrot", spec("exit 1", of(tenant)))
		if o := c.outcome(); o.Class != job.Crash {
			t.Errorf("outcome %+v", o)
		}
	}
	crash("1", "ann")
	// Neither of these is a crash of the worker's own.
	c.runAs("2", "parrot", spec("sleep 300", nil))
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "2", Attempt: 1, Class: job.Crash, Reason: "as if it had crashed"}, nil)
	c.outcome()
	c.runAs("3", "parrot", spec("sleep 300", nil))
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "3", Attempt: 1, Reason: "enough"}, nil)
	c.outcome()
	c.granted("after one crash", parrots)
	crash("4", "bob")
	x := c.escalation(isolation.CauseWorkerCrashes)
	if x.Scope != "worker:parrot" || x.Action != isolation.IsolateKind || !strings.Contains(x.Message, "2 times") || !x.Until.After(x.Time) {
		t.Errorf("escalation %+v", x)
	}
	c.refused("after two crashes", job.CircuitOpen, parrots)
	c.granted("another kind", nil)

	c.must(ipc.MethodIsolate, ipc.Isolations{Heard: x.Seq - 1}, nil) // from before it heard
	c.refused("in spite of an older list", job.CircuitOpen, parrots)
	c.isolate([]isolation.Isolation{x.Isolation()})
	c.refused("after the answer", job.CircuitOpen, parrots)
	c.isolate(nil)
	c.granted("after an operator lifted it", parrots)

	// Of one tenant they isolate the kind for that tenant alone.
	crash("5", "eve")
	crash("6", "eve")
	if x := c.escalation(isolation.CauseWorkerCrashes); x.Scope != "worker:parrot@eve" || x.Action != isolation.IsolateKind {
		t.Errorf("escalation %+v", x)
	}
	c.granted("another tenant", parrots)
	c.refused("the tenant whose jobs crash", job.CircuitOpen, func(r *ipc.PermitRequest) { r.Choice.Worker, r.Tenant = "parrot", "eve" })
	c.granted("the tenant with another kind", func(r *ipc.PermitRequest) { r.Tenant = "eve" })
	c.end()
}

// TestCrashingScripts isolate nothing and open no breaker: what a script does is the
// job's doing, not the shell's.
func TestCrashingScripts(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Watchdog = watching(func(w *watchdog.Config) { w.Escalation.WorkerCrashes.Count = 1 })
		s.Breaker = []byte(`{"min_requests": 1}`)
	})
	for _, id := range []job.ID{"1", "2", "3"} {
		c.runAs(id, "shell", spec("kill -9 $$", nil))
		if o := c.outcome(); o.Class != job.Crash {
			t.Errorf("outcome %+v", o)
		}
	}
	c.granted("after three crashes", nil)
	c.end()
}

// TestLatestWinsLocksTheWorkspace that too many newer jobs took over.
func TestLatestWinsLocksTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Watchdog = watching(func(w *watchdog.Config) { w.Escalation.LatestWins.Count = 3 })
	})
	report := func(workspaces ...string) {
		c.must(ipc.MethodReportQueueMetrics, ipc.QueueMetrics{LatestWins: workspaces}, nil)
	}
	report(dir, "/elsewhere", "")
	report(dir)
	in := func(r *ipc.PermitRequest) { r.Workspace = job.Workspace{Path: dir, Isolation: job.Worktree} }
	c.granted("after two", in)
	report(dir)
	if x := c.escalation(isolation.CauseLatestWins); x.Action != isolation.LockWorkspace || !strings.Contains(x.Message, "3 runs") {
		t.Errorf("escalation %+v", x)
	}
	c.refused("after three", job.WorkspaceBusy, in)
	c.granted("elsewhere", nil)
	c.end()
}
