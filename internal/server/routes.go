package server

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// The roles that a route may need, from the least; public needs none.
const (
	public  = "public"
	read    = "read"
	submit  = "submit"
	operate = "operate"
)

// roleExtension is how the OpenAPI document tells a route's role.
const roleExtension = "x-role"

// route is how the OpenAPI document tells of an operation.
type route struct {
	id, method, path, role string
	about                  string // one sentence; what more there is to say follows a line
	tag                    string
	status                 int        // of success; 0: 200
	other                  int        // another status with the same body; 0: none
	body                   int64      // the most bytes of a body, with one; 0: smallBody
	maxJobs                func() int // the longest list of the body; nil: as it may be
	bodyOptional           bool
	answer                 reflect.Type // of a plain route: what its JSON is; nil: not said
}

// smallBody bounds the body of a request that is not a submission, in bytes.
const smallBody = 64 << 10

func (r *route) operation() huma.Operation {
	summary, more, _ := strings.Cut(r.about, "\n")
	return huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: strings.TrimSuffix(summary, "."), Description: strings.TrimSpace(summary + "\n\n" + more),
		Tags: []string{r.tag}, DefaultStatus: r.status, Security: security(r.role), Extensions: map[string]any{roleExtension: r.role},
	}
}

// answer is what huma writes of a handler's result.
type answer[T any] struct{ Body T }

// get registers a route whose handler reads the parameters I, and no body, and
// returns T.
func get[I, T any](s *Server, r route, handle func(context.Context, *I) (T, error)) {
	getAny(s, r, func(ctx context.Context, in *I) (*answer[T], error) {
		v, err := handle(ctx, in)
		return &answer[T]{v}, err
	})
}

// getAny is get with a handler that returns all that huma writes: O has a Body and
// maybe a Status and headers.
func getAny[I, O any](s *Server, r route, handle func(context.Context, *I) (*O, error)) {
	huma.Register(s.api, r.operation(), func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problemOf(err, r.path)
		}
		return out, nil
	})
	describeOther(s, &r)
}

// post registers a route whose handler reads a body B, too.
func post[I, B, T any](s *Server, r route, handle func(context.Context, *I, *B) (T, error)) {
	postAny(s, r, func(ctx context.Context, in *I, body *B) (*answer[T], error) {
		v, err := handle(ctx, in, body)
		return &answer[T]{v}, err
	})
}

// postAny is post as getAny is get.
func postAny[I, B, O any](s *Server, r route, handle func(context.Context, *I, *B) (*O, error)) {
	op := r.operation()
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		body, req := new(B), requestOf(ctx)
		if req.ContentLength != 0 || !r.bodyOptional {
			if err := decode(req, body, cmp.Or(r.body, smallBody), r.maxJobs); err != nil {
				return nil, s.problemOf(err, r.path)
			}
		}
		out, err := handle(ctx, in, body)
		if err != nil {
			return nil, s.problemOf(err, r.path)
		}
		return out, nil
	})
	describeBody[B](s, &r)
	describeOther(s, &r)
}

// stream registers a route whose handler writes its answer, of a content type,
// itself. An error of its is answered, if it has written nothing yet.
func stream[I any](s *Server, r route, contentType string, handle func(w http.ResponseWriter, req *http.Request, in *I) error) {
	op := r.operation()
	op.Responses = textual(contentType)
	huma.Register(s.api, op, func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(c huma.Context) {
			req, w := humago.Unwrap(c)
			if err := handle(w, req, in); err != nil {
				s.refuse(w, req, err)
			}
		}}, nil
	})
}

// plain registers a route that somebody else answers; nil: nobody does.
func (s *Server) plain(r route, contentType, path string, h http.Handler) {
	op := r.operation()
	op.Responses = textual(contentType)
	if r.answer != nil {
		op.Responses["200"].Content[contentType].Schema = s.api.OpenAPI().Components.Schemas.Schema(r.answer, true, "")
	}
	for part := range strings.SplitSeq(r.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Description: "the rest of the path", Schema: &huma.Schema{Type: huma.TypeString}})
		}
	}
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			s.refuse(w, req, newProblem("not_available", http.StatusNotFound, "this scheduler does not serve %s", req.URL.Path))
		})
	}
	s.handle(&op, r.method+" "+path, h.ServeHTTP)
	s.api.OpenAPI().AddOperation(&op)
}

// adapter is how huma reaches the routes.
type adapter struct{ s *Server }

func (a adapter) Handle(op *huma.Operation, next func(huma.Context)) {
	a.s.handle(op, op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) { next(humago.NewContext(op, r, w)) })
}

func (a adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.s.mux.ServeHTTP(w, r) }

// handle is the one way by which a route comes into being: there is none without a
// role, and none that is reached without it.
func (s *Server) handle(op *huma.Operation, pattern string, next http.HandlerFunc) {
	role, ok := op.Extensions[roleExtension].(string)
	if !ok {
		panic("server: route " + pattern + " names no role")
	}
	s.patterns = append(s.patterns, pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		defer s.recovered(r)
		paced := newPaced(w)
		w = paced
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if r.ContentLength != 0 {
			paced.giveTime(bodyTime)
		}
		if role != public && s.opt.Authorize != nil {
			if err := s.opt.Authorize(r.Context(), r, role); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		next(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
	})
}

// recovered ends the connection of a request whose handler has panicked: nobody
// knows what was answered by then.
func (s *Server) recovered(r *http.Request) {
	what := recover()
	if what == nil {
		return
	}
	if what != http.ErrAbortHandler {
		s.opt.Log.Error().Interface("panic", what).Str("path", r.URL.Path).Bytes("stack", debug.Stack()).Msg("request failed")
	}
	panic(http.ErrAbortHandler)
}

// requestKey is the key of the request in its own context, which is all that huma
// passes on to handlers.
type requestKey struct{}

func requestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// route finds a request's route; what there is none for is a problem like others.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.forget() // whoever did it sees it in the next answer
		}
		return
	}
	why := &told{header: http.Header{}}
	h.ServeHTTP(why, r)
	if why.status == http.StatusMethodNotAllowed {
		p := newProblem("method_not_allowed", why.status, "%s is not for %s, want %s", r.Method, r.URL.Path, why.header.Get("Allow"))
		p.header = http.Header{"Allow": why.header["Allow"]}
		s.refuse(w, r, p)
		return
	}
	s.refuse(w, r, newProblem("no_route", http.StatusNotFound, "there is no route %s; GET /openapi.json lists what there is", r.URL.Path))
}

// told keeps what a handler of the mux says of a request without a route.
type told struct {
	header http.Header
	status int
}

func (t *told) Header() http.Header         { return t.header }
func (t *told) Write(p []byte) (int, error) { return len(p), nil }
func (t *told) WriteHeader(status int)      { t.status = status }

// paced bounds each write of an answer, so that a reader who is gone is let go. No
// answer as a whole is bounded: some are streams.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newPaced(w http.ResponseWriter) *paced { return &paced{w, http.NewResponseController(w)} }

// Unwrap lets http.ResponseController reach what is behind.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements http.ResponseWriter. A connection that knows no deadlines has
// none.
func (p *paced) Write(b []byte) (int, error) {
	p.control.SetWriteDeadline(time.Now().Add(writeTime)) //nolint:errcheck // see above
	return p.ResponseWriter.Write(b)
}

// giveTime bounds how long the body of a request may take. net/http lifts the bound
// when the body has been read, so that the request itself may take longer.
func (p *paced) giveTime(d time.Duration) {
	p.control.SetReadDeadline(time.Now().Add(d)) //nolint:errcheck // as with Write
}
