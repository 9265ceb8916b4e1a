package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/ipc"
)

// echo answers a call with its parameters, and notifies with them first.
type echo struct{ peer **ipc.Peer }

func (e echo) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	return params, (*e.peer).Notify(ctx, method, params)
}

func (echo) HandleNotify(context.Context, string, json.RawMessage) {}

// heard collects notifications.
type heard chan string

func (heard) HandleCall(context.Context, string, json.RawMessage) (any, error) { return nil, nil }

func (h heard) HandleNotify(_ context.Context, _ string, params json.RawMessage) { h <- string(params) }

// TestPeers: two ends of package ipc talk over a channel, across cuts, and a second conversation follows on the channel.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial, FirstRetry: time.Second}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		for range 2 {
			ctx, cancel := context.WithCancel(context.Background())
			var core *ipc.Peer
			notes := make(heard, 100)
			r, w := near.Channel(1).Lines()
			core = ipc.NewPeer(r, w, ipc.Config{Name: "scheduler", Handler: echo{&core}})
			r, w = far.Channel(1).Lines()
			scheduler := ipc.NewPeer(r, w, ipc.Config{Name: "core", Handler: notes})
			ends := make(chan error, 2)
			go func() { ends <- core.Run(ctx) }()
			go func() { ends <- scheduler.Run(ctx) }()
			for i := range 20 {
				if i%5 == 3 {
					net.cut()
				}
				var got []int
				if err := scheduler.Call(ctx, "echo", []int{i}, &got); err != nil || len(got) != 1 || got[0] != i {
					t.Fatalf("call %d: %d, %v", i, got, err)
				}
				if note := <-notes; note != "["+strconv.Itoa(i)+"]" {
					t.Fatalf("notification %d: %s", i, note)
				}
			}
			// The core ends; its stream does, and the scheduler's peer with it.
			if err := near.Channel(1).End(ctx, "exit 0"); err != nil {
				t.Fatal(err)
			}
			scheduler.ExpectEOF()
			if err := <-ends; !errors.Is(err, ipc.ErrClosed) {
				t.Errorf("the scheduler's end: %v", err)
			}
			if err := far.Channel(1).End(ctx, "seen"); err != nil {
				t.Fatal(err)
			}
			<-ends
			cancel()
		}
	})
}

// TestLines: what is written in any parts arrives as lines, and what cannot be a frame is refused.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		_, w := near.Channel(1).Lines()
		for _, part := range []string{"{\"a\"", ":1}", "\n{}\r\n\n{", "}\n"} {
			if n, err := io.WriteString(w, part); err != nil || n != len(part) {
				t.Fatalf("%q: %d, %v", part, n, err)
			}
		}
		mustRecv(t, far.Channel(1), `{"a":1}`, "{}", "{}")
		if _, err := io.WriteString(w, strings.Repeat("x", MaxFrame+2)); err == nil || !strings.Contains(err.Error(), "a line has more than") {
			t.Errorf("a long line: %v", err)
		}
		mustSend(t, far.Channel(1), "{}", "two\nlines")
		r, _ := near.Channel(1).Lines()
		lines := bufio.NewReader(r)
		if s, err := lines.ReadString('\n'); s != "{}\n" || err != nil {
			t.Fatalf("%q, %v", s, err)
		}
		var bad *ProtocolError
		if _, err := lines.ReadString('\n'); !errors.As(err, &bad) {
			t.Errorf("a frame of two lines: %v", err)
		}
		again, _ := near.Channel(1).Lines()
		end := make(chan error)
		go func() { _, err := again.Read(make([]byte, 10)); end <- err }()
		synctest.Wait()
		again.Close()
		if err := <-end; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestTLS: a node that knows the scheduler's certificate connects, and another one does not.
func TestTLS(t *testing.T) {
	a, err := NewAcceptor(AcceptConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close("test")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.Accept(w, r, "n") //nolint:errcheck // seen by the node
	}))
	srv.EnableHTTP2 = true                           // which has no such WebSockets: it must not be chosen
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // the refused handshake
	srv.StartTLS()
	defer srv.Close()
	known := srv.Client().Transport.(*http.Transport).TLSClientConfig
	n := dial(t, DialConfig{TLS: known, DialContext: (&net.Dialer{}).DialContext}, srv.URL)
	defer n.stop()
	n.await(Renewed)
	other := dial(t, DialConfig{TLS: &tls.Config{MinVersion: tls.VersionTLS13}, DialContext: (&net.Dialer{}).DialContext}, srv.URL)
	defer other.stop()
	if e := other.await(Failed); !strings.Contains(e.Err.Error(), "certificate") {
		t.Error(e.Err)
	}
}
