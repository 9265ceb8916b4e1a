package proc

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Shell fragments that leave a process behind which prints its own pid. Each knows fewer ways to be found.
const (
	asChild   = `sh -c 'echo $$; exec sleep 300' & `
	asSession = `setsid sh -c 'echo $$; exec sleep 300' & `
	asDaemon  = `(setsid sh -c 'echo $$; exec sleep 300' >&9 9>&- </dev/null & ) 9>&1 >/dev/null; `
	asCleared = `env -i setsid /bin/sh -c 'echo $$; exec /bin/sleep 300' & `
	asBoth    = `(env -i setsid /bin/sh -c 'echo $$; exec /bin/sleep 300' & ) ; `
)

func TestStopLeavesNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		for _, tc := range []struct{ name, leave string }{
			{"child", asChild}, {"session", asSession}, {"daemon", asDaemon}, {"cleared", asCleared}, {"cleared daemon", asBoth},
		} {
			t.Run(tc.name+" of a leader that has exited", func(t *testing.T) {
				tr := start(t, h, script(t.Name(), tc.leave+"exit 0"))
				pid := tr.pid()
				if st := tr.waitExited(); !st.Success() {
					t.Fatal(st)
				}
				mustLive(t, pid) // it holds stdout, which did not keep us from seeing the exit
				rep := tr.stop(DefaultStages)
				mustBeGone(t, pid)
				if rep.Stage != StageExited || len(rep.Killed) != 1 || rep.Killed[0].Pid != pid {
					t.Errorf("got %+v, want %d killed", rep, pid)
				}
				if rest, err := io.ReadAll(tr.out); len(rest) > 0 || err != nil {
					t.Errorf("read to the end: %q, %v", rest, err)
				}
			})
			t.Run(tc.name+" of a leader that must be killed", func(t *testing.T) {
				tr := start(t, h, script(t.Name(), "trap '' INT TERM; "+tc.leave+"while :; do sleep 300; done"))
				pid := tr.pid()
				rep := tr.stop(Stages{Interrupt: time.Millisecond, Terminate: time.Millisecond})
				mustBeGone(t, pid, tr.Pid())
				if rep.Stage != StageKill || len(rep.Killed) < 2 {
					t.Errorf("got %+v", rep)
				}
			})
			t.Run(tc.name+" of a leader that ends when asked", func(t *testing.T) {
				tr := start(t, h, script(t.Name(), tc.leave+"echo ready; exec sleep 300"))
				pid := tr.readyPid()
				rep := tr.stop(Stages{Terminate: long})
				if rep.Stage != StageTerminate {
					t.Errorf("got %+v", rep)
				}
				mustBeGone(t, pid)
			})
		}
	})
}

func TestStopOfAStoppedTree(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		tr := start(t, h, script(t.Name(), asSession+asChild+`read x; kill -STOP $$`))
		pids := []int{tr.pid(), tr.pid()}
		for _, pid := range append(pids, tr.Pid()) {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		tr.stop(Stages{})
		mustBeGone(t, append(pids, tr.Pid())...)
	})
}

// A chain in which each process forks the next and exits: whoever is seen is gone a moment later. A cap ends it should
// the kill fail; it then says so.
func TestStopOfARunawayForker(t *testing.T) {
	const (
		shell = `step() { if [ $1 -gt 4000 ]; then echo cap; exit; fi; step $(($1+1)) & exit; }; echo ready; step 0`
		// The same with a new session each time, so that no group signal can reach it.
		perl = `exec perl -MPOSIX -e '$| = 1; print "ready\n"; for (1..40000) { exit if fork; POSIX::setsid() } print "cap\n"'`
		// 64 such chains at a time.
		bomb = `exec perl -e '$p = $$; for (1..6) { fork } syswrite STDOUT, "ready\n" if $$ == $p;
			for (1..2000) { exit if fork } syswrite STDOUT, "cap\n"'`
	)
	eachWay(t, func(t *testing.T, h *Host) {
		for _, tc := range []struct{ name, script string }{{"group", shell}, {"sessions", perl}, {"bomb", bomb}} {
			t.Run(tc.name, func(t *testing.T) {
				if _, err := exec.LookPath("perl"); err != nil && strings.Contains(tc.script, "perl") {
					t.Skip("needs perl")
				}
				tr := start(t, h, script(t.Name(), tc.script))
				tr.line()
				rep := tr.stop(Stages{})
				rest, err := io.ReadAll(tr.out)
				if len(rest) > 0 || err != nil {
					t.Errorf("after stop: %q, %v", rest, err)
				}
				t.Logf("%d killed in %v, %d walks", len(rep.Killed), rep.Latency, rep.Walks)
			})
		}
	})
}

func TestStopIsCheapWhenNothingIsLeft(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		other := start(t, h, script(t.Name()+"/other", asDaemon+"echo ready; exec sleep 300"))
		other.line()
		other.line()
		for _, text := range []string{"echo 0", "sh -c 'echo $$' & wait", "(sh -c 'echo $$; exit 3' &); exit 1"} {
			tr := start(t, h, script(t.Name()+"/1", text))
			if pid := tr.pid(); pid != 0 { // a short-lived child, or an orphan of which the remains are there
				if err := waitGone(pid, time.Now().Add(long)); err != nil {
					t.Fatal(err)
				}
			}
			tr.waitExited()
			if rep := tr.stop(DefaultStages); rep.Walks != 0 || len(rep.Killed) != 0 {
				t.Errorf("%s: got %+v, want no walk", text, rep)
			}
		}
		other.stop(Stages{})
	})
}

func TestStopWithoutChildrenFiles(t *testing.T) {
	h := newHost(t, "")
	h.mu.Lock()
	h.sys.noChildFile = true // as on a kernel built without CONFIG_PROC_CHILDREN
	h.mu.Unlock()
	other := start(t, h, script(t.Name()+"/other", "echo ready; exec sleep 300"))
	other.line()
	tr := start(t, h, script(t.Name()+"/1", asBoth+"exit 0"))
	pid := tr.pid()
	tr.waitExited()
	other.stop(Stages{})
	if rep := tr.stop(Stages{}); len(rep.Killed) != 1 {
		t.Errorf("got %+v", rep)
	}
	mustBeGone(t, pid)
}

func TestStopReportsAGhost(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		tr := start(t, h, script(t.Name(), asSession+"exec sleep 300"))
		pid := tr.pid()
		// No kill can be quick enough for this: the tree is reported as it stands.
		_, err := tr.Stop(context.Background(), Stages{Kill: time.Nanosecond})
		var ghost *GhostError
		if !errors.Is(err, ErrGhost) || !errors.As(err, &ghost) || ghost.Run != tr.Run() {
			t.Fatalf("got %v", err)
		}
		if h.sys.base.dir == "" && (len(ghost.Left) != 1 || ghost.Left[0].Pid != tr.Pid()) {
			t.Errorf("got %v, want the leader %d", ghost.Left, tr.Pid())
		}
		tr.stop(Stages{})
		mustBeGone(t, pid)
	})
}

func TestKillFrozen(t *testing.T) {
	h := cgroupHost(t)
	tr := start(t, h, script(t.Name(), asCleared+asSession+`step() { [ $1 -gt 4000 ] && exit; step $(($1+1)) & exit; }; step 0`))
	pids := []int{tr.pid(), tr.pid()}
	killed, err := tr.sys.cg.killFrozen(time.Now().Add(long)) // as on a kernel without cgroup.kill
	if err != nil || len(killed) < 2 {
		t.Errorf("killed %v, %v", killed, err)
	}
	mustBeGone(t, pids...)
	if rep := tr.stop(Stages{}); len(rep.Killed) > 0 {
		t.Errorf("got %+v", rep)
	}
}

func TestStartWhereNoCgroupCanBeEntered(t *testing.T) {
	h := newHost(t, "")
	dir := t.TempDir() // a directory, but of no cgroup
	h.mu.Lock()
	h.sys.base = cgroup{dir: dir, path: "/none"}
	h.mu.Unlock()
	tr := start(t, h, script(t.Name(), asBoth+"exit 0"))
	pid := tr.pid()
	if tr.Cgroup() != "" {
		t.Errorf("got cgroup %q", tr.Cgroup())
	}
	if _, err := h.Start(Spec{Run: t.Name() + "/1", Path: "/no/such/program"}); err == nil {
		t.Error("no error for a program that is not there")
	}
	h.mu.Lock()
	if !h.sys.noClone {
		t.Error("the failure is not remembered")
	}
	h.sys.base = cgroup{}
	h.mu.Unlock()
	tr.stop(Stages{})
	mustBeGone(t, pid)
}

func TestProgramMissingIsNotBlamedOnTheCgroup(t *testing.T) {
	h := cgroupHost(t)
	if _, err := h.Start(Spec{Run: t.Name() + "/1", Path: "/no/such/program"}); err == nil {
		t.Error("no error for a program that is not there")
	}
	tr := start(t, h, script(t.Name()+"/2", "cat /proc/self/cgroup"))
	out, err := io.ReadAll(tr.out)
	if want := "0::" + tr.sys.cg.path + "\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	tr.stop(Stages{})
}
