package ipc

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler is a Handler made of two functions; a nil one answers CodeMethodNotFound or ignores.
type handler struct {
	call func(ctx context.Context, method string, params json.RawMessage) (any, error)
	note func(ctx context.Context, method string, params json.RawMessage)
}

func (h handler) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if h.call == nil {
		return nil, MethodNotFound(method)
	}
	return h.call(ctx, method, params)
}

func (h handler) HandleNotify(ctx context.Context, method string, params json.RawMessage) {
	if h.note != nil {
		h.note(ctx, method, params)
	}
}

// runPeer runs p in the bubble; the channel gets what Run returned.
func runPeer(ctx context.Context, p *Peer) <-chan error {
	end := make(chan error, 1)
	go func() { end <- p.Run(ctx) }()
	return end
}

// newPair joins two peers by pipes.
func newPair(a, b Config) (*Peer, *Peer) {
	ra, wb := io.Pipe()
	rb, wa := io.Pipe()
	a.Name, b.Name = "b", "a" // who is at the other end
	return NewPeer(ra, wa, a), NewPeer(rb, wb, b)
}

// queued is how many bytes wait for p's handlers.
func queued(p *Peer) int {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.in.bytes
}

// wire is the other side of one peer, played by hand.
type wire struct {
	*Peer
	end  <-chan error
	to   *io.PipeWriter // what the peer reads
	from *io.PipeReader // what the peer writes

	mu    sync.Mutex
	lines []string // read from the peer and not taken yet
}

// newWire runs a peer in the current bubble. If reading, everything that it writes is read at once.
func newWire(ctx context.Context, cfg Config, reading bool) *wire {
	rp, in := io.Pipe()
	out, wp := io.Pipe()
	cfg.Name = "wire"
	w := &wire{Peer: NewPeer(rp, wp, cfg), to: in, from: out}
	w.end = runPeer(ctx, w.Peer)
	if reading {
		go w.read()
	}
	return w
}

func (w *wire) read() {
	lines := bufio.NewScanner(w.from)
	lines.Buffer(nil, 2*MaxFrame)
	for lines.Scan() {
		w.mu.Lock()
		w.lines = append(w.lines, lines.Text())
		w.mu.Unlock()
	}
}

// say writes bytes to the peer, as they are. The peer may have closed its end.
func (w *wire) say(text string) { _, _ = io.WriteString(w.to, text) }

// heard waits until the bubble is quiet and takes the lines that the peer wrote.
func (w *wire) heard() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// hangUp ends the peer's input and returns what Run said.
func (w *wire) hangUp() error {
	w.to.Close()
	return <-w.end
}
