package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// echo answers with the params.
func echo(_ context.Context, _ string, params json.RawMessage) (any, error) { return params, nil }

// together runs two joined peers in a bubble, then test, then stops both.
func together(t *testing.T, a, b Config, test func(t *testing.T, a, b *Peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pa, pb := newPair(a, b)
		endA, endB := runPeer(t.Context(), pa), runPeer(t.Context(), pb)
		test(t, pa, pb)
		pa.Stop(nil)
		pb.Stop(nil)
		<-endA
		<-endB
	})
}

func TestCallsBothWaysAtOnce(t *testing.T) {
	cfg := Config{Handler: handler{call: echo}, SendQueue: 2, MaxRunning: 3, ReceiveQueue: 5000}
	together(t, cfg, cfg, func(t *testing.T, a, b *Peer) {
		var all sync.WaitGroup
		for _, p := range []*Peer{a, b} {
			for n := range 200 {
				all.Go(func() {
					var got map[string]int
					if err := p.Call(t.Context(), "echo", map[string]int{"n": n}, &got); err != nil || got["n"] != n {
						t.Errorf("call %d: got %v, %v", n, got, err)
					}
				})
			}
		}
		all.Wait()
	})
}

func TestErrorsThatHandlersReturn(t *testing.T) {
	failures := map[string]error{
		"typed":   fmt.Errorf("ask the gate: %w", &Error{Code: CodePermitRejected, Message: "no room", Data: json.RawMessage(`{"reason":"RATE_LIMIT"}`)}),
		"plain":   errors.New("disk full"),
		"params":  DecodeParams(json.RawMessage(`{"n":"x"}`), &struct{ N int }{}),
		"nothing": nil,
	}
	b := handler{call: func(_ context.Context, method string, _ json.RawMessage) (any, error) {
		switch err, known := failures[method]; {
		case method == "panic":
			panic("the sky fell")
		case method == "large":
			return strings.Repeat("x", MaxFrame), nil
		case method == "unencodable":
			return func() {}, nil
		case !known:
			return nil, MethodNotFound(method)
		default:
			return nil, err
		}
	}}
	var log bytes.Buffer
	together(t, Config{}, Config{Handler: b, Log: zerolog.New(&log).Level(zerolog.ErrorLevel)}, func(t *testing.T, a, _ *Peer) {
		for _, tc := range []struct {
			method string
			code   int
			text   string
		}{
			{"typed", CodePermitRejected, "no room"},
			{"plain", CodeInternal, "disk full"},
			{"params", CodeInvalidParams, "invalid params"},
			{"panic", CodeInternal, "panicked"},
			{"large", CodeInternal, "over the limit of 1048576 bytes"},
			{"unencodable", CodeInternal, "encode result"},
			{"missing", CodeMethodNotFound, `"missing"`},
		} {
			err := a.Call(t.Context(), tc.method, nil, nil)
			var e *Error
			if !errors.As(err, &e) || e.Code != tc.code || !strings.Contains(e.Message, tc.text) {
				t.Errorf("%s: got %v, want code %d with %q", tc.method, err, tc.code, tc.text)
			}
			if tc.method == "typed" && string(e.Data) != `{"reason":"RATE_LIMIT"}` {
				t.Errorf("data %s", e.Data)
			}
		}
		if err := a.Call(t.Context(), "nothing", nil, nil); err != nil {
			t.Errorf("after all of these: %v", err)
		}
	})
	if !strings.Contains(log.String(), "the sky fell") {
		t.Errorf("log does not tell the panic's text: %s", log.String())
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	together(t, Config{}, Config{Handler: handler{call: echo}}, func(t *testing.T, a, _ *Peer) {
		for _, params := range []any{func() {}, 42, "text", []string{strings.Repeat("x", MaxFrame)}} {
			if err := a.Call(t.Context(), "echo", params, nil); err == nil {
				t.Errorf("call with %T went through", params)
			}
			if err := a.Notify(t.Context(), "echo", params); err == nil {
				t.Errorf("notification with %T went through", params)
			}
		}
		if err := a.NotifyDroppable("x", "run", map[string]int{"dropped": 1}); err == nil {
			t.Error("a second count of drops went through")
		}
		if err := a.NotifyDroppable("x", "", struct{}{}); err == nil {
			t.Error("progress of no stream went through")
		}
		if err := a.Call(t.Context(), "echo", nil, nil); err != nil {
			t.Error("after all of these:", err)
		}
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	block := func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	cause := errors.New("changed my mind")
	together(t, Config{}, Config{Handler: handler{call: block}}, func(t *testing.T, a, _ *Peer) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		for range 2 { // while it runs, and once it is over
			if err := a.Call(ctx, "block", nil, nil); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		}
		if err := a.Notify(ctx, "note", nil); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRequestsAtOnceAreBounded(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	release := make(chan struct{})
	b := handler{call: func(context.Context, string, json.RawMessage) (any, error) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		<-release
		mu.Lock()
		running--
		mu.Unlock()
		return nil, nil
	}}
	together(t, Config{}, Config{Handler: b, MaxRunning: 3}, func(t *testing.T, a, _ *Peer) {
		release = make(chan struct{})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := a.Call(t.Context(), "x", nil, nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if running != 3 {
			t.Errorf("%d run at once, want 3", running)
		}
		close(release)
		all.Wait()
		if most != 3 {
			t.Errorf("at most %d ran at once, want 3", most)
		}
	})
}

func TestNotificationsStayInOrder(t *testing.T) {
	const notes = 500
	var got []int
	done := make(chan struct{})
	b := handler{note: func(_ context.Context, _ string, params json.RawMessage) {
		var n [1]int
		if err := DecodeParams(params, &n); err != nil {
			t.Error(err)
		}
		if got = append(got, n[0]); len(got) == notes {
			close(done)
		}
	}}
	together(t, Config{SendQueue: 4}, Config{Handler: b, ReceiveQueue: 2000}, func(t *testing.T, a, _ *Peer) {
		done = make(chan struct{})
		for n := range notes {
			if err := a.Notify(t.Context(), "n", [1]int{n}); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		for n := range notes {
			if got[n] != n {
				t.Fatalf("notification %d came as number %d", got[n], n)
			}
		}
	})
}

// A notification handler that calls the other side, which is itself waiting to get rid of more notifications than fit:
// were reading to stop while the handler waits, neither side would ever move.
func TestNotificationHandlerMayCall(t *testing.T) {
	const notes = 300
	var a *Peer
	handled := 0
	done := make(chan struct{})
	ha := handler{note: func(ctx context.Context, _ string, params json.RawMessage) {
		if err := a.Call(ctx, "echo", params, nil); err != nil {
			t.Error(err)
		}
		if handled++; handled == notes {
			close(done)
		}
	}}
	together(t, Config{Handler: ha, ReceiveQueue: 8000, SendQueue: 1}, Config{Handler: handler{call: echo}, SendQueue: 1},
		func(t *testing.T, pa, b *Peer) {
			a, done = pa, make(chan struct{})
			start := time.Now()
			for n := range notes {
				if err := b.Notify(t.Context(), "n", [1]int{n}); err != nil {
					t.Fatal(err)
				}
			}
			<-done
			if took := time.Since(start); took != 0 {
				t.Errorf("somebody waited %v for a limit to pass", took)
			}
		})
}

// The same with both sides at it, in requests as well as in notifications.
func TestHandlersOfBothSidesMayCall(t *testing.T) {
	var peers [2]*Peer
	side := func(me int) handler {
		return handler{
			call: func(ctx context.Context, method string, params json.RawMessage) (any, error) {
				if method == "echo" {
					return params, nil
				}
				return nil, peers[me].Call(ctx, "echo", params, nil)
			},
			note: func(ctx context.Context, _ string, params json.RawMessage) {
				if err := peers[me].Call(ctx, "echo", params, nil); err != nil {
					t.Error(err)
				}
			},
		}
	}
	cfg := func(me int) Config {
		return Config{Handler: side(me), ReceiveQueue: 5000, SendQueue: 1, MaxRunning: 100}
	}
	together(t, cfg(0), cfg(1), func(t *testing.T, a, b *Peer) {
		peers = [2]*Peer{a, b}
		start := time.Now()
		var all sync.WaitGroup
		for _, p := range peers {
			for n := range 50 {
				all.Go(func() {
					if err := p.Call(t.Context(), "back", [1]int{n}, nil); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					if err := p.Notify(t.Context(), "n", [1]int{n}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		synctest.Wait() // the notifications are queued, and now handled too
		if took := time.Since(start); took != 0 {
			t.Errorf("somebody waited %v for a limit to pass", took)
		}
	})
}

// A slow handler of notifications pauses reading, but not once somebody waits for an answer.
func TestSlowNotificationsDoNotDelayAnswers(t *testing.T) {
	release := make(chan struct{})
	ha := handler{note: func(context.Context, string, json.RawMessage) { <-release }}
	together(t, Config{Handler: ha, ReceiveQueue: 1000}, Config{Handler: handler{call: echo}}, func(t *testing.T, a, b *Peer) {
		release = make(chan struct{})
		for n := range 20 {
			if err := b.Notify(t.Context(), "n", [1]int{n}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := queued(a); n > 2000 {
			t.Errorf("%d bytes wait for the handler, reading should have paused", n)
		}
		if err := a.Call(t.Context(), "echo", nil, nil); err != nil {
			t.Error(err)
		}
		close(release)
	})
}

// Progress that a slow reader cannot follow is dropped, and the numbers add up; nothing else is touched.
func TestProgressIsDroppedAndCounted(t *testing.T) {
	const runs, events = 3, 200
	gate, done := make(chan struct{}), make(chan struct{})
	received, dropped := map[string]int{}, map[string]int{}
	finals, notes := 0, 0
	ha := handler{note: func(_ context.Context, method string, params json.RawMessage) {
		<-gate
		var s sent
		if err := DecodeParams(params, &s); err != nil {
			t.Error(err)
		}
		dropped[s.Stream] += s.Dropped
		switch method {
		case "progress":
			received[s.Stream]++
		case "note":
			if notes++; s.N != notes {
				t.Errorf("note %d came as number %d", s.N, notes)
			}
		case "final":
			if finals++; finals == runs {
				close(done)
			}
		}
	}}
	together(t, Config{Handler: ha, ReceiveQueue: 3000}, Config{SendQueue: 16}, func(t *testing.T, _, b *Peer) {
		gate, done = make(chan struct{}), make(chan struct{})
		for n := range events {
			for run := range runs {
				stream := fmt.Sprint("run", run)
				if err := b.NotifyDroppable("progress", stream, sent{Stream: stream, N: n}); err != nil {
					t.Fatal(err)
				}
			}
			if n%40 == 39 {
				if err := b.Notify(t.Context(), "note", sent{N: n/40 + 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
		close(gate)
		for run := range runs {
			stream := fmt.Sprint("run", run)
			if err := b.NotifyFinal(t.Context(), "final", stream, sent{Stream: stream}); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		total := 0
		for run := range runs {
			stream := fmt.Sprint("run", run)
			if received[stream]+dropped[stream] != events || dropped[stream] == 0 {
				t.Errorf("%s: %d received, %d said to be dropped of %d", stream, received[stream], dropped[stream], events)
			}
			total += dropped[stream]
		}
		if _, _, _, counted := b.Stats(); int(counted) != total {
			t.Errorf("stats count %d dropped, the other side was told %d", counted, total)
		}
		if notes != events/40 {
			t.Errorf("%d notes arrived of %d", notes, events/40)
		}
	})
}
