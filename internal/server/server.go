package server

import (
	"cmp"
	"context"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/queue/sched"
)

// Server answers requests about one scheduler.
type Server struct {
	opt      Options
	router   *router
	queue    *sched.Kernel
	kept     []interface{ forget() } // answers that are older than the request
	document func() []byte
}

// New returns a server of the scheduler and its store.
func New(opt Options) *Server { return newServer(opt, nil) }

func newServer(opt Options, by *standby) *Server {
	opt.MaxListeners = cmp.Or(opt.MaxListeners, defaultListeners)
	opt.MaxBody = cmp.Or(opt.MaxBody, defaultBody)
	if opt.Principal == nil {
		opt.Principal = func(context.Context) string { return "" }
	}
	r := &router{log: opt.Log, authorize: opt.Authorize, mux: http.NewServeMux(), doc: newDocument(opt.Version), standby: by}
	s := &Server{opt: opt, router: r, queue: sched.New(opt.Store, sched.Options{Changed: opt.Sched.Changed}), document: sync.OnceValue(r.finish)}
	jobEntries, checked := entries{opt.Store, opt.Sched}, checker{opt.Bounds, opt.Domains}
	all := &overview{entries: jobEntries, sched: opt.Sched, version: opt.Version, workers: opt.Workers, budgets: opt.Budgets, maxAtOnce: opt.MaxAtOnce}
	flows := &workflows{store: opt.Store}
	declared := &agents{entries: jobEntries, evaluator: opt.Evaluator}
	for _, subject := range []interface{ routes(*router) }{
		jobs{jobEntries, opt.Sched, opt.Who},
		links{jobEntries, opt.Sched, opt.WrongLink, opt.LinkUsed},
		artifacts{jobEntries, opt.Artifacts, opt.FetchArtifact},
		parcels{opt.Parcels},
		submissions{jobEntries, opt.Sched.Submit, checked, parcels{opt.Parcels}, opt.ReadFile, opt.Principal, opt.MaxBody},
		runs{opt.Store, opt.Sched, checked, parcels{opt.Parcels}, opt.MaxBody},
		&streams{entries: jobEntries, sched: opt.Sched, log: opt.Log, principal: opt.Principal, max: opt.MaxListeners},
		all,
		flows,
		pipelines{opt.Store, opt.Sched},
		deadLetters{jobEntries, opt.Sched.Submit, opt.Domains, parcels{opt.Parcels}, opt.MaxBody},
		declared,
		accounts{opt.Store, opt.Sched.Wake, opt.Principal},
		control{opt.Sched, opt.Reload, opt.Upgrade, opt.NewUILink},
		rpc{s.queue, opt.Sched.Wake, opt.Log, opt.MaxBody},
		agentProtocol{s.mcp()},
		host{opt.Triggers, readiness(opt, by), by != nil, s.document, opt.Me, opt.Login, opt.Metrics, opt.Node},
		nodes{opt.Sched, opt.Nodes, opt.Who},
		members{opt.Sched, opt.Self, opt.Fleet},
		dashboardRoutes{},
	} {
		subject.routes(r)
	}
	s.kept = []interface{ forget() }{&all.made, &flows.all, &declared.list}
	return s
}

// Handler returns the routes, within Options.Wrap.
func (s *Server) Handler() http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			s.router.ServeHTTP(w, r)
			return
		}
		s.router.ServeHTTP(&onAnswer{w, s.forget}, r)
		s.forget()
	})
	if s.opt.Wrap != nil {
		h = s.opt.Wrap(h)
	}
	return h
}

// mcp returns Options.MCP's handler; nil without one.
func (s *Server) mcp() http.Handler {
	if s.opt.MCP == nil {
		return nil
	}
	routes := sync.OnceValue(s.Handler)
	return s.opt.MCP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes().ServeHTTP(w, r) }), ending)
}

// forget has what is kept computed anew: the client of a request that has changed
// something sees in the next answer what it did.
func (s *Server) forget() {
	for _, answer := range s.kept {
		answer.forget()
	}
}

// onAnswer calls answered before an answer begins.
type onAnswer struct {
	http.ResponseWriter
	answered func()
}

// WriteHeader implements http.ResponseWriter.
func (o *onAnswer) WriteHeader(status int) {
	o.answered()
	o.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (o *onAnswer) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Document returns the OpenAPI document.
func (s *Server) Document() []byte { return s.document() }

// How long requests may take.
const (
	headerTime = 5 * time.Second  // the head of a request
	bodyTime   = time.Minute      // its body
	writeTime  = 30 * time.Second // one write of an answer
	idleTime   = 2 * time.Minute  // a connection between two requests
	endTime    = 2 * time.Second  // requests that are under way when Serve ends
)

// Keep enforces the leases of claims, whoever has them, until ctx ends, as
// queue.Store.Sweep does. It runs beside Serve, once. A server of NewStandby only waits:
// the leader does it.
func (s *Server) Keep(ctx context.Context) error {
	if s.router.standby != nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.queue.Keep(ctx)
}

// servingKey is the key of the context that Serve was given.
type servingKey struct{}

// Serve answers requests on l until ctx ends, and closes l. It may be called for
// several listeners at once. Streams end with ctx; other requests have endTime to
// finish. The error is ctx's cause, or why l cannot be listened on.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return s.serve(ctx, l, s.Handler(), s.opt.ConnContext)
}

// Peers are the other schedulers, as Server.ServePassed knows them.
type Peers interface {
	// Handler is put around all routes and Options.Wrap, and makes sure who asks.
	Handler(http.Handler) http.Handler
	// ConnContext is http.Server's, of every connection.
	ConnContext(context.Context, net.Conn) context.Context
}

// ServePassed is Serve for what other schedulers pass on.
func (s *Server) ServePassed(ctx context.Context, l net.Listener, p Peers) error {
	return s.serve(ctx, l, p.Handler(s.Handler()), p.ConnContext)
}

func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler, connContext func(context.Context, net.Conn) context.Context) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10, ConnContext: connContext,
		BaseContext: func(net.Listener) context.Context { return context.WithValue(context.Background(), servingKey{}, ctx) },
		ErrorLog:    stdlog.New(s.opt.Log.With().Str("component", "http").Logger(), "", 0),
	}
	answering := daemon.NewServer(srv)
	served := make(chan error, 1)
	go func() { served <- answering.Serve(l) }()
	select {
	case err := <-served:
		srv.Close()
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	answering.Finish(last) //nolint:errcheck // what is left is closed
	if err := <-served; err != nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return context.Cause(ctx)
}

// ending is closed when the Serve that a request came through is to end; nil of a
// request that came through none.
func ending(ctx context.Context) <-chan struct{} {
	if serving, ok := ctx.Value(servingKey{}).(context.Context); ok {
		return serving.Done()
	}
	return nil
}
