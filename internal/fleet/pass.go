package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/access"
)

// Copy is this scheduler's copy of the leader's queue.
type Copy interface {
	// Revision returns how far the copy has come.
	Revision() int64
	// Await returns when the copy has come as far as revision; the error is why it did
	// not, e.g. the context's.
	Await(ctx context.Context, revision int64) error
}

// PassConfig is what a Pass is made of.
type PassConfig struct {
	Identity *Identity
	Members  Members
	Copy     Copy // nil: nobody reads a copy
	Log      zerolog.Logger
	// Wait bounds how long a request waits for a leader that can be reached; 0: 10 s.
	Wait time.Duration
	// Grace is how long a leader may take to answer what it was asked once another one
	// leads: its host may be gone without a word. 0: 5 s.
	Grace time.Duration
}

// Bounds of what is passed on.
const (
	waitForLeader  = 10 * time.Second
	graceTime      = 5 * time.Second
	waitForCopy    = 2 * time.Second        // to come as far as an answer
	waitForReady   = 200 * time.Millisecond // of one that leads by its lease, and says that it does not yet, or does not know this one yet
	mostHeader     = 64 << 10               // bytes of an answer's header
	idleConnection = time.Minute
)

// Pass is a handler that passes requests on to the leader. What it is given has been
// let in by a guard, and authorized. It answers 503 no_leader if there is no leader that
// can be reached, and nothing was done; 502 outcome_unknown if the leader may have done
// what a request asks for and its answer is lost; 421 not_leader to a request that was
// passed on before.
type Pass struct {
	c    PassConfig
	owed atomic.Int64 // the copy did not come as far in time as an answer that was given

	mu  sync.Mutex // guards what follows
	to  Leader
	via *http.Transport
}

// NewPass returns a Pass. Close ends it.
func NewPass(c PassConfig) *Pass {
	c.Wait, c.Grace = cmp.Or(c.Wait, waitForLeader), cmp.Or(c.Grace, graceTime)
	return &Pass{c: c}
}

// Fresh reports whether the copy has what the answers say that were passed back.
func (p *Pass) Fresh() bool { return p.c.Copy == nil || p.owed.Load() <= p.c.Copy.Revision() }

// Close closes the connections that no request uses. Requests under way go on.
func (p *Pass) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.via != nil {
		p.via.CloseIdleConnections()
	}
	p.via, p.to = nil, Leader{}
}

// ServeHTTP implements http.Handler.
func (p *Pass) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if access.Passed(r.Context()) {
		refuse(w, "not_leader", http.StatusMisdirectedRequest, "this scheduler does not lead, and passes nothing on that was passed on to it")
		return
	}
	caller, known := access.CallerOf(r.Context())
	if !known {
		refuse(w, "unauthenticated", http.StatusUnauthorized, "a request is passed on for somebody, and this one says not who asks")
		return
	}
	text, err := json.Marshal(caller)
	if err != nil {
		refuse(w, "internal", http.StatusInternalServerError, "say who asks: %v", err)
		return
	}
	a := &attempts{pass: p, reads: r.Method == http.MethodGet || r.Method == http.MethodHead}
	proxy := httputil.ReverseProxy{
		Transport: a, FlushInterval: -1, ErrorHandler: a.failed,
		ErrorLog: stdlog.New(p.c.Log.With().Str("component", "pass").Logger(), "", 0),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			h := pr.Out.Header
			for _, secret := range []string{"Authorization", "Cookie", client.KeyHeader} {
				h.Del(secret) // who asks is known; what proves it stays here
			}
			h.Set(access.CallerHeader, string(text))
			if pr.Out.Body != nil {
				a.body = &body{from: pr.Out.Body}
				pr.Out.Body = a.body
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			for name := range resp.Header {
				w.Header().Del(name) // the leader's guards and routes have set the same ones
			}
			return nil
		},
	}
	proxy.ServeHTTP(w, r)
}

// attempts sends one request, to one leader after the other while that cannot do it
// twice.
type attempts struct {
	pass  *Pass
	reads bool
	body  *body // nil: it has none
}

// Why a request was not sent.
var (
	errNobody    = errors.New("no scheduler leads")
	errSelf      = errors.New("this scheduler has just taken the lead")
	errNotLeader = errors.New("the scheduler that leads is not ready to")
	errLost      = errors.New("another scheduler leads, and the one that was asked does not answer")
)

// noLeaderError is why a request was given up of which nothing was done.
type noLeaderError struct{ why error }

func (e *noLeaderError) Error() string { return e.why.Error() }
func (e *noLeaderError) Unwrap() error { return e.why }

// RoundTrip implements http.RoundTripper.
func (a *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	c := &a.pass.c
	patience := time.NewTimer(c.Wait)
	defer patience.Stop()
	for {
		changed := c.Members.Changed()
		leader, why := c.Members.Leader(r.Context())
		var ready <-chan time.Time
		switch {
		case why != nil:
		case leader.Address == "":
			why = errNobody
		case leader.Fingerprint == c.Identity.Fingerprint():
			return nil, &noLeaderError{errSelf}
		default:
			var resp *http.Response
			if resp, why = a.send(r, leader, changed); why == nil {
				return a.answered(r.Context(), resp, changed), nil
			}
			nothingDone := errors.Is(why, errNotLeader) || isUnreached(why)
			if r.Context().Err() != nil || !a.reads && !nothingDone {
				return nil, why
			}
			if a.body.begun() { // it cannot be read again
				return nil, &noLeaderError{why}
			}
			c.Log.Debug().Err(why).Str("leader", leader.Instance).Msg("the leader was not reached; waiting for another")
			if nothingDone {
				ready = time.After(waitForReady)
			}
		}
		select {
		case <-changed:
		case <-ready:
		case <-patience.C:
			return nil, &noLeaderError{why}
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// send sends the request to the leader. The error of one that does not lead is
// errNotLeader.
func (a *attempts) send(r *http.Request, leader Leader, changed <-chan struct{}) (*http.Response, error) {
	ctx, release := a.pass.patient(r.Context(), changed)
	out := r.WithContext(ctx) // a RoundTripper changes no request
	url := *r.URL
	url.Scheme, url.Host = "https", leader.Address
	out.URL = &url
	if !a.reads && a.body == nil {
		// net/http repeats what has no body and an Idempotency-Key. With this one, which
		// cannot be had again, it does not.
		out.Body = io.NopCloser(io.MultiReader())
		out.ContentLength = 0
	}
	resp, err := a.pass.transport(leader).RoundTrip(out)
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &released{resp.Body, release}
	if resp.StatusCode == http.StatusMisdirectedRequest {
		resp.Body.Close()
		return nil, errNotLeader
	}
	return resp, nil
}

// patient returns a context that ends a while after the leader has changed. release,
// which may be called twice, ends it.
func (p *Pass) patient(ctx context.Context, changed <-chan struct{}) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		select {
		case <-over:
			return
		case <-changed:
		}
		grace := time.NewTimer(p.c.Grace)
		defer grace.Stop()
		select {
		case <-over:
		case <-grace.C:
			cancel(errLost)
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(over)
		cancel(nil)
	})
}

// released is the body of an answer, whose end is told.
type released struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r *released) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}

// answered returns the leader's answer for the client, when the copy has come as far.
func (a *attempts) answered(ctx context.Context, resp *http.Response, changed <-chan struct{}) *http.Response {
	revision, err := strconv.ParseInt(resp.Header.Get(revisionHeader), 10, 64)
	resp.Header.Del(revisionHeader)
	wait := func(revision int64) { a.pass.reach(ctx, revision) }
	if err == nil && !a.reads {
		wait(revision)
	}
	if isStream(resp.Header) {
		resp.Body = newStream(resp.Body, changed, wait)
	}
	return resp
}

// reach waits for the copy. Where that takes too long, reads are for the leader until it
// has caught up.
func (p *Pass) reach(ctx context.Context, revision int64) {
	if p.c.Copy == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, waitForCopy)
	defer cancel()
	err := p.c.Copy.Await(ctx, revision)
	if err == nil {
		return
	}
	p.c.Log.Debug().Err(err).Int64("revision", revision).Msg("the copy of the queue is behind what was answered; the leader answers what is read")
	for {
		owed := p.owed.Load()
		if owed >= revision || p.owed.CompareAndSwap(owed, revision) {
			return
		}
	}
}

// failed answers a request that has no answer.
func (a *attempts) failed(w http.ResponseWriter, r *http.Request, err error) {
	none, isNone := errors.AsType[*noLeaderError](err)
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isLarge:
		refuse(w, "too_large", http.StatusRequestEntityTooLarge, "the body is too large, want at most %d bytes", large.Limit)
	case isNone || a.reads:
		if isNone {
			err = none.why
		}
		a.pass.c.Log.Warn().Err(err).Str("path", r.URL.Path).Msg("a request was not passed on")
		w.Header().Set("Retry-After", "1")
		w.Header().Set(client.TakenHeader, "no")
		refuse(w, "no_leader", http.StatusServiceUnavailable, "there is no leader that can be reached, and nothing was done: %v; try again", err)
	default:
		a.pass.c.Log.Warn().Err(err).Str("path", r.URL.Path).Msg("the answer to a request that was passed on is lost")
		refuse(w, "outcome_unknown", http.StatusBadGateway, "the leader was lost before it had answered (%v), so it may have done this or not: look before you ask again; a submission with an Idempotency-Key can be sent again as it is", err)
	}
}

// body is a request's, which tells whether it was read. It is closed by whoever has made
// it.
type body struct {
	from io.Reader
	read atomic.Bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.from.Read(p)
}

// Close implements io.Closer, for net/http, which closes what it may not read.
func (*body) Close() error { return nil }

func (b *body) begun() bool { return b != nil && b.read.Load() }
