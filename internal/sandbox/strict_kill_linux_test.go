//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// daemons is a script that leaves two daemons, one of which nothing ties to its run, and goes on. Each says that it is there.
const daemons = `(env -i setsid /bin/sh -c 'echo up; exec /bin/sleep 300 >/dev/null 2>&1' &)
setsid sh -c 'trap "" HUP TERM INT; echo up; exec sleep 300 >/dev/null 2>&1' &
echo up; exec sleep 300`

// strictCore is a process that has a Host without cgroups, and a run in it that leaves daemons. It tells how the run ends.
func strictCore() int {
	h, err := proc.NewHost(proc.Config{Confine: true})
	if err == nil {
		err = proc.Seclude()
	}
	if err != nil {
		return 1
	}
	p := &Policy{Level: Strict, Read: SystemFiles(), Hide: SystemSecrets()}
	s, err := p.Prepare("/bin/sh", nil)
	if err != nil {
		return 1
	}
	tree, err := h.Start(s.Apply(proc.Spec{
		Run: os.Getenv("SANDBOX_TEST_RUN"), Path: "/bin/sh", Args: []string{"-c", daemons}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		Stdout: os.Stdout, Stderr: os.Stderr, NewSession: true, PdeathSignal: syscall.SIGKILL,
	}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("started")
	state := tree.ExitState()
	rep, err := tree.Stop(context.Background(), proc.Stages{Leftover: time.Second})
	fmt.Println(state, len(rep.Killed), err)
	if s.Close() != nil || h.Close() != nil {
		return 1
	}
	return 0
}

// TestStrictKilled kills what stands around a run, and the run's own processes. All of it ends, although there are no cgroups.
func TestStrictKilled(t *testing.T) {
	strictly(t)
	for _, tc := range []struct {
		name string
		kill []string
		says string // what the core says at least, if it lives: how the run ended and how many were left
	}{
		{"core", []string{"core"}, ""},
		{"core and bubblewrap", []string{"core", "bwrap"}, ""},
		{"core, bubblewrap and program", []string{"core", "bwrap", "program"}, ""},
		{"bubblewrap", []string{"bwrap"}, "ended by signal: killed "},
		{"init", []string{"sandbox-init"}, "ended by signal: killed 0 <nil>"},
		{"program", []string{"program"}, "ended by signal: killed 2 <nil>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			exe, err := os.Executable()
			mustDo(t, err)
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), helperEnv+"=core", "SANDBOX_TEST_RUN="+t.Name())
			cmd.Stderr = os.Stderr
			pipe, err := cmd.StdoutPipe()
			mustDo(t, err)
			mustDo(t, cmd.Start())
			core := cmd.Process.Pid
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			testrun.AfterFunc(t, func() { _ = cmd.Process.Kill() })
			out := bufio.NewScanner(pipe)
			var said []string
			for len(said) < 4 && out.Scan() {
				said = append(said, out.Text())
			}
			slices.Sort(said)
			if strings.Join(said, " ") != "started up up up" {
				t.Fatalf("the core and the run say %q", said)
			}

			below, err := proc.Below(core)
			mustDo(t, err)
			pids := map[string]int{"core": core}
			held := make(map[int]int) // pidfds by pid
			for _, p := range below {
				fd, err := unix.PidfdOpen(p.Pid, 0)
				mustDo(t, err)
				defer unix.Close(fd)
				held[p.Pid] = fd
				pids[p.Comm] = p.Pid
			}
			init := pids["sandbox-init"]
			children := 0
			for _, p := range below {
				if parent, err := proc.Parent(p.Pid); err == nil && parent == init {
					children++
					if pids["program"] == 0 || p.Pid < pids["program"] {
						pids["program"] = p.Pid // the oldest
					}
				}
			}
			if len(below) != 5 || children != 2 && children != 3 || pids["bwrap"] == 0 {
				t.Fatalf("below the core are %v, want bubblewrap, the init, the program and two daemons", below)
			}
			for _, name := range tc.kill {
				if err := unix.Kill(pids[name], unix.SIGKILL); err != nil && err != unix.ESRCH { // ended by the one before
					t.Fatal(err)
				}
			}
			for _, p := range below {
				waitDead(t, p, held[p.Pid])
			}
			if tc.says == "" {
				return
			}
			if !out.Scan() || !strings.HasPrefix(out.Text(), tc.says) {
				t.Errorf("the core says %q, want %q", out.Text(), tc.says)
			}
			if out.Scan() {
				t.Errorf("then it says %q", out.Text())
			}
		})
	}
}

// waitDead waits for the end of a process that is not ours.
func waitDead(t *testing.T, p proc.Proc, pidfd int) {
	t.Helper()
	over := make(chan struct{})
	var given atomic.Bool
	go func() {
		defer close(over)
		for !given.Load() {
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 1000); n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	select {
	case <-over:
	case <-testrun.After(t):
		given.Store(true)
		<-over
		t.Fatalf("%v lives on", p)
	}
}
