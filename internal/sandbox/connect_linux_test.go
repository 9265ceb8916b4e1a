//go:build amd64 || arm64

package sandbox

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/testrun"
)

// TestConnect: a run reaches its ports on the loopback and what it serves, and nothing else.
func TestConnect(t *testing.T) {
	granted, port := hello(t, "tcp4", "127.0.0.1:0")
	other, _ := hello(t, "tcp4", "127.0.0.1:0")
	other6, _ := hello(t, "tcp6", "[::1]:0")
	sameNumber := ""
	if l, err := net.Listen("tcp4", "127.0.0.2:"+number(uint64(port))); err == nil {
		t.Cleanup(func() { l.Close() })
		sameNumber = l.Addr().String()
	} else {
		t.Fatal(err)
	}
	mapped := func(addr string) string { return strings.Replace(addr, "127.0.0.1", "[::ffff:127.0.0.1]", 1) }
	p, _ := typical(t)
	p.Ports = []uint16{port}
	r := startRun(t, p)
	refused := func(family, addr string) {
		t.Helper()
		r.cannot(syscall.EPERM, "connect", family, addr)
	}
	said := func(got string) {
		t.Helper()
		if got != "hello" {
			t.Errorf("heard %q", got)
		}
	}

	said(r.can("connect", "4", granted))
	said(r.can("connect", "6", mapped(granted)))
	said(r.can("connect", "4", strings.Replace(granted, "127.0.0.1", "0.0.0.0", 1)))
	said(r.can("dial", granted)) // a socket that does not block
	refused("4", other)
	r.told(Denial{Call: "connect", Detail: other})
	refused("6", mapped(other))
	refused("4", strings.Replace(other, "127.0.0.1", "0.0.0.0", 1))
	refused("6", other6)
	r.told(Denial{Call: "connect", Detail: other6})
	refused("6", strings.Replace(other6, "::1", "::", 1))
	refused("4", sameNumber)
	refused("4", "192.0.2.1:"+number(uint64(port)))
	refused("6", "[2001:db8::1]:443")
	refused("4", "169.254.169.254:80")
	r.told(Denial{Call: "connect", Detail: "169.254.169.254:80"})

	// A server of the run and its client, in each family, and on all addresses as servers do.
	for name, network := range map[string]string{"127.0.0.1:0": "tcp4", "[::1]:0": "tcp6", "0.0.0.0:0": "tcp4", "[::]:0": "tcp"} {
		addr := r.can("listen", name, network, name)
		said(r.can("dial", addr))
		r.can("close", name)
		r.cannot(syscall.EPERM, "dial", addr)
	}
	// What the run serves is no leave for what another process serves at the same port of another address.
	own := r.can("listen", "own", "tcp4", "127.0.0.1:0")
	to := netip.MustParseAddrPort(own)
	foreign, _ := hello(t, "tcp4", "127.0.0.2:"+number(uint64(to.Port())))
	refused("4", foreign)
	said(r.can("connect", "4", own))

	// More servers than are remembered, one after the other.
	for range maxServed + 10 {
		r.can("listen", "many", "tcp4", "127.0.0.1:0")
		r.can("close", "many")
	}
	again := r.can("listen", "again", "tcp4", "127.0.0.1:0")
	said(r.can("dial", again))
	said(r.can("dial", own))

	// Who asks for a listener's port of another run.
	sibling := startRun(t, p)
	sibling.cannot(syscall.EPERM, "dial", own)
	said(sibling.can("dial", granted))
}

// TestServedOnLoopbackOnly: what a run serves on all addresses takes connections of this host only.
func TestServedOnLoopbackOnly(t *testing.T) {
	p, _ := typical(t)
	r := startRun(t, p)
	addr := netip.MustParseAddrPort(r.can("listen", "all", "tcp4", "0.0.0.0:0"))
	if got := r.can("device of", "all"); got != "lo" {
		t.Errorf("the run listens on device %q", got)
	}
	conn, err := net.Dial("tcp4", "127.0.0.1:"+number(uint64(addr.Port())))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	r.cannot(syscall.EPERM, "unbind", "all")
}

// TestFullNetwork: connections and datagrams to everywhere, and still no socket of another kind.
func TestFullNetwork(t *testing.T) {
	addr, _ := hello(t, "tcp4", "127.0.0.1:0")
	p, _ := typical(t)
	p.FullNetwork = true
	r := startRun(t, p)
	if got := r.can("dial", addr); got != "hello" {
		t.Errorf("heard %q", got)
	}
	r.can("call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM})...)
	r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM})...)
	r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP})...)
	if _, failure := r.do("connect", "4", "127.0.0.1:1"); failure != syscall.ECONNREFUSED.Error() {
		t.Errorf("connect to a closed port: %q", failure)
	}
}

// TestByPort: where the kernel cannot ask, Landlock holds connections to the policy's ports.
func TestByPort(t *testing.T) {
	granted, port := hello(t, "tcp4", "127.0.0.1:0")
	other, _ := hello(t, "tcp4", "127.0.0.1:0")
	p, _ := typical(t)
	p.Ports, p.NoNotifier = []uint16{port}, true
	r := startRun(t, p)
	if got := r.can("dial", granted); got != "hello" {
		t.Errorf("heard %q", got)
	}
	r.cannot(syscall.EACCES, "connect", "4", other)
	r.can("listen", "own", "tcp4", "127.0.0.1:0")
	r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM})...)
	r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1})...)
}

// TestClosedProcess: a program that nobody may look into has no connections unless root starts it.
func TestClosedProcess(t *testing.T) {
	granted, port := hello(t, "tcp4", "127.0.0.1:0")
	p, _ := typical(t)
	p.Ports = []uint16{port}
	r := startRun(t, p)
	r.can("prctl", number(unix.PR_SET_DUMPABLE), "0")
	if os.Getuid() == 0 {
		r.can("dial", granted)
		return
	}
	r.cannot(syscall.EPERM, "dial", granted)
	r.told(Denial{Call: "connect", Detail: "by a process whose memory and sockets are closed to the scheduler"})
}

// TestCloseWhileConnecting: a connection that its peer does not take holds up nobody but its caller.
func TestCloseWhileConnecting(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	mustDo(t, err)
	defer unix.Close(fd)
	mustDo(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	mustDo(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	mustDo(t, err)
	port := name.(*unix.SockaddrInet4).Port
	addr := "127.0.0.1:" + number(uint64(port))
	fill, err := net.Dial("tcp4", addr) // the only one that waits to be accepted
	mustDo(t, err)
	defer fill.Close()

	p, _ := typical(t)
	p.Ports = []uint16{uint16(port)}
	r := startRun(t, p)
	r.ask("connect", "4", addr)
	n := r.start.system.notifier
	if !testrun.Until(t, func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.connecting) == 1 }) {
		t.Fatal("the run does not connect")
	}
	mustDo(t, r.start.Close())
	if _, failure := r.answer(); failure == "" {
		t.Error("the run is connected")
	}
	r.cannot(syscall.ENOSYS, "connect", "4", addr) // nobody is left to ask
}

// TestBadAddresses: what is no address is refused as the kernel does, or with EPERM.
func TestBadAddresses(t *testing.T) {
	p, _ := typical(t)
	r := startRun(t, p)
	fd := r.can("call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM})...)
	for _, tc := range []struct {
		want   syscall.Errno
		at, of string
	}{
		{syscall.EFAULT, "0x10", "16"},
		{syscall.EINVAL, "0x10", "129"},
		{syscall.EINVAL, "0x10", "0xffffffff"},
		{syscall.EPERM, "0x10", "0"},
	} {
		r.cannot(tc.want, "call", number(unix.SYS_CONNECT), fd, tc.at, tc.of)
	}
	r.cannot(syscall.EBADF, "connectfd", "999")
	r.can("connectfd", fd)
	r.cannot(syscall.EBADF, "call", number(unix.SYS_LISTEN), "999", "5")
	r.cannot(syscall.ENOTSOCK, "call", number(unix.SYS_LISTEN), "0", "5")
	r.can("read", "/etc/passwd")
}

// TestDenialsAreBounded: harmless denials are told once a kind, hostile ones each, and neither without end.
func TestDenialsAreBounded(t *testing.T) {
	p, _ := typical(t)
	r := startRun(t, p)
	hostile := []string{number(unix.SYS_BPF)}
	for range 3 * maxTold {
		r.cannot(syscall.EPERM, "call", hostile...)
		r.cannot(syscall.EPERM, "call", numbers([]uint64{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM})...)
	}
	for port := range uint64(2 * maxTold) {
		r.cannot(syscall.EPERM, "connect", "4", "192.0.2.1:"+number(port+1))
	}
	r.end() // after which nothing is told
	count := make(map[bool]int)
	sockets := 0
	for len(r.denials) > 0 {
		d := <-r.denials
		count[d.Hostile]++
		if d.Detail == "AF_UNIX SOCK_DGRAM" {
			sockets++
		}
	}
	if count[true] != maxTold || count[false] != maxTold || sockets != 1 {
		t.Errorf("told %d hostile and %d other denials, want %d of each; Unix sockets %d times, want once", count[true], count[false], maxTold, sockets)
	}
}

// TestCallUnderSignals: a call that a signal meets while it is answered is not made, and told, again.
func TestCallUnderSignals(t *testing.T) {
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if !knowsFlags(flags) {
		lacks(t, "the kernel does not have it so; Linux 5.19 has")
	}
	const calls = maxTold - 8 // more than maxTold are not told
	p, _ := typical(t)
	r := startRun(t, p)
	r.can("call under signals", number(calls), number(unix.SYS_KEYCTL))
	r.end()
	if told := len(r.denials); told != calls {
		t.Errorf("%d calls were told as %d", calls, told)
	}
}
