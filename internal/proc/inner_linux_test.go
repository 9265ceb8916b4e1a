package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// innerChild is an Inner that is a child of its leader, in a session of its own. The leader's exit code is one more than its.
type innerChild struct {
	leader, pid int
	left        []Proc
}

func (c *innerChild) Pid() int                        { return c.pid }
func (c *innerChild) Signal(sig syscall.Signal) error { return syscall.Kill(-c.pid, sig) }
func (c *innerChild) LeftBehind() []Proc              { return c.left }
func (c *innerChild) Around() []int                   { return []int{c.leader} }
func (c *innerChild) Exit(leader ExitState) ExitState {
	if leader.Signal == 0 {
		leader.Code--
	}
	return leader
}

// inner is a Spec whose leader starts a shell that runs text, and ends with one more than that's exit code.
func inner(t *testing.T, text string) (Spec, *innerChild) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	spec := script(t.Name(), fmt.Sprintf(`setsid sh -c 'echo $$ >&3; %s'; exit $(($? + 1))`, text))
	spec.Extra = []*os.File{w}
	c := new(innerChild)
	spec.Enter = func(leader int) (Inner, error) {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			return nil, err
		}
		c.leader = leader
		c.pid, err = strconv.Atoi(strings.TrimSpace(line))
		return c, err
	}
	return spec, c
}

func TestInnerProgramIsTheTree(t *testing.T) {
	h := newHost(t, "")
	for _, tc := range []struct {
		name, text string
		stages     Stages
		stage      Stage
		exit       ExitState
	}{
		{"interrupt", `trap "exit 7" INT; echo ready; while :; do sleep 1; done`, Stages{Interrupt: long, Terminate: long}, StageInterrupt, ExitState{Code: 7}},
		{"terminate", `trap "" INT; trap "exit 8" TERM; echo ready; while :; do sleep 1; done`,
			Stages{Interrupt: time.Millisecond, Terminate: long}, StageTerminate, ExitState{Code: 8}},
		{"kill", `trap "" INT TERM; echo ready; while :; do sleep 1; done`,
			Stages{Interrupt: time.Millisecond, Terminate: time.Millisecond}, StageKill, ExitState{Code: -1, Signal: syscall.SIGKILL}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec, c := inner(t, tc.text)
			c.left = []Proc{{Pid: 1 << 30, Comm: "left"}}
			tr := start(t, h, spec)
			tr.line()
			if tr.Pid() != c.pid || c.pid == c.leader {
				t.Errorf("pid %d, want %d", tr.Pid(), c.pid)
			}
			rep := tr.stop(tc.stages)
			if rep.Stage != tc.stage || tr.ExitState() != tc.exit {
				t.Errorf("got stage %v and %v, want %v and %v", rep.Stage, tr.ExitState(), tc.stage, tc.exit)
			}
			if slices.ContainsFunc(rep.Killed, func(p Proc) bool { return p.Pid == c.leader }) || !slices.Contains(rep.Killed, c.left[0]) {
				t.Errorf("killed %v, want what was left behind and not the leader %d", rep.Killed, c.leader)
			}
		})
	}
}

func TestStartWhereTheInnerProgramIsNotEntered(t *testing.T) {
	h := newHost(t, "")
	refused := errors.New("refused")
	spec := script(t.Name(), "echo cannot do it >&2; sleep 300 & wait")
	spec.Stderr, spec.PipeStderr = nil, true
	leader := 0
	spec.Enter = func(pid int) (Inner, error) {
		// Until it has said what its error is.
		for leader = pid; ; {
			if below, err := Below(pid); err != nil || len(below) > 0 {
				return nil, errors.Join(refused, err)
			}
		}
	}
	_, err := h.Start(spec)
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "cannot do it") {
		t.Errorf("got %v, want the reason and the leader's words", err)
	}
	if parent, err := Parent(leader); !errors.Is(err, ErrGone) {
		t.Errorf("leader %d lives on below %d, %v", leader, parent, err)
	}
	spec.Enter = nil // the run is free again
	start(t, h, spec).stop(Stages{})
}
