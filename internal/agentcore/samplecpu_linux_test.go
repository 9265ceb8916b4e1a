package agentcore_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

const (
	burn = 300 * time.Millisecond
	// slack is for what a runtime does besides, and for ticks of 10 ms.
	slack = 150 * time.Millisecond
)

func TestCPUTellsBusyFromSleeping(t *testing.T) {
	busy, sleeping := startChild(t, nil), startChild(t, nil)
	cpu := func(pids ...int) time.Duration {
		d, err := agentcore.CPUOf(pids)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	b, s, both := cpu(busy.pid), cpu(sleeping.pid), cpu(busy.pid, sleeping.pid)
	busy.burn(burn)
	if d := cpu(busy.pid) - b; d < burn-slack {
		t.Errorf("the busy child used %s, want about %s", d, burn)
	}
	if d := cpu(sleeping.pid) - s; d > slack {
		t.Errorf("the sleeping child used %s, want about 0", d)
	}
	if d := cpu(busy.pid, sleeping.pid) - both; d < burn-slack {
		t.Errorf("the two together used %s, want about %s", d, burn)
	}
}

// A quiet run that computes is not stalled; one that does not is.
func TestStallOnRealProcesses(t *testing.T) {
	busy, sleeping := startChild(t, nil), startChild(t, nil)
	cfg := watchdog.StallConfig{After: job.Duration(10 * time.Second), MinCPURatio: float64(slack) / float64(10*time.Second)}
	start := time.Now()
	computes, stalls := watchdog.NewStall(cfg, start), watchdog.NewStall(cfg, start)
	check := func(s *watchdog.Stall, c *child, after time.Duration) bool {
		f, found := s.Check(start.Add(after), func() (time.Duration, error) { return agentcore.CPUOf([]int{c.pid}) })
		if found {
			t.Logf("child %d: %s", c.pid, f.Evidence)
		}
		return found
	}
	if check(computes, busy, 0) || check(stalls, sleeping, 0) {
		t.Fatal("stalled at the start")
	}
	busy.burn(burn)
	if check(computes, busy, 11*time.Second) {
		t.Error("a child that computed is called stalled")
	}
	if !check(stalls, sleeping, 11*time.Second) {
		t.Error("a child that slept is not called stalled")
	}
}

func TestCPULeavesOutWhatIsGone(t *testing.T) {
	c := startChild(t, nil)
	gone := startChild(t, nil).end()
	if _, err := agentcore.CPUOf([]int{c.pid, gone}); err != nil {
		t.Errorf("with one process alive: %v", err)
	}
	if _, err := agentcore.CPUOf([]int{gone}); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("with none alive: %v, want one that matches os.ErrProcessDone", err)
	}
	if _, err := agentcore.CPUOf(nil); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("of no process: %v, want one that matches os.ErrProcessDone", err)
	}
}

func TestCPUOfCgroup(t *testing.T) {
	dir := makeCgroup(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := startChild(t, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())})
	before, err := agentcore.CPUOfCgroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.burn(burn)
	after, err := agentcore.CPUOfCgroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := after - before; d < burn-slack {
		t.Errorf("the cgroup used %s, want about %s", d, burn)
	}
}

func TestCPUOfCgroupThatIsNone(t *testing.T) {
	if _, err := agentcore.CPUOfCgroup(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte("nr_periods 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := agentcore.CPUOfCgroup(dir); !errors.Is(err, agentcore.ErrUnknown) {
		t.Errorf("no usage: %v", err)
	}
}

// makeCgroup makes a cgroup v2, which is removed after the test's children have ended.
func makeCgroup(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "sample-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("remove cgroup: %v", err)
			}
		})
		return dir
	}
	t.Skip("no cgroup v2 that may be written to")
	return ""
}
