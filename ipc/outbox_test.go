package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// sent is what the tests put into an outbox.
type sent struct {
	Stream  string `json:"stream,omitempty"`
	N       int    `json:"n"`
	Final   bool   `json:"final,omitempty"`
	Dropped int    `json:"dropped,omitempty"`
}

func frameOf(t interface{ Fatal(...any) }, s sent) []byte {
	frame, err := encodeRequest("", "x", s)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func sentIn(t interface{ Fatal(...any) }, frame []byte) sent {
	var envelope struct {
		Params sent `json:"params"`
	}
	if err := json.Unmarshal(frame, &envelope); err != nil {
		t.Fatal(err)
	}
	return envelope.Params
}

// Whatever is sent and read in whatever order: nothing that must arrive is missing or out of order, what arrives of a
// stream is in order, and each gap is said by the very next frame of its stream.
func TestOutboxProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		o := newOutbox(limit)
		var must []int                   // sent and not received
		progress := make(map[string]int) // last number sent in a stream
		seen := make(map[string]int)     // last number received, or said to be dropped
		n := 0
		put := func(f outFrame) {
			if err := o.put(t.Context(), f, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		take := func() {
			frame, ok := o.next()
			if !ok {
				t.Fatal("outbox ended")
			}
			s := sentIn(t, frame)
			if s.Stream == "" || s.Final {
				if s.N != must[0] {
					t.Fatalf("frame %d arrived, %d was next", s.N, must[0])
				}
				must = must[1:]
			}
			switch {
			case s.Final:
				if seen[s.Stream]+s.Dropped != progress[s.Stream] {
					t.Fatalf("stream %s: %d seen and %d said to be dropped of %d", s.Stream, seen[s.Stream], s.Dropped, progress[s.Stream])
				}
				seen[s.Stream] = progress[s.Stream]
			case s.Stream != "":
				if seen[s.Stream]+s.Dropped+1 != s.N {
					t.Fatalf("stream %s: %d after %d with %d said to be dropped", s.Stream, s.N, seen[s.Stream], s.Dropped)
				}
				seen[s.Stream] = s.N
			case s.Dropped != 0:
				t.Fatal("a gap in a frame without stream")
			}
		}
		mayBlock := func() bool { return o.queue.Len() == limit && o.progress.Len() == 0 }
		streams := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"progress": func(t *rapid.T) {
				s := streams.Draw(t, "stream")
				progress[s]++
				put(outFrame{bytes: frameOf(t, sent{Stream: s, N: progress[s]}), stream: s, droppable: true})
			},
			"must": func(t *rapid.T) {
				if mayBlock() {
					t.Skip()
				}
				n++
				must = append(must, n)
				put(outFrame{bytes: frameOf(t, sent{N: n})})
			},
			"take": func(t *rapid.T) {
				if o.queue.Len() == 0 {
					t.Skip()
				}
				take()
			},
			"": func(t *rapid.T) {
				if o.queue.Len() > limit {
					t.Fatalf("%d frames queued, the limit is %d", o.queue.Len(), limit)
				}
			},
		})
		for s := range progress {
			for mayBlock() {
				take()
			}
			n++
			must = append(must, n)
			put(outFrame{bytes: frameOf(t, sent{Stream: s, N: n, Final: true}), stream: s})
		}
		for o.queue.Len() > 0 {
			take()
		}
		if len(must) != 0 || len(o.gaps) != 0 {
			t.Fatalf("lost %v, gaps not said %v", must, o.gaps)
		}
	})
}

func TestOutboxWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(1)
		results := make(chan error, 4)
		for n := range 4 {
			go func() { results <- o.put(t.Context(), outFrame{bytes: frameOf(t, sent{N: n})}, time.Minute) }()
			synctest.Wait()
		}
		for n := range 4 {
			frame, ok := o.next()
			if !ok || sentIn(t, frame).N != n {
				t.Fatalf("got %s, want number %d", frame, n)
			}
		}
		for range 4 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOutboxWaitEnds(t *testing.T) {
	cause := errors.New("enough")
	for _, tc := range []struct {
		name string
		end  func(o *outbox, cancel context.CancelCauseFunc)
		want error
	}{
		{"by its context", func(_ *outbox, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
		{"by a failure", func(o *outbox, _ context.CancelCauseFunc) { o.fail(cause) }, cause},
		{"by the limit", func(*outbox, context.CancelCauseFunc) { <-time.After(time.Minute) }, ErrHung},
		{"by room", func(o *outbox, _ context.CancelCauseFunc) { o.next() }, nil},
		{"by room after it was closed", func(o *outbox, _ context.CancelCauseFunc) { o.close(cause); o.next() }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				o := newOutbox(1)
				for n := range 2 {
					if err := o.put(ctx, outFrame{bytes: frameOf(t, sent{N: n}), stream: "a", droppable: true}, time.Minute); err != nil {
						t.Fatal(err)
					}
				}
				if err := o.put(ctx, outFrame{bytes: frameOf(t, sent{N: 2})}, time.Minute); err != nil {
					t.Fatal("a droppable frame did not make room:", err)
				}
				result := make(chan error, 1)
				go func() { result <- o.put(ctx, outFrame{bytes: frameOf(t, sent{N: 3})}, time.Minute) }()
				synctest.Wait()
				tc.end(o, cancel)
				if err := <-result; !errors.Is(err, tc.want) {
					t.Fatalf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}

func TestGapIsSaidInParams(t *testing.T) {
	for _, tc := range []struct{ params, want string }{
		{`{}`, `{"dropped":7}`},
		{`{"a":1}`, `{"a":1,"dropped":7}`},
		{`{"a":{}}`, `{"a":{},"dropped":7}`},
		{`{"a":{"dropped":1}}`, `{"a":{"dropped":1},"dropped":7}`},
		{`{"a":"\"dropped\":1}}"}`, `{"a":"\"dropped\":1}}","dropped":7}`},
		{`{"dropped":1}`, ""},
		{`[]`, ""},
		{`null`, ""},
	} {
		frame, err := encodeRequest("", "m", json.RawMessage(tc.params))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkDroppable(frame); (err == nil) != (tc.want != "") {
			t.Errorf("%s: %v", tc.params, err)
			continue
		}
		if tc.want == "" {
			continue
		}
		before := string(frame)
		want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"m","params":%s}`, tc.want)
		if got := addDropped(frame, 7); string(got) != want || string(frame) != before {
			t.Errorf("%s: got %s, want %s", tc.params, got, want)
		}
	}
}

// What is patient waits for company, but not for long, and goes out before and
// in one write with what follows it.
func TestPatientFramesShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes countingWriter
		r, in := io.Pipe()
		p := NewPeer(r, &writes, Config{Handler: handler{
			call: func(context.Context, string, json.RawMessage) (any, error) { return Unhurried{Result: "later"}, nil },
		}})
		end := runPeer(t.Context(), p)
		fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		synctest.Wait()
		if err := p.NotifyPatient(t.Context(), "soon", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(writes.all()); n != 0 {
			t.Errorf("%d writes at once", n)
		}
		if err := p.Notify(t.Context(), "now", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := []string{`{"jsonrpc":"2.0","id":1,"result":"later"}` + "\n" +
			`{"jsonrpc":"2.0","method":"soon"}` + "\n" + `{"jsonrpc":"2.0","method":"now"}` + "\n"}
		if got := writes.all(); !slices.Equal(got, want) {
			t.Errorf("writes: %q", got)
		}
		if err := p.NotifyPatient(t.Context(), "alone", nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(linger)
		synctest.Wait()
		if n := len(writes.all()); n != 2 {
			t.Errorf("%d writes after its time", n)
		}
		in.Close()
		<-end
	})
}

// countingWriter keeps each write apart.
type countingWriter struct {
	mu   sync.Mutex
	kept []string
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, string(p))
	return len(p), nil
}

func (w *countingWriter) Close() error { return nil }

func (w *countingWriter) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.kept)
}
