package fleet

import (
	"net"
	"sync"
	"time"
)

// Listener is a TCP socket that is served in turns, for as long as the process is a
// member: by its server while it stands by, and by another one while it leads. Who
// connects between two turns waits for the next one.
type Listener struct {
	tcp       *net.TCPListener
	accepting sync.Mutex // held by whoever accepts
	last      *turn
}

// Listen listens on HOST:PORT.
func Listen(address string) (*Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{tcp: l.(*net.TCPListener)}, nil
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close ends it.
func (l *Listener) Close() error { return l.tcp.Close() }

// Turn returns a listener on the socket. Its Close ends the turn, and leaves the socket
// open. It ends the turn before.
func (l *Listener) Turn() net.Listener {
	if l.last != nil {
		l.last.Close()
	}
	l.accepting.Lock() // who accepts has seen by then that its turn is over
	defer l.accepting.Unlock()
	l.tcp.SetDeadline(time.Time{}) //nolint:errcheck // Accept says what is wrong with the socket
	l.last = &turn{of: l, over: make(chan struct{})}
	return l.last
}

type turn struct {
	of   *Listener
	once sync.Once
	over chan struct{}
}

// Accept implements net.Listener. Its error is net.ErrClosed when the turn has ended.
func (t *turn) Accept() (net.Conn, error) {
	t.of.accepting.Lock()
	defer t.of.accepting.Unlock()
	if t.ended() {
		return nil, net.ErrClosed
	}
	conn, err := t.of.tcp.Accept()
	if err != nil && t.ended() {
		err = net.ErrClosed
	}
	return conn, err
}

func (t *turn) ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// Close implements net.Listener.
func (t *turn) Close() error {
	t.once.Do(func() {
		close(t.over)
		t.of.tcp.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // it is closed: Accept has returned
	})
	return nil
}

// Addr implements net.Listener.
func (t *turn) Addr() net.Addr { return t.of.Addr() }
