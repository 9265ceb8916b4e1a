package scheduler_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
