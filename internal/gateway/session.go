package gateway

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxRequests is how many requests of a session are under way at once; further ones wait.
	maxRequests = 32
	// maxWaiting is how many a session may have in all; further ones are refused.
	maxWaiting = 512
	// maxDenials is how many different things are told as denied; what comes after is refused silently.
	maxDenials = 64
)

// errRunEnded is the cause with which a session's requests are cut.
var errRunEnded = errors.New("the run has ended")

// Session is the endpoint of one run. It is an http.Handler for the paths below /v1.
type Session struct {
	gateway   *Gateway
	config    RunConfig
	providers []*provider
	key       string
	ctx       context.Context
	cancel    context.CancelCauseFunc
	slots     *semaphore.Weighted // requests
	room      *semaphore.Weighted // bytes of bodies under way: two of the largest

	mu     sync.Mutex // guards what follows
	closed bool       // set before requests is waited for; none starts after it
	open   int        // requests that are not answered
	keys   map[*provider]*key
	inputs map[string]input // by model: of its last answer

	requests sync.WaitGroup
	waiting  atomic.Int64 // requests that have not begun

	telling sync.Mutex // held while a function of config is called
	denied  map[string]bool
}

func newSession(g *Gateway, c RunConfig, providers []*provider, secret string) *Session {
	s := &Session{
		gateway: g, config: c, providers: providers, key: secret,
		slots: semaphore.NewWeighted(maxRequests), room: semaphore.NewWeighted(2 * g.config.MaxBody),
		keys: map[*provider]*key{}, inputs: map[string]input{}, denied: map[string]bool{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Key returns what the run is given in place of a provider's key. It is taken as Authorization: Bearer or x-api-key.
func (s *Session) Key() string { return s.key }

// Waiting reports whether a request of the run waits for a budget or a rate: then the run's silence is not its own.
func (s *Session) Waiting() bool { return s.waiting.Load() > 0 }

// Close cuts the requests under way, waits for them and for what they tell, and makes the key worthless. What was cut is
// charged. It may be called twice.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(errRunEnded)
	s.requests.Wait()
	s.mu.Lock()
	for _, k := range s.keys {
		k.leave()
	}
	clear(s.keys)
	s.mu.Unlock()
	s.gateway.forget(s)
}

// enter admits a request, which leave ends.
func (s *Session) enter() *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return refuse(http.StatusUnauthorized, "invalid_api_key", "the run of this key has ended")
	case s.open >= maxWaiting:
		return refuse(http.StatusServiceUnavailable, "too_many_requests", "the run has %d requests under way: wait for their answers", maxWaiting)
	}
	s.open++
	s.requests.Add(1)
	return nil
}

func (s *Session) leave() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.requests.Done()
}

// ServeHTTP answers a request of the run. One that is cut in the middle of an answer ends with http.ErrAbortHandler, so that it
// cannot be taken for the whole.
func (s *Session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api := speaker(r)
	if refused := s.enter(); refused != nil {
		refused.write(w, api)
		return
	}
	defer s.leave()
	if !s.knows(r) {
		refuse(http.StatusUnauthorized, "invalid_api_key",
			"this is not the key of the run: use the one in the run's environment, as Authorization: Bearer or x-api-key").write(w, api)
		return
	}
	e, known := endpointOf(r.URL.Path)
	if !known || r.Method != e.method {
		s.deny("endpoint " + printable(r.Method+" "+r.URL.Path))
		refuse(http.StatusNotFound, "unknown_url", "%s %s is not served to runs: models are reached by POST at /v1/responses, "+
			"/v1/chat/completions, /v1/messages and /v1/messages/count_tokens", printable(r.Method), printable(r.URL.Path)).write(w, api)
		return
	}
	if e.api != Chat {
		api = e.api
	}
	ctx, release := s.bound(w, r)
	defer release()
	err := s.serve(ctx, w, r, e)
	var refused *refusal
	switch {
	case err == nil:
	case errors.As(err, &refused):
		refused.write(w, api)
	default:
		panic(http.ErrAbortHandler)
	}
}

// knows compares the key in constant time.
func (s *Session) knows(r *http.Request) bool {
	given := r.Header.Get("X-Api-Key")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		given = bearer
	}
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.key)) == 1
}

// bound returns a context that ends with the request or the session. The session's end also wakes a handler that reads from a
// run that sends nothing, or writes to one that reads nothing.
func (s *Session) bound(w http.ResponseWriter, r *http.Request) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	woken := make(chan struct{})
	stop := context.AfterFunc(s.ctx, func() {
		defer close(woken)
		cancel(context.Cause(s.ctx))
		past := time.Unix(1, 0)
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(past) // not every writer has deadlines
		_ = control.SetWriteDeadline(past)
	})
	return ctx, func() {
		if !stop() {
			<-woken
		}
		cancel(nil)
	}
}

// tell calls a function of the configuration, one at a time.
func (s *Session) tell(f func()) {
	s.telling.Lock()
	defer s.telling.Unlock()
	f()
}

// deny tells once that the run tried what it may not.
func (s *Session) deny(what string) {
	if s.config.Denied == nil {
		return
	}
	s.tell(func() {
		if s.denied[what] || len(s.denied) >= maxDenials {
			return
		}
		s.denied[what] = true
		s.config.Denied(what)
	})
}

// printable returns text of a run as it can stand in a message: at most 100 bytes, without control characters.
func printable(text string) string {
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
