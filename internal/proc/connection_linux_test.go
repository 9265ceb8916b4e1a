package proc

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
)

// TestConnectionUser: whose a connection over loopback is, by both protocols.
func TestConnectionUser(t *testing.T) {
	for _, network := range [][2]string{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"tcp", ":0"}} {
		l, err := net.Listen(network[0], network[1])
		if err != nil {
			if network[0] == "tcp6" {
				t.Logf("no IPv6 here: %v", err)
				continue
			}
			t.Fatal(err)
		}
		defer l.Close()
		addr := l.Addr().(*net.TCPAddr).AddrPort()
		if addr.Addr().IsUnspecified() { // a socket of IPv6, asked by IPv4
			addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), addr.Port())
		}
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		from := c.LocalAddr().(*net.TCPAddr).AddrPort()
		if uid, ok := ConnectionUser(from, addr); !ok || uid != uint32(os.Geteuid()) {
			t.Errorf("%s: user %d, %v, want %d", network[0], uid, ok, os.Geteuid())
		}
		if uid, ok := ConnectionUser(from, netip.AddrPortFrom(addr.Addr(), 1)); ok {
			t.Errorf("%s: nobody is connected to port 1, and yet it is user %d", network[0], uid)
		}
	}
}

// TestConnectionOfAnother: another user's socket is told from ours.
func TestConnectionOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	const other = 12321
	if err := syscall.Fchown(fd, other, -1); err != nil { // as if that user had made it
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if uid, ok := ConnectionUser(c.RemoteAddr().(*net.TCPAddr).AddrPort(), addr); !ok || uid != other {
		t.Errorf("user %d, %v, want %d", uid, ok, other)
	}
}
