package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestExitState(t *testing.T) {
	h := newHost(t, "")
	for _, tc := range []struct {
		script string
		want   ExitState
		text   string
		ok     bool
	}{
		{"exit 0", ExitState{}, "exit code 0", true},
		{"exit 7", ExitState{Code: 7}, "exit code 7", false},
		{"kill -KILL $$", ExitState{Code: -1, Signal: syscall.SIGKILL}, "ended by signal: killed", false},
	} {
		t.Run(tc.script, func(t *testing.T) {
			tr := start(t, h, script(t.Name(), tc.script))
			got := tr.waitExited()
			if got != tc.want || got.String() != tc.text || got.Success() != tc.ok {
				t.Errorf("got %+v %q, want %+v %q", got, got, tc.want, tc.text)
			}
			if rep := tr.stop(DefaultStages); rep.Stage != StageExited || len(rep.Killed) > 0 {
				t.Errorf("stop after exit: %+v", rep)
			}
			if err := tr.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("signal after exit: %v", err)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	h := newHost(t, "")
	live := start(t, h, script(t.Name()+"/live", "echo ready; exec sleep 300"))
	live.line()
	for _, tc := range []struct {
		name string
		spec Spec
		want error
	}{
		{"no run", Spec{Path: "/bin/true"}, nil},
		{"no such program", Spec{Run: t.Name() + "/1", Path: "/no/such/program"}, os.ErrNotExist},
		{"not on the path", Spec{Run: t.Name() + "/1", Path: "no-such-program"}, exec.ErrNotFound},
		{"not executable", Spec{Run: t.Name() + "/1", Path: "/etc/passwd"}, os.ErrPermission},
		{"no such directory", Spec{Run: t.Name() + "/1", Path: "/bin/true", Dir: "/no/such/dir"}, os.ErrNotExist},
		{"run is live", script(live.Run(), "true"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := h.Start(tc.spec)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	live.stop(Stages{})
	// A run whose tree is empty may be started again, as nobody can mix the two up.
	start(t, h, script(live.Run(), "true")).stop(Stages{})

	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(script(t.Name(), "true")); !errors.Is(err, ErrClosed) {
		t.Errorf("start on a closed host: %v", err)
	}
	if err := h.Run(context.Background(), exec.Command("true")); !errors.Is(err, ErrClosed) {
		t.Errorf("run on a closed host: %v", err)
	}
}

func TestStartSetsUpTheChild(t *testing.T) {
	h := newHost(t, "")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := script(t.Name()+"/2", `pwd; echo "$AGENTSCHED_RUN $X"; read line; echo "$line"; echo oops >&2; cat`)
	spec.Env = []string{"PATH=" + os.Getenv("PATH"), "X=y", DefaultTag + "=another/run/1"}
	spec.Dir, spec.PipeStdin, spec.Stderr, spec.PipeStderr = dir, true, nil, true
	tr := start(t, h, spec)
	if _, err := io.WriteString(tr.Stdin(), "hello\n"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{dir, t.Name() + "/2 y", "hello"} {
		if got := tr.line(); got != want {
			t.Errorf("got line %q, want %q", got, want)
		}
	}
	if err := tr.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(tr.Stderr()); string(b) != "oops\n" || err != nil {
		t.Errorf("stderr: %q, %v", b, err)
	}
	if st := tr.waitExited(); !st.Success() {
		t.Error(st)
	}
	tr.stop(Stages{})
}

// helperLeader ignores the signals named "int" and "term" and ends with the number of any other that it gets.
func helperLeader(args []string) int {
	got := make(chan os.Signal, 1)
	for name, sig := range map[string]os.Signal{"int": syscall.SIGINT, "term": syscall.SIGTERM} {
		if strings.Contains(strings.Join(args, " "), name) {
			signal.Ignore(sig)
		} else {
			signal.Notify(got, sig)
		}
	}
	fmt.Println("ready")
	sig := <-got
	return int(sig.(syscall.Signal))
}

func TestStopStages(t *testing.T) {
	h := newHost(t, "")
	const short = 50 * time.Millisecond
	for _, tc := range []struct {
		name   string
		ignore []string
		stop   syscall.Signal // sent before
		stages Stages
		stage  Stage
		exit   ExitState
	}{
		{"interrupt", nil, 0, Stages{Interrupt: long, Terminate: long}, StageInterrupt, ExitState{Code: 2}},
		{"no interrupt", nil, 0, Stages{Terminate: long}, StageTerminate, ExitState{Code: 15}},
		{"terminate", []string{"int"}, 0, Stages{Interrupt: short, Terminate: long}, StageTerminate, ExitState{Code: 15}},
		{"kill", []string{"int", "term"}, 0, Stages{Interrupt: short, Terminate: short}, StageKill,
			ExitState{Code: -1, Signal: syscall.SIGKILL}},
		{"at once", nil, 0, Stages{}, StageKill, ExitState{Code: -1, Signal: syscall.SIGKILL}},
		{"stopped", []string{"int", "term"}, syscall.SIGSTOP, Stages{Interrupt: short, Terminate: short}, StageKill,
			ExitState{Code: -1, Signal: syscall.SIGKILL}},
		{"stopped, then continued to take SIGTERM", []string{"int"}, syscall.SIGSTOP,
			Stages{Interrupt: short, Terminate: long}, StageTerminate, ExitState{Code: 15}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := start(t, h, helper(t.Name(), "leader", tc.ignore...))
			tr.line()
			if tc.stop != 0 {
				if err := tr.Signal(tc.stop); err != nil {
					t.Fatal(err)
				}
			}
			rep := tr.stop(tc.stages)
			if rep.Stage != tc.stage || rep.Latency <= 0 {
				t.Errorf("got %+v, want stage %v", rep, tc.stage)
			}
			if got := tr.ExitState(); got != tc.exit {
				t.Errorf("got exit %v, want %v", got, tc.exit)
			}
			if killed := len(rep.Killed) > 0; killed != (tc.stage == StageKill) {
				t.Errorf("killed %v at stage %v", rep.Killed, rep.Stage)
			}
		})
	}
}

func TestStopFirst(t *testing.T) {
	h := newHost(t, "")
	start := func(t *testing.T, text string) *tree {
		spec := script(t.Name(), text)
		spec.PipeStdin = true
		tr := start(t, h, spec)
		tr.line()
		return tr
	}
	t.Run("is enough", func(t *testing.T) {
		tr := start(t, "echo ready; cat; exit 4")
		rep := tr.stop(Stages{FirstWait: long, First: func(context.Context) error { return tr.Stdin().Close() }})
		if rep.Stage != StageFirst || tr.ExitState().Code != 4 {
			t.Errorf("got %+v, %v", rep, tr.ExitState())
		}
	})
	t.Run("hangs until the reader is dead", func(t *testing.T) {
		tr := start(t, "echo ready; exec sleep 300")
		first := errors.New("not called")
		rep := tr.stop(Stages{FirstWait: 50 * time.Millisecond, First: func(context.Context) error {
			_, first = tr.Stdin().Write(make([]byte, 1<<20)) // more than a pipe holds
			return first
		}})
		if rep.Stage != StageKill || !errors.Is(first, syscall.EPIPE) {
			t.Errorf("got %+v; the hook got %v", rep, first)
		}
	})
}

func TestStopIsCutShort(t *testing.T) {
	h := newHost(t, "")
	begin := func(t *testing.T) *tree {
		tr := start(t, h, helper(t.Name(), "leader", "int", "term"))
		tr.line()
		return tr
	}
	slow := func(asked chan<- struct{}) Stages {
		return Stages{Interrupt: time.Hour, FirstWait: time.Nanosecond, First: func(context.Context) error {
			close(asked)
			return nil
		}}
	}
	t.Run("by its context", func(t *testing.T) {
		tr := begin(t)
		ctx, cancel := context.WithCancel(context.Background())
		asked := make(chan struct{})
		go func() { <-asked; cancel() }()
		if rep, err := tr.Stop(ctx, slow(asked)); err != nil || rep.Stage != StageKill {
			t.Errorf("got %+v, %v", rep, err)
		}
	})
	t.Run("by a second stop that kills", func(t *testing.T) {
		tr := begin(t)
		asked := make(chan struct{})
		type result struct {
			Report
			error
		}
		first := make(chan result, 1)
		go func() {
			rep, err := tr.Stop(context.Background(), slow(asked))
			first <- result{rep, err}
		}()
		<-asked
		second := tr.stop(Stages{})
		got := <-first
		if got.error != nil || got.Stage != StageKill || got.Latency != second.Latency {
			t.Errorf("first stop %+v, second %+v", got, second)
		}
	})
}

func TestRunHelper(t *testing.T) {
	h := newHost(t, "")
	t.Run("ends", func(t *testing.T) {
		cmd := exec.Command("sh", "-c", "cat; exit 7")
		cmd.Stdin = strings.NewReader("hello")
		var out strings.Builder
		cmd.Stdout = &out
		err := h.Run(context.Background(), cmd)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 || out.String() != "hello" {
			t.Errorf("got %v, output %q", err, out.String())
		}
	})
	t.Run("does not start", func(t *testing.T) {
		if err := h.Run(context.Background(), exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("is over before it begins", func(t *testing.T) {
		cause := errors.New("given up")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		if err := h.Run(ctx, exec.Command("true")); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
}

// TestProgramByDescriptor: a program that is started from one of its descriptors is told of by its name.
func TestProgramByDescriptor(t *testing.T) {
	for _, tc := range []struct{ path, name, want string }{
		{"/bin/sh", "", "sh"},
		{"/usr/bin/agentcore", CoreName("i/core/1"), "agentcore"},
		{"/proc/self/fd/3", "/usr/bin/codex", "codex"},
		{"/proc/self/fd/3", "codex", "codex"},
		{"/proc/self/fd/3", "", "3"},
	} {
		if got := commandName(tc.path, tc.name); got != tc.want {
			t.Errorf("command name of %q called %q: %q, want %q", tc.path, tc.name, got, tc.want)
		}
	}
}
