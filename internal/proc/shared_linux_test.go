package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// While others of the instance live, only what carries the tag of one of the runs, or is in its cgroup, is killed.
func TestSweepRuns(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		name, leave := "", asDaemon
		if h.sys.base.dir != "" {
			name, leave = h.cfg.Cgroup, asBoth // only the run's cgroup tells, and the hosts share its base
			h.mu.Lock()
			h.sys.noClone = true
			h.mu.Unlock()
		}
		other := helper(t.Name()+"/core/2", "host", name, t.Name()+"/job/2", leave+"exec sleep 300")
		other.Subreaper = true
		live := start(t, h, other)
		var spared int
		var dirOfLive string
		for range 2 {
			line := live.line()
			if rest, ok := strings.CutPrefix(line, "hosted "); ok {
				_, _ = fmt.Sscan(rest, new(int), &dirOfLive)
			} else {
				_, _ = fmt.Sscan(line, &spared)
			}
		}
		dead, ofDead, dir := orphanOfDeadHost(t, h, name, t.Name(), leave)

		if _, err := h.SweepRuns(context.Background(), []string{t.Name() + "/job/1", ""}); err == nil {
			t.Error("no error for a sweep of everything")
		}
		for _, runs := range [][]string{nil, {t.Name() + "/job/3", t.Name() + "/jo", t.Name() + "/job/1/7"}} {
			if killed, err := h.SweepRuns(context.Background(), runs); err != nil || len(killed) > 0 {
				t.Errorf("sweep of %q: %v, %v", runs, killed, err)
			}
		}
		mustLive(t, spared, ofDead)
		killed, err := h.SweepRuns(context.Background(), []string{t.Name() + "/job/3", t.Name() + "/job/1"})
		if err != nil || len(killed) != 1 || killed[0].Pid != ofDead {
			t.Errorf("killed %v, %v, want %d", killed, err, ofDead)
		}
		mustBeGone(t, ofDead)
		mustLive(t, spared, live.Pid())
		if dir != "" {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("cgroup %s is left: %v", dir, err)
			}
			if _, err := os.Stat(dirOfLive); err != nil {
				t.Errorf("the live run's cgroup: %v", err)
			}
		}
		dead.stop(Stages{})
		mustLive(t, spared, live.Pid())
		live.stop(Stages{})
		if name != "" { // nothing ties it to the tree, and the tree has no cgroup of its own
			if _, err := h.SweepRuns(context.Background(), []string{t.Name() + "/job/2"}); err != nil {
				t.Error(err)
			}
		}
		mustBeGone(t, spared)
	})
}

// Two hosts that share the base do not take each other's cgroups away.
func TestCloseSparesTheCgroupsOfAnotherHost(t *testing.T) {
	h := cgroupHost(t)
	base := h.sys.base
	theirs := base.child("theirs")
	if err := os.Mkdir(theirs.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(theirs.dir); err != nil {
		t.Error(err)
	}
	if err := errors.Join(theirs.remove(), h.close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(base.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the base is left: %v", err)
	}
	// And do not miss the base when another has removed it.
	tr := start(t, h, script(t.Name(), "exit 0"))
	if tr.Cgroup() == "" {
		t.Error("the run has no cgroup")
	}
	tr.waitExited()
	tr.stop(Stages{})
}
