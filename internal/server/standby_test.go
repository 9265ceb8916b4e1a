package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// The routes that a scheduler that stands by answers itself: what needs more than a copy
// of the queue is not among them, nor what changes something.
var (
	fromCopy = []string{
		"get-dead-letter", "get-inbox", "get-job", "get-replay", "get-reputation-history", "get-timeline", "get-usage", "get-workflow", "list-agents", "list-approvals",
		"list-credit-history", "list-dead-letters", "list-events", "list-grants", "list-job-grants", "list-jobs", "list-messages", "list-open-questions", "list-pipeline-events", "list-pipelines",
		"list-questions", "list-reputations", "list-run-grants", "list-runs", "list-steps", "list-workflows",
	}
	ofItself = []string{"get-asset", "get-dashboard", "get-fleet", "get-health", "get-me", "get-metrics", "get-openapi", "get-readiness", "join-as-node", "log-in", "new-ui-link", "upgrade"}
)

// waits is what a queued job waits for.
var waits = regexp.MustCompile(`"waiting":\{[^}]*\}`)

// leaderAnswers is what the leader of these tests answers.
const leaderAnswers = http.StatusTeapot

// standby returns a standby's server on a copy of the world's store, and its options.
func (d *served) standby(change func(*server.Options, *server.Standby)) *server.Server {
	d.t.Helper()
	copied, err := sqlite.OpenReadOnly(d.t.Context(), filepath.Join(filepath.Dir(d.socket), "queue.db"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { copied.Close() })
	opt := server.Options{
		Store: copied, Log: zerolog.Nop(), Version: "test", Self: api.FleetMember{Instance: "b"}, Me: says(`{}`), Metrics: says("up 1\n"), Login: says("<p>"),
		NewUILink: func(context.Context, string) (api.UILink, error) { return api.UILink{}, nil },
	}
	by := server.Standby{Pass: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			w.Header().Set("X-Bound", fmt.Sprint(large.Limit))
		}
		w.WriteHeader(leaderAnswers)
	})}
	if change != nil {
		change(&opt, &by)
	}
	return server.NewStandby(opt, by)
}

// TestStandbyRoutes walks every route of a standby: those of the lists are answered from
// a copy that cannot be written, and with what the leader answers; all others are passed
// on.
func TestStandbyRoutes(t *testing.T) {
	d := world(t)
	s := d.standby(nil)
	h, leader := s.Handler(), d.server.Handler()
	var local, own []string
	queries := map[string]string{"get-reputation-history": "?subject=t&kind=tenant", "list-credit-history": "?tenant=t"}
	fill := strings.NewReplacer("{job}", string(d.last), "{ref}", string(d.last), "{attempt}", "1", "{name}", "patch", "{batch}", "c", "{pipeline}", "none", "{path}", "none")
	for path, ops := range d.document().Paths {
		for method, op := range ops {
			path := fill.Replace(path) + queries[op.ID]
			ask := func(h http.Handler) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), strings.ToUpper(method), path, http.NoBody))
				return w
			}
			w := ask(h)
			from := w.Header().Get(server.StandbyHeader)
			switch {
			case w.Code == leaderAnswers:
				if from != "" {
					t.Errorf("%s is said to come from the copy of %s", op.ID, from)
				}
			case from == "":
				own = append(own, op.ID)
			default:
				local = append(local, op.ID)
				if method != "get" || from != "b" {
					t.Errorf("%s %s is answered by %s", method, path, from)
				}
				// What a queued job waits for the leader knows better; a timeline tells until when.
				said := func(w *httptest.ResponseRecorder) string { return waits.ReplaceAllString(w.Body.String(), "") }
				if same := ask(leader); w.Code != same.Code || w.Code >= 500 || said(w) != said(same) && op.ID != "get-timeline" {
					t.Errorf("%s: %d %s\nthe leader: %d %s", op.ID, w.Code, w.Body, same.Code, same.Body)
				}
			}
		}
	}
	slices.Sort(local)
	slices.Sort(own)
	if !slices.Equal(local, fromCopy) || !slices.Equal(own, ofItself) {
		t.Errorf("from the copy: %q\nof itself: %q", local, own)
	}
}

// TestStandbyReads: who demands the leader's answer has it, and so has everybody while the
// copy is not as new as it must be.
func TestStandbyReads(t *testing.T) {
	d, fresh := open(t, 0), true
	h := d.standby(func(_ *server.Options, by *server.Standby) {
		by.Fresh = func() bool { return fresh }
		pass := by.Pass
		by.Pass = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(server.ReadHeader) != server.ReadLeader {
				t.Errorf("%s is passed on without %s", r.URL, server.ReadHeader)
			}
			pass.ServeHTTP(w, r)
		})
	}).Handler()
	for _, c := range []struct {
		demands string
		fresh   bool
		want    int
	}{{"", true, 200}, {"any", true, 200}, {server.ReadLeader, true, leaderAnswers}, {"", false, leaderAnswers}} {
		fresh = c.fresh
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/jobs", nil)
		r.Header.Set(server.ReadHeader, c.demands)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

// TestStandbyForgets: what a standby keeps computed is older than what it has passed on.
func TestStandbyForgets(t *testing.T) {
	d := open(t, 0)
	s := d.standby(func(_ *server.Options, by *server.Standby) {
		by.Pass = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			first, second := spec("first"), spec("second")
			second.Flow = job.Flow{Joined: true, Needs: []job.Name{"first"}}
			first.Flow.Joined = true
			if err := d.store.Enqueue(context.Background(), queue.Batch{ID: "f", CreatedAt: began}, []queue.Entry{
				{ID: "f1", Batch: "f", State: job.Queued, CreatedAt: began, RunnableAt: began, Spec: first},
				{ID: "f2", Batch: "f", State: job.Queued, CreatedAt: began, RunnableAt: began, Spec: second, Held: job.HeldForNeeds},
			}); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusCreated)
		})
	})
	h := s.Handler()
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	if w := ask("GET", "/v1/workflows"); strings.Contains(w.Body.String(), `"f"`) {
		t.Fatalf("%s", w.Body)
	}
	if w := ask("POST", "/v1/jobs"); w.Code != 201 {
		t.Fatal(w.Code)
	}
	if w := ask("GET", "/v1/workflows"); !strings.Contains(w.Body.String(), `"f"`) {
		t.Errorf("what was written is not read: %s", w.Body)
	}
}

// TestStandbyBounds: a body is bounded before it is passed on, as the leader bounds it.
func TestStandbyBounds(t *testing.T) {
	d := open(t, 0)
	h := d.standby(func(o *server.Options, _ *server.Standby) { o.MaxBody = 100 << 10 }).Handler()
	for path, bound := range map[string]int{"/v1/pause": 64 << 10, "/v1/jobs": 100 << 10, "/v1/rpc": 100 << 10, "/v1/dead-letters/drop": 100 << 10} {
		for size, want := range map[int]int{bound: leaderAnswers, bound + 1: http.StatusRequestEntityTooLarge} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(strings.Repeat(" ", size))))
			if w.Code != want {
				t.Errorf("%s with %d bytes: %d, want %d", path, size, w.Code, want)
			}
			if want == leaderAnswers {
				continue
			}
			if p := problemIn(t, w.Result()); p.Name() != "too_large" {
				t.Errorf("%s with %d bytes: %+v", path, size, p)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, struct{ io.Reader }{strings.NewReader(strings.Repeat(" ", bound+1))}))
		if w.Header().Get("X-Bound") != fmt.Sprint(bound) {
			t.Errorf("%s with a body of unknown length: bound %q, want %d", path, w.Header().Get("X-Bound"), bound)
		}
	}
}

// TestStandbyReady: it is ready if its copy can be read and somebody leads.
func TestStandbyReady(t *testing.T) {
	d := open(t, 0)
	var f api.Fleet
	var failed, ready error
	var store *sqlite.Store
	h := d.standby(func(o *server.Options, _ *server.Standby) {
		o.Fleet = func(context.Context) (api.Fleet, error) { return f, failed }
		o.Ready = func() error { return ready }
		store = o.Store.(*sqlite.Store)
	}).Handler()
	check := func(want int, words ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
		for _, word := range append(words, `"standby":true`) {
			if w.Code != want || !strings.Contains(w.Body.String(), word) {
				t.Errorf("%d %s, want %d with %s", w.Code, w.Body, want, word)
			}
		}
	}
	check(503, "no scheduler leads")
	f.Leader = &api.FleetTerm{Instance: "a"}
	check(200, `"ok":true`)
	failed = errors.New("the database is away")
	check(503, "the database is away")
	failed, ready = nil, errors.New("about to end")
	check(503, "about to end")
	ready = nil
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	check(503, "copy")
}

// TestFleet: a scheduler that works alone leads; one of several says what it is told.
func TestFleet(t *testing.T) {
	d := open(t, 0, func(o *server.Options) { o.Self = api.FleetMember{Instance: "a", Host: "here", Version: "1"} })
	var got api.Fleet
	d.ask("GET", "/v1/fleet", 200, &got)
	if got.Leader == nil || got.Leader.Instance != "a" || len(got.Members) != 1 || got.Members[0].Role != api.FleetLeader || got.Members[0].Host != "here" || len(got.History) != 1 || got.Leader.Since.IsZero() {
		t.Errorf("alone: %+v", got)
	}
	h := d.standby(func(o *server.Options, _ *server.Standby) {
		o.Fleet = func(context.Context) (api.Fleet, error) { return api.Fleet{Instance: "b"}, nil }
	}).Handler()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/fleet", nil))
	if text := strings.TrimSpace(w.Body.String()); text != `{"instance":"b","members":[],"history":[]}` {
		t.Errorf("nobody: %s", text)
	}
}
