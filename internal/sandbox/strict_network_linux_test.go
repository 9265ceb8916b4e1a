//go:build amd64 || arm64

package sandbox

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// TestStrictListeners: the run's ports are served from outside, by sockets of its own network.
func TestStrictListeners(t *testing.T) {
	p, _ := strictly(t)
	h := newHost(t)
	p.Ports = []uint16{8080, 8443}
	r := acts(t, h, p, "/run")
	q, _ := strictly(t)
	other := acts(t, h, q, "/other")

	listeners := r.start.Listeners()
	if len(listeners) != 2 || len(other.start.Listeners()) != 0 {
		t.Fatalf("listeners %v and %v, want two and none", listeners, other.start.Listeners())
	}
	var serving sync.WaitGroup
	for i, l := range listeners {
		if want := "127.0.0.1:" + strconv.Itoa(int(p.Ports[i])); l.Addr().String() != want {
			t.Errorf("listener %d is at %v, want %s", i, l.Addr(), want)
		}
		serving.Go(func() { serve(l) })
	}
	t.Cleanup(func() { // before the runs are closed
		for _, l := range listeners {
			l.Close()
		}
		serving.Wait()
	})
	for range 3 {
		for _, port := range []string{"8080", "8443"} {
			if got := r.can("dial", "127.0.0.1:"+port); got != "hello" {
				t.Errorf("port %s says %q", port, got)
			}
		}
	}
	r.cannot(syscall.ECONNREFUSED, "dial", "127.0.0.1:8081")
	other.cannot(syscall.ECONNREFUSED, "dial", "127.0.0.1:8080")
	if c, err := net.Dial("tcp", listeners[0].Addr().String()); err == nil {
		c.Close()
		t.Error("the run's port is one of this host")
	}
}

// TestStrictDial: connections to what the run serves, more of them than there are sockets.
func TestStrictDial(t *testing.T) {
	p, _ := strictly(t)
	h := newHost(t)
	r := acts(t, h, p, "/run")
	q, _ := strictly(t)
	other := acts(t, h, q, "/other")
	// Of this host the port is another's, from before the run on: nobody else can take it meanwhile. It is below those that
	// the kernel gives out: a socket that dials could get it, and be connected to itself.
	port := uint16(24096)
	host, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
	for ; err != nil && port < 25000; host, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(int(port))) {
		port++ // who runs this test at the same time has it
	}
	mustDo(t, err)
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	testrun.AfterFunc(t, cancel)

	if c, err := r.start.Dial(ctx, port); err == nil {
		c.Close()
		t.Error("connected before somebody listened")
	}
	r.can("listen", "server", "tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
	if c, err := other.start.Dial(ctx, port); err == nil {
		c.Close()
		t.Error("the other run serves this run's port")
	}
	hello := func(c net.Conn) {
		t.Helper()
		if text, err := io.ReadAll(c); string(text) != "hello" || err != nil {
			t.Errorf("read %q, %v", text, err)
		}
	}
	for range 3 * maxDials {
		c, err := r.start.Dial(ctx, port)
		if err != nil {
			t.Fatal(err)
		}
		hello(c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	// All at once; the next waits for one that is closed.
	var open []net.Conn
	for range maxDials {
		c, err := r.start.Dial(ctx, port)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	short, give := context.WithCancel(ctx)
	give()
	if c, err := r.start.Dial(short, port); err == nil {
		c.Close()
		t.Error("there were more connections than sockets")
	}
	waited := make(chan net.Conn)
	go func() {
		c, err := r.start.Dial(ctx, port)
		if err != nil {
			t.Error(err)
		}
		waited <- c
	}()
	open[0].Close()
	c := <-waited
	hello(c)
	c.Close()
	c.Close()
	for _, c := range open[1:] {
		hello(c)
		c.Close()
	}

	// When the run has ended there is nobody, and afterwards nothing.
	r.in.Close()
	if _, err := io.Copy(io.Discard, r.out); err != nil {
		t.Error(err)
	}
	if c, err := r.start.Dial(ctx, port); err == nil {
		c.Close()
		t.Error("connected to a run that has ended")
	}
	for range 2 {
		if err := r.start.Close(); err != nil {
			t.Error(err)
		}
	}
	if c, err := r.start.Dial(ctx, port); err == nil {
		c.Close()
		t.Error("connected after the close")
	}
}

// TestStrictFullNetwork: the host's network, but of sockets that know no address only the run's own.
func TestStrictFullNetwork(t *testing.T) {
	p, workspace := strictly(t)
	h := newHost(t)
	p.FullNetwork = true
	host, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { serve(host) })
	t.Cleanup(func() { host.Close(); serving.Wait() })
	r := acts(t, h, p, "")
	if got := r.can("dial", host.Addr().String()); got != "hello" {
		t.Errorf("this host's port says %q", got)
	}
	if got := r.can("listen", "own", "tcp", "127.0.0.1:0"); got != "" {
		c, err := r.start.Dial(t.Context(), netPort(t, got))
		mustDo(t, err)
		c.Close()
	}
	own := r.can("listen", "path", "unix", workspace+"/socket")
	greet(t, "unix", workspace+"/theirs")
	if got := r.can("dial-unix", own); got != "hello" {
		t.Errorf("its own Unix socket says %q", got)
	}
	r.cannot(syscall.EPERM, "dial-unix", workspace+"/theirs")
	if _, failure := r.do("dial-unix", "@sandbox-test"); failure != syscall.EPERM.Error() {
		t.Errorf("an abstract socket: error %q", failure)
	}
}

func netPort(t *testing.T, address string) uint16 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	mustDo(t, err)
	port, err := strconv.ParseUint(text, 10, 16)
	mustDo(t, err)
	return uint16(port)
}
