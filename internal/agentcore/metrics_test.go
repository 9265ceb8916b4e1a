package agentcore_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

// host is what a core sees through its probes, as a test wants it.
type host struct {
	tick chan time.Time
	now  time.Time // of the next tick

	rss, free atomic.Int64 // bytes
	wall      atomic.Int64 // by how much the wall clock is ahead, nanoseconds
	cpu       atomic.Int64
}

// newHost is well: little memory is used and half the disk is free.
func newHost() *host {
	h := &host{tick: make(chan time.Time), now: time.Now()}
	h.rss.Store(50 << 20)
	h.free.Store(50 << 30)
	return h
}

func (h *host) probes(cfg *agentcore.Config) {
	origin := time.Now()
	cfg.Probes = agentcore.Probes{
		Tick: h.tick,
		Use: func() (watchdog.CoreUse, error) {
			return watchdog.CoreUse{RSSBytes: h.rss.Load(), CPU: time.Duration(h.cpu.Add(int64(time.Millisecond))), OpenFiles: 10, Goroutines: 20}, nil
		},
		Disk: func(path string) (watchdog.DiskSpace, error) {
			return watchdog.DiskSpace{Path: path, FreeBytes: h.free.Load(), TotalBytes: 100 << 30}, nil
		},
		Clock: func() agentcore.Clock {
			c := agentcore.ReadClock(origin)
			c.Wall = c.Wall.Add(time.Duration(h.wall.Load()))
			return c
		},
	}
}

// look lets the core look now, by the clock that runs are measured by.
func (h *host) look() {
	h.now = time.Now()
	h.tick <- h.now
}

// pass lets the core look d after the last look. The one before has ended when
// it returns.
func (h *host) pass(d time.Duration) {
	h.now = h.now.Add(d)
	h.tick <- h.now
}

// told returns the next metrics that the core tells.
func (c *client) told() (ipc.Metrics, watchdog.Snapshot) {
	c.t.Helper()
	select {
	case m := <-c.metrics:
		var s watchdog.Snapshot
		if err := json.Unmarshal(m.Metrics, &s); err != nil {
			c.t.Fatalf("metrics %s: %v", m.Metrics, err)
		}
		return m, s
	case <-testrun.After(c.t):
		c.t.Fatal("no metrics came")
		panic("unreachable")
	}
}

func TestMetricsAreTold(t *testing.T) {
	h := newHost()
	c := start(t, h.probes)
	h.pass(0) // before hello there is nobody to tell
	c.hello()
	c.configure(nil)
	h.pass(time.Second)
	if m, s := c.told(); m.Stage != "normal" || m.Concurrency != 0 || s.Inflight != 0 || s.RSS == nil || *s.RSS != 50<<20 || s.CPU == nil || s.OpenFiles == nil {
		t.Errorf("told %+v with %+v", m, s)
	}
	for range 10 { // nothing changes but what always does
		h.rss.Add(1 << 20)
		h.pass(time.Second)
	}
	if _, s := c.told(); !s.Time.Equal(h.now) {
		t.Errorf("told at %s, want only at %s", s.Time, h.now)
	}

	c.must(ipc.MethodReportQueueMetrics, ipc.QueueMetrics{HeartbeatMS: []int64{3, 5}}, nil)
	dir := job.Workspace{Path: t.TempDir(), Isolation: job.Direct}
	p := c.permit("a", 1, spec("echo up; sleep 300", func(s *job.Spec) { s.Workspace = dir }))
	c.must(ipc.MethodSubmitJob, ipc.SubmitJob{
		Permit: p.ID, Job: "a", Attempt: 1, Choice: shellChoice, Spec: spec("echo up; sleep 300", func(s *job.Spec) { s.Workspace = dir }),
		QueueLagMS: 7, LockWaitMS: 2,
	}, nil)
	c.await(saying("up"))
	h.pass(time.Second)
	if _, s := c.told(); s.Inflight != 1 || s.QueueLag.Max != 7 || s.LockWait.Max != 2 || s.Heartbeat.Count != 2 || s.Heartbeat.Max != 5 || s.Kinds["shell"].Inflight != 1 {
		t.Errorf("while one runs: %+v", s)
	}
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: 1, Class: job.Timeout, Reason: "too long"}, nil)
	o := c.outcome()
	h.pass(time.Second)
	if _, s := c.told(); s.Inflight != 0 || s.Timeouts.Count != 1 || s.Timeouts.Of != 1 || s.CancelLatency.Max != o.StopMillis || o.StopMillis == 0 {
		t.Errorf("after a stop that took %d ms: %+v", o.StopMillis, s)
	}
	var beat ipc.HeartbeatResult
	c.must(ipc.MethodHeartbeat, ipc.Heartbeat{Seq: 1}, &beat)
	if beat.RSSBytes != h.rss.Load() || beat.CPUMS <= 0 || beat.Goroutines == 0 {
		t.Errorf("heartbeat %+v", beat)
	}
	c.end()
}

// TestSelfIsSampled uses the real probes, as the program does.
func TestSelfIsSampled(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	if _, s := c.told(); s.Goroutines == nil || *s.Goroutines == 0 {
		t.Errorf("metrics %+v", s)
	}
	c.end()
}

// TestDefenceClimbs lets the core's memory grow until all is escalated, and
// asks at each stage.
func TestDefenceClimbs(t *testing.T) {
	h := newHost()
	c := start(t, h.probes)
	c.hello()
	c.configure(func(s *ipc.Configure) { s.PermitTTL = job.Duration(time.Minute) })
	of := func(class job.Class, smaller bool) func(*ipc.PermitRequest) {
		return func(r *ipc.PermitRequest) { r.Class, r.Smaller = class, smaller }
	}
	at := func(stage string, concurrency int) {
		t.Helper()
		if m, _ := c.told(); m.Stage != stage || m.Concurrency != concurrency || (m.Evidence == "") != (stage == "normal") {
			t.Errorf("told %+v, want stage %s", m, stage)
		}
	}
	reject := func(what string, action ipc.Action, change func(*ipc.PermitRequest)) {
		t.Helper()
		if r := c.refused(what, job.GlobalShed, change); r.Action != action {
			t.Errorf("%s: told to %q, want %s: %s", what, r.Action, action, r.Message)
		}
	}
	h.pass(time.Second)
	at("normal", 0)
	c.granted("batch work at normal", of(job.Batch, true))

	h.rss.Store(3 << 30)
	h.pass(time.Second)
	at("shed", 0)
	reject("batch work at shed", ipc.ActionReject, of(job.Batch, true))

	h.pass(15 * time.Second)
	at("throttle", 2) // of 4
	reject("standard work with another choice", ipc.ActionDegrade, of("", true))
	c.granted("the other choice", func(r *ipc.PermitRequest) { r.Smaller, r.Degraded = true, true })
	reject("a third run", ipc.ActionDefer, of(job.Interactive, false))

	h.pass(30 * time.Second)
	at("open_breaker", 2)
	h.pass(time.Minute)
	at("escalate", 2)
	if x := c.escalation(isolation.CauseOverload); x.Action != isolation.Notify || !strings.Contains(x.Message, "core_rss_bytes is 3221225472") {
		t.Errorf("escalation %+v", x)
	}
	reject("standard work at escalate", ipc.ActionDefer, of(job.Standard, false))

	h.rss.Store(50 << 20)
	for _, stage := range []string{"open_breaker", "throttle"} {
		h.pass(5 * time.Minute)
		at(stage, 2)
	}
	for _, stage := range []string{"shed", "normal"} {
		h.pass(5 * time.Minute)
		at(stage, 0)
	}
	c.granted("batch work", of(job.Batch, false))
	c.granted("as many as are configured", of(job.Batch, false))
	c.end()
}

// TestDefenceOpensTheBreaker of the kind that keeps timing out, long before it
// would open by itself.
func TestDefenceOpensTheBreaker(t *testing.T) {
	h := newHost()
	c := start(t, h.probes)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Breaker = []byte(`{"min_requests": 1000}`)
		s.Watchdog = watching(func(w *watchdog.Config) {
			w.Defence.MinRuns = 2
			short := job.Duration(time.Millisecond)
			w.Defence.Dwell = watchdog.Dwell{Normal: short, Shed: short, Throttle: short, OpenBreaker: job.Duration(time.Hour), Escalate: short}
		})
	})
	late := func(id job.ID) {
		c.runAs(id, "parrot", spec("sleep 300", func(s *job.Spec) { s.Limits.Timeout = job.Duration(500 * time.Millisecond) }))
		if o := c.outcome(); o.Class != job.Timeout {
			t.Fatalf("outcome %+v, want a timeout", o)
		}
	}
	late("1")
	late("2")
	// Each further stage wants a run that speaks for it since the last was entered.
	for _, id := range []job.ID{"3", "4"} {
		h.look()
		h.look() // the one before has ended then
		late(id)
	}
	h.look()
	select {
	case told := <-c.circuits:
		if told.Changed.Worker != "parrot" || told.Changed.State != "open" || !strings.Contains(told.Changed.Cause, "4 of the last 4 runs") {
			t.Errorf("told %+v", told.Changed)
		}
	case <-testrun.After(c.t):
		t.Fatal("nobody was told that the breaker opened")
	}
	sick := func(r *ipc.PermitRequest) { r.Choice.Worker = "parrot" }
	if r := c.refused("the sick kind", job.CircuitOpen, sick); r.Action != ipc.ActionDefer {
		t.Errorf("rejection %+v", r)
	}
	if r := c.refused("the sick kind of a job with another choice", job.CircuitOpen, func(r *ipc.PermitRequest) { sick(r); r.Smaller = true }); r.Action != ipc.ActionDegrade {
		t.Errorf("rejection %+v", r)
	}
	c.granted("another kind", nil)
	c.end()
}

// TestQueueIsShed: what waits for too long leads to shed, and the refusal says so.
func TestQueueIsShed(t *testing.T) {
	h := newHost()
	c := start(t, h.probes)
	c.hello()
	c.configure(nil)
	c.must(ipc.MethodReportQueueMetrics, ipc.QueueMetrics{Depth: 9, OldestMS: 900_000, ByClass: map[job.Class]ipc.ClassQueue{
		job.Standard: {Depth: 9, OldestMS: 900_000},
	}}, nil)
	h.pass(time.Second)
	c.told()
	c.refused("batch work", job.QueueStall, func(r *ipc.PermitRequest) { r.Class = job.Batch })
	c.granted("other work", nil)
	c.end()
}

func TestFullDiskStopsAll(t *testing.T) {
	h := newHost()
	c := start(t, h.probes)
	c.hello()
	c.configure(nil)
	h.free.Store(10 << 20)
	h.pass(time.Second)
	if x := c.escalation(isolation.CauseDisk); x.Scope != isolation.Global || !strings.Contains(x.Message, "10 of 102400 MiB") {
		t.Errorf("escalation %+v", x)
	}
	c.refused("anything", job.FatalMode, nil)
	h.free.Store(50 << 30)
	h.pass(10 * time.Minute)
	h.pass(time.Second) // the one before has ended: what cooled down is lifted
	c.granted("when there is room", nil)
	c.end()
}

// TestClockJump: the request after a jump is not judged by the new time, even
// if nobody has looked since. A deadline that only seems to have passed would
// make a dead letter of its job.
func TestClockJump(t *testing.T) {
	h := newHost()
	c := start(t, h.probes)
	c.hello()
	c.configure(nil)
	h.wall.Store(int64(time.Hour))
	passed := time.Now().Add(-time.Minute)
	c.refused("a job whose deadline seems to have passed", job.FatalMode, func(r *ipc.PermitRequest) { r.Deadline = &passed })
	if x := c.escalation(isolation.CauseClock); x.Scope != isolation.Global || !strings.Contains(x.Message, "1h0m0") && !strings.Contains(x.Message, "59m59") {
		t.Errorf("escalation %+v", x)
	}
	h.pass(time.Second)
	h.pass(time.Second)
	if len(c.escalated) > 0 {
		t.Errorf("one jump was told again: %+v", <-c.escalated)
	}
	h.wall.Store(0)
	h.pass(time.Second)
	if x := c.escalation(isolation.CauseClock); !strings.Contains(x.Message, "back") {
		t.Errorf("escalation %+v", x)
	}
	c.end()
}
