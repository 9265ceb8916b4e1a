//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// long is a stage that no machine is too busy for.
const long = 10 * time.Minute

// strictRun is a program in a strict sandbox, in a tree of this process.
type strictRun struct {
	*proc.Tree
	t     testing.TB
	start *Start
	out   *bufio.Reader
}

// newHost opens the process host of one test. It has no cgroups.
func newHost(t testing.TB) *proc.Host {
	t.Helper()
	h, err := proc.NewHost(proc.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close host: %v", err)
		}
		if left, err := proc.Alive(t.Name()); err != nil || len(left) > 0 {
			t.Errorf("alive after the test: %v, %v", left, err)
		}
	})
	return h
}

// strictly is the typical policy at level Strict.
func strictly(t testing.TB) (p *Policy, workspace string) {
	t.Helper()
	needsBubblewrap(t)
	p, workspace = typical(t)
	p.Level = Strict
	return p, workspace
}

// needsBubblewrap skips where it is missing, but under CI.
func needsBubblewrap(t testing.TB) {
	t.Helper()
	if _, _, err := findBubblewrap(); err != nil {
		if os.Getenv("AGENTSCHED_REQUIRE_BWRAP") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// begin starts a shell script under a policy. change may change its Spec.
func begin(t testing.TB, h *proc.Host, p *Policy, text string, change ...func(*proc.Spec)) *strictRun {
	t.Helper()
	spec := proc.Spec{
		Run: t.Name(), Path: "/bin/sh", Args: []string{"-c", text}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		PipeStdout: true, Stderr: os.Stderr, NewSession: true, PdeathSignal: syscall.SIGKILL,
	}
	for _, f := range change {
		f(&spec)
	}
	s, err := p.Prepare(spec.Path, spec.Extra)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := h.Start(s.Apply(spec))
	if err != nil {
		t.Fatal(err)
	}
	r := &strictRun{Tree: tree, t: t, start: s, out: bufio.NewReader(tree.Stdout())}
	t.Cleanup(func() {
		if _, err := tree.Stop(t.Context(), proc.Stages{}); err != nil {
			t.Error(err)
		}
		tree.ClosePipes()
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	testrun.AfterFunc(t, func() { _ = tree.Stdout().SetReadDeadline(time.Now()) })
	return r
}

// line waits for the next line of output.
func (r *strictRun) line() string {
	r.t.Helper()
	s, err := r.out.ReadString('\n')
	if err != nil {
		r.t.Fatalf("read a line: %v", err)
	}
	return strings.TrimSuffix(s, "\n")
}

// end waits for the program's end, and returns how it ended and what it has printed.
func (r *strictRun) end() (proc.ExitState, string) {
	r.t.Helper()
	text, err := io.ReadAll(r.out)
	if err != nil {
		r.t.Fatalf("read the output: %v", err)
	}
	select {
	case <-r.Exited():
	case <-testrun.After(r.t):
		r.t.Fatal("the program did not end")
	}
	return r.ExitState(), strings.TrimSpace(string(text))
}

func TestStrictExit(t *testing.T) {
	p, _ := strictly(t)
	h := newHost(t)
	for _, tc := range []struct {
		script string
		want   proc.ExitState
	}{
		{"exit 0", proc.ExitState{}},
		{"exit 3", proc.ExitState{Code: 3}},
		{"exit 143", proc.ExitState{Code: 143}},
		{"exit 137", proc.ExitState{Code: 137}},
		{"kill -TERM $$", proc.ExitState{Code: -1, Signal: syscall.SIGTERM}},
		{"kill -KILL $$", proc.ExitState{Code: -1, Signal: syscall.SIGKILL}},
		{"ulimit -c 0; kill -SEGV $$", proc.ExitState{Code: -1, Signal: syscall.SIGSEGV}},
	} {
		t.Run(tc.script, func(t *testing.T) {
			r := begin(t, h, p, tc.script)
			if got, _ := r.end(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			rep, err := r.Stop(t.Context(), proc.DefaultStages)
			if err != nil || rep.Stage != proc.StageExited || len(rep.Killed) > 0 {
				t.Errorf("stop after the end: %+v, %v", rep, err)
			}
		})
	}
}
