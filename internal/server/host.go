package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/queue"
)

// host answers about this process: its health, its triggers, its document, and what
// other packages serve.
type host struct {
	triggers           func() []api.Trigger // Options.Triggers
	ready              func(context.Context) error
	standby            bool // another scheduler leads
	document           func() []byte
	me, login, metrics http.Handler
	node               http.Handler // Options.Node
}

func (h host) routes(r *router) {
	get(r, route{id: "list-triggers", method: "GET", path: "/v1/triggers", role: read, tag: "overview", about: "List the triggers with their state."}, h.listTriggers)
	r.plain(route{id: "get-me", method: "GET", path: "/v1/me", role: read, answered: byEach, tag: "access", about: "Return who asks: name, role and listener.", answer: reflect.TypeFor[api.Me]()}, "application/json", "/v1/me", h.me)
	r.plain(route{id: "get-metrics", method: "GET", path: "/metrics", role: read, answered: byEach, tag: "overview", about: "Return figures in the text format of Prometheus."}, "text/plain", "/metrics", h.metrics)
	r.plain(route{id: "log-in", method: "GET", path: "/login", role: public, answered: byEach, tag: "access",
		about: "Exchange a one-time code for a browser session.\nThe answer redirects to the dashboard."}, "text/html", "/login", h.login)
	takes := h.node
	if takes == nil {
		takes = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.refuse(w, req, newProblem("takes_no_nodes", http.StatusServiceUnavailable, "this scheduler takes no nodes: it stands by, or works for itself alone; ask another scheduler of the queue"))
		})
	}
	r.plain(route{id: "join-as-node", method: "GET", path: "/v1/node", role: nodeRole, answered: byEach, tag: "access",
		about: "Open the WebSocket of a node.\nOnly `scheduler node` uses it; what is said on it is no part of this API."}, "text/plain", "/v1/node", takes)
	get(r, route{id: "get-health", method: "GET", path: "/healthz", role: public, answered: byEach, tag: "health", about: "Check that the process answers."},
		func(context.Context, *struct{}) (api.Health, error) {
			return api.Health{OK: true, Standby: h.standby}, nil
		})
	r.add(&route{id: "get-readiness", method: "GET", path: "/readyz", role: public, answered: byEach, tag: "health", other: http.StatusServiceUnavailable,
		about: "Check whether the scheduler accepts jobs.\nThe status is 503 if it does not."}, reflect.TypeFor[struct{}](), nil, reflect.TypeFor[api.Health](),
		func(ctx context.Context, _, _ any) (reply[any], error) { return h.readiness(ctx), nil })
	r.plain(route{id: "get-openapi", method: "GET", path: "/openapi.json", role: public, answered: byEach, tag: "access", about: "Return this document."}, "application/json", "/openapi.json",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(h.document()) //nolint:errcheck // the client has gone
		}))
}

func (h host) listTriggers(context.Context, *struct{}) (api.Triggers, error) {
	if h.triggers == nil {
		return api.Triggers{}, fmt.Errorf("triggers: %w: only `scheduler serve` fires them", errNoSuch)
	}
	return api.Triggers{Triggers: some(h.triggers())}, nil
}

func (h host) readiness(ctx context.Context) reply[any] {
	if err := h.ready(ctx); err != nil {
		return reply[any]{status: http.StatusServiceUnavailable, body: api.Health{Why: err.Error(), Standby: h.standby}}
	}
	return reply[any]{body: api.Health{OK: true, Standby: h.standby}}
}

// readiness returns what says why jobs are not taken: Options.Ready, and of a scheduler
// that stands by also that its copy of the queue cannot be read, or that it knows nobody
// to pass them on to.
func readiness(opt Options, by *standby) func(context.Context) error {
	return func(ctx context.Context) error {
		if opt.Ready != nil {
			if err := opt.Ready(); err != nil {
				return err
			}
		}
		if by == nil {
			return nil
		}
		if _, err := opt.Store.Get(ctx, "none"); err != nil && !errors.Is(err, queue.ErrNotFound) {
			return fmt.Errorf("read the copy of the queue: %w", err)
		}
		if opt.Fleet == nil {
			return nil
		}
		f, err := opt.Fleet(ctx)
		if err != nil {
			return fmt.Errorf("find out who leads: %w", err)
		}
		if f.Leader == nil {
			return errors.New("no scheduler leads")
		}
		return nil
	}
}
