package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestThousand: nodes that were cut off together come back spread over the first retry, with their sessions, and
// the scheduler holds for each no more than before.
func TestThousand(t *testing.T) {
	const nodes = 1000
	synctest.Test(t, func(t *testing.T) {
		var net network
		seldom := Limits{Heartbeat: time.Minute, Silence: 5 * time.Minute}
		h := serve(t, net.listen("a"), AcceptConfig{Limits: seldom, MaxSessions: nodes})
		defer h.stop()
		var all []*node
		defer func() {
			for _, n := range all {
				n.cancel()
			}
			for _, n := range all {
				<-n.end
			}
		}()
		for i := range nodes {
			all = append(all, dial(t, DialConfig{Limits: seldom, DialContext: net.dial, Path: fmt.Sprint(i)}, "http://a"))
		}
		for _, n := range all {
			n.await(Renewed)
		}
		before, _ := memory()
		for round := range 3 {
			pass(2 * time.Minute) // the connections were good ones: the backoff begins anew
			for _, n := range all {
				mustSend(t, n.link.Channel(0), "before")
			}
			cut := time.Now()
			net.cut()
			var slots [10]int // tenths of the first retry
			for range nodes {
				<-h.resumed
				at := time.Since(cut)
				if at > 2*time.Second {
					t.Fatalf("a node was back after %v", at)
				}
				slots[min(int(at/(200*time.Millisecond)), 9)]++
			}
			for i, n := range slots {
				if n < nodes/20 || n > nodes/5 {
					t.Errorf("round %d: %d nodes came in tenth %d of %v", round, n, i, slots)
				}
			}
			for _, n := range all {
				if e := n.await(Resumed); e.Link != n.link {
					t.Fatal("another session")
				}
			}
			for _, l := range h.Links() {
				mustRecv(t, l.Channel(0), "before")
			}
		}
		pass(time.Second)
		if len(h.links) != nodes || len(h.Links()) != nodes {
			t.Errorf("%d links were made, %d are there", len(h.links), len(h.Links()))
		}
		if after, _ := memory(); after > before+nodes*8<<10 {
			t.Errorf("the heap has grown from %d to %d bytes", before, after)
		}
	})
}

// relay passes bytes between a node and a scheduler over TCP and cuts each connection after a random number of them.
type relay struct {
	ln   net.Listener
	to   string
	mu   sync.Mutex
	rand *rand.Rand
	cuts int
	most int // bytes of a connection
	wg   sync.WaitGroup
}

func (r *relay) run() {
	defer r.wg.Done()
	for {
		near, err := r.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		a, b := int64(r.rand.IntN(r.most)), int64(r.rand.IntN(r.most))
		r.cuts++
		r.mu.Unlock()
		r.wg.Add(2)
		pass := func(to, from net.Conn, n int64) {
			defer r.wg.Done()
			io.CopyN(to, from, n) //nolint:errcheck // cut either way
			to.Close()
			from.Close()
		}
		go pass(far, near, a)
		go pass(near, far, b)
	}
}

// TestCuts: over real connections that are cut at any byte, all frames of several channels arrive in both directions, in
// order and once.
func TestCuts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, ln, AcceptConfig{})
	defer h.stop()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: front, to: ln.Addr().String(), rand: rand.New(rand.NewPCG(1, 2)), most: 200 << 10}
	r.wg.Add(1)
	go r.run()
	defer r.wg.Wait()
	defer front.Close()
	n := dial(t, DialConfig{FirstRetry: time.Millisecond, LastRetry: time.Millisecond, Limits: Limits{AckDelay: time.Millisecond},
		DialContext: (&net.Dialer{}).DialContext}, "http://"+front.Addr().String())
	defer n.stop()
	near, far := n.await(Renewed).Link, <-h.links
	for near.Session() != far.Session() { // the first answers may have been cut
		select {
		case far = <-h.links:
		case e := <-n.events:
			if e.Kind == Renewed {
				near = e.Link
			}
		}
	}
	const frames = 2000
	var wg sync.WaitGroup
	for i := range 3 {
		for _, pair := range [][2]*Channel{{near.Channel(i), far.Channel(i)}, {far.Channel(i), near.Channel(i)}} {
			wg.Go(func() {
				for k := range frames {
					b := binary.BigEndian.AppendUint32(nil, uint32(k))
					if err := pair[0].Send(context.Background(), append(b, make([]byte, k%1500)...)); err != nil {
						t.Errorf("send: %v", err)
						return
					}
				}
			})
			wg.Go(func() {
				for k := range frames {
					b, err := pair[1].Recv(context.Background())
					if err != nil || len(b) != 4+k%1500 || binary.BigEndian.Uint32(b) != uint32(k) {
						t.Errorf("frame %d of channel %d is %.8x of %d bytes, %v", k, i, b, len(b), err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cuts < 20 {
		t.Errorf("%d connections were made: too few were cut to show anything", r.cuts)
	}
	t.Logf("%d connections; %+v; %+v", r.cuts, near.Status(), far.Status())
}

// BenchmarkLink sends frames of 512 bytes over TCP on the loopback.
func BenchmarkLink(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	h := serve(b, ln, AcceptConfig{})
	defer h.stop()
	n := dial(b, DialConfig{DialContext: (&net.Dialer{}).DialContext}, "http://"+ln.Addr().String())
	defer n.stop()
	near, far := n.await(Renewed).Link, <-h.links
	frame := bytes.Repeat([]byte("x"), 512)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			near.Channel(1).Send(context.Background(), frame) //nolint:errcheck // seen by the receiver
		}
	}()
	for range b.N {
		if _, err := far.Channel(1).Recv(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

// BenchmarkIdleLinks measures what a link costs that has nothing to say: both ends are in this process, over TCP.
func BenchmarkIdleLinks(b *testing.B) {
	const links = 200
	for range b.N {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		before, stacks := memory()
		h := serve(b, ln, AcceptConfig{})
		var all []*node
		for i := range links {
			all = append(all, dial(b, DialConfig{DialContext: (&net.Dialer{}).DialContext, Path: fmt.Sprint(i)}, "http://"+ln.Addr().String()))
		}
		for _, n := range all {
			n.await(Renewed)
		}
		after, more := memory()
		b.ReportMetric(float64(after-before)/links, "heap-B/pair")
		b.ReportMetric(float64(more-stacks)/links, "stack-B/pair")
		for _, n := range all {
			n.stop()
		}
		h.stop()
	}
}

func memory() (heap, stack uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}
