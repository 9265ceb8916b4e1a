//go:build amd64 || arm64

package sandbox

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
)

// TestProcessTree: a run that proc starts keeps its pid, its tag and its exit, and is stopped with all that it left.
func TestProcessTree(t *testing.T) {
	host, err := proc.NewHost(proc.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { mustDo(t, host.Close()) }()
	p, workspace := typical(t)
	s, err := p.Prepare("sh", nil)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := host.Start(proc.Spec{
		Run: t.Name(), Path: s.Path, Name: "sh", Extra: s.Extra, Env: os.Environ(), Dir: workspace,
		Args:       []string{"-c", "echo $$; sleep 1000 & exit 7"},
		PipeStdout: true, Stderr: os.Stderr, NewSession: true, PdeathSignal: syscall.SIGKILL, Limits: &proc.Limits{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.ClosePipes()
	mustDo(t, s.Started(t.Context()))
	<-tree.Exited()
	if state := tree.ExitState(); state.Code != 7 || state.Signal != 0 {
		t.Errorf("ended as %+v", state)
	}
	report, err := tree.Stop(t.Context(), proc.Stages{Kill: 10 * time.Minute})
	mustDo(t, err)
	if len(report.Killed) != 1 || report.Killed[0].Pid == tree.Pid() {
		t.Errorf("killed %v", report.Killed)
	}
	text, err := io.ReadAll(tree.Stdout())
	mustDo(t, err)
	if got := strings.TrimSpace(string(text)); got != number(uint64(tree.Pid())) {
		t.Errorf("the shell has pid %q, the tree %d", got, tree.Pid())
	}
	mustDo(t, s.Close())
	if left, err := proc.Alive(t.Name()); err != nil || len(left) > 0 {
		t.Errorf("alive: %v, %v", left, err)
	}
}

// TestFailedStep: the call that failed is named, with its error.
func TestFailedStep(t *testing.T) {
	p, _ := typical(t)
	s, cmd := confined(t, p, nil, "/bin/true")
	defer s.Close()
	// The first descriptor is the ruleset; without it there is no domain to enter.
	null, err := os.Open(os.DevNull)
	mustDo(t, err)
	defer null.Close()
	cmd.ExtraFiles[0] = null
	mustDo(t, cmd.Start())
	if err := s.Started(t.Context()); err == nil || err.Error() != "confine /bin/true: enter the Landlock domain: file descriptor in bad state" {
		t.Errorf("error %v", err)
	}
	_ = cmd.Wait()
}
