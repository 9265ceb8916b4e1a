package trigger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// A request's header, its body and all of it must have come within these times.
	headerTime, bodyTime, requestTime = 5 * time.Second, 10 * time.Second, 30 * time.Second
	// maxHeader is in bytes.
	maxHeader = 16 << 10
	// maxReading bodies are read at once: nobody knows yet who sends them. One more
	// ends the oldest, since a sender that is serious needs but a moment.
	maxReading = 64
	// maxRequests whose signatures are right are handled at once.
	maxRequests = 32
	// goodbye is how long requests may take that are there at the end.
	goodbye = 5 * time.Second
)

// server hears webhooks while there are any. It belongs to Runner.Run.
type server struct {
	runner *Runner
	http   *http.Server
	done   sync.WaitGroup
}

// adjust listens if there is an enabled webhook and does not if there is none.
func (w *server) adjust(ctx context.Context, wanted map[Name]Settings) error {
	needed := false
	for _, s := range wanted {
		needed = needed || s.Webhook != nil && s.IsEnabled()
	}
	switch {
	case !needed:
		w.close()
		return nil
	case w.http != nil:
		return nil
	case w.runner.cfg.Listen == nil:
		return errors.New("listen for webhooks: no address is set")
	}
	ln, err := w.runner.cfg.Listen()
	if err != nil {
		return err
	}
	log := w.runner.cfg.Log
	w.http = &http.Server{
		Handler:           http.HandlerFunc(w.runner.serve),
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: 2 * requestTime, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	log.Info().Str("address", ln.Addr().String()).Msg("webhooks are heard")
	srv := w.http
	w.done.Go(func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("webhooks are heard no longer")
		}
	})
	return nil
}

// readings are the bodies that are being read.
type readings struct {
	mu   sync.Mutex
	list []*reading // the oldest first
}

// reading is a body that is being read.
type reading struct {
	stop   func() // has the read fail
	pushed bool   // out, by a newer one
}

// add notes that a body is being read until done is called, which reports whether
// it was ended to make room.
func (r *readings) add(stop func()) (done func() (pushed bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) >= maxReading {
		oldest := r.list[0]
		r.list = slices.Delete(r.list, 0, 1)
		oldest.pushed = true
		oldest.stop()
	}
	one := &reading{stop: stop}
	r.list = append(r.list, one)
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = slices.DeleteFunc(r.list, func(o *reading) bool { return o == one })
		return one.pushed
	}
}

// close stops listening and waits for the requests that are there.
func (w *server) close() {
	if w.http == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), goodbye, errors.New("requests did not end"))
	defer cancel()
	if w.http.Shutdown(ctx) != nil {
		w.http.Close()
	}
	w.done.Wait()
	w.http = nil
}

// serve finds the webhook of a request.
func (r *Runner) serve(rw http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	hook, soon := r.hooks[req.URL.Path], false
	for _, s := range r.wanted {
		soon = soon || s.Webhook != nil && s.IsEnabled() && s.Webhook.Path == req.URL.Path
	}
	r.mu.Unlock()
	switch {
	case hook != nil:
		hook.ServeHTTP(rw, req)
	case soon:
		again(rw, reloading)
	default:
		answer(rw, http.StatusNotFound, "", "no webhook has this path")
	}
}

// answer writes the JSON answer to a webhook: what became of it, and of which
// firing, or why it is refused.
func answer(rw http.ResponseWriter, code int, firing, result string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	rw.WriteHeader(code)
	key := "result"
	if code >= 400 {
		key = "error"
	}
	if firing != "" {
		fmt.Fprintf(rw, "{%q:%q,\"firing\":%q}\n", key, result, firing)
		return
	}
	fmt.Fprintf(rw, "{%q:%q}\n", key, result)
}
