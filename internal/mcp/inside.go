package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/agentsched/agentsched/client"
)

// inside sends requests to the handler of all routes, as the client of another request would: with its connection, its
// address and its credentials.
type inside struct {
	routes http.Handler
	of     *http.Request
}

// credentials are the headers that say who asks.
var credentials = []string{"Authorization", "Cookie", client.KeyHeader}

// both is a context with the values of another one besides.
type both struct {
	context.Context
	values context.Context
}

func (b both) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}

// RoundTrip implements http.RoundTripper. The handler has returned when the body of the answer is closed.
func (i *inside) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(both{req.Context(), i.of.Context()})
	r := req.Clone(ctx)
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = i.of.Host, i.of.RemoteAddr, i.of.TLS, req.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	for _, name := range credentials {
		if values := i.of.Header.Values(name); len(values) > 0 {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	from, to := io.Pipe()
	w := &answer{header: http.Header{}, body: to, begun: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if what := recover(); what != nil { // as net/http ends the connection
				w.end(fmt.Errorf("the scheduler ended the answer to %s %s: %v", r.Method, r.URL.Path, what))
			}
		}()
		i.routes.ServeHTTP(w, r)
		w.end(nil)
	}()
	body := &answerBody{Reader: from, close: func() {
		cancel()
		from.Close()
		<-done
	}}
	select {
	case <-w.begun:
	case <-ctx.Done():
		body.Close()
		return nil, context.Cause(ctx)
	}
	if w.failed != nil {
		body.Close()
		return nil, w.failed
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: body, ContentLength: -1, Request: req,
	}, nil
}

// answer hands over what a handler writes.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	// Closed when the answer has begun, or failed; what follows is set then.
	begun  chan struct{}
	sent   http.Header
	status int
	failed error
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		return // that an answer will follow
	}
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	})
}

// Write implements http.ResponseWriter. What is written is read, or the reader is gone, when it returns.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush is for those who ask for an http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// end ends the answer; err is why it is not whole.
func (a *answer) end(err error) {
	a.once.Do(func() {
		a.status, a.sent, a.failed = http.StatusOK, a.header.Clone(), err
		close(a.begun)
	})
	a.body.CloseWithError(err)
}

// answerBody is the body of an answer.
type answerBody struct {
	io.Reader
	close func()
	once  sync.Once
}

func (b *answerBody) Close() error {
	b.once.Do(b.close)
	return nil
}
