package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/jsoncheck"
)

// Bounds of a handler.
const (
	MaxBody         = 4 << 20       // bytes of a request
	maxSessions     = 256           // of all clients
	maxOwnSessions  = 32            // of one principal
	sessionIdle     = 2 * time.Hour // without a request, after which a session ends
	maxStoredEvents = 8 << 20       // bytes of answers that are kept for clients whose connection has broken
)

// HandlerOptions set up a Handler.
type HandlerOptions struct {
	Options
	// Routes answers what the tools ask, as it does any client.
	Routes http.Handler
	// Who names whoever asks, and its role: read, submit or operate. Sessions of two names are apart.
	Who func(context.Context) (name, role string)
	// Ending returns what is closed when the listener that a request came by is to end. nil: that is not known.
	Ending func(context.Context) <-chan struct{}
}

// Handler serves clients over streamable HTTP. Whoever calls it has let the request in, and said who it is.
type Handler struct {
	opt     HandlerOptions
	schemas *sdk.SchemaCache
	inner   http.Handler

	mu      sync.Mutex // guards what follows
	closed  bool
	servers map[owner]*server // of all who have asked: users and tokens
}

// owner is whose sessions a server has.
type owner struct{ name, role string }

// NewHandler returns a handler. The caller closes it.
func NewHandler(opt HandlerOptions) *Handler {
	h := &Handler{opt: opt, schemas: sdk.NewSchemaCache(), servers: map[owner]*server{}}
	events := sdk.NewMemoryEventStore(nil)
	events.SetMaxBytes(maxStoredEvents)
	streamable := sdk.NewStreamableHTTPHandler(h.server, &sdk.StreamableHTTPOptions{
		SessionTimeout: sessionIdle, MaxRequestBodyBytes: MaxBody, EventStore: events,
		DisableLocalhostProtection: true, // the guard looks at Host and Origin, by the configuration
	})
	// The library brings to a tool, of a request, what a verifier of bearer tokens says. So this one says whose request it is.
	h.inner = auth.RequireBearerToken(func(_ context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
		of := r.Context().Value(originalKey{}).(*http.Request)
		name, role := opt.Who(of.Context())
		return &auth.TokenInfo{UserID: role + " " + name, Extra: map[string]any{original: of}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(streamable)
	return h
}

type originalKey struct{}

// original is the key of the request in what the library brings to a tool.
const original = "request"

// requestOf returns the request that has brought a call.
func requestOf(c *sdk.CallToolRequest) *http.Request {
	return c.Extra.TokenInfo.Extra[original].(*http.Request)
}

// sessionHeader names the session of a request.
const sessionHeader = "Mcp-Session-Id"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.Header.Get(sessionHeader) == "" && !h.hasRoom(r.Context()) {
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusTooManyRequests, "too_many_sessions", fmt.Sprintf("there are too many MCP sessions: at most %d of one client, %d of all; end one (DELETE), or wait until one ends by itself", maxOwnSessions, maxSessions))
		return
	}
	ctx := context.WithValue(r.Context(), originalKey{}, r)
	if h.opt.Ending != nil && r.Method == http.MethodGet { // a stream that ends with nothing else
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			select {
			case <-h.opt.Ending(ctx):
				cancel()
			case <-ended:
			}
		}()
	}
	inner := r.WithContext(ctx)
	if r.Method == http.MethodPost {
		body := bufio.NewReader(http.MaxBytesReader(w, r.Body, MaxBody))
		if jsoncheck.IsList(body) { // whose answers could be as many as it likes, all of them in memory at once
			refuse(w, http.StatusBadRequest, "bad_request", "a request has one message, as the protocols from 2025-06-18 on have it: send them one by one")
			return
		}
		inner.Body = io.NopCloser(body)
	}
	inner.Header = r.Header.Clone()
	inner.Header.Set("Authorization", "Bearer known")
	h.inner.ServeHTTP(&problems{ResponseWriter: w}, inner)
}

// problems turns the texts by which the library refuses requests into problems, as all routes answer.
type problems struct {
	http.ResponseWriter
	refused int // the status of a refusal whose text follows; 0: none
}

// problemNames are those of the statuses that the library refuses requests with.
var problemNames = map[int]string{
	http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found", http.StatusMethodNotAllowed: "method_not_allowed",
	http.StatusRequestEntityTooLarge: "too_large", http.StatusUnsupportedMediaType: "unsupported_media_type", http.StatusInternalServerError: "internal",
}

// WriteHeader implements http.ResponseWriter.
func (p *problems) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(p.Header().Get("Content-Type"), "text/plain") {
		p.refused = status
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *problems) Write(b []byte) (int, error) {
	if p.refused == 0 {
		return p.ResponseWriter.Write(b)
	}
	name := problemNames[p.refused]
	if name == "" {
		name = "bad_request"
	}
	refuse(p.ResponseWriter, p.refused, name, strings.TrimSpace(string(b)))
	return len(b), nil
}

// Unwrap is for http.ResponseController.
func (p *problems) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// refuse answers with a problem.
func refuse(w http.ResponseWriter, status int, name, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(api.Problem{Type: api.ProblemType + name, Title: http.StatusText(status), Status: status, Detail: detail}) //nolint:errcheck // the client has gone
}

// hasRoom reports whether who asks may begin a session.
func (h *Handler) hasRoom(ctx context.Context) bool {
	name, _ := h.opt.Who(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	all, own := 0, 0
	for o, s := range h.servers {
		n := 0
		for range s.Sessions() {
			n++
		}
		if all += n; o.name == name {
			own += n
		}
	}
	return !h.closed && all < maxSessions && own < maxOwnSessions
}

// server returns the server of who asks.
func (h *Handler) server(r *http.Request) *sdk.Server {
	name, role := h.opt.Who(r.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	o := owner{name, role}
	s := h.servers[o]
	if s == nil {
		opt := h.opt.Options
		opt.Apply = nil // it is for files of the user's host
		s = newServer(opt, role, h.client, h.ending, h.schemas)
		h.servers[o] = s
	}
	return s.Server
}

// client returns the client by which a call asks the routes.
func (h *Handler) client(c *sdk.CallToolRequest) *client.Client {
	return client.Over(&inside{h.opt.Routes, requestOf(c)})
}

// ending is closed when the listener of a call is to end.
func (h *Handler) ending(c *sdk.CallToolRequest) <-chan struct{} {
	if h.opt.Ending == nil {
		return nil
	}
	return h.opt.Ending(requestOf(c).Context())
}

// Close ends all sessions. It may be called twice.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	var sessions []*sdk.ServerSession
	for _, s := range h.servers {
		for session := range s.Sessions() {
			sessions = append(sessions, session)
		}
	}
	h.mu.Unlock()
	for _, s := range sessions {
		s.Close() //nolint:errcheck // it is over in any case
	}
}
