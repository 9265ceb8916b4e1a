package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestOverview has of everything what there is.
func TestOverview(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	o, err := c.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Version != "test" || o.MaxAtOnce != 4 || o.Census.DeadLetters != 2 || o.Census.Queued+o.Census.Held != 4 || len(o.Budgets) != 1 || o.At.IsZero() {
		t.Errorf("overview %+v", o)
	}
	sum := api.Throughput{}
	for _, step := range o.Throughput {
		sum.Succeeded, sum.Failed = sum.Succeeded+step.Succeeded, sum.Failed+step.Failed
	}
	if sum.Succeeded != 1 || sum.Failed != 2 {
		t.Errorf("throughput %+v", o.Throughput)
	}
	why := map[string]int{}
	for _, w := range o.Waiting {
		why[w.Why] = w.Jobs
	}
	if why["waiting for jobs that it needs"] != 3 {
		t.Errorf("waiting %+v", o.Waiting)
	}
	if !slices.ContainsFunc(o.Alerts, func(a api.Alert) bool { return a.Scope == "worker:codex" && strings.Contains(a.Message, "the bill") }) {
		t.Errorf("alerts %+v", o.Alerts)
	}
	i := slices.IndexFunc(o.Tenants, func(row api.Tenant) bool { return row.Tenant == "t" })
	if i < 0 || o.Tenants[i].Grant == nil || o.Tenants[i].Grant.Tokens != 5 || o.Tenants[i].Today.Completed != 1 {
		t.Errorf("tenants %+v", o.Tenants)
	}
	if tenants, err := c.Tenants(t.Context()); err != nil || len(tenants) != len(o.Tenants) {
		t.Errorf("tenants %+v, %v", tenants, err)
	}
}

// counting is a store that counts how often it is surveyed.
type counting struct {
	queue.Store
	surveys atomic.Int32
}

func (c *counting) Census(ctx context.Context) (queue.Census, error) {
	c.surveys.Add(1)
	return c.Store.Census(ctx)
}

// TestOverviewIsMadeOnce for all who ask at once.
func TestOverviewIsMadeOnce(t *testing.T) {
	var store *counting
	d := open(t, 0, func(o *server.Options) {
		store = &counting{Store: o.Store}
		o.Store = store
	})
	h := d.server.Handler()
	began := time.Now()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/overview", nil))
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	if most := 1 + int32(time.Since(began)/(2*time.Second)); store.surveys.Load() > most {
		t.Errorf("made %d times in %v", store.surveys.Load(), time.Since(began))
	}
}

// TestGraph has levels, parts and the longest path.
func TestGraph(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	list, err := c.Workflows(t.Context(), 0)
	if err != nil || len(list) != 1 || list[0].Source != "flow" || list[0].Jobs != 4 || list[0].States["pending"] != 4 {
		t.Fatalf("workflows %+v, %v", list, err)
	}
	items, err := c.Job(t.Context(), "items")
	if err != nil {
		t.Fatal(err)
	}
	part, err := d.store.Get(t.Context(), items.Job.ID)
	if err != nil {
		t.Fatal(err)
	}
	part.ID, part.Spec.Name, part.Spec.Flow = job.NewID(), "items@1", job.Flow{Joined: true, Node: "items", Part: 1}
	if err := d.store.Enqueue(t.Context(), queue.Batch{ID: part.Batch, CreatedAt: part.CreatedAt}, []queue.Entry{part}); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{string(list[0].Batch), string(list[0].Batch)[:23]} {
		g, err := c.Workflow(t.Context(), ref)
		if err != nil || len(g.Nodes) != 5 {
			t.Fatalf("graph %+v, %v", g, err)
		}
		nodes := map[job.Name]api.Node{}
		for _, n := range g.Nodes {
			nodes[n.Name] = n
		}
		for name, want := range map[job.Name]api.Node{
			"first": {Kind: "job", Critical: true}, "items": {Kind: "for_each", Level: 1, Critical: true}, "again": {Kind: "loop", Level: 1},
			"merge": {Kind: "job", Level: 2, Critical: true}, "items@1": {Kind: "job", Level: 1, Of: "items"},
		} {
			if n := nodes[name]; n.Kind != want.Kind || n.Level != want.Level || n.Critical != want.Critical || n.Of != want.Of || n.Worker != "shell" {
				t.Errorf("%s is %+v, want %+v", name, n, want)
			}
		}
	}
}

// TestArtifacts: only what the outcome names, only from the attempt's own folder.
func TestArtifacts(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	text, err := c.Artifact(t.Context(), string(d.last), 1, job.ArtifactPatch)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if got, err := io.ReadAll(text); err != nil || string(got) != "+<b>\n" {
		t.Errorf("patch %q, %v", got, err)
	}
	w := httptest.NewRecorder()
	path := "/v1/jobs/" + string(d.last) + "/attempts/"
	d.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path+"1/artifacts/patch", nil))
	if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header %v", h)
	}
	// Outside, missing, through a link, a folder, unnamed, no attempt, no outcome's.
	for _, rest := range []string{"1/artifacts/stdout", "1/artifacts/stderr", "1/artifacts/answer", "1/artifacts/whole", "1/artifacts/patch.diff", "2/artifacts/patch", "1/artifacts/..%2Fsecret"} {
		var p api.Problem
		if d.ask("GET", path+rest, http.StatusNotFound, &p); p.Name() != "not_found" || strings.Contains(p.Detail, "/") && !strings.Contains(rest, "%2F") {
			t.Errorf("%s: %+v", rest, p)
		}
	}
	var p api.Problem
	d.ask("GET", path+"0/artifacts/patch", http.StatusBadRequest, &p)
	// Other content, and what a reader would wait for.
	attempts, err := d.store.Attempts(t.Context(), d.last)
	if err != nil {
		t.Fatal(err)
	}
	patch, _ := attempts[0].Outcome.Artifact(job.ArtifactPatch)
	if err := os.WriteFile(patch.Path, []byte("+<i>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.ask("GET", path+"1/artifacts/patch", http.StatusConflict, &p)
	if p.Name() != "artifact_changed" || !strings.Contains(p.Detail, patch.SHA256) || strings.Contains(p.Detail, "/") {
		t.Errorf("a changed patch: %+v", p)
	}
	if err := errors.Join(os.Remove(patch.Path), syscall.Mkfifo(patch.Path, 0o600)); err != nil {
		t.Fatal(err)
	}
	d.ask("GET", path+"1/artifacts/patch", http.StatusNotFound, &p)
}

// TestSteps joins what is stored with what was told.
func TestSteps(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	s, err := c.Steps(t.Context(), string(d.last))
	if err != nil || len(s.Steps) != 1 || s.Steps[0].ID != "plan" || s.Steps[0].StoredAt == nil || len(s.Steps[0].Uses) != 1 || s.Steps[0].Uses[0].Kept != job.KeptFresh {
		t.Errorf("steps %+v, %v", s, err)
	}
}

// TestTimeline has attempts in the order in which they began, and says if there are
// more.
func TestTimeline(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	all, err := c.Timeline(t.Context(), time.Time{}, time.Time{}, 0)
	if err != nil || len(all.Attempts) != 3 || all.More || all.Attempts[2].Began.Before(all.Attempts[0].Began) || all.Until.Sub(all.Since) != 3*time.Hour {
		t.Fatalf("timeline %+v, %v", all, err)
	}
	last, err := c.Timeline(t.Context(), time.Time{}, time.Time{}, 1)
	if err != nil || len(last.Attempts) != 1 || !last.More || last.Attempts[0].Job != d.last {
		t.Errorf("timeline %+v, %v", last, err)
	}
	_, err = c.Timeline(t.Context(), time.Now(), time.Now().Add(-time.Hour), 0)
	if p, ok := err.(*api.Problem); !ok || p.Status != http.StatusBadRequest {
		t.Errorf("backwards: %v", err)
	}
}

// TestAgents has the declared ones, with what was found of their work.
func TestAgents(t *testing.T) {
	d := world(t)
	c := client.New(d.socket)
	defer c.Close()
	agents, err := c.Agents(t.Context())
	if err != nil || len(agents) != 1 || agents[0].Profile.Name != "reviewer" || agents[0].Jobs != 2 || agents[0].State != "pending" || len(agents[0].Reputations) != 1 {
		t.Errorf("agents %+v, %v", agents, err)
	}
}

// TestServeSeveral: one server, two listeners, and what is put around them.
func TestServeSeveral(t *testing.T) {
	var seen atomic.Int32
	d := open(t, 0, func(o *server.Options) {
		o.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, roleKey{}, c.LocalAddr().Network())
		}
		o.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if network := r.Context().Value(roleKey{}); network == "tcp" || network == "unix" {
					seen.Add(1)
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Serve(ctx, l) }()
	c, err := client.Dial(client.Options{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Job(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	c.Close()
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("serve: %v", err)
	}
	var j api.JobDetail
	if d.ask("GET", "/v1/jobs/one", 200, &j); seen.Load() != 2 {
		t.Errorf("%d requests were seen", seen.Load())
	}
}
