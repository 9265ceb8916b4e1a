package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLeftoversMayTidyUp lets a leader leave a shell behind that holds a lock file: with time to do it, it takes the file
// away, and without it is killed on the spot. One that does not listen is killed either way.
func TestLeftoversMayTidyUp(t *testing.T) {
	for _, cgroup := range []string{"proc-test-leftover", ""} {
		for _, grace := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("cgroup=%q,grace=%v", cgroup, grace), func(t *testing.T) { testLeftovers(t, cgroup, grace) })
		}
	}
}

func testLeftovers(t *testing.T, cgroup string, grace time.Duration) {
	h := newHost(t, cgroup)
	lock := filepath.Join(t.TempDir(), "lock")
	// Its child is another program before anybody is told: a shell that has forked and not yet executed can miss a signal.
	tidy := "trap 'rm -f " + lock + "' EXIT; trap 'exit 0' TERM; touch " + lock + "; sh -c 'echo ready; exec sleep 300' & wait"
	tr := start(t, h, script("leftover/tidy/1", "setsid sh -c \""+tidy+"\" & exit 0"))
	tr.line()
	tr.waitExited()
	if rep := tr.stop(Stages{Leftover: grace}); len(rep.Killed) == 0 {
		t.Errorf("nobody was ended: %+v", rep)
	}
	_, err := os.Stat(lock)
	if gone := os.IsNotExist(err); gone != (grace > 0) {
		t.Errorf("the lock is gone: %v", gone)
	}

	tr = start(t, h, script("leftover/deaf/1", "setsid sh -c \"trap '' TERM; echo ready; while :; do sleep 300; done\" & exit 0"))
	tr.line()
	tr.waitExited()
	if rep := tr.stop(Stages{Leftover: min(grace, 50*time.Millisecond)}); len(rep.Killed) == 0 {
		t.Errorf("the deaf one was not ended: %+v", rep)
	}
}

// TestLeftoverCostsNothing: a tree of which nothing is left is not searched for.
func TestLeftoverCostsNothing(t *testing.T) {
	h := newHost(t, "")
	tr := start(t, h, script("leftover/none/1", "exit 0"))
	tr.waitExited()
	if rep := tr.stop(Stages{Leftover: time.Hour}); rep.Walks != 0 || len(rep.Killed) != 0 {
		t.Errorf("report %+v", rep)
	}
}
