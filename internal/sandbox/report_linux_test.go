//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
)

// reporting is typical for a report, as far as this user may watch.
func reporting(t testing.TB) (p *Policy, workspace string) {
	t.Helper()
	p, workspace = typical(t)
	p.Report = true
	err := CanReport()
	if err != nil && !errors.Is(err, ErrNoNewPrivileges) {
		t.Fatal(err)
	}
	p.NoNewPrivileges = err != nil
	return p, workspace
}

// TestReport: a watched run does all that it would, and what would be refused is told, once.
func TestReport(t *testing.T) {
	p, workspace := reporting(t)
	dir := realDir(t)
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	for _, sub := range []string{"data/deep/er", "out", "secret", "linked", "more"} {
		mustDo(t, os.MkdirAll(at(sub), 0o755))
	}
	for _, file := range []string{"data/words", "data/deep/er/words", "out/old", "secret/key", "linked/file", "more/tool"} {
		mustDo(t, os.WriteFile(at(file), []byte("words"), 0o755))
	}
	mustDo(t, os.Symlink(at("linked"), filepath.Join(workspace, "link")))
	p.Hide = append(p.Hide, at("secret"))
	p.Broad = []string{dir}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer other.Close()
	go serve(other)

	r := startRun(t, p)
	r.can("write", filepath.Join(workspace, "mine"))
	r.can("read", "/etc/passwd")
	if _, failure := r.do("read", at("none")); failure != syscall.ENOENT.Error() {
		t.Errorf("a file that is not there: %s", failure)
	}
	told := func(d Denial) {
		t.Helper()
		if got := <-r.denials; got != d {
			t.Errorf("told %+v, want %+v", got, d)
		}
	}
	if got := r.can("read", at("data", "words")); got != "words" {
		t.Errorf("read %q", got)
	}
	told(Denial{Call: "read", Detail: at("data")})
	r.can("read", at("data", "words")) // again
	r.can("read", at("data", "deep", "er", "words"))
	told(Denial{Call: "read", Detail: at("data", "deep")})
	r.can("read", filepath.Join(workspace, "link", "file"))
	told(Denial{Call: "read", Detail: at("linked")})
	r.can("read", at("secret", "key"))
	told(Denial{Call: "read", Detail: at("secret"), Hidden: true})
	r.can("write", at("out", "new"))
	told(Denial{Call: "write", Detail: at("out")})
	r.can("append", at("out", "old"))
	r.can("mkdir", at("out", "folder"))
	r.can("rename", at("out", "folder"), filepath.Join(workspace, "folder"))
	r.can("remove", at("out", "old"))
	r.can("mkdir", at("made"))
	told(Denial{Call: "write", Detail: dir, Broad: true})
	r.can("list", dir)
	told(Denial{Call: "read", Detail: dir, Broad: true})
	r.do("run", at("more", "tool"))
	told(Denial{Call: "read", Detail: at("more")})

	if got := r.can("dial", other.Addr().String()); got != "hello" {
		t.Errorf("the other server says %q", got)
	}
	told(Denial{Call: "connect", Detail: other.Addr().String()})
	mine := r.can("listen", "own", "tcp", "127.0.0.1:0")
	if got := r.can("dial", mine); got != "hello" {
		t.Errorf("the run's own server says %q", got)
	}
	r.do("call", number(unix.SYS_SOCKET), number(unix.AF_UNIX), number(unix.SOCK_DGRAM))
	told(Denial{Call: "socket", Detail: "AF_UNIX SOCK_DGRAM"})
	theirs := dir + "/theirs"
	greet(t, "unix", theirs)
	if got := r.can("dial-unix", theirs); got != "hello" {
		t.Errorf("the other server's Unix socket says %q", got)
	}
	told(Denial{Call: "connect to the Unix socket", Detail: theirs})
	own := r.can("listen", "own socket", "unix", workspace+"/own")
	if got := r.can("dial-unix", own); got != "hello" {
		t.Errorf("the run's own Unix socket says %q", got)
	}
	r.end()
	close(r.denials)
	for d := range r.denials {
		t.Errorf("also told: %v", d)
	}
}

// TestReportChangesNothing: a watched run keeps what setuid programs need, and of capabilities what other runs have.
func TestReportChangesNothing(t *testing.T) {
	p, workspace := reporting(t)
	if p.NoNewPrivileges {
		t.Skip("only root can watch at no price")
	}
	host, err := proc.NewHost(proc.Config{Log: zerolog.Nop(), Confine: true})
	mustDo(t, err)
	defer func() { mustDo(t, host.Close()) }()
	status := func(watched bool) string {
		spec := proc.Spec{
			Run: fmt.Sprint(t.Name(), watched), Path: "/bin/sh", Env: os.Environ(), Dir: workspace,
			Args:       []string{"-c", `grep -E "^(Cap|NoNewPrivs)" /proc/self/status; ulimit -a`},
			PipeStdout: true, Stderr: os.Stderr, NewSession: true, PdeathSignal: syscall.SIGKILL,
		}
		s, err := p.Prepare(spec.Path, nil)
		mustDo(t, err)
		defer func() { mustDo(t, s.Close()) }()
		if watched {
			spec = s.Apply(spec)
		}
		tree, err := host.Start(spec)
		mustDo(t, err)
		defer tree.ClosePipes()
		text, err := io.ReadAll(tree.Stdout())
		mustDo(t, err)
		_, err = tree.Stop(t.Context(), proc.Stages{})
		mustDo(t, err)
		return string(text)
	}
	plain, watched := status(false), status(true)
	if plain != watched || !strings.Contains(plain, "NoNewPrivs:\t0") {
		t.Errorf("watched:\n%s\nand else:\n%s", watched, plain)
	}
}

// TestReportOfNothing: a program that cannot be started is the error that it is without a sandbox.
func TestReportOfNothing(t *testing.T) {
	p, workspace := reporting(t)
	path := filepath.Join(workspace, "bad")
	mustDo(t, os.WriteFile(path, []byte("no program\x00"), 0o755))
	s, cmd := confined(t, p, nil, path)
	defer s.Close()
	mustDo(t, cmd.Start())
	if err := s.Started(t.Context()); !errors.Is(err, syscall.ENOEXEC) {
		t.Errorf("error %v", err)
	}
	_ = cmd.Wait()
}

// BenchmarkOpen is what a file costs that a run opens and closes, alone and watched.
func BenchmarkOpen(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run("watched="+strconv.FormatBool(watched), func(b *testing.B) {
			p, _ := reporting(b)
			if !watched {
				p.Level, p.Report = None, false
			}
			r := startRunWith(b, p, nil, func(*exec.Cmd) {})
			b.ResetTimer()
			r.can("open again", "/etc/passwd", strconv.Itoa(b.N))
		})
	}
}
