package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// receiver notes what a command would have got, and ends each try as told.
type receiver struct {
	mu  sync.Mutex
	got []string
	end func(ctx context.Context, n int) error // of the nth try, from 1
}

func (r *receiver) run(ctx context.Context, _ []string, stdin []byte) ([]byte, error) {
	r.mu.Lock()
	r.got = append(r.got, string(stdin))
	n := len(r.got)
	r.mu.Unlock()
	return nil, r.end(ctx, n)
}

func (r *receiver) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// started runs a hook with the receiver as its command, in the bubble; end
// stops it and waits.
func started(r *receiver, log *bytes.Buffer) (h *Hook, end func() error) {
	h = NewHook(HookConfig{Command: []string{"tell"}, Timeout: 10 * time.Second, Run: r.run, Log: zerolog.New(zerolog.SyncWriter(log))})
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	return h, func() error {
		cancel(errStop)
		return <-done
	}
}

var errStop = errors.New("stop")

func TestHookTellsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{end: func(context.Context, int) error { return nil }}
		var log bytes.Buffer
		h, end := started(r, &log)
		for n := range 3 {
			h.Tell(map[string]int{"n": n})
		}
		h.Tell(func() {}) // has no JSON form
		synctest.Wait()
		if got, want := r.told(), []string{`{"n":0}`, `{"n":1}`, `{"n":2}`}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if err := end(); !errors.Is(err, errStop) {
			t.Errorf("ended with %v", err)
		}
		if !strings.Contains(log.String(), "no JSON form") {
			t.Errorf("log %s", &log)
		}
	})
}

// TestHookTriesTwice: one failure is healed by the second try, two are the end.
func TestHookTriesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{end: func(_ context.Context, n int) error {
			if n == 2 {
				return nil
			}
			return fmt.Errorf("try %d failed", n)
		}}
		var log bytes.Buffer
		h, end := started(r, &log)
		began := time.Now()
		h.Tell("a")
		h.Tell("b")
		time.Sleep(time.Hour) // of the bubble's clock
		if got, want := r.told(), []string{`"a"`, `"a"`, `"b"`, `"b"`}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		end()
		if time.Since(began) != time.Hour {
			t.Errorf("the end took %s, want none", time.Since(began)-time.Hour)
		}
		for _, want := range []string{"try 1 failed", "try 4 failed", `"escalation":"b"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log lacks %q: %s", want, &log)
			}
		}
	})
}

// TestHookFullQueue: a target that hangs costs the oldest, never the caller's time.
func TestHookFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		r := &receiver{end: func(ctx context.Context, n int) error {
			if n == 1 {
				<-free
			}
			return nil
		}}
		var log bytes.Buffer
		h, end := started(r, &log)
		h.Tell(0)
		synctest.Wait() // the 0 is with the receiver, the queue is empty
		for n := range hookCapacity + 3 {
			h.Tell(1 + n)
		}
		close(free)
		synctest.Wait()
		got := r.told()
		if len(got) != 1+hookCapacity || got[1] != "4" || got[hookCapacity] != fmt.Sprint(hookCapacity+3) {
			t.Errorf("told %q, want 0 and the last %d", got, hookCapacity)
		}
		end()
		if !strings.Contains(log.String(), `"dropped":3`) {
			t.Errorf("log %s", &log)
		}
	})
}

// TestHookTimeout: a try is ended after the time limit, and the reason is said.
func TestHookTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{end: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		var log bytes.Buffer
		h, end := started(r, &log)
		h.Tell("a")
		time.Sleep(2*10*time.Second + hookPause)
		synctest.Wait()
		if got := r.told(); len(got) != 2 || !strings.Contains(log.String(), errTimeout.Error()) {
			t.Errorf("told %q; log %s", got, &log)
		}
		end()
	})
}

// TestHookEnd: what is queued gets one time limit, all together, at the end.
func TestHookEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		each time.Duration // that a try takes
		told int           // of 10
		took time.Duration
	}{
		{"all are told", 300 * time.Millisecond, 10, 3 * time.Second},
		{"the rest is logged", 4 * time.Second, 3, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{end: func(ctx context.Context, _ int) error {
					select {
					case <-time.After(tt.each):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}}
				var log bytes.Buffer
				h, end := started(r, &log)
				for n := range 10 {
					h.Tell(n)
				}
				synctest.Wait()
				began := time.Now()
				end()
				if took := time.Since(began); took != tt.took || len(r.told()) != tt.told {
					t.Errorf("the end took %s, want %s; told %q, want %d", took, tt.took, r.told(), tt.told)
				}
				if missed := tt.told < 10; missed != strings.Contains(log.String(), `"more":6`) || missed != strings.Contains(log.String(), errSchedulerEnded.Error()) {
					t.Errorf("log %s", &log)
				}
				h.Tell("late") // waits for nobody
			})
		})
	}
}

// addressed is a payload with a secret for each target.
type addressed struct{ secret string }

func (a addressed) To(_ context.Context, target string) (any, string) {
	return map[string]string{"to": target, "code": a.secret}, a.secret
}

// TestHookHidesSecrets: a target is told its secret, and nothing that it answers brings that into the log.
func TestHookHidesSecrets(t *testing.T) {
	const secret = "K5TQXWZV2B7NRLJ3HDMYCAPEUF"
	for _, said := range []string{secret, secret[:20], secret[6:], secret + secret} {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{end: func(context.Context, int) error { return fmt.Errorf("exit status 1: %q", said) }}
			var log bytes.Buffer
			h, end := started(r, &log)
			h.Tell(addressed{secret})
			time.Sleep(time.Minute)
			end() //nolint:errcheck // it is errStop
			want := `{"code":"` + secret + `","to":"command tell"}`
			if got := r.told(); !slices.Equal(got, []string{want, want}) {
				t.Errorf("told %q, want %q twice", got, want)
			}
			text := log.String()
			for n := 0; n+partOfSecret <= len(secret); n++ {
				if strings.Contains(text, secret[n:n+partOfSecret]) {
					t.Errorf("the target said %q, and the log has %q: %s", said, secret[n:n+partOfSecret], text)
				}
			}
			if !strings.Contains(text, `"to":"command tell"`) || !strings.Contains(text, "exit status 1") {
				t.Errorf("log %s", text)
			}
		})
	}
}

// TestHookTargetsApart: a command that hangs does not keep the webhook waiting, and
// without either nothing is kept.
func TestHookTargetsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{end: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		h := NewHook(HookConfig{Command: []string{"tell"}, Timeout: 10 * time.Second, Run: r.run, Log: zerolog.Nop()})
		posted := 0
		h.add("webhook", "webhook", func(context.Context, []byte) error { posted++; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		h.Tell(1)
		h.Tell(2)
		synctest.Wait()
		if posted != 2 {
			t.Errorf("%d posts while the command hangs, want 2", posted)
		}
		cancel()
		<-done

		none := NewHook(HookConfig{})
		none.Tell(1)
		if err := none.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}
