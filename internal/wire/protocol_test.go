package wire

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// raw is a node played by hand.
type raw struct {
	*websocket.Conn
	answer *http.Response
}

func rawDial(net *network, header http.Header, name ...string) (raw, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: net.dial, DisableKeepAlives: true}}
	ws, answer, err := websocket.Dial(context.Background(), "http://a/"+strings.Join(name, ""), &websocket.DialOptions{HTTPClient: client, HTTPHeader: header, Subprotocols: []string{Protocol}})
	return raw{ws, answer}, err
}

func headers(session, received, channels string) http.Header {
	return http.Header{HeaderSession: {session}, HeaderReceived: {received}, HeaderChannels: {channels}}
}

func encoded(m message) []byte { return m.appendTo(nil) }

// TestHostileMessages: each ends the connection with an error that says what is wrong with it; the session goes on.
func TestHostileMessages(t *testing.T) {
	data := func(number, ack uint64, channel uint16) []byte {
		return encoded(message{kind: kindData, channel: channel, number: number, ack: ack, payload: []byte("{}")})
	}
	var flood [][]byte
	for n := range uint64(3) {
		flood = append(flood, encoded(message{kind: kindData, number: n + 1, payload: make([]byte, MaxFrame)}))
	}
	for name, c := range map[string]struct {
		send [][]byte
		want string
	}{
		"empty":           {[][]byte{{}}, "message: it is empty"},
		"kind":            {[][]byte{{99}}, "message: its first byte is 99"},
		"kind zero":       {[][]byte{{0}}, "message: its first byte is 0"},
		"short":           {[][]byte{{1, 0, 0}}, "data: the message has 3 bytes; it must have 20 to 1048595"},
		"no payload":      {[][]byte{data(1, 0, 0)[:dataHead]}, "data: the message has 19 bytes"},
		"long ack":        {[][]byte{append(encoded(message{kind: kindAck}), 0)}, "ack: the message has 10 bytes; it must have 9 to 9"},
		"gap":             {[][]byte{data(1, 0, 0), data(3, 0, 0)}, "data: its number is 3; 2 must be next"},
		"channel":         {[][]byte{data(1, 0, 2)}, "data: channel 2 of number 1 is unknown; there are 0 to 1"},
		"window channel":  {[][]byte{encoded(message{kind: kindWindow, channel: 7})}, "window: channel 7 is unknown"},
		"window":          {[][]byte{encoded(message{kind: kindWindow, taken: 1})}, "window: 1 bytes of channel 0 were taken; 0 were sent"},
		"ack":             {[][]byte{encoded(message{kind: kindAck, ack: 1})}, "ack: it acknowledges number 1; the last one sent is 0"},
		"ack with data":   {[][]byte{data(1, 9, 0)}, "data: it acknowledges number 9"},
		"echo":            {[][]byte{encoded(message{kind: kindHeartbeat, echo: 1 << 60})}, "heartbeat: it echoes a reading of 1152921504606846976 ns"},
		"reason":          {[][]byte{encoded(message{kind: kindEnd, number: 1, payload: []byte{0xff}})}, "is not UTF-8"},
		"over its window": {flood, "data: channel 0 has 3145920 bytes that were not taken; the most is 2097280"},
		"too long":        {[][]byte{make([]byte, readLimit+1)}, "message: it has more than 1048595 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net network
				h := serve(t, net.listen("a"), AcceptConfig{})
				defer h.stop()
				n, err := rawDial(&net, headers("", "0", "2"))
				if err != nil {
					t.Fatal(err)
				}
				defer n.CloseNow()
				link := <-h.links
				link.mu.Lock()
				conn := link.conn
				link.mu.Unlock()
				go func() {
					for _, b := range c.send {
						if n.Write(context.Background(), websocket.MessageBinary, b) != nil {
							return
						}
					}
				}()
				var said error
				for said == nil { // what the other end says, to its last word
					_, _, said = n.Read(context.Background())
				}
				<-conn.gone
				var bad *ProtocolError
				if err := conn.err(); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v\nwant %s", err, c.want)
				}
				var closed websocket.CloseError
				if !errors.As(said, &closed) || closed.Reason == "" {
					t.Errorf("the node was told %v", said)
				}
				if link.Err() != nil {
					t.Errorf("the session has ended: %v", link.Err())
				}
			})
		})
	}
}

// TestText: a text message is refused.
func TestText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n, err := rawDial(&net, headers("", "0", "2"))
		if err != nil {
			t.Fatal(err)
		}
		defer n.CloseNow()
		if err := n.Write(context.Background(), websocket.MessageText, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, _, err = n.Read(context.Background())
		}
		if !strings.Contains(err.Error(), "it is text; it must be binary") {
			t.Error(err)
		}
	})
}

// TestHostileHandshakes are refused, or begin a new session.
func TestHostileHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{MaxSessions: 1})
		defer h.stop()
		for _, c := range []struct {
			h      http.Header
			status int
		}{
			{headers("", "0", ""), 400}, {headers("", "0", "0"), 400}, {headers("", "0", "65"), 400},
			{headers("", "", "1"), 400}, {headers("", "-1", "1"), 400}, {headers("", "9223372036854775808", "1"), 400},
		} {
			if n, err := rawDial(&net, c.h); err == nil || n.answer.StatusCode != c.status {
				t.Errorf("%v: %v", c.h, err)
			} else if err := <-h.errs; !strings.Contains(err.Error(), "wire: Agentsched-") {
				t.Errorf("%v: %v", c.h, err)
			}
		}
		req, err := http.NewRequest(http.MethodGet, "http://a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = headers("", "0", "1")
		client := &http.Client{Transport: &http.Transport{DialContext: net.dial, DisableKeepAlives: true}}
		if answer, err := client.Do(req); err != nil || answer.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("no WebSocket: %v, %v", answer, err)
		} else {
			answer.Body.Close()
		}
		<-h.errs

		first, err := rawDial(&net, headers("", "5", "1")) // what it has received of an older one does not count
		if err != nil {
			t.Fatal(err)
		}
		defer first.CloseNow()
		link := <-h.links
		if n, err := rawDial(&net, headers("", "0", "1"), "other"); err == nil || n.answer.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a node too many: %v", err)
		}
		<-h.errs
		id := link.Session()
		for _, c := range []http.Header{headers(id, "7", "1"), headers("x", "0", "1")} {
			n, err := rawDial(&net, c)
			if err != nil {
				t.Fatal(err)
			}
			defer n.CloseNow()
			next := <-h.links
			if <-link.Done(); !errors.Is(link.Err(), ErrRenewed) {
				t.Errorf("%v: %v", c, link.Err())
			}
			if got := n.answer.Header.Get(HeaderSession); got != next.Session() || got == id {
				t.Errorf("session %q after %q", got, id)
			}
			link, id = next, next.Session()
		}
		more, err := rawDial(&net, headers(id, "0", "2")) // another number of channels
		if err != nil {
			t.Fatal(err)
		}
		defer more.CloseNow()
		if <-link.Done(); !strings.Contains(link.Err().Error(), "Agentsched-Channels: it is 2; the session has 1") {
			t.Error(link.Err())
		}
	})
}

// TestDuplicates: what arrives again is dropped and acknowledged.
func TestDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n, err := rawDial(&net, headers("", "0", "1"))
		if err != nil {
			t.Fatal(err)
		}
		defer n.CloseNow()
		link := <-h.links
		go func() {
			for _, number := range []uint64{1, 1, 2, 1, 2, 3} {
				n.Write(context.Background(), websocket.MessageBinary, encoded(message{kind: kindData, number: number, payload: []byte{byte('0' + number)}})) //nolint:errcheck // seen by the reader
			}
		}()
		mustRecv(t, link.Channel(0), "1", "2", "3")
		for {
			_, b, err := n.Read(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if m, err := decode(b); err != nil {
				t.Fatal(err)
			} else if m.ack == 3 {
				break
			}
		}
		if s := link.Status(); s.Duplicates != 3 || s.Received != 3 {
			t.Errorf("%+v", s)
		}
		pass(time.Second)
		if len(link.Channel(0).queue) > 0 {
			t.Error("something arrived twice")
		}
	})
}

// FuzzDecode: whatever arrives is a message, which is encoded to the same bytes, or a ProtocolError; and a link
// takes it without a panic.
func FuzzDecode(f *testing.F) {
	for _, m := range []message{
		{kind: kindData, channel: 1, number: 1, ack: 2, payload: []byte("{}")}, {kind: kindEnd, number: 1, payload: []byte("why")},
		{kind: kindAck, ack: 1 << 63}, {kind: kindWindow, channel: 2, taken: 5}, {kind: kindHeartbeat, reading: 1, echo: 2, held: 3}, {kind: kindBye, payload: []byte("bye")},
	} {
		f.Add(encoded(m))
	}
	f.Add([]byte{})
	f.Add([]byte{7})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		var bad *ProtocolError
		if err != nil {
			if !errors.As(err, &bad) || bad.Where == "" || bad.Why == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		if !bytes.Equal(encoded(m), b) {
			t.Fatalf("%+v of %x is encoded as %x", m, b, encoded(m))
		}
		limits, err := Limits{Resend: Window}.orDefaults()
		if err != nil {
			t.Fatal(err)
		}
		l := newLink("s", "n", 2, limits)
		c := &conn{link: l, poke: make(chan struct{}, 1)}
		l.conn = c
		for _, ch := range l.channels { // something is on its way
			mustSend(t, ch, "a frame")
		}
		l.written = 1
		if err := l.receive(c, m); err != nil && !errors.As(err, &bad) {
			t.Fatalf("%v", err)
		}
		l.conn = nil
		l.end(ErrClosed, "")
	})
}

func TestReasons(t *testing.T) {
	long := strings.Repeat("ä", maxReason)
	if got := cutReason(long); len(got) > maxReason || !strings.HasPrefix(long, got) {
		t.Errorf("cut to %d bytes", len(got))
	}
	b := encoded(message{kind: kindBye, payload: []byte(cutReason("\xff" + long))})
	if _, err := decode(b); err != nil {
		t.Error(err)
	}
}

// TestRoundTrip: an echo tells how long the way was, without the time for which it was held.
func TestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n, err := rawDial(&net, headers("", "0", "1"))
		if err != nil {
			t.Fatal(err)
		}
		defer n.CloseNow()
		link := <-h.links
		_, b, err := n.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		first, err := decode(b)
		if err != nil || first.kind != kindHeartbeat {
			t.Fatalf("%+v, %v; want a heartbeat first", first, err)
		}
		for held, want := range map[time.Duration]time.Duration{100 * time.Millisecond: 200 * time.Millisecond, time.Hour: 0} {
			link.mu.Lock()
			sent := link.now() - uint64(300*time.Millisecond) + uint64(time.Second)
			link.mu.Unlock()
			time.Sleep(time.Second)
			answer := encoded(message{kind: kindHeartbeat, reading: 7, echo: sent, held: uint64(held)})
			if err := n.Write(context.Background(), websocket.MessageBinary, answer); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := link.LastHeard(); got.RoundTrip.Round(time.Millisecond) != want || got.Reading != 7 || !got.At.Equal(got.Heartbeat) || time.Since(got.At) != 0 {
				t.Errorf("held for %v: %+v; want %v", held, got, want)
			}
			if got := link.Unconfirmed().Round(time.Millisecond); got != 300*time.Millisecond {
				t.Errorf("%v have passed since the heartbeat that was answered, want 300ms", got)
			}
		}
	})
}

// TestStepsDown: a scheduler that closes its sessions says why, and nodes ask elsewhere.
func TestStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		other := serve(t, net.listen("b"), AcceptConfig{})
		defer other.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a", "http://b")
		defer n.stop()
		link, far := n.await(Renewed).Link, <-h.links
		h.Close("another one leads")
		<-link.Done()
		if err := link.Err(); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "another one leads") {
			t.Errorf("the node's link: %v", err)
		}
		if !errors.Is(far.Err(), ErrClosed) {
			t.Errorf("the scheduler's: %v", far.Err())
		}
		if e := n.await(Cut); !errors.Is(e.Err, ErrGone) {
			t.Errorf("%v", e.Err)
		}
		if e := n.await(Renewed); e.Address != "http://b" || e.Link == link {
			t.Errorf("%+v", e)
		}
		h.stop()
	})
}
