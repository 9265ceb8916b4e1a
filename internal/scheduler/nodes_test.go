package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// asked returns the calls about stopping a run that a core has had.
func (c *playedCore) asked() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.methods {
		if m == ipc.MethodCancelJob || m == ipc.MethodCheckpointJob {
			list = append(list, m)
		}
	}
	return list
}

// What runs on a node is asked to stop, and nothing else is.
func TestStopOnNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 2, nil)
		host := &supervisor.Host{Name: "a", OS: "linux", Kinds: []job.WorkerKind{"shell"}, Slots: 1}
		w.cores.play = func(c *playedCore) {
			if c.index == 2 {
				c.core = supervisor.Join(supervisor.Away{Node: "a", Index: 2, Place: 1, Peer: c.theirs, Host: func() *supervisor.Host { return host }})
			}
		}
		w.start()
		defer w.end()
		w.submit(task("one", time.Hour), task("two", time.Hour))
		w.wait(time.Second)
		here, there := w.cores.at(1), w.cores.at(2)
		if got := w.sched.OnNodes(); len(got) != 1 || got["a"] != 1 {
			t.Fatalf("on nodes: %v", got)
		}
		if n := w.sched.StopOnNode("b", false, "a test"); n != 0 {
			t.Errorf("%d jobs on a node that is not there", n)
		}
		if n := w.sched.StopOnNode("a", true, "a test"); n != 1 {
			t.Errorf("%d jobs on the node", n)
		}
		w.wait(time.Second)
		if got := there.asked(); !slices.Equal(got, []string{ipc.MethodCheckpointJob}) || w.sched.OnNodes()["a"] != 1 {
			t.Errorf("the node's core was asked %v, and has %v", got, w.sched.OnNodes())
		}
		w.sched.StopOnNode("a", false, "a test")
		w.wait(time.Second)
		if got := there.asked(); !slices.Equal(got, []string{ipc.MethodCheckpointJob, ipc.MethodCancelJob}) || len(here.asked()) > 0 {
			t.Errorf("the node's core was asked %v, that of this host %v", got, here.asked())
		}
	})
}

// A process that could not be killed on a node isolates that node alone, whichever scheduler leads, until somebody lifts it: on
// its own core everything is isolated then, which is told to no other.
func TestGhostOnNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, docs := openStore(t), statedir.Files(t.TempDir())
		book, keep, err := scheduler.LoadIsolations(t.Context(), docs)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, store, 2, func(c *scheduler.Config) { c.Isolations, c.KeepIsolations = book, keep })
		host := &supervisor.Host{Name: "a", OS: "linux", Kinds: []job.WorkerKind{"shell"}, Slots: 8}
		w.cores.play = func(c *playedCore) {
			if c.index == 2 {
				c.core = supervisor.Join(supervisor.Away{Node: "a", Index: 2, Place: 1, Peer: c.theirs, Host: func() *supervisor.Host { return host }})
			}
			c.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
				if method == ipc.MethodIsolate {
					var l ipc.Isolations
					if err := json.Unmarshal(params, &l); err != nil {
						t.Error(err)
					}
					c.mu.Lock()
					defer c.mu.Unlock()
					c.listed = &l
				}
				return nil, nil, false
			}
		}
		w.start()
		defer w.end()
		w.wait(time.Second)
		here, there := w.cores.at(1), w.cores.at(2)
		ghost := ipc.Escalation{Seq: 1, Escalation: isolation.Escalation{Scope: isolation.Global, Cause: isolation.CauseGhost, Action: isolation.SafeStop, Message: "pid 7", Time: stamp()}}
		if err := there.peer.Notify(t.Context(), ipc.NotifyEscalation, ghost); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Second)
		i, ok := w.sched.Isolations.Isolated("node:a")
		if _, all := w.sched.Isolations.Isolated(isolation.Global); all || !ok || i.Action != isolation.IsolateNode || i.Cause != isolation.CauseGhost {
			t.Fatalf("isolated is %+v, everything %v", i, all)
		}
		heard := func(c *playedCore) ipc.Isolations {
			c.mu.Lock()
			defer c.mu.Unlock()
			return *c.listed
		}
		if l := heard(there); l.Heard != 1 || len(l.Isolations) != 1 || l.Isolations[0].Scope != isolation.Global {
			t.Errorf("its own core enforces %+v", l)
		}
		if l := heard(here); len(l.Isolations) != 0 {
			t.Errorf("the core of another host enforces %+v", l)
		}
		w.submit(task("one", time.Hour), task("two", time.Hour))
		onA := w.submit(task("three", time.Hour, func(s *job.Spec) { s.Node.Name = "a" }))
		w.wait(time.Second)
		if n := w.sched.OnNodes()["a"]; n != 0 {
			t.Errorf("%d jobs are on the node", n)
		}
		if n, _ := w.cores.running(); n != 2 {
			t.Errorf("%d jobs run", n)
		}
		e := w.get(onA[0])
		if st := w.sched.Explain.Statuses(t.Context())(&e); st.Waiting == nil || *st.Waiting != (job.Waiting{Reason: job.WaitNode, Text: "node a is isolated"}) {
			t.Errorf("the job for the node waits for %v", st.Waiting)
		}
		again, _, err := scheduler.LoadIsolations(t.Context(), docs)
		if list := again.List(time.Now()); err != nil || len(list) != 1 || list[0].Scope != "node:a" {
			t.Errorf("the next leader reads %+v, %v", list, err)
		}
		if _, err := w.sched.Isolations.Resume("node:a"); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Second)
		if l := heard(there); len(l.Isolations) != 0 || w.sched.OnNodes()["a"] != 1 {
			t.Errorf("after it was lifted, the core enforces %+v, and the node has %v", l, w.sched.OnNodes())
		}
	})
}

// A kind of worker whose runs crash on one node is out of use there, and nowhere else: its jobs run on other hosts. One that
// only that node may run is refused by it once, and then waits until the kind is in use again.
func TestKindOnNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 2, func(*scheduler.Config) {})
		host := &supervisor.Host{Name: "a", OS: "linux", Kinds: []job.WorkerKind{"shell"}, Slots: 8}
		var asked [3]atomic.Int32 // for permits, by the core that was asked
		w.cores.play = func(c *playedCore) {
			if c.index == 2 {
				c.core = supervisor.Join(supervisor.Away{Node: "a", Index: 2, Place: 1, Peer: c.theirs, Host: func() *supervisor.Host { return host }})
			}
			var book isolation.Book // what it enforces
			c.answer = func(_ context.Context, method string, params json.RawMessage) (any, error, bool) {
				switch method {
				case ipc.MethodIsolate:
					var l ipc.Isolations
					if err := json.Unmarshal(params, &l); err != nil {
						t.Error(err)
					}
					book.Replace(l.Isolations)
				case ipc.MethodRequestPermit:
					asked[c.index].Add(1)
					if i, blocked := book.Blocked(isolation.Run{Kind: "shell"}, time.Now()); blocked {
						return ipc.PermitAnswer{Rejection: &ipc.Rejection{Reason: job.CircuitOpen, Message: i.Message}}, nil, true
					}
				}
				return nil, nil, false
			}
		}
		w.start()
		defer w.end()
		w.wait(time.Second)
		there := w.cores.at(2).peer
		tell := func(n uint64, x isolation.Escalation) {
			x.Time, x.Until = stamp(), stamp().Add(10*time.Minute)
			if err := there.Notify(t.Context(), ipc.NotifyEscalation, ipc.Escalation{Seq: n, Escalation: x}); err != nil {
				t.Fatal(err)
			}
			w.wait(time.Second)
		}
		tell(1, isolation.Escalation{Scope: "worker:shell", Cause: isolation.CauseWorkerCrashes, Action: isolation.IsolateKind, Message: "it crashed"})
		if _, everywhere := w.sched.Isolations.Isolated("worker:shell"); everywhere {
			t.Fatal("the kind is isolated on each host")
		}
		w.submit(task("one", time.Hour), task("two", time.Hour))
		onA := w.submit(task("three", time.Hour, func(s *job.Spec) { s.Node.Name = "a" }))
		w.wait(time.Minute)
		if n, _ := w.cores.running(); n != 2 || asked[1].Load() != 2 || asked[2].Load() != 1 {
			t.Errorf("%d jobs run; the cores were asked %d and %d times", n, asked[1].Load(), asked[2].Load())
		}
		e := w.get(onA[0])
		if st := w.sched.Explain.Statuses(t.Context())(&e); st.Waiting == nil || st.Waiting.Reason != job.WaitIsolation {
			t.Errorf("the job for the node waits for %v", st.Waiting)
		}
		w.wait(10 * time.Minute)
		if n := w.sched.OnNodes()["a"]; n != 1 {
			t.Errorf("after the cool-down %d jobs are on the node", n)
		}
		// A node that says so of more than it can have is out of use as a whole.
		for n := range uint64(70) {
			tell(n+2, isolation.Escalation{Scope: isolation.WorkerScope(job.WorkerKind(fmt.Sprint("kind", n))), Cause: isolation.CauseWorkerCrashes, Action: isolation.IsolateKind})
		}
		if list := w.sched.Status().Isolations; len(list) != 65 || list[0].Scope != "node:a" {
			t.Errorf("%d are isolated, of them first %+v", len(list), list[0])
		}
	})
}

// The wall clock of a node stands two hours ahead: nothing that it tells is put off by that, and what is recorded is by the
// scheduler's own clock.
func TestClockOfNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead, wait = 2 * time.Hour, 5 * time.Second
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.NodesOnly = true })
		host := &supervisor.Host{Name: "a", OS: "linux", Kinds: []job.WorkerKind{"shell"}, Slots: 8}
		begun := 0
		w.cores.play = func(c *playedCore) {
			c.core = supervisor.Join(supervisor.Away{Node: "a", Index: 1, Place: 1, Peer: c.theirs, Host: func() *supervisor.Host { return host }})
			c.run = func(ctx context.Context, r *playedRun) job.Outcome {
				at := time.Now().Add(ahead)
				if begun++; begun > 1 {
					return job.Outcome{State: job.RunCompleted}
				}
				time.Sleep(time.Second)
				retry := time.Now().Add(ahead + wait)
				o := job.Outcome{State: job.RunFailed, Class: job.RateLimit, StartedAt: at, EndedAt: time.Now().Add(ahead), RetryAt: &retry}
				open := ipc.Circuit{Worker: "shell", State: "open", OpenUntil: retry.UTC()}
				c.peer.Notify(ctx, ipc.NotifyCircuits, ipc.Circuits{Circuits: []ipc.Circuit{open}, Changed: open, Now: time.Now().Add(ahead).UTC()})  //nolint:errcheck // it is looked at below
				c.peer.Notify(ctx, ipc.NotifyJobCompleted, ipc.JobCompleted{Job: r.Job, Attempt: r.Attempt, Outcome: o, RetryIn: job.Duration(wait)}) //nolint:errcheck // likewise
				return o                                                                                                                              // the second time, which says nothing new
			}
		}
		w.start()
		defer w.end()
		began := stamp()
		ids := w.submit(task("one", 0))
		w.wait(2 * time.Second)
		for _, c := range w.sched.Status().Circuits {
			if left := time.Until(c.OpenUntil); left > wait {
				t.Errorf("a circuit is open for %s", left)
			}
		}
		if e := w.wantState(ids[0], job.Queued); e.RunnableAt.Sub(began) > wait+2*time.Second || e.RunnableAt.Sub(began) < wait {
			t.Errorf("it goes on after %s", e.RunnableAt.Sub(began))
		}
		if list := w.sched.Status().Isolations; len(list) > 0 {
			t.Errorf("isolated are %+v", list)
		}
		attempts, err := w.store.Attempts(t.Context(), ids[0])
		if err != nil || len(attempts) != 1 || attempts[0].Outcome == nil {
			t.Fatalf("attempts %+v, %v", attempts, err)
		}
		if o := attempts[0].Outcome; o.EndedAt.After(stamp()) || o.StartedAt.Before(began) || o.EndedAt.Sub(o.StartedAt) != time.Second {
			t.Errorf("the attempt lasted from %s to %s, by a clock that says %s", o.StartedAt, o.EndedAt, stamp())
		}
		w.wait(wait)
		w.wantState(ids[0], job.Completed)
	})
}

// A run that has not begun when its node is drained by checkpoints does not begin there.
func TestDrainUnbegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.NodesOnly = true })
		var host atomic.Pointer[supervisor.Host]
		host.Store(&supervisor.Host{Name: "a", OS: "linux", Kinds: []job.WorkerKind{"shell"}, Slots: 8})
		permit := make(chan struct{})
		w.cores.play = func(c *playedCore) {
			c.core = supervisor.Join(supervisor.Away{Node: "a", Index: 1, Place: 1, Peer: c.theirs, Host: host.Load})
			c.answer = func(_ context.Context, method string, _ json.RawMessage) (any, error, bool) {
				if method == ipc.MethodRequestPermit {
					<-permit
				}
				return nil, nil, false
			}
		}
		w.start()
		defer w.end()
		ids := w.submit(task("one", time.Hour))
		w.wait(time.Second)
		closed := *host.Load()
		closed.Closed = true
		host.Store(&closed)
		w.cores.handler.(supervisor.AwayHandler).CoresChanged()
		if n := w.sched.StopOnNode("a", true, "it is drained"); n != 1 {
			t.Errorf("%d jobs on the node", n)
		}
		w.wait(time.Second)
		close(permit)
		w.wait(time.Second)
		if e := w.wantState(ids[0], job.Queued); e.Attempts > 0 || w.sched.OnNodes()["a"] != 0 {
			t.Errorf("it has begun %d times, and the node has %v", e.Attempts, w.sched.OnNodes())
		}
	})
}
