package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// However the stream ends, Run says how, and a call that waits ends with the same cause.
func TestEnds(t *testing.T) {
	cause := errors.New("the owner's reason")
	broken := errors.New("cable pulled")
	for _, tc := range []struct {
		name string
		end  func(w *wire, cancel context.CancelCauseFunc)
		want error
	}{
		{"end of stream", func(w *wire, _ context.CancelCauseFunc) { w.to.Close() }, ErrEOF},
		{"agreed end", func(w *wire, _ context.CancelCauseFunc) { w.ExpectEOF(); w.to.Close() }, ErrClosed},
		{"torn line", func(w *wire, _ context.CancelCauseFunc) { w.say(`{"jsonrpc"`); w.to.Close() }, io.ErrUnexpectedEOF},
		{"torn line after agreement", func(w *wire, _ context.CancelCauseFunc) { w.ExpectEOF(); w.say(`{`); w.to.Close() }, io.ErrUnexpectedEOF},
		{"broken stream", func(w *wire, _ context.CancelCauseFunc) { w.to.CloseWithError(broken) }, broken},
		{"garbage", func(w *wire, _ context.CancelCauseFunc) { w.say(strings.Repeat("garbage\n", 10)) }, ErrGarbage},
		{"context", func(_ *wire, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
		{"stop", func(w *wire, _ context.CancelCauseFunc) { w.Stop(cause) }, cause},
		{"stop without cause", func(w *wire, _ context.CancelCauseFunc) { w.Stop(nil) }, ErrStopped},
		{"stop twice", func(w *wire, _ context.CancelCauseFunc) { w.Stop(cause); w.Stop(broken) }, cause},
		{"nothing can be written, then the end", func(w *wire, _ context.CancelCauseFunc) {
			w.from.Close()
			_ = w.Notify(context.Background(), "x", nil)
			synctest.Wait()
			w.to.Close()
		}, ErrEOF},
		{"nothing can be written and no end", func(w *wire, _ context.CancelCauseFunc) {
			w.from.Close()
			_ = w.Notify(context.Background(), "x", nil)
		}, ErrHung},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				w := newWire(ctx, Config{}, true)
				called := make(chan error, 1)
				go func() { called <- w.Call(t.Context(), "never answered", nil, nil) }()
				synctest.Wait()
				tc.end(w, cancel)
				err := <-w.end
				if !errors.Is(err, tc.want) {
					t.Errorf("run: got %v, want %v", err, tc.want)
				}
				var torn *TornError
				if errors.Is(tc.want, io.ErrUnexpectedEOF) && !errors.As(err, &torn) {
					t.Errorf("run: %v is no TornError", err)
				}
				if err := <-called; !errors.Is(err, tc.want) {
					t.Errorf("call: got %v, want %v", err, tc.want)
				}
				if err := w.Call(t.Context(), "afterwards", nil, nil); !errors.Is(err, tc.want) {
					t.Errorf("call afterwards: got %v, want %v", err, tc.want)
				}
				if err := w.Notify(t.Context(), "afterwards", nil); err == nil {
					t.Error("a notification afterwards was taken")
				}
				<-w.ReadDone()
				w.Stop(nil)
				if err := w.Run(ctx); !errors.Is(err, ErrStarted) {
					t.Errorf("second run: %v", err)
				}
			})
		})
	}
}

// The other side sees the end of the stream only when BeforeClose has returned; who stops a peer knows why.
func TestBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, leave := make(chan error), make(chan struct{})
		w := newWire(t.Context(), Config{BeforeClose: func(cause error) { told <- cause; <-leave }}, false)
		ended := make(chan struct{})
		go func() { w.read(); close(ended) }()
		w.say(strings.Repeat("garbage\n", 10))
		if cause := <-told; !errors.Is(cause, ErrGarbage) {
			t.Errorf("told %v", cause)
		}
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the stream was closed before")
		default:
		}
		close(leave)
		<-ended
		if err := <-w.end; !errors.Is(err, ErrGarbage) {
			t.Errorf("run: %v", err)
		}

		w = newWire(t.Context(), Config{BeforeClose: func(cause error) { t.Errorf("told that it was stopped: %v", cause) }}, true)
		w.Stop(nil)
		if err := <-w.end; !errors.Is(err, ErrStopped) {
			t.Errorf("run: %v", err)
		}
	})
}

func TestStopBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(Config{}, Config{})
		a.Stop(nil)
		if err := a.Run(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("stopped before: %v", err)
		}
		if err := b.Run(t.Context()); !errors.Is(err, ErrEOF) {
			t.Errorf("the other side: %v", err)
		}
	})
}

// The other side takes nothing: the hang limit passes once, and both a full queue and a stuck write are found.
func TestHung(t *testing.T) {
	const limit = 3 * time.Second
	for _, tc := range []struct {
		name  string
		queue int
		notes int
	}{
		{"in the write", 100, 1},
		{"with a full queue", 2, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				w := newWire(t.Context(), Config{HangLimit: limit, SendQueue: tc.queue}, false)
				errs := make(chan error, tc.notes)
				for n := range tc.notes {
					go func() { errs <- w.Notify(t.Context(), "n", [1]int{n}) }()
				}
				if err := <-w.end; !errors.Is(err, ErrHung) {
					t.Errorf("run: %v", err)
				}
				if took := time.Since(start); took != limit {
					t.Errorf("took %v", took)
				}
				failed := 0
				for range tc.notes {
					if err := <-errs; errors.Is(err, ErrHung) {
						failed++
					} else if err != nil {
						t.Error(err)
					}
				}
				if want := max(0, tc.notes-tc.queue-1); failed != want {
					t.Errorf("%d notifications failed, want %d", failed, want)
				}
			})
		})
	}
}

// A peer that reads slowly, but does read, is not hung.
func TestSlowIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t.Context(), Config{HangLimit: time.Second, SendQueue: 1}, false)
		sent := make(chan error, 1)
		go func() {
			for n := range 10 {
				if err := w.Notify(t.Context(), "n", [1]int{n}); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		d := NewDecoder(w.from, 0)
		for range 10 {
			<-time.After(900 * time.Millisecond)
			if _, err := d.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if err := w.hangUp(); !errors.Is(err, ErrEOF) {
			t.Error(err)
		}
	})
}

// One that never stops reading, but so slowly that a sender waits for longer than the limit, is.
func TestTooSlowIsHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := newWire(t.Context(), Config{HangLimit: time.Second, SendQueue: 1}, false)
		errs := make(chan error, 5)
		for n := range cap(errs) {
			go func() { errs <- w.Notify(t.Context(), "n", [1]int{n}) }()
		}
		<-time.After(900 * time.Millisecond)
		if _, err := NewDecoder(w.from, 0).Next(); err != nil {
			t.Fatal(err)
		}
		if err := <-w.end; !errors.Is(err, ErrHung) {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
		hung := 0
		for range cap(errs) {
			if err := <-errs; errors.Is(err, ErrHung) {
				hung++
			}
		}
		if hung != 2 {
			t.Errorf("%d notifications found the peer hung, want 2", hung)
		}
	})
}

// A peer that is patient waits for a side that does not read, in the write and with a full queue, and loses nothing of what
// must arrive. When it is not patient any more, the hang limit counts again.
func TestPatient(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("it reads at last: %t", reads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const notes = 5
				w := newWire(t.Context(), Config{HangLimit: time.Second, SendQueue: 1}, false)
				w.SetPatient(true)
				errs := make(chan error, notes)
				for n := range notes {
					go func() { errs <- w.Notify(t.Context(), "n", [1]int{n}) }()
				}
				select {
				case err := <-w.end:
					t.Fatalf("run: %v", err)
				case <-time.After(time.Hour):
				}
				if !reads {
					w.SetPatient(false)
					began := time.Now()
					if err := <-w.end; !errors.Is(err, ErrHung) || time.Since(began) > time.Second {
						t.Errorf("run: %v, after %s", err, time.Since(began))
					}
					return
				}
				d := NewDecoder(w.from, 0)
				for range notes {
					if _, err := d.Next(); err != nil {
						t.Fatal(err)
					}
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
				if err := w.hangUp(); !errors.Is(err, ErrEOF) {
					t.Error(err)
				}
			})
		})
	}
}

func TestGarbageLimit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every time.Duration
		lines int
		want  error
	}{
		{"nine at once", 0, 9, ErrEOF},
		{"ten at once", 0, 10, ErrGarbage},
		{"ten in the window", 10 * time.Second / 9, 10, ErrGarbage},
		{"many, slowly", 10*time.Second/9 + time.Millisecond, 50, ErrEOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t.Context(), Config{}, true)
				for range tc.lines {
					w.say("panic: oops\n")
					<-time.After(tc.every)
				}
				if err := w.hangUp(); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				answers := w.heard()
				for _, line := range answers {
					if !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`) {
						t.Errorf("answer %s", line)
					}
				}
				if garbage, _, _, _ := w.Stats(); int(garbage) != tc.lines || len(answers) != tc.lines {
					t.Errorf("%d counted and %d answered of %d", garbage, len(answers), tc.lines)
				}
			})
		})
	}
}

// What was received before the other side died is handled, however the handlers are behind, and with a live context.
func TestWhatWasReceivedIsHandled(t *testing.T) {
	for _, ending := range []string{"", "{torn", strings.Repeat("garbage\n", 10)} {
		synctest.Test(t, func(t *testing.T) {
			handled := 0
			w := newWire(t.Context(), Config{Handler: handler{
				call: echo,
				note: func(ctx context.Context, _ string, _ json.RawMessage) {
					<-time.After(time.Second)
					if ctx.Err() != nil {
						t.Errorf("context ended: %v", context.Cause(ctx))
					}
					handled++
				},
			}}, true)
			for n := range 5 {
				w.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":[%d]}`+"\n", n))
			}
			w.say(`{"jsonrpc":"2.0","id":7,"method":"echo","params":{}}` + "\n")
			w.say(ending)
			err := w.hangUp()
			if handled != 5 {
				t.Errorf("%d of 5 handled before the end (%v)", handled, err)
			}
			if lines := w.heard(); !slices.Contains(lines, `{"jsonrpc":"2.0","id":7,"result":{}}`) {
				t.Errorf("answers %q", lines)
			}
		})
	}
}

// But not for ever: after the hang limit the handlers' context ends with the cause.
func TestHandlersAreStoppedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		w := newWire(t.Context(), Config{HangLimit: 4 * time.Second, Handler: handler{
			note: func(ctx context.Context, _ string, _ json.RawMessage) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			},
		}}, true)
		start := time.Now()
		w.say(`{"jsonrpc":"2.0","method":"n"}` + "\n")
		w.to.Close()
		<-w.ReadDone()
		if took := time.Since(start); took != 0 {
			t.Errorf("the end was told after %v", took)
		}
		if err := <-w.end; !errors.Is(err, ErrEOF) {
			t.Error(err)
		}
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("took %v", took)
		}
		if err := <-causes; !errors.Is(err, ErrEOF) {
			t.Errorf("cause %v", err)
		}
	})
}

// Handlers that take nothing while somebody waits for an answer: memory stays bounded and the end has a name.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t.Context(), Config{ReceiveQueue: 1000, HangLimit: time.Second, Handler: handler{
			note: func(ctx context.Context, _ string, _ json.RawMessage) { <-ctx.Done() },
		}}, true)
		called := make(chan error, 1)
		go func() { called <- w.Call(t.Context(), "never answered", nil, nil) }()
		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			for range 200 {
				w.say(`{"jsonrpc":"2.0","method":"n"}` + "\n")
			}
		}()
		synctest.Wait()
		if n := queued(w.Peer); n < w.in.hard || n > w.in.hard+1000 {
			t.Errorf("%d bytes wait, the hard bound is %d", n, w.in.hard)
		}
		if err := <-w.end; !errors.Is(err, ErrOverrun) {
			t.Errorf("run: %v", err)
		}
		if err := <-called; !errors.Is(err, ErrOverrun) {
			t.Errorf("call: %v", err)
		}
		<-flooded
	})
}

// A shutdown as it should be: asked for, answered, then each side closes after its last word.
func TestAgreedShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var core *Peer
		heard := 0
		scheduler, core := newPair(
			Config{Handler: handler{note: func(context.Context, string, json.RawMessage) { heard++ }}},
			Config{Handler: handler{call: func(context.Context, string, json.RawMessage) (any, error) {
				core.ExpectEOF()
				return struct{}{}, nil
			}}},
		)
		endS, endC := runPeer(t.Context(), scheduler), runPeer(t.Context(), core)
		if err := scheduler.Call(t.Context(), "shutdown", nil, nil); err != nil {
			t.Fatal(err)
		}
		scheduler.ExpectEOF()
		for range 100 {
			if err := core.Notify(t.Context(), "on_job_completed", nil); err != nil {
				t.Fatal(err)
			}
		}
		scheduler.CloseSend()
		scheduler.CloseSend()
		if err := scheduler.Notify(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("sent after CloseSend: %v", err)
		}
		if err := <-endC; !errors.Is(err, ErrClosed) {
			t.Errorf("core: %v", err)
		}
		if err := <-endS; !errors.Is(err, ErrClosed) {
			t.Errorf("scheduler: %v", err)
		}
		if heard != 100 {
			t.Errorf("%d of 100 last words heard", heard)
		}
	})
}

// TestCloseSendAnswersFirst closes our side while a request is served, as a core does that was asked to shut down: who
// asked gets the answer.
func TestCloseSendAnswersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Peer
		a, b := newPair(Config{}, Config{Handler: handler{call: func(context.Context, string, json.RawMessage) (any, error) {
			go b.CloseSend()
			synctest.Wait() // it has come as far as it can
			return "done", nil
		}}})
		ends := []<-chan error{runPeer(t.Context(), a), runPeer(t.Context(), b)}
		a.ExpectEOF()
		var got string
		if err := a.Call(t.Context(), "shutdown", nil, &got); err != nil || got != "done" {
			t.Errorf("call: %q, %v", got, err)
		}
		if err := <-ends[0]; !errors.Is(err, ErrClosed) {
			t.Errorf("the side that asked ended with %v", err)
		}
		<-ends[1]
	})
}
