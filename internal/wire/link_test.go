package wire

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pass lets time pass, and what is due by then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestLink: frames of several channels arrive both ways, ends divide them, and the end of the node is heard.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial, Path: "link"}, "http://a")
		near, far := n.await(Renewed).Link, <-h.links
		if near.Session() != far.Session() || far.Channels() != 3 || far.Channel(3) != nil {
			t.Fatalf("sessions %q and %q, %d channels", near.Session(), far.Session(), far.Channels())
		}
		mustSend(t, near.Channel(1), "one", strings.Repeat("x", MaxFrame))
		if err := near.Channel(1).End(context.Background(), "core died"); err != nil {
			t.Fatal(err)
		}
		mustSend(t, near.Channel(1), "three")
		mustSend(t, near.Channel(0), "zero")
		mustSend(t, far.Channel(2), "down")
		mustRecv(t, far.Channel(0), "zero")
		mustRecv(t, far.Channel(1), "one", strings.Repeat("x", MaxFrame))
		_, err := far.Channel(1).Recv(context.Background())
		if end := (*EndError)(nil); !errors.As(err, &end) || end.Reason != "core died" || !errors.Is(err, io.EOF) {
			t.Fatalf("the end is %v", err)
		}
		mustRecv(t, far.Channel(1), "three")
		mustRecv(t, near.Channel(2), "down")
		for _, bad := range []int{0, MaxFrame + 1} {
			if err := near.Channel(0).Send(context.Background(), make([]byte, bad)); err == nil || !strings.Contains(err.Error(), "must have 1 to") {
				t.Errorf("a frame of %d bytes: %v", bad, err)
			}
		}
		mustSend(t, near.Channel(0), "last")
		synctest.Wait()
		n.stop()
		<-far.Done()
		mustRecv(t, far.Channel(0), "last") // what arrived is there
		if _, err := far.Channel(0).Recv(context.Background()); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "the node leaves") {
			t.Errorf("after the end: %v", err)
		}
		if err := near.Channel(0).Send(context.Background(), []byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("send after the end: %v", err)
		}
	})
}

// TestResume: what is sent while there is no connection, or was under way, arrives once and in order.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		mustSend(t, near.Channel(1), "1")
		mustRecv(t, far.Channel(1), "1")
		for range 5 {
			net.cut()
			cut := n.await(Cut)
			if cut.Err == nil || near.Err() != nil {
				t.Fatalf("cut: %v, link %v", cut.Err, near.Err())
			}
			mustSend(t, near.Channel(1), "2", "3")
			mustSend(t, far.Channel(1), "down")
			if e := n.await(Resumed); e.Link != near || e.Address != "http://a" || <-h.resumed != far {
				t.Fatalf("resumed %+v", e)
			}
			mustRecv(t, far.Channel(1), "2", "3")
			mustRecv(t, near.Channel(1), "down")
		}
		pass(time.Second) // virtual: all is acknowledged
		if s := near.Status(); s.Acked != 11 || s.Sent != 11 || s.Received != 5 || !s.Connected {
			t.Errorf("status %+v", s)
		}
		if l := len(near.kept); l != 0 {
			t.Errorf("%d frames are kept", l)
		}
	})
}

// TestHalfOpen: a connection on which nothing arrives is cut by both ends, and the session goes on.
func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		pass(time.Minute) // heartbeats alone keep it
		heard := far.LastHeard()
		if age := time.Since(heard.At); age > 5*time.Second || time.Since(heard.Heartbeat) > 5*time.Second {
			t.Fatalf("heard %v ago", age)
		}
		if heard.Reading < 54*time.Second || heard.Reading > time.Minute {
			t.Errorf("reading %v after a minute", heard.Reading)
		}
		if len(n.events) > 0 {
			t.Fatalf("an event of an idle link: %+v", <-n.events)
		}
		net.kill()
		mustSend(t, near.Channel(0), strings.Repeat("x", 100<<10)) // its write hangs
		began := time.Now()
		var silent *SilentError
		if e := n.await(Cut); !errors.As(e.Err, &silent) {
			t.Fatalf("cut: %v", e.Err)
		}
		if took := time.Since(began); took < 15*time.Second || took > 21*time.Second {
			t.Errorf("cut after %v", took)
		}
		n.await(Resumed)
		mustRecv(t, far.Channel(0), strings.Repeat("x", 100<<10))
	})
}

// TestBackpressure: a channel whose frames nobody takes blocks who sends on it and nobody else; without a connection
// the resend buffer does, and a context ends the wait.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		const frames = 100
		frame := strings.Repeat("x", 100<<10)
		sent := 0
		go func() {
			for range frames {
				if near.Channel(1).Send(context.Background(), []byte(frame)) != nil {
					return
				}
				sent++
			}
		}()
		pass(time.Minute)
		if full := Window / (len(frame) + frameCost); sent != full {
			t.Fatalf("%d frames were sent without being taken; want %d", sent, full)
		}
		mustSend(t, near.Channel(2), "past it", strings.Repeat("y", MaxFrame))
		mustRecv(t, far.Channel(2), "past it", strings.Repeat("y", MaxFrame))
		net.cut()
		n.await(Resumed)
		for range frames {
			mustRecv(t, far.Channel(1), frame)
		}

		// Without a connection: channels 0 and 2 fill the resend buffer.
		h.srv.Close()
		net.cut()
		n.await(Cut)
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, errors.New("an hour"))
		defer cancel()
		var err error
		for i := 0; err == nil; i++ {
			err = near.Channel(i%3).Send(ctx, []byte(frame))
		}
		if !strings.Contains(err.Error(), "an hour") {
			t.Errorf("a full buffer: %v", err)
		}
		var kept int64
		near.mu.Lock()
		for _, k := range near.kept {
			kept += k.cost()
		}
		near.mu.Unlock()
		if limit := near.limits.Resend; kept > limit || kept < limit-int64(len(frame))-frameCost {
			t.Errorf("%d bytes are kept; the limit is %d", kept, limit)
		}
	})
}

// TestRenewed: a session that a scheduler does not know is replaced, and so is one without a connection for too long.
func TestRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{Keep: time.Minute})
		n := dial(t, DialConfig{DialContext: net.dial, FirstRetry: time.Second, LastRetry: time.Second}, "http://a")
		defer n.stop()
		old := n.await(Renewed).Link
		<-h.links
		h.srv.Close() // crashes: its sessions are gone without a word
		<-h.served
		net.cut()
		n.await(Cut)
		mustSend(t, old.Channel(1), "lost with the session")
		other := serve(t, net.listen("a"), AcceptConfig{Keep: time.Minute})
		defer other.stop()
		renewed := n.await(Renewed).Link
		if renewed == old || !errors.Is(old.Err(), ErrRenewed) {
			t.Fatalf("the old link: %v", old.Err())
		}
		if err := old.Channel(1).Send(context.Background(), []byte("x")); !errors.Is(err, ErrRenewed) {
			t.Errorf("send on the old link: %v", err)
		}
		far := <-other.links
		mustSend(t, renewed.Channel(1), "again")
		mustRecv(t, far.Channel(1), "again")
		h.Close("test")

		// The node is away for longer than its session is kept.
		saved := net.hosts["a:80"]
		net.mu.Lock()
		delete(net.hosts, "a:80")
		net.mu.Unlock()
		net.cut()
		<-far.Done()
		synctest.Wait()
		if !errors.Is(far.Err(), ErrExpired) || len(other.Links()) != 0 {
			t.Errorf("kept for too long: %v, %d links", far.Err(), len(other.Links()))
		}
		net.mu.Lock()
		net.hosts["a:80"] = saved
		net.mu.Unlock()
		if again := n.await(Renewed).Link; again == renewed || !errors.Is(renewed.Err(), ErrRenewed) {
			t.Errorf("the link that expired: %v", renewed.Err())
		}
		// A second process of the same node takes its place.
		third := <-other.links
		second := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer second.stop()
		<-third.Done()
		if !errors.Is(third.Err(), ErrRenewed) {
			t.Errorf("replaced: %v", third.Err())
		}
	})
}

// TestLostWindow: what was told of a channel on a connection that was dead already is told again on the next one.
func TestLostWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		h := serve(t, net.listen("a"), AcceptConfig{})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		frame := strings.Repeat("x", MaxFrame)
		mustSend(t, near.Channel(1), frame, frame)
		synctest.Wait() // they have arrived, and nothing was taken
		net.kill()
		mustRecv(t, far.Channel(1), frame, frame)
		n.await(Resumed)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := near.Channel(1).Send(ctx, []byte(frame)); err != nil {
			t.Fatal(err)
		}
		mustRecv(t, far.Channel(1), frame)
	})
}

// TestConfirm: an end that may not confirm what it hears keeps the session alive all the same, and the other end sees that it
// is not confirmed; a pace that changes holds for both.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		var may atomic.Bool
		may.Store(true)
		h := serve(t, net.listen("a"), AcceptConfig{Limits: Limits{Confirm: may.Load}})
		defer h.stop()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		near, far := n.await(Renewed).Link, <-h.links
		near.SetPace(time.Second, 2*time.Second)
		far.SetPace(time.Second, 2*time.Second)
		pass(time.Minute)
		if age := near.Unconfirmed(); age > 2*time.Second {
			t.Errorf("with a heartbeat a second, what was sent %v ago is not confirmed", age)
		}
		may.Store(false)
		pass(time.Minute)
		if age := near.Unconfirmed(); age < time.Minute || age > time.Minute+2*time.Second {
			t.Errorf("nothing is confirmed for a minute, and the last confirmation is %v old", age)
		}
		if !near.Status().Connected || far.Unconfirmed() > 2*time.Second {
			t.Errorf("connected %v; what the other end sent %v ago is confirmed", near.Status().Connected, far.Unconfirmed())
		}
		may.Store(true)
		pass(2 * time.Second)
		if age := near.Unconfirmed(); age > 2*time.Second {
			t.Errorf("allowed again, what was sent %v ago is not confirmed", age)
		}
		net.cut()
		if e := n.await(Cut); e.Kind != Cut {
			t.Fatal(e)
		}
		n.await(Resumed)
		pass(5 * time.Second)
		if age := near.Unconfirmed(); age > 2*time.Second {
			t.Errorf("after a cut, what was sent %v ago is not confirmed", age)
		}
	})
}
