package scriptmodel

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options are what a Server can be told. The zero value works.
type Options struct {
	Addr    string  // address to listen on; default 127.0.0.1:0. Anything but loopback is refused.
	Default *Script // for models that no script was given for; default is a short answer

	Now   func() time.Time                                   // default time.Now
	Pause func(context.Context, time.Duration) error         // waits between the pieces of a slow answer; default a timer
	Trace func(path string, header http.Header, body []byte) // sees each request before it is answered; may be nil
}

// Server plays scripts to whoever asks. Its methods may be called from several goroutines.
type Server struct {
	opts     Options
	listener net.Listener
	http     *http.Server
	cancel   context.CancelCauseFunc // ends the context of every request
	stop     func() error            // body of Close, once
	wg       sync.WaitGroup          // the accepting goroutine and every handler

	mu       sync.Mutex // guards the following
	closed   bool       // set before wg is waited for; no handler starts after it
	scripts  map[string]Script
	failed   map[uint64]int // requests failed for Script.FailFirst, by conversation
	requests []Request
}

// Request is one request as the server saw it.
type Request struct {
	At       time.Time
	API      string // "responses", "chat" or "messages"
	Model    string
	Stream   bool
	Messages int  // texts, calls and results in the conversation, without what the CLI added itself
	Tools    int  // tools declared
	HasKey   bool // an Authorization or x-api-key header that is not empty
	Side     bool // declares no tools: a title or a summary, answered beside the script
	Turn     int  // of Script.Turns, or of OnResume if Resumed
	Resumed  bool
	Fault    bool // was answered with a fault
}

var errClosed = errors.New("the scripted model was closed")

// requestsKept bounds what Requests remembers; a demonstration may run for days.
const requestsKept = 4096

// New starts a server on loopback.
func New(o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Default == nil {
		s := answer()
		o.Default = &s
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == nil {
		o.Pause = pause
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the scripted model: %w", err)
	}
	if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("listen for the scripted model on %s: not a loopback address", o.Addr)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Server{
		opts: o, listener: listener, cancel: cancel, scripts: builtins(), failed: make(map[uint64]int),
	}
	s.http = &http.Server{
		Handler:           s.counted(s.routes()),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // what it would say is a client that left
		ReadHeaderTimeout: time.Minute,
	}
	s.stop = sync.OnceValue(s.shutDown)
	s.wg.Go(func() { _ = s.http.Serve(listener) }) // always http.ErrServerClosed, after Close
	return s, nil
}

// URL is the server's address without a path, such as http://127.0.0.1:4711. OpenAI's APIs are under /v1.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends the requests in flight and returns when no goroutine of the server is left. It may be called twice.
func (s *Server) Close() error { return s.stop() }

func (s *Server) shutDown() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(errClosed)
	err := s.http.Close()
	s.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the scripted model: %w", err)
	}
	return nil
}

// Handle sets the script of a model, in place of a built-in one of that name.
func (s *Server) Handle(model string, script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[model] = script
}

// Models are the names that have a script, sorted.
func (s *Server) Models() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.scripts))
}

// Requests are the last few thousand requests for an answer, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", s.handler("responses", responsesAPI{}))
	mux.HandleFunc("POST /v1/chat/completions", s.handler("chat", chatAPI{}))
	mux.HandleFunc("POST /v1/messages", s.handler("messages", messagesAPI{}))
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		writeJSON(w, http.StatusOK, object{"input_tokens": n / 4}) // four bytes a token is the usual estimate
	})
	mux.HandleFunc("GET /v1/models", s.listModels)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, object{"ok": true})
	})
	return mux
}

// counted lets Close wait for the handlers: http.Server.Close does not.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.wg.Done()
		h.ServeHTTP(w, r)
	})
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

// listModels answers in the fields of both vendors at once.
func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) {
	data := []any{}
	for _, name := range s.Models() {
		data = append(data, object{
			"id": name, "object": "model", "type": "model", "display_name": name, "owned_by": "scriptmodel", "created": 0,
		})
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": data, "has_more": false})
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hash names a conversation, or a request, by its parts.
func hash(parts ...string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, strings.Join(parts, "\x00"))
	return h.Sum64()
}
