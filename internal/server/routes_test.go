package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/server"
)

// refusal is what whoever decides about access returns.
type refusal struct{ status int }

func (r refusal) Error() string { return "no" }

func (r refusal) Problem() api.Problem {
	return api.Problem{Type: api.ProblemType + "forbidden", Title: "Forbidden", Status: r.status, Detail: "no"}
}

func (r refusal) Header() http.Header { return http.Header{"Www-Authenticate": {"Bearer"}} }

type roleKey struct{}

// TestRoles walks every route of the document, and every pattern of the mux, with
// every role: nothing is answered to who may not have it, nor is a body read.
func TestRoles(t *testing.T) {
	rank := map[string]int{"": 0, "read": 1, "submit": 2, "operate": 3, "node": 0}
	covers := func(have, need string) bool {
		if have == "node" || need == "node" { // it is beside the others
			return have == need
		}
		return rank[have] >= rank[need]
	}
	asked := 0
	d := world(t, func(o *server.Options) {
		o.Authorize = func(ctx context.Context, r *http.Request, role string) error {
			have, given := ctx.Value(roleKey{}).(string)
			if !given {
				return nil // the test sets its world up
			}
			asked++
			if r.URL.Path == "" || rank[role] == 0 && role != "node" {
				t.Errorf("asked for role %q of %s", role, r.URL.Path)
			}
			if !covers(have, role) {
				return fmt.Errorf("as %q: %w", have, refusal{http.StatusForbidden})
			}
			return nil
		}
	})
	h := d.server.Handler()
	routes := 0
	for path, ops := range d.document().Paths {
		for method, op := range ops {
			routes++
			for have := range rank {
				ctx, cancel := context.WithCancel(context.WithValue(context.Background(), roleKey{}, have))
				if strings.HasSuffix(path, "/stream") {
					cancel() // it ends as soon as it has begun
				}
				body := &unread{}
				r := httptest.NewRequestWithContext(ctx, strings.ToUpper(method), path, body)
				before := asked
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				cancel()
				allowed := op.Role == "public" || covers(have, op.Role)
				if allowed == (w.Code == http.StatusForbidden) || w.Code == 0 {
					t.Errorf("%s %s, which needs %s, as %q: %d %s", method, path, op.Role, have, w.Code, w.Body)
				}
				if (asked > before) == (op.Role == "public") {
					t.Errorf("%s %s, which needs %s: asked %d times", method, path, op.Role, asked-before)
				}
				if !allowed && (body.read || w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Content-Type") != "application/problem+json") {
					t.Errorf("%s %s refused: body read %v, header %v", method, path, body.read, w.Header())
				}
			}
		}
	}
	if routes != len(d.server.Patterns()) || routes < 40 {
		t.Errorf("walked %d routes, the mux has %d", routes, len(d.server.Patterns()))
	}
}

// unread is a body that tells whether it was read.
type unread struct{ read bool }

func (u *unread) Read([]byte) (int, error) {
	u.read = true
	return 0, io.EOF
}

// TestNoRoute: what there is no route for is a problem like others.
func TestNoRoute(t *testing.T) {
	d := open(t, 0)
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
		name                            string
	}{
		{"GET", "/v1/nothing", "", "", 404, "no_route"},
		{"GET", "/v1/updates", "", "", 404, "no_route"},
		{"DELETE", "/v1/jobs", "", "", 405, "method_not_allowed"},
		{"PUT", "/v1/jobs/one", "", "{}", 405, "method_not_allowed"},
		{"HEAD", "/v1/stream", "", "", 405, "method_not_allowed"},
		{"POST", "/v1/resume", "text/plain", "{}", 415, "unsupported_media_type"},
		{"POST", "/v1/rpc", "application/x-www-form-urlencoded", "{}", 415, "unsupported_media_type"},
		{"POST", "/v1/resume", "nonsense/", "{}", 415, "unsupported_media_type"},
		{"POST", "/v1/resume", "application/json; charset=utf-8", `{"scope": "global"}`, 409, "not_isolated"},
		{"POST", "/v1/ui-links", "", "", 404, "not_available"},
		{"POST", "/v1/job-files", "", `{"text": "x"}`, 404, "not_available"},
		{"POST", "/v1/reload", "", "", 404, "not_available"},
		{"POST", "/v1/upgrade", "", `{"mode": "drain"}`, 404, "not_available"},
		{"GET", "/v1/workers", "", "", 404, "not_available"},
		{"GET", "/v1/me", "", "", 404, "not_available"},
		{"GET", "/login", "", "", 404, "not_available"},
		{"GET", "/assets/none.js", "", "", 404, "not_found"},
		{"GET", "/v1/workflows/none", "", "", 404, "not_found"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		if c.contentType != "" {
			r.Header.Set("Content-Type", c.contentType)
		}
		w := httptest.NewRecorder()
		d.server.Handler().ServeHTTP(w, r)
		p := problemIn(t, w.Result())
		if w.Code != c.status || p.Status != c.status || p.Name() != c.name {
			t.Errorf("%s %s: %d %+v, want %d %s", c.method, c.path, w.Code, p, c.status, c.name)
		}
		if c.status == 405 && c.method != "HEAD" && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: Allow is missing", c.method, c.path)
		}
	}
}

// problemIn decodes a problem, and fails the test if it is none.
func problemIn(t testing.TB, resp *http.Response) api.Problem {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	p, err := asProblem(text)
	if err != nil || resp.Header.Get("Content-Type") != "application/problem+json" || p.Status != resp.StatusCode {
		t.Errorf("%s %s %s is no problem: %v", resp.Status, resp.Header.Get("Content-Type"), text, err)
	}
	return p
}

// TestHealth is answered without a role, and says why it is not well.
func TestHealth(t *testing.T) {
	why := fmt.Errorf("the cores are not up")
	d := open(t, 0, func(o *server.Options) {
		o.Authorize = func(context.Context, *http.Request, string) error { return refusal{http.StatusUnauthorized} }
		o.Ready = func() error { return why }
	})
	c := client.New(d.socket)
	defer c.Close()
	if h, err := c.Ready(t.Context()); err != nil || h.OK || h.Why != why.Error() {
		t.Errorf("ready %+v, %v", h, err)
	}
	why = nil
	if h, err := c.Ready(t.Context()); err != nil || !h.OK {
		t.Errorf("ready %+v, %v", h, err)
	}
	var h api.Health
	if d.ask("GET", "/healthz", 200, &h); !h.OK {
		t.Errorf("health %+v", h)
	}
}

// TestPanic of a handler ends that one connection.
func TestPanic(t *testing.T) {
	d := open(t, 0, func(o *server.Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a mistake") })
	})
	if resp, err := d.http.Get("http://scheduler/metrics"); err == nil {
		t.Errorf("answered %s", resp.Status)
		resp.Body.Close()
	}
	var j api.JobDetail
	d.ask("GET", "/v1/jobs/one", 200, &j)
}
