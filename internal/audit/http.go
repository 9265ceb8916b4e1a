package audit

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Handler returns a handler that records the requests which next has answered: those
// of methods that change something (not GET, HEAD, OPTIONS, TRACE), and refused
// ones of any method (see Refused).
//
// who names whoever asks from the context of the request. If it is known only
// within next, since Handler wraps the guard so as to see whom that refuses,
// next calls Name. failed, which may be nil, is told of requests that could not be
// recorded: they were done all the same, and nobody waits for the disk before his
// answer.
func (l *Log) Handler(next http.Handler, who func(context.Context) (name, role, door string), failed func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		unsafe := changes(r.Method)
		asking := &slot{}
		r = r.WithContext(context.WithValue(r.Context(), slotKey{}, asking))
		body := &captured{of: r.Body}
		if unsafe && r.Body != nil && r.Body != http.NoBody && r.Header.Get("Content-Type") != "application/octet-stream" { // which is no text
			r.Body = body
		}
		said := &answer{ResponseWriter: w}
		started := l.o.Now()
		defer func() {
			d := asking.get()
			d.Method, d.Target, d.Status = r.Method, r.URL.Path, said.status
			d.From = cmp.Or(d.From, r.RemoteAddr)
			d.Took = l.o.Now().Sub(started)
			if !asking.isSecret() {
				d.Body, d.Query = body.text(), r.URL.RawQuery
			}
			if d.Route == "" {
				d.Route, d.Job = r.Pattern, cmp.Or(job.ID(r.PathValue("job")), d.Job)
			}
			if d.Who == (api.AuditWho{}) && who != nil {
				d.Who.Name, d.Who.Role, d.Who.Door = who(r.Context())
			}
			l.answered(r.Context(), d, unsafe && !asking.isUnrecorded(), failed)
		}()
		next.ServeHTTP(said, r)
		if said.status == 0 { // it stays 0 of a handler that panics: nothing is answered
			said.status = http.StatusOK
		}
	})
}

func (l *Log) answered(ctx context.Context, d Request, unsafe bool, failed func(error)) {
	if d.From == "@" { // what net/http calls the peer of a unix socket
		d.From = ""
	}
	switch {
	case d.Refused():
		l.RecordRefused(d, 0)
		return
	case !unsafe:
		return
	}
	// Whoever asked may be gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	if err := l.RecordRequest(ctx, d); err != nil && failed != nil {
		failed(err)
	}
}

func changes(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// slot is where handlers within Handler say who asks, and for what.
type slot struct {
	mu      sync.Mutex
	request Request
	secret  bool
	// unrecorded: it is recorded only if it is refused.
	unrecorded bool
}

type slotKey struct{}

func (s *slot) get() Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.request
}

func (s *slot) isSecret() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret
}

func (s *slot) isUnrecorded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unrecorded
}

// WithoutBody keeps the body of the request of this context out of its record,
// since it holds values that are written nowhere. It does nothing outside of Handler.
func WithoutBody(ctx context.Context) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.secret = true
	}
}

// Say says what the request of this context is about, instead of its body, which is kept out of its record. It does nothing
// outside of Handler.
func Say(ctx context.Context, id job.ID, is string) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.secret, s.request.Job, s.request.Body = true, id, is
	}
}

// WithoutRecord keeps the request of this context out of the log unless it is refused: what it changes is recorded
// elsewhere. It does nothing outside of Handler.
func WithoutRecord(ctx context.Context) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unrecorded = true
	}
}

// Name says who makes the request of this context, for its record. It does
// nothing outside of Handler.
func Name(ctx context.Context, who api.AuditWho) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.request.Who = who
	}
}

// Explain says why the request of this context was refused, and what is known of
// who made it. What was said before stays. It does nothing outside of Handler.
func Explain(ctx context.Context, who api.AuditWho, from, why string) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := &s.request
		d.Who.Name, d.Who.Role, d.Who.Door = cmp.Or(d.Who.Name, who.Name), cmp.Or(d.Who.Role, who.Role), cmp.Or(d.Who.Door, who.Door)
		d.From, d.Why = cmp.Or(d.From, from), cmp.Or(d.Why, why)
	}
}

// Routed goes around the http.ServeMux, if other handlers stand between Handler and
// that: they hide which route the request took.
func Routed(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if s, ok := r.Context().Value(slotKey{}).(*slot); ok {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.request.Route, s.request.Job = r.Pattern, cmp.Or(job.ID(r.PathValue("job")), s.request.Job)
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

// captured keeps the beginning of a body that is read.
type captured struct {
	of   io.ReadCloser
	mu   sync.Mutex
	head []byte
}

func (c *captured) Read(p []byte) (int, error) {
	n, err := c.of.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head = append(c.head, p[:min(n, capturedOfABody-len(c.head))]...)
	return n, err
}

func (c *captured) Close() error { return c.of.Close() }

func (c *captured) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.head)
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush is for those who ask for an http.Flusher.
func (a *answer) Flush() {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	http.NewResponseController(a.ResponseWriter).Flush() //nolint:errcheck // a Flusher cannot tell
}
