package server

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/agentsched/agentsched/api"
)

func (s *Server) otherRoutes() {
	get(s, route{id: "list-triggers", method: "GET", path: "/v1/triggers", role: read, tag: "overview", about: "Tell how each trigger is doing."}, s.triggers)
	s.plain(route{id: "get-me", method: "GET", path: "/v1/me", role: read, tag: "access", about: "Tell who asks: name, role and door.", answer: reflect.TypeFor[api.Me]()}, "application/json", "/v1/me", s.opt.Me)
	s.plain(route{id: "get-metrics", method: "GET", path: "/metrics", role: read, tag: "overview", about: "Tell figures in the text format of Prometheus."}, "text/plain", "/metrics", s.opt.Metrics)
	s.plain(route{id: "log-in", method: "GET", path: "/login", role: public, tag: "access",
		about: "Take a one-time code for a browser's session.\nIt leads on to the dashboard."}, "text/html", "/login", s.opt.Login)
	s.plain(route{id: "get-dashboard", method: "GET", path: "/", role: public, tag: "dashboard", about: "Return the dashboard, which holds no data."}, "text/html", "/{$}", s.opt.Dashboard)
	s.plain(route{id: "get-asset", method: "GET", path: "/assets/{path}", role: public, tag: "dashboard", about: "Return a file of the dashboard."}, "*/*", "/assets/", s.opt.Dashboard)
	get(s, route{id: "get-health", method: "GET", path: "/healthz", role: public, tag: "health", about: "Say that the process answers."},
		func(context.Context, *struct{}) (api.Health, error) { return api.Health{OK: true}, nil })
	getAny(s, route{id: "get-readiness", method: "GET", path: "/readyz", role: public, tag: "health", other: http.StatusServiceUnavailable,
		about: "Say whether the scheduler takes jobs.\nThe status is 503 where it does not."}, s.ready)
	s.plain(route{id: "get-openapi", method: "GET", path: "/openapi.json", role: public, tag: "access", about: "Return this document."}, "application/json", "/openapi.json",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(s.document) //nolint:errcheck // nobody is there to be told
		}))
}

func (s *Server) triggers(context.Context, *struct{}) (api.Triggers, error) {
	if s.opt.Triggers == nil {
		return api.Triggers{}, fmt.Errorf("triggers: %w: only `scheduler serve` fires them", errNoSuch)
	}
	return api.Triggers{Triggers: some(s.opt.Triggers())}, nil
}

// readiness is the answer to GET /readyz.
type readiness struct {
	Status int
	Body   api.Health
}

func (s *Server) ready(context.Context, *struct{}) (*readiness, error) {
	if s.opt.Ready != nil {
		if err := s.opt.Ready(); err != nil {
			return &readiness{http.StatusServiceUnavailable, api.Health{Why: err.Error()}}, nil
		}
	}
	return &readiness{http.StatusOK, api.Health{OK: true}}, nil
}
