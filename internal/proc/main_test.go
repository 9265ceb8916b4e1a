package proc

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
)

// long is a stage, or a wait for one process, that no machine is too busy for.
const long = 10 * time.Minute

// helperEnv makes the test binary run the helper command that it names, instead of the tests.
const helperEnv = "PROC_TEST_HELPER"

// helpers are the commands that tests start; each stands beside the test that uses it. usedHelpers notes which were.
var (
	helpers     = map[string]func(args []string) int{"leader": helperLeader}
	usedHelpers sync.Map
)

func TestMain(m *testing.M) {
	addSystemHelpers()
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helpers[name](os.Args[1:]))
	}
	code := m.Run()
	if all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" &&
		flag.Lookup("test.skip").Value.String() == ""; all && code == 0 {
		for name := range helpers {
			if _, used := usedHelpers.Load(name); !used {
				fmt.Fprintf(os.Stderr, "helper command %q is used by no test\n", name)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// helper is a Spec that runs a helper command.
func helper(run, name string, args ...string) Spec {
	usedHelpers.Store(name, true)
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{
		Run: run, Path: exe, Args: args, Env: append(os.Environ(), helperEnv+"="+name),
		PipeStdout: true, Stderr: os.Stderr, NewSession: true,
	}
}

// script is a Spec that runs a shell script.
func script(run, text string) Spec {
	return Spec{
		Run: run, Path: "/bin/sh", Args: []string{"-c", text}, Env: os.Environ(),
		PipeStdout: true, Stderr: os.Stderr, NewSession: true,
	}
}

// newHost opens a Host for one test and checks at its end that neither a process nor a goroutine is left.
func newHost(t testing.TB, cgroup string) *Host {
	t.Helper()
	opts := goleak.IgnoreCurrent()
	h, err := NewHost(Config{Cgroup: cgroup, Log: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close host: %v", err)
		}
		if left, err := Alive(t.Name()); err != nil || len(left) > 0 {
			t.Errorf("alive after the test: %v, %v", left, err)
		}
		goleak.VerifyNone(t, opts)
	})
	return h
}

// tree is a started Tree and its output, read line by line.
type tree struct {
	*Tree
	t   testing.TB
	out *bufio.Reader
}

func start(t testing.TB, h *Host, spec Spec) *tree {
	t.Helper()
	tr, err := h.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.ClosePipes)
	out := tr.Stdout()
	testrun.AfterFunc(t, func() { _ = out.SetReadDeadline(time.Now()) }) // so that no line is waited for without end
	return &tree{tr, t, bufio.NewReader(out)}
}

// line waits for the next line of output.
func (tr *tree) line() string {
	tr.t.Helper()
	s, err := tr.out.ReadString('\n')
	if err != nil {
		tr.t.Fatalf("read a line of run %s: %v", tr.Run(), err)
	}
	return strings.TrimSuffix(s, "\n")
}

// pid waits for a line that is a pid.
func (tr *tree) pid() int {
	tr.t.Helper()
	pid, err := strconv.Atoi(tr.line())
	if err != nil {
		tr.t.Fatal(err)
	}
	return pid
}

// readyPid waits for a line that is a pid and one that says "ready", in either order. What the leader has waited for
// before it was ready has ended then, such as the shell that left a daemon.
func (tr *tree) readyPid() int {
	tr.t.Helper()
	a, b := tr.line(), tr.line()
	pid, err := strconv.Atoi(strings.Replace(a+b, "ready", "", 1))
	if err != nil {
		tr.t.Fatal(err)
	}
	return pid
}

func (tr *tree) waitExited() ExitState {
	tr.t.Helper()
	select {
	case <-tr.Exited():
	case <-testrun.After(tr.t):
		tr.t.Fatalf("leader of run %s did not exit", tr.Run())
	}
	return tr.ExitState()
}

// stop stops the tree. The kill takes as long as the machine needs for it.
func (tr *tree) stop(s Stages) Report {
	tr.t.Helper()
	s.Kill = cmp.Or(s.Kill, long)
	rep, err := tr.Stop(context.Background(), s)
	if err != nil {
		tr.t.Fatal(err)
	}
	return rep
}
