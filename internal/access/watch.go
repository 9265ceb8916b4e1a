package access

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrOver is the cause with which a request's context ends when the token or the
// session that let it in was revoked or is over.
var ErrOver = errors.New("what let this request in is no longer valid")

// validEvery is how long a request goes on after that.
const validEvery = 5 * time.Second

// watch returns a context that ends when the credential is no longer valid. The
// caller calls stop when the request is done.
func (c *credential) watch(ctx context.Context) (_ context.Context, stop func()) {
	if c.valid == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watcher{valid: c.valid, cancel: cancel}
	w.again()
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done = true
		w.timer.Stop()
		cancel(context.Canceled)
	}
}

type watcher struct {
	valid  func() bool
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	done  bool
	timer *time.Timer
}

// again looks once more after validEvery, unless the request is done.
func (w *watcher) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.timer = time.AfterFunc(validEvery, func() {
			if w.valid() {
				w.again()
			} else {
				w.cancel(ErrOver)
			}
		})
	}
}
