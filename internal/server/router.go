package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
)

// The roles that a route may need, from the least; public needs none.
const (
	public   = "public"
	read     = "read"
	submit   = "submit"
	operate  = "operate"
	nodeRole = "node" // of a host that runs jobs: it covers nothing else, and no other covers it
)

// roleExtension names a route's role in the OpenAPI document.
const roleExtension = "x-role"

// answered says which of several schedulers answer a route.
type answered int

const (
	// byLeader: the one that leads alone, since the route changes something, or tells
	// what only that one knows or has. It is what a route that says nothing has.
	byLeader answered = iota
	// fromStore: any, from its copy of the store.
	fromStore
	// byEach: any, about itself.
	byEach
)

// route describes a route, for the router and for the OpenAPI document.
type route struct {
	id, method, path, role string
	answered               answered
	about                  string // one sentence; more may follow on the next line
	tag                    string
	status                 int               // of success; 0 means 200
	other                  int               // another status of success; 0 means none
	headers                map[string]string // of an answer, with their descriptions
	body                   int64             // bound of a body, in bytes; 0 means smallBody
	maxJobs                func() int        // bound of the longest list of a body; nil means none
	bodyOptional           bool
	answer                 reflect.Type // JSON that a route without a typed handler answers with; nil means that the document does not say
	takes                  reflect.Type // JSON that a route without a typed handler reads; nil means none
	uploads                bool         // the body is large: it has time as long as it arrives
	streams                bool         // the answer goes on until one of the two, or the server, ends
}

// smallBody bounds the body of a request that is not a submission, in bytes.
const smallBody = 64 << 10

func (at *route) operation() huma.Operation {
	summary, more, _ := strings.Cut(at.about, "\n")
	return huma.Operation{
		OperationID: at.id, Method: at.method, Path: at.path, Summary: strings.TrimSuffix(summary, "."), Description: strings.TrimSpace(summary + "\n\n" + more),
		Tags: []string{at.tag}, Security: security(at.role), Extensions: map[string]any{roleExtension: at.role},
	}
}

// router has all routes, and the document that describes them.
type router struct {
	log       zerolog.Logger
	authorize func(ctx context.Context, r *http.Request, role string) error // nil allows everything
	mux       *http.ServeMux
	doc       *huma.OpenAPI
	patterns  []string // of the mux, in the order of registration
	standby   *standby // nil of a scheduler that leads
	local     []string // ids of the routes that a scheduler that stands by answers itself
}

// reply is a body with a status, and maybe headers, of its own. Status 0 is the route's.
type reply[T any] struct {
	status int
	header http.Header
	body   T
}

// get registers a route whose handler reads the parameters I, and no body, and returns
// a body T.
func get[I, T any](r *router, at route, handle func(context.Context, *I) (T, error)) {
	r.add(&at, reflect.TypeFor[I](), nil, reflect.TypeFor[T](), func(ctx context.Context, in, _ any) (reply[any], error) {
		v, err := handle(ctx, in.(*I))
		return reply[any]{body: v}, err
	})
}

// post registers a route whose handler reads a body B, too.
func post[I, B, T any](r *router, at route, handle func(context.Context, *I, *B) (T, error)) {
	postReply(r, at, func(ctx context.Context, in *I, body *B) (reply[T], error) {
		v, err := handle(ctx, in, body)
		return reply[T]{body: v}, err
	})
}

// postReply is post for a handler that chooses the status.
func postReply[I, B, T any](r *router, at route, handle func(context.Context, *I, *B) (reply[T], error)) {
	r.add(&at, reflect.TypeFor[I](), reflect.TypeFor[B](), reflect.TypeFor[T](), func(ctx context.Context, in, body any) (reply[any], error) {
		v, err := handle(ctx, in.(*I), body.(*B))
		return reply[any]{v.status, v.header, v.body}, err
	})
}

// add registers a route by the types of its parameters, its body (nil means none) and
// its answer.
func (r *router) add(at *route, in, body, out reflect.Type, call func(ctx context.Context, in, body any) (reply[any], error)) {
	op := at.operation()
	params := r.parameters(&op, in)
	op.Responses = r.responses(at, "application/json", r.schema(out, at.id+"Response"))
	if body != nil {
		op.RequestBody = r.requestBody(at, body)
	}
	r.handle(at, &op, at.method+" "+at.path, func(w http.ResponseWriter, req *http.Request) {
		given := reflect.New(in)
		err := params.read(req, given.Elem())
		var sent any
		if err == nil && body != nil {
			sent = reflect.New(body).Interface()
			if req.ContentLength != 0 || !at.bodyOptional {
				err = decode(req, sent, cmp.Or(at.body, smallBody), at.maxJobs)
			}
		}
		var answer reply[any]
		if err == nil {
			answer, err = call(req.Context(), given.Interface(), sent)
		}
		var text bytes.Buffer
		if err == nil {
			err = json.NewEncoder(&text).Encode(answer.body)
		}
		if err != nil {
			r.refuse(w, req, err)
			return
		}
		maps.Copy(w.Header(), answer.header)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(cmp.Or(answer.status, at.status, http.StatusOK))
		w.Write(text.Bytes()) //nolint:errcheck // the client has gone
	})
}

// stream registers a route whose handler writes its answer, of a content type, itself.
// An error of the handler is answered, if nothing was written yet.
func stream[I any](r *router, at route, contentType string, handle func(w http.ResponseWriter, req *http.Request, in *I) error) {
	op := at.operation()
	params := r.parameters(&op, reflect.TypeFor[I]())
	op.Responses = r.responses(&at, contentType, textSchema(contentType))
	if at.takes != nil {
		op.RequestBody = r.requestBody(&at, at.takes)
	}
	at.streams = contentType == eventType
	r.handle(&at, &op, at.method+" "+at.path, func(w http.ResponseWriter, req *http.Request) {
		in := new(I)
		err := params.read(req, reflect.ValueOf(in).Elem())
		if err == nil {
			err = handle(w, req, in)
		}
		if err != nil {
			r.refuse(w, req, err)
		}
	})
}

// upload registers a route whose handler reads a body of bytes, at most at.body of them, and
// returns T.
func upload[I, T any](r *router, at route, handle func(context.Context, *I, io.Reader) (T, error)) {
	op := at.operation()
	params := r.parameters(&op, reflect.TypeFor[I]())
	op.Responses = r.responses(&at, "application/json", r.schema(reflect.TypeFor[T](), at.id+"Response"))
	at.uploads = true
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{binaryType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}
	r.handle(&at, &op, at.method+" "+at.path, func(w http.ResponseWriter, req *http.Request) {
		in := new(I)
		err := params.read(req, reflect.ValueOf(in).Elem())
		if err == nil {
			err = checkBodyType(req, binaryType)
		}
		var answer T
		if err == nil {
			answer, err = handle(req.Context(), in, http.MaxBytesReader(nil, req.Body, at.body))
			if isTooLarge(err) || isTimeout(err) {
				err = badBody(err, at.body)
			}
		}
		if err != nil {
			r.refuse(w, req, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(cmp.Or(at.status, http.StatusOK))
		json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client has gone
	})
}

// plain registers a route of another package's handler; nil answers 404. pattern is
// the path as the mux has it.
func (r *router) plain(at route, contentType, pattern string, h http.Handler) {
	op := at.operation()
	schema := textSchema(contentType)
	if at.answer != nil {
		schema = r.schema(at.answer, "")
	}
	op.Responses = r.responses(&at, contentType, schema)
	for part := range strings.SplitSeq(at.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Description: "the rest of the path", Schema: &huma.Schema{Type: huma.TypeString}})
		}
	}
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.refuse(w, req, newProblem("not_available", http.StatusNotFound, "this scheduler does not serve %s", req.URL.Path))
		})
	}
	r.handle(&at, &op, at.method+" "+pattern, h.ServeHTTP)
}

// handle is the only way to register a route: each has a role, and is described.
func (r *router) handle(at *route, op *huma.Operation, pattern string, next http.HandlerFunc) {
	role, ok := op.Extensions[roleExtension].(string)
	if !ok {
		panic("server: route " + pattern + " names no role")
	}
	r.doc.AddOperation(op)
	r.patterns = append(r.patterns, pattern)
	if at.answered != byLeader {
		r.local = append(r.local, at.id)
	}
	if r.standby != nil {
		next = r.standby.route(r, at, next)
	}
	r.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		defer r.recovered(req)
		if at.method == http.MethodGet && !at.streams {
			req = req.WithContext(queue.WithPatience(req.Context(), readPatience))
		}
		paced := newPaced(w)
		w = paced
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if req.ContentLength != 0 {
			paced.giveTime(bodyTime)
		}
		if at.uploads {
			req.Body = &uploaded{ReadCloser: req.Body, paced: paced, left: uploadStep}
		}
		if role != public && r.authorize != nil {
			if err := r.authorize(req.Context(), req, role); err != nil {
				r.refuse(w, req, err)
				return
			}
		}
		next(w, req)
	})
}

// readPatience is how long an answer that only reads waits for the database that schedulers share, before it is 503
// no_database.
const readPatience = 3 * time.Second

// recovered ends the connection of a request whose handler has panicked: what was
// answered by then is unknown.
func (r *router) recovered(req *http.Request) {
	what := recover()
	if what == nil {
		return
	}
	if what != http.ErrAbortHandler {
		r.log.Error().Interface("panic", what).Str("path", req.URL.Path).Bytes("stack", debug.Stack()).Msg("request failed")
	}
	panic(http.ErrAbortHandler)
}

// ServeHTTP answers a request; one without a route gets a problem like others.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h, pattern := r.mux.Handler(req)
	if pattern != "" {
		r.mux.ServeHTTP(w, req)
		return
	}
	why := &probe{header: http.Header{}}
	h.ServeHTTP(why, req)
	if why.status == http.StatusMethodNotAllowed {
		p := newProblem("method_not_allowed", why.status, "%s is not for %s, want %s", req.Method, req.URL.Path, why.header.Get("Allow"))
		p.header = http.Header{"Allow": why.header["Allow"]}
		r.refuse(w, req, p)
		return
	}
	r.refuse(w, req, newProblem("no_route", http.StatusNotFound, "there is no route %s; GET /openapi.json lists what there is", req.URL.Path))
}

// probe keeps the mux's answer to a request without a route.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header       { return p.header }
func (*probe) Write(p []byte) (int, error) { return len(p), nil }
func (p *probe) WriteHeader(status int)    { p.status = status }

// paced bounds each write of an answer, so that a client that is gone does not
// hold it. An answer as a whole has no bound, since some are streams.
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
