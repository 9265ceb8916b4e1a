//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// run is this test's binary under a policy, or under none, which does acts; see acts_linux_test.go.
type run struct {
	t     testing.TB
	cmd   *exec.Cmd
	start *Start
	in    io.WriteCloser
	out   *bufio.Reader

	denials chan Denial
	end     func() // ends the run and what serves it
}

// typical is a policy that programs work under: the system and what is ours readable, a folder writable.
func typical(t testing.TB) (p *Policy, workspace string) {
	t.Helper()
	workspace = realDir(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Policy{Level: Standard, Read: append(SystemFiles(), exe), Write: []string{workspace}, Hide: SystemSecrets()}, workspace
}

// realDir is a temporary folder by its real path.
func realDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startRun starts a run, which ends with the test.
func startRun(t testing.TB, p *Policy, extra ...*os.File) *run {
	t.Helper()
	return startRunWith(t, p, extra, func(*exec.Cmd) {})
}

// startRunWith is startRun with a change to how the process is started.
func startRunWith(t testing.TB, p *Policy, extra []*os.File, change func(*exec.Cmd)) *run {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, denials: make(chan Denial, 256)}
	p.Denied = func(d Denial) { r.denials <- d }
	r.start, r.cmd = confined(t, p, extra, exe)
	r.cmd.Env = append(os.Environ(), helperEnv+"=acts")
	r.cmd.Stderr = os.Stderr
	change(r.cmd)
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.end = sync.OnceFunc(func() {
		_ = in.Close()
		_ = r.cmd.Wait()
		if err := r.start.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(r.end)
	testrun.AfterFunc(t, func() { _ = r.cmd.Process.Kill() }) // so that no answer is waited for without end
	if _, err := r.start.enter(t.Context(), r.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return r
}

// confined is a command under a policy. The caller closes the Start.
func confined(t testing.TB, p *Policy, extra []*os.File, name string, args ...string) (*Start, *exec.Cmd) {
	t.Helper()
	s, err := p.Prepare(name, extra)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.Path, args...)
	cmd.Args[0] = name
	cmd.ExtraFiles = s.Extra
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return s, cmd
}

// output runs a command under a policy in a folder and returns what it prints.
func output(t testing.TB, p *Policy, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	s, cmd := confined(t, p, nil, name, args...)
	defer s.Close()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if err := s.Started(t.Context()); err != nil {
		_ = cmd.Wait()
		return "", err
	}
	err := cmd.Wait()
	return text.String(), err
}

// do has the run do an act and returns what came of it: what it has found, and the error's text.
func (r *run) do(act string, args ...string) (found, failure string) {
	r.t.Helper()
	r.ask(act, args...)
	return r.answer()
}

// ask has the run begin an act; answer is how it ends.
func (r *run) ask(act string, args ...string) {
	r.t.Helper()
	line, err := json.Marshal(append([]string{act}, args...))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.in.Write(append(line, '\n')); err != nil {
		r.t.Fatalf("tell the run to %s: %v", act, err)
	}
}

func (r *run) answer() (found, failure string) {
	r.t.Helper()
	text, err := r.out.ReadString('\n')
	if err != nil {
		r.t.Fatalf("read what came of an act: %v", err)
	}
	var answer [2]string
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		r.t.Fatalf("read what came of an act: %q: %v", text, err)
	}
	return answer[0], answer[1]
}

// can fails the test unless the act works, and returns what it has found.
func (r *run) can(act string, args ...string) string {
	r.t.Helper()
	found, failure := r.do(act, args...)
	if failure != "" {
		r.t.Errorf("%s %q: %s", act, args, failure)
	}
	return found
}

// cannot fails the test unless the act fails with this error.
func (r *run) cannot(want syscall.Errno, act string, args ...string) {
	r.t.Helper()
	if found, failure := r.do(act, args...); failure != want.Error() {
		r.t.Errorf("%s %q: found %q, error %q; want error %q", act, args, found, failure, want.Error())
	}
}

// told waits until the run was denied this, and drops what it was denied before.
func (r *run) told(want Denial) {
	r.t.Helper()
	var others []Denial
	for {
		select {
		case d := <-r.denials:
			if d == want {
				return
			}
			others = append(others, d)
		case <-testrun.After(r.t):
			r.t.Fatalf("denial of %s (hostile: %v) was not told; told was: %v", want, want.Hostile, others)
		}
	}
}
