//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	h, err := proc.NewHost(proc.Config{Log: zerolog.Nop(), Confine: true}) // as the core's
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

// wrapHere is this host's bubblewrap. TestMain asks first: a test's Host would take away the program that is asked for its
// version.
func wrapHere() (path, version string, err error) {
	wrapped.once.Do(func() { wrapped.path, wrapped.version, wrapped.err = findBubblewrap(context.Background()) })
	return wrapped.path, wrapped.version, wrapped.err
}

var wrapped struct {
	once          sync.Once
	path, version string
	err           error
}

// strictly is the typical policy at level Strict.
func strictly(t testing.TB) (p *Policy, workspace string) {
	t.Helper()
	path, version, err := wrapHere()
	if err != nil {
		lacks(t, err)
	}
	p, workspace = typical(t)
	p.Level, p.Host = Strict, &Host{Bwrap: path, Version: version}
	return p, workspace
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

// acts starts this test's binary in a strict sandbox, to do acts there.
func acts(t testing.TB, h *proc.Host, p *Policy, name string, extra ...*os.File) *run {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, denials: make(chan Denial, 256)}
	p.Denied = func(d Denial) { r.denials <- d }
	s := begin(t, h, p, "", func(spec *proc.Spec) {
		spec.Run, spec.Path, spec.Args, spec.Extra, spec.PipeStdin = t.Name()+name, exe, nil, extra, true
		spec.Env = append(spec.Env, helperEnv+"=acts")
	})
	r.in, r.out, r.start = s.Stdin(), s.out, s.start
	return r
}

func TestStrictStopStages(t *testing.T) {
	p, _ := strictly(t)
	h := newHost(t)
	const short = 50 * time.Millisecond
	const loop = "echo ready; while :; do sleep 300 & wait; done"
	killed := proc.ExitState{Code: -1, Signal: syscall.SIGKILL}
	for _, tc := range []struct {
		name, script string
		stages       proc.Stages
		stage        proc.Stage
		exit         proc.ExitState
	}{
		{"interrupt", `trap "exit 7" INT; ` + loop, proc.Stages{Interrupt: long, Terminate: long}, proc.StageInterrupt, proc.ExitState{Code: 7}},
		{"interrupt of one that is ended by it", "echo ready; exec sleep 300", proc.Stages{Interrupt: long}, proc.StageInterrupt, proc.ExitState{Code: -1, Signal: syscall.SIGINT}},
		{"terminate", `trap "" INT; trap "exit 8" TERM; ` + loop, proc.Stages{Interrupt: short, Terminate: long}, proc.StageTerminate, proc.ExitState{Code: 8}},
		{"kill", `trap "" INT TERM; echo ready; while :; do sleep 1; done`, proc.Stages{Interrupt: short, Terminate: short}, proc.StageKill, killed},
		{"at once", loop, proc.Stages{}, proc.StageKill, killed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := begin(t, h, p, tc.script)
			r.line()
			if got, err := proc.Parent(r.Pid()); err != nil || got != r.start.system.strict.inner.init {
				t.Errorf("the tree's pid is %d, below %d, %v", r.Pid(), got, err)
			}
			// By the tag the watchdog finds what to measure, and the next core what to end.
			if alive, err := proc.Alive(r.Run()); err != nil || !slices.ContainsFunc(alive, func(p proc.Proc) bool { return p.Pid == r.Pid() }) {
				t.Errorf("of the run %s live %v, %v", r.Run(), alive, err)
			}
			rep, err := r.Stop(t.Context(), tc.stages)
			if err != nil || rep.Stage != tc.stage || r.ExitState() != tc.exit {
				t.Errorf("got stage %v and %v, %v, want %v and %v", rep.Stage, r.ExitState(), err, tc.stage, tc.exit)
			}
			if err := r.Signal(syscall.SIGTERM); err != os.ErrProcessDone {
				t.Errorf("signal after the stop: %v", err)
			}
		})
	}
}

// What the program leaves behind may end in order, and is told of by name; the rest is killed with the namespace.
func TestStrictLeftBehind(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	r := begin(t, h, p, `
setsid sh -c 'trap "echo ended >tidy; exit" TERM; sleep 300 & echo >&9; wait' &
env -i setsid /bin/sh -c 'trap "" TERM; echo >&9; exec /bin/sleep 300' &
exit 5`, func(spec *proc.Spec) {
		// They would not let the output end; it is the program's end that counts.
		spec.Args[1] = "mkfifo up; exec 9<>up; " + strings.ReplaceAll(spec.Args[1], "&\n", ">/dev/null & read x <&9\n")
		spec.Dir = workspace
	})
	state, _ := r.end()
	if state.Code != 5 {
		t.Errorf("the program: %v, want exit code 5", state)
	}
	rep, err := r.Stop(t.Context(), proc.Stages{Leftover: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// A shell, what it waits for, and what does not end when it is asked to.
	if len(rep.Killed) != 3 || slices.ContainsFunc(rep.Killed, func(p proc.Proc) bool { return p.Comm != "sh" && p.Comm != "sleep" }) {
		t.Errorf("left behind were %v, want three processes of the run and nothing of ours", rep.Killed)
	}
	if text, err := os.ReadFile(workspace + "/tidy"); string(text) != "ended\n" {
		t.Errorf("what could end in order has left %q, %v", text, err)
	}
}

func TestStrictStandardFilesAndDescriptors(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	var theirs []*os.File
	var ours []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		ours, theirs = append(ours, r), append(theirs, w)
	}
	r := begin(t, h, p, `pwd; echo "$0 $X $AGENTSCHED_RUN"; read a; echo "$a"; echo oops >&2; for n in 3 4 5; do echo $n >&$n; done; ls /proc/self/fd | tr '\n' ' '; cat; kill $$`, func(spec *proc.Spec) {
		spec.Extra, spec.PipeStdin, spec.Stderr, spec.PipeStderr = theirs, true, nil, true
		spec.Env, spec.Dir, spec.Name = append(spec.Env, "X=y"), workspace, "zero"
	})
	for _, w := range theirs {
		w.Close()
	}
	_, _ = io.WriteString(r.Stdin(), "hello\n")
	for _, want := range []string{workspace, "zero y " + t.Name(), "hello"} {
		if got := r.line(); got != want {
			t.Errorf("got line %q, want %q", got, want)
		}
	}
	r.Stdin().Close()
	state, rest := r.end()
	if state.Signal != syscall.SIGTERM || rest != "0 1 2 3 4 5 6" { // 6 is the folder that is listed
		t.Errorf("got %v and %q", state, rest)
	}
	if text, err := io.ReadAll(r.Stderr()); string(text) != "oops\n" || err != nil {
		t.Errorf("standard error: %q, %v", text, err)
	}
	for i, f := range ours {
		if text, err := io.ReadAll(f); string(text) != strconv.Itoa(i+3)+"\n" || err != nil {
			t.Errorf("descriptor %d: %q, %v", i+3, text, err)
		}
	}
}

func TestStrictStartErrors(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	for _, tc := range []struct {
		name   string
		change func(*Policy, *proc.Spec)
		want   string
	}{
		{"no such program", func(_ *Policy, spec *proc.Spec) { spec.Path = "/no/such/program" }, "/no/such/program"},
		{"a program that is not granted", func(_ *Policy, spec *proc.Spec) { spec.Path = realDir(t) + "/program" }, "sandbox.read"},
		{"no such folder", func(_ *Policy, spec *proc.Spec) { spec.Dir = "/no/such/folder" }, "/no/such/folder"},
		{"a folder that is not granted", func(_ *Policy, spec *proc.Spec) { spec.Dir = realDir(t) }, "Can't chdir"},
		{"bubblewrap is missing", func(p *Policy, _ *proc.Spec) {
			p.Host = &Host{Bubblewrap: &Problem{What: "bubblewrap is not installed", Mend: "apt"}}
		}, "bubblewrap is not installed: apt"},
		{"bubblewrap fails", func(p *Policy, _ *proc.Spec) { p.Host = &Host{Bwrap: "/bin/false"} }, "bubblewrap did not start the program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := *p
			spec := proc.Spec{Run: t.Name(), Path: "/bin/sh", Dir: workspace, PipeStderr: true, NewSession: true}
			tc.change(&q, &spec)
			if spec.Path != "/bin/sh" && !strings.HasPrefix(spec.Path, "/no/") {
				mustDo(t, os.WriteFile(spec.Path, []byte("#!/bin/sh\n"), 0o755))
			}
			s, err := q.Prepare(spec.Path, nil)
			if err == nil {
				_, err = h.Start(s.Apply(spec))
				mustDo(t, s.Close())
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestStrictOutOfMemory: the kernel ends the program, and the tree tells of its limit.
func TestStrictOutOfMemory(t *testing.T) {
	p, _ := strictly(t)
	h, err := proc.NewHost(proc.Config{Cgroup: "sandboxtest-" + strconv.Itoa(os.Getpid()), Log: zerolog.Nop()})
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, h.Close()) })
	if names, err := h.Enforces(); !slices.Contains(names, proc.MemoryController) {
		t.Skip("no limit of memory is enforced here:", err)
	}
	const limit = 64 << 20
	r := begin(t, h, p, "exec tail /dev/zero", func(spec *proc.Spec) { spec.Limits = &proc.Limits{Memory: limit} })
	if state, _ := r.end(); state.Signal != syscall.SIGKILL {
		t.Errorf("got %v, want an end by SIGKILL", state)
	}
	if x := r.Exceeded(); x == nil || !x.Own || x.Limit != limit || x.Controller != proc.MemoryController {
		t.Errorf("got %+v, want its own limit of memory", x)
	}
}

// TestStrictProcessState: what a process inherits is as it would be outside.
func TestStrictProcessState(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	state := func(level Level) string {
		q := *p
		q.Level = level
		// At level none it runs already when the core says that it is to go first.
		r := begin(t, h, &q, `until [ "$(cat /proc/$$/oom_score_adj)" != 0 ]; do :; done; grep -E 'Sig(Blk|Ign)|Umask|NSpgid|Uid|Gid' /proc/self/status | sed '/^NSpgid/s/\t.*//'; cat /proc/self/oom_score_adj; ulimit -a | grep -v core; nice; env | sort; id -u`, func(spec *proc.Spec) {
			spec.Dir, spec.Run = workspace, t.Name()+"/run"
			spec.Env = append(spec.Env, "PWD="+workspace, "Z=1 2\n3")
			spec.Limits = &proc.Limits{} // runs are the first to go when memory is short
		})
		_, text := r.end()
		if _, err := r.Stop(t.Context(), proc.Stages{}); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got, want := state(Strict), state(None); got != want || want == "" {
		t.Errorf("at level strict\n%s\n\nwithout\n%s", got, want)
	}
}
