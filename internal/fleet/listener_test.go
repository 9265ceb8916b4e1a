package fleet_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/agentsched/agentsched/internal/fleet"
)

// Who connects between two turns is served by the next one.
func TestTurns(t *testing.T) {
	l, err := fleet.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	serve := func(turn net.Listener, as string) (served <-chan error) {
		done := make(chan error, 1)
		go func() {
			for {
				c, err := turn.Accept()
				if err != nil {
					done <- err
					return
				}
				io.WriteString(c, as) //nolint:errcheck // the other end says what came
				c.Close()
			}
		}()
		return done
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	heard := func(c net.Conn, want string) {
		defer c.Close()
		if got, err := io.ReadAll(c); err != nil || string(got) != want {
			t.Errorf("served by %q, %v; want %q", got, err, want)
		}
	}
	for _, as := range []string{"standby", "leader", "standby again"} {
		between := dial()
		turn := l.Turn()
		done := serve(turn, as)
		heard(between, as)
		heard(dial(), as)
		turn.Close()
		turn.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s ended with %v", as, err)
		}
	}
	first := serve(l.Turn(), "first")
	l.Turn()
	if err := <-first; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a turn that another one has ended: %v", err)
	}
	if _, err := fleet.Listen("127.0.0.1:none"); err == nil {
		t.Error("it listens on a port that is none")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Turn().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
