package client_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running serves an empty scheduler, which runs nothing, on the socket at path.
func running() (stop func(), path string) {
	dir, err := os.MkdirTemp("", "client")
	check(err)
	path = filepath.Join(dir, "scheduler.sock")
	s := newServed(dir)
	end := s.serve(path)
	return func() { end(); s.close(); check(os.RemoveAll(dir)) }, path
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// served is a scheduler that can be served again and again, as after restarts.
type served struct {
	store *sqlite.Store
	sched *scheduler.Scheduler
}

func newServed(dir string) *served {
	store, err := sqlite.Open(context.Background(), filepath.Join(dir, "queue.db"), sqlite.Options{Log: zerolog.Nop()})
	check(err)
	return &served{store, scheduler.New(scheduler.Config{Store: store, Log: zerolog.Nop(), Supervise: func(h supervisor.Handler) scheduler.Cores {
		return supervisor.New(supervisor.Config{Handler: h})
	}})}
}

func (s *served) close() { check(s.store.Close()) }

func (s *served) server() *server.Server {
	return server.New(server.Options{Store: s.store, Sched: s.sched, Log: zerolog.Nop(), Version: "test"})
}

func (s *served) serve(path string) (stop func()) {
	l, err := daemon.ListenSocket(path)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.server().Serve(ctx, l) }()
	return func() { cancel(); <-done }
}

// TestAllPages goes through more jobs than a page has.
func TestAllPages(t *testing.T) {
	stop, path := running()
	defer stop()
	c := client.New(path)
	defer c.Close()
	in := api.Submission{}
	for i := range 25 {
		in.Jobs = append(in.Jobs, job.Spec{Name: job.Name(fmt.Sprintf("job-%02d", i)), Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: "true", Workspace: job.Workspace{Isolation: job.NoWorkspace}})
	}
	if _, err := c.Submit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range c.All(t.Context(), client.ListQuery{Limit: 10, Tenant: "t", States: []job.EntryState{job.Queued, job.Cancelled}}) {
		if want := in.Jobs[n].Name; err != nil || e.Spec.Name != want {
			t.Fatalf("entry %d: %s, %v; want %s", n, e.Spec.Name, err, want)
		}
		n++
	}
	if n != 25 {
		t.Errorf("%d jobs", n)
	}
	page, err := c.List(t.Context(), client.ListQuery{Limit: 10, Search: "JOB-07"})
	if err != nil || page.Total != 1 || page.Next != "" || page.Jobs[0].Spec.Name != "job-07" {
		t.Errorf("searched: %d %q, %v", page.Total, page.Next, err)
	}
	for _, err := range c.All(t.Context(), client.ListQuery{Limit: 5000}) {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != http.StatusBadRequest {
			t.Errorf("a bad limit: %v", err)
		}
	}
}

// TestStreamBridgesRestarts: a stream goes on over an end of the server, with
// what was missed.
func TestStreamBridgesRestarts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "scheduler.sock")
	s := newServed(dir)
	defer s.close()
	c := client.New(path)
	defer c.Close()
	for _, err := range c.Stream(t.Context(), client.StreamOptions{}) {
		if !errors.Is(err, client.ErrNotRunning) {
			t.Errorf("nobody there: %v", err)
		}
	}
	stop := s.serve(path)
	defer func() { stop() }()
	var breaks atomic.Int32
	said := []string{"", "two", "three"}
	heard := 0
	// What it has heard last is not known any more, so that it is told first.
	for u, err := range c.Stream(t.Context(), client.StreamOptions{Last: "elsewhere-7", OnBreak: func(error, time.Duration) { breaks.Add(1) }}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Text != said[heard] || (heard == 0) != (u.Kind == api.UpdateGap) {
			t.Fatalf("heard %+v, want %q", u, said[heard])
		}
		if heard++; heard == len(said) {
			break
		}
		if heard == 1 {
			stop()
			s.sched.Feed.Tell("two") // while nobody listens
			stop = s.serve(path)
			s.sched.Feed.Tell("three")
		}
	}
	if breaks.Load() == 0 {
		t.Error("no break was told of")
	}
}

// TestStreamWithoutAWord: a stream that breaks before it has told anything goes on from
// the position with which it began.
func TestStreamWithoutAWord(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID")) // one connection after the other
		w.Header().Set("Content-Type", "text/event-stream")
		if len(asked) == 1 {
			fmt.Fprint(w, "retry: 2000\n\nid: life-7\n\n")
			return
		}
		fmt.Fprint(w, "id: life-8\nevent: core\ndata: {\"text\":\"missed\"}\n\n")
	}))
	defer srv.Close()
	c, err := client.Dial(client.Options{URL: srv.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for u, err := range c.Stream(t.Context(), client.StreamOptions{}) {
		if err != nil || u.Text != "missed" {
			t.Errorf("heard %+v, %v", u, err)
		}
		break
	}
	if !slices.Equal(asked, []string{"", "life-7"}) {
		t.Errorf("asked to go on after %q", asked)
	}
}

// TestTCP: the token goes along, the certificate is checked, and refusals are
// problems.
func TestTCP(t *testing.T) {
	var token atomic.Value
	answer := func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "Bearer good" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"type":"urn:agentsched:problem:unauthenticated","title":"x","status":401,"detail":"who are you?"}`)
			return
		}
		fmt.Fprint(w, `{"pid":7}`)
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(answer))
	defer srv.Close()
	srv.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{URL: srv.URL, Token: "good", CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if st, err := c.Status(t.Context()); err != nil || st.PID != 7 || token.Load() != "Bearer good" {
		t.Errorf("%+v, %v, %v", st, err, token.Load())
	}
	if c, err = client.Dial(client.Options{URL: srv.URL, Token: "bad", CAFile: ca}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Status(t.Context())
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 401 || p.Name() != "unauthenticated" || p.Detail != "who are you?" {
		t.Errorf("a bad token: %v", err)
	}
	for _, err := range c.Stream(t.Context(), client.StreamOptions{}) {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 401 {
			t.Errorf("a stream with a bad token: %v", err)
		}
	}
	if c, err = client.Dial(client.Options{URL: srv.URL, Token: "good"}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Status(t.Context()); err == nil || errors.Is(err, client.ErrNotRunning) {
		t.Errorf("an unknown certificate: %v", err)
	} else if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// TestTokenStays: no redirect carries a token elsewhere.
func TestTokenStays(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	c, err := client.Dial(client.Options{URL: srv.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Status(t.Context())
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != http.StatusTemporaryRedirect {
		t.Errorf("%v", err)
	}
}

func TestNotRunning(t *testing.T) {
	// The port of tcpmux: one that was free just now may be another test's by now.
	c, err := client.Dial(client.Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		o    client.Options
		want string
	}{
		{client.Options{}, "want one of them"},
		{client.Options{Socket: "/s", URL: "http://localhost:1"}, "want one of them"},
		{client.Options{URL: "localhost:7433"}, "want one such as"},
		{client.Options{URL: "https://user:secret@host:1"}, "want one such as"},
		{client.Options{URL: "https://host:1/path"}, "want one such as"},
		{client.Options{URL: "http://192.0.2.1:7433"}, "want https"},
		{client.Options{URL: "https://host:1", CAFile: none}, "holds no certificate"},
		{client.Options{URL: "https://host:1", CAFile: none + "x"}, "read certificates"},
	} {
		_, err := client.Dial(tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}
