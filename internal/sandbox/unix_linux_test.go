//go:build amd64 || arm64

package sandbox

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnixSockets: a run connects to the Unix sockets that it listens on, and to nobody else's, wherever they lie.
func TestUnixSockets(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(map[bool]string{false: "endpoint", true: "full network"}[full], func(t *testing.T) {
			p, workspace := typical(t)
			p.FullNetwork = full
			at := func(name string) string { return workspace + "/" + name }
			outside := realDir(t) + "/outside"
			abstract := "@sandbox-test-" + strings.ReplaceAll(workspace, "/", "-")
			for _, path := range []string{outside, at("theirs"), abstract} {
				greet(t, "unix", path)
			}
			mustDo(t, os.Symlink(outside, at("link")))
			mustDo(t, os.Link(at("theirs"), at("linked")))
			mustDo(t, os.WriteFile(at("file"), nil, 0o600))
			r := startRun(t, p)
			refused := func(path string) {
				t.Helper()
				r.cannot(syscall.EPERM, "dial-unix", path)
				r.told(Denial{Call: "connect to the Unix socket", Detail: path})
			}
			said := func(path string) {
				t.Helper()
				if got := r.can("dial-unix", path); got != "hello" {
					t.Errorf("heard %q", got)
				}
			}

			r.can("listen", "own", "unix", at("own"))
			said(at("own"))
			said(workspace + "/../" + workspace[strings.LastIndex(workspace, "/")+1:] + "/own")
			r.can("chdir", workspace)
			said("own")
			r.can("symlink", "own", at("to-own"))
			said(at("to-own"))
			r.can("rename", at("own"), at("moved"))
			said(at("moved"))

			for _, path := range []string{outside, at("theirs"), at("link"), at("linked"), abstract, at("file"), "/proc/self/root" + outside} {
				refused(path)
			}
			// Another's socket at the path of the run's own, which still listens.
			r.can("rename", at("theirs"), at("own"))
			refused(at("own"))
			r.can("link", at("moved"), at("left"))
			r.can("close", "own")
			r.cannot(syscall.ECONNREFUSED, "dial-unix", at("left")) // so a server knows that the one before has ended
			r.cannot(syscall.ENOENT, "dial-unix", at("none"))
			if _, failure := r.do("listen", "away", "unix", outside+"2"); failure == "" {
				t.Error("the run listens outside of its folders")
			}
			if _, failure := r.do("listen", "abstract", "unix", abstract+"-2"); failure == "" {
				t.Error("the run listens at an abstract name")
			}
			r.can("listen", "sibling's", "unix", at("shared"))
			sibling := startRun(t, p)
			sibling.cannot(syscall.EPERM, "dial-unix", at("shared"))
			said(at("shared"))

			// More of them than are remembered.
			for range maxServed + 10 {
				r.can("listen", "many", "unix", at("many"))
				r.can("close", "many")
			}
			r.can("listen", "many", "unix", at("many"))
			said(at("many"))
			said(at("shared"))
			r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM})...)
		})
	}
}

// TestUnixSocketsExchanged: a run that puts another's socket in the place of its own while it connects reaches it never.
func TestUnixSocketsExchanged(t *testing.T) {
	p, workspace := typical(t)
	l, err := net.Listen("unix", workspace+"/theirs")
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan bool)
	go func() {
		c, err := l.Accept()
		if err == nil {
			c.Close()
		}
		reached <- err == nil
	}()
	r := startRun(t, p)
	r.can("listen", "own", "unix", workspace+"/own")
	if got := r.can("dial while exchanged", workspace+"/own", workspace+"/theirs", "500"); got != "true true" {
		t.Errorf("connected to its own, was refused the other: %s; the test shows nothing", got)
	}
	r.end()
	l.Close()
	if <-reached {
		t.Error("the run has reached a socket that it does not serve")
	}
}

// TestUnixUnasked: where nobody can be asked there are no Unix sockets.
func TestUnixUnasked(t *testing.T) {
	p, _ := typical(t)
	p.NoNotifier = true
	r := startRun(t, p)
	r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM})...)
	r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM})...)
}
