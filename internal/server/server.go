package server

import (
	"cmp"
	"context"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/queue/sched"
)

// Server answers requests about one scheduler.
type Server struct {
	opt   Options
	queue *sched.Kernel
	api   huma.API
	mux   *http.ServeMux
	// document is the OpenAPI document as JSON.
	document []byte
	// patterns are those of all routes, in the order of their registration.
	patterns  []string
	listeners listeners

	overview  cached[api.Overview]
	agents    cached[api.Agents]
	workflows cached[[]api.Workflow]
	encoder   encoder
}

// New returns a server of the scheduler and its store.
func New(opt Options) *Server {
	ownProblems()
	opt.MaxListeners = cmp.Or(opt.MaxListeners, defaultListeners)
	opt.MaxBody = cmp.Or(opt.MaxBody, defaultBody)
	s := &Server{opt: opt, queue: sched.New(opt.Store, sched.Options{Changed: opt.Sched.Changed, Log: opt.Log}), mux: http.NewServeMux()}
	s.api = huma.NewAPI(apiConfig(opt.Version), adapter{s})
	for _, register := range []func(){
		s.jobRoutes, s.submitRoutes, s.runRoutes, s.streamRoutes, s.lookRoutes, s.workflowRoutes, s.pipelineRoutes, s.letterRoutes,
		s.agentRoutes, s.accountRoutes, s.controlRoutes, s.rpcRoutes, s.otherRoutes,
	} {
		register()
	}
	s.document = s.finishDocument()
	return s
}

// Handler returns the routes, within Options.Wrap.
func (s *Server) Handler() http.Handler {
	var h http.Handler = http.HandlerFunc(s.route)
	if s.opt.Wrap != nil {
		h = s.opt.Wrap(h)
	}
	return h
}

// Document returns the OpenAPI document.
func (s *Server) Document() []byte { return s.document }

// How long things may take at the door.
const (
	headerTime = 5 * time.Second  // the head of a request
	bodyTime   = time.Minute      // its body
	writeTime  = 30 * time.Second // one write of an answer
	idleTime   = 2 * time.Minute  // a connection between two requests
	endTime    = 2 * time.Second  // requests that are under way when Serve ends
)

// Keep enforces the leases and deadlines of kernel.sched until ctx ends, as
// sched.Kernel.Keep does. It runs beside Serve, once.
func (s *Server) Keep(ctx context.Context) error { return s.queue.Keep(ctx) }

// servingKey is the key of the context that Serve was given.
type servingKey struct{}

// Serve answers requests on l until ctx ends, and closes l. It may be called for
// several listeners at once. Streams end with ctx; other requests have a moment to
// end by themselves. The error is ctx's cause, or why l cannot be listened on.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10, ConnContext: s.opt.ConnContext,
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
	answering.Finish(last) //nolint:errcheck // what was left then was told that it ends
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
