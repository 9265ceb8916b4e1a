package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/fleet"
	"github.com/agentsched/agentsched/internal/server"
)

const operate, read = access.Operate, access.Read

// A standby answers what is read from its own copy, and has the leader answer the rest
// in the name of who asks.
func TestStandby(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	b := w.standby("b")
	a.job("one")

	got := b.ask(read, "GET /v1/jobs/one", "")
	if got.status != 200 || got.header.Get(server.StandbyHeader) != "b" || !strings.Contains(got.body, `"one"`) || a.asked.Load() != 0 {
		t.Errorf("a read: %+v; the leader was asked %d times", got, a.asked.Load())
	}
	got = b.ask(read, "GET /v1/jobs/one", "", server.ReadHeader, server.ReadLeader)
	if got.status != 200 || got.header.Get(server.StandbyHeader) != "" || a.asked.Load() != 1 {
		t.Errorf("a read of the leader: %+v; the leader was asked %d times", got, a.asked.Load())
	}
	var st api.Status
	got = b.ask(read, "GET /v1/status", "")
	if err := json.Unmarshal([]byte(got.body), &st); err != nil || st.PID == 0 || a.asked.Load() != 2 {
		t.Errorf("the status: %+v, %v", got, err)
	}
	for name, values := range got.header {
		if len(values) != 1 {
			t.Errorf("the header %s is there %d times: %q", name, len(values), values)
		}
	}

	// What is written is done by the leader, once for each key of the same person, and is read here.
	got = b.ask(access.Submit, "POST /v1/jobs", submission("two"), "Content-Type", "application/json", "Idempotency-Key", "k")
	if got.status != 201 {
		t.Fatalf("a submission: %+v", got)
	}
	if again := a.ask(access.Submit, "POST /v1/jobs", submission("two"), "Content-Type", "application/json", "Idempotency-Key", "k"); again.status != 200 || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same submission at the leader's own door: %+v", again)
	}
	if got = b.ask(read, "GET /v1/jobs/two", ""); got.status != 200 || got.header.Get(server.StandbyHeader) != "b" {
		t.Errorf("what was written is read: %+v", got)
	}

	// What is not allowed, or too large, does not get as far as the leader.
	before := a.asked.Load()
	if got = b.ask(read, "POST /v1/pause", `{"scope":"worker:shell"}`, "Content-Type", "application/json"); got.status != 403 {
		t.Errorf("a pause by a reader: %+v", got)
	}
	if got = b.ask("", "GET /v1/status", ""); got.status != 401 {
		t.Errorf("by nobody: %+v", got)
	}
	if got = b.insist(operate, "POST /v1/pause", func() io.Reader { return strings.NewReader(strings.Repeat(" ", 70<<10)) }); got.status != 413 || got.problem(t).Name() != "too_large" {
		t.Errorf("a large body: %+v", got)
	}
	if a.asked.Load() != before {
		t.Errorf("the leader was asked %d times for what is refused", a.asked.Load()-before)
	}
	// Who brings a link's code alone is nobody, and answered by the leader.
	for _, method := range []string{"GET", "POST"} {
		r, err := http.NewRequestWithContext(t.Context(), method, b.door+"/answer?code=none", strings.NewReader("code=none"))
		w.must(err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(r)
		w.must(err)
		resp.Body.Close()
		if resp.StatusCode != 404 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || a.asked.Load() == before {
			t.Errorf("%s of a link: %s %v; the leader was asked %d times", method, resp.Status, resp.Header, a.asked.Load())
		}
		before = a.asked.Load()
	}
	unknown := func() io.Reader { return struct{ io.Reader }{strings.NewReader(strings.Repeat(" ", 70<<10))} }
	if got = b.insist(operate, "POST /v1/pause", unknown); got.status != 413 || got.problem(t).Name() != "too_large" {
		t.Errorf("a large body of unknown length: %+v", got)
	}
	if got = b.ask(operate, "POST /v1/pause", `{"scope":"worker:shell"}`, "Content-Type", "application/json"); got.status != 200 || len(a.sched.Status().Isolations) != 1 {
		t.Errorf("a pause: %+v", got)
	}
}

// insist asks until there is an answer: who is refused while he still writes may lose the
// connection before he has read why.
func (h *host) insist(role access.Role, request string, body func() io.Reader) answer {
	for {
		if got, err := h.try(role, request, body()); err == nil {
			return got
		}
	}
}

// Each scheduler says of itself how it is.
func TestStandbySaysSo(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	b := w.standby("b")
	for request, want := range map[string]string{
		"GET /healthz": `"standby":true`, "GET /readyz": `"standby":true`, "GET /v1/me": `"the-read"`, "GET /v1/fleet": `"instance":"b"`, "GET /openapi.json": "get-fleet",
	} {
		if got := b.ask(read, request, ""); got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", request, got.status, got.body, want)
		}
	}
	if a.asked.Load() != 0 {
		t.Errorf("the leader was asked %d times", a.asked.Load())
	}
}

// At the door for clients nobody can say that somebody else asks.
func TestForgedCaller(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	b := w.standby("b")
	forged := `{"name":"root","role":"operate","door":"socket","remote":"uid 0"}`
	for _, h := range []*host{a, b} {
		if got := h.ask(read, "POST /v1/pause", `{"scope":"worker:shell"}`, "Content-Type", "application/json", access.CallerHeader, forged); got.status != 403 {
			t.Errorf("%s: %+v", h.name, got)
		}
	}
	// Nor beside a real token: the job is the token's.
	if got := b.ask(operate, "POST /v1/jobs", submission("x"), "Content-Type", "application/json", "Idempotency-Key", "k", access.CallerHeader, forged); got.status != 201 {
		t.Fatalf("%+v", got)
	}
	if got := a.ask(operate, "POST /v1/jobs", submission("x"), "Content-Type", "application/json", "Idempotency-Key", "k"); got.status != 200 {
		t.Errorf("the job belongs to somebody else: %+v", got)
	}
}

// peer sends a request to the peers of a host, as whoever has that identity.
func (h *host) peer(t *testing.T, as *fleet.Identity) (*http.Client, func() (*http.Response, error)) {
	t.Helper()
	via := &http.Transport{DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return fleet.Dial(ctx, h.peers, as)
	}}
	t.Cleanup(via.CloseIdleConnections)
	c := &http.Client{Transport: via}
	return c, func() (*http.Response, error) {
		r, err := http.NewRequest("GET", "https://"+h.peers+"/v1/status", nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set(access.CallerHeader, `{"name":"root","role":"operate","door":"socket","remote":"uid 0"}`)
		resp, err := c.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return resp, err
	}
}

// Only registered schedulers pass requests on, as long as they are registered.
func TestPeersAreMembers(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	id, err := fleet.NewIdentity()
	w.must(err)
	_, ask := a.peer(t, id)
	if resp, err := ask(); err == nil || !strings.Contains(err.Error(), "certificate") || a.asked.Load() != 0 {
		t.Errorf("one that is not registered: %v, %v", resp, err)
	}
	if _, ask := a.peer(t, nil); true {
		if resp, err := ask(); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("one without a certificate: %v, %v", resp, err)
		}
	}
	w.members.register(id, true)
	if resp, err := ask(); err != nil || resp.StatusCode != 200 {
		t.Fatalf("one that is: %v, %v", resp, err)
	}
	asked := a.asked.Load()
	w.members.register(id, false)
	if resp, err := ask(); err != nil || resp.StatusCode != 403 || a.asked.Load() != asked {
		t.Errorf("one that no longer is, on its open connection: %v, %v", resp, err)
	}

	// A standby that the leader does not know yet is told that nothing was done.
	b := w.standby("b", func(c *fleet.PassConfig) { c.Wait = time.Nanosecond })
	w.members.register(b.identity, false)
	if got := b.ask(operate, "POST /v1/pause", `{"scope":"worker:shell"}`, "Content-Type", "application/json"); got.status != 503 || got.problem(t).Name() != "no_leader" {
		t.Errorf("a standby that is not registered: %+v", got)
	}
	w.members.register(b.identity, true)
	if got := b.ask(operate, "POST /v1/pause", `{"scope":"worker:shell"}`, "Content-Type", "application/json"); got.status != 200 {
		t.Errorf("one that is: %+v", got)
	}
}

// Nobody else is given a request in the place of the leader.
func TestLeaderIsWhoItSays(t *testing.T) {
	w := newWorld(t)
	a, c := w.leader("a"), w.identity("c")
	b := w.standby("b", func(c *fleet.PassConfig) { c.Wait = time.Nanosecond })
	w.members.lead("c", a.peers, c)
	for _, request := range []string{"GET /v1/status", "POST /v1/reload"} {
		got := b.ask(operate, request, "")
		if p := got.problem(t); got.status != 503 || p.Name() != "no_leader" || !strings.Contains(p.Detail, "certificate") || got.header.Get("Retry-After") != "1" || got.header.Get(client.TakenHeader) != "no" || a.asked.Load() != 0 {
			t.Errorf("%s: %+v", request, got)
		}
	}
}

// While nobody leads, what is read from the copy is answered; the rest waits for a while.
func TestNoLeader(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a")
	a.job("one")
	soon := w.standby("soon", func(c *fleet.PassConfig) { c.Wait = time.Nanosecond })
	if got := soon.ask(read, "GET /v1/jobs/one", ""); got.status != 200 {
		t.Errorf("a read: %+v", got)
	}
	for _, request := range []string{"GET /v1/status", "POST /v1/jobs/one/cancel", "GET /v1/stream"} {
		if got := soon.ask(operate, request, ""); got.status != 503 || got.problem(t).Name() != "no_leader" || got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %+v", request, got)
		}
	}
	<-w.members.missed // that was one of those

	patient := w.standby("patient")
	for _, request := range []string{"GET /v1/status", "POST /v1/jobs/one/cancel"} {
		w.members.lead("", "", nil)
		var got answer
		var asking sync.WaitGroup
		asking.Go(func() { got = patient.ask(operate, request, "") })
		<-w.members.missed
		a.leads()
		if asking.Wait(); got.status != 200 {
			t.Errorf("%s: %+v", request, got)
		}
	}
}

// tried tells how often it was asked who leads.
type tried struct {
	fleet.Members
	times atomic.Int64
	then  func(n int64)
}

func (m *tried) Leader(ctx context.Context) (fleet.Leader, error) {
	m.then(m.times.Add(1))
	return m.Members.Leader(ctx)
}

// TestNotKnownYet: a scheduler that has just come passes on what it is asked as soon as the
// leader has heard of it.
func TestNotKnownYet(t *testing.T) {
	w := newWorld(t)
	w.leader("a").leads()
	var b *host
	b = w.standby("b", func(c *fleet.PassConfig) {
		c.Wait = time.Hour
		c.Members = &tried{Members: w.members, then: func(n int64) { w.members.register(b.identity, n > 1) }}
	})
	if got := b.ask(operate, "GET /v1/status", ""); got.status != 200 {
		t.Errorf("%+v", got)
	}
}

// loser takes requests, and dies of each.
type loser struct {
	address  string
	identity *fleet.Identity
	requests atomic.Int64
	taken    chan struct{}   // has room for one
	silent   context.Context // says nothing until it ends; nil: it dies at once
}

func (w *world) loser() *loser {
	w.Helper()
	l := &loser{identity: w.identity("loser"), taken: make(chan struct{}, 1)}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	l.address = tcp.Addr().String()
	p := fleet.Peers{Identity: l.identity, Members: w.members}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // it dies in any case
		l.requests.Add(1)
		select {
		case l.taken <- struct{}{}:
		default:
		}
		if l.silent != nil {
			select {
			case <-l.silent.Done():
			case <-r.Context().Done():
			}
		}
		panic(http.ErrAbortHandler)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(p.Listen(tcp)); !errors.Is(err, http.ErrServerClosed) {
			w.Error(err)
		}
	}()
	w.Cleanup(func() { srv.Close(); <-done })
	return l
}

// What may have been done is never sent twice; what only reads, or was not sent at all, is
// sent to the next leader.
func TestNotRepeated(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a")
	b := w.standby("b")
	l := w.loser()
	for _, c := range []struct{ request, body, key string }{
		{"POST /v1/jobs", submission("lost"), "k"}, {"POST /v1/jobs", submission("lost"), ""},
		{"POST /v1/reload", "", "k"}, {"POST /v1/reload", "", ""}, {"PUT /v1/grants", `{"tenant":"t"}`, "k"},
	} {
		w.members.lead("loser", l.address, l.identity)
		before := l.requests.Load()
		headers := []string{"Content-Type", "application/json"}
		if c.key != "" {
			headers = append(headers, "Idempotency-Key", c.key)
		}
		got := b.ask(operate, c.request, c.body, headers...)
		if p := got.problem(t); got.status != 502 || p.Name() != "outcome_unknown" || !strings.Contains(p.Detail, "Idempotency-Key") {
			t.Errorf("%s: %+v", c.request, got)
		}
		if n := l.requests.Load() - before; n != 1 {
			t.Errorf("%s with key %q was sent %d times", c.request, c.key, n)
		}
	}
	if a.asked.Load() != 0 {
		t.Errorf("the other one was asked %d times", a.asked.Load())
	}

	var got answer
	var asking sync.WaitGroup
	for len(l.taken) > 0 {
		<-l.taken
	}
	asking.Go(func() { got = b.ask(read, "GET /v1/status", "") })
	<-l.taken
	a.leads()
	if asking.Wait(); got.status != 200 || a.asked.Load() != 1 {
		t.Errorf("a read whose leader was lost: %+v, the next was asked %d times", got, a.asked.Load())
	}

	// Nobody listens where the leader is said to be: nothing is sent, whatever it is.
	w.members.lead("gone", "127.0.0.1:1", l.identity) // a port that no other program is given
	asking.Go(func() {
		got = b.ask(operate, "POST /v1/jobs", submission("late"), "Content-Type", "application/json")
	})
	a.leads() // before or after it was tried
	if asking.Wait(); got.status != 201 || a.asked.Load() != 2 {
		t.Errorf("a write that was not sent: %+v, the leader was asked %d times", got, a.asked.Load())
	}
}

// Who leads no more and does not answer either is not waited for.
func TestLeaderIsGone(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a")
	b := w.standby("b", func(c *fleet.PassConfig) { c.Grace = time.Nanosecond })
	l := w.loser()
	l.silent = t.Context()
	for request, want := range map[string]int{"GET /v1/status": 200, "POST /v1/reload": 502} {
		w.members.lead("loser", l.address, l.identity)
		var got answer
		var asking sync.WaitGroup
		asking.Go(func() { got = b.ask(operate, request, "") })
		<-l.taken
		a.leads()
		if asking.Wait(); got.status != want {
			t.Errorf("%s: %+v", request, got)
		}
	}
	if n := a.asked.Load(); n != 1 {
		t.Errorf("the next one was asked %d times, want it to be asked what only reads", n)
	}
}

// What was passed on is not passed on again, be it that two take each other for the leader.
func TestNotPassedOnTwice(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a")
	b, c := w.standby("b"), w.standby("c", func(c *fleet.PassConfig) { c.Wait = time.Nanosecond })
	b.leads()
	for _, request := range []string{"GET /v1/status", "POST /v1/reload", "POST /v1/resume"} {
		got := c.ask(operate, request, strings.Repeat(" ", len(request)*(strings.Count(request, "resume"))))
		if got.status != 503 || got.problem(t).Name() != "no_leader" {
			t.Errorf("%s: %+v", request, got)
		}
	}
	if got := c.ask(read, "GET /v1/jobs", "", server.ReadHeader, server.ReadLeader); got.status != 503 {
		t.Errorf("a read for the leader, by one that does not lead: %+v", got)
	}
	if b.asked.Load() < 4 || a.asked.Load() != 0 {
		t.Errorf("b was asked %d times, a %d", b.asked.Load(), a.asked.Load())
	}
	// One that has taken the lead meanwhile does not ask itself.
	if got := b.ask(operate, "POST /v1/reload", ""); got.status != 503 || !strings.Contains(got.problem(t).Detail, "taken the lead") {
		t.Errorf("%+v", got)
	}
}

// copyOf is a copy of the queue that comes as far as the test says.
type copyOf struct {
	at     atomic.Int64
	behind atomic.Bool // Await gives up
	asked  chan int64
	goOn   chan struct{}
}

func (c *copyOf) Revision() int64 { return c.at.Load() }

func (c *copyOf) Await(ctx context.Context, revision int64) error {
	if c.behind.Load() {
		return context.DeadlineExceeded
	}
	select {
	case c.asked <- revision:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-c.goOn
	return nil
}

// What somebody has written by a standby he reads there.
func TestReadYourWrites(t *testing.T) {
	w := newWorld(t)
	a := w.leader("a").leads()
	a.job("one")
	local := &copyOf{asked: make(chan int64), goOn: make(chan struct{})}
	b := w.standby("b", func(c *fleet.PassConfig) { c.Copy = local })
	a.revision.Store(7)

	var answered atomic.Bool
	var asking sync.WaitGroup
	asking.Go(func() {
		got := b.ask(operate, "POST /v1/pause", `{"scope":"worker:shell"}`, "Content-Type", "application/json")
		answered.Store(true)
		if got.status != 200 || got.header.Get("Agentsched-Revision") != "" {
			t.Errorf("%+v", got)
		}
	})
	if at := <-local.asked; at != 7 || answered.Load() {
		t.Errorf("waits for %d, answered %v", at, answered.Load())
	}
	local.goOn <- struct{}{}
	asking.Wait()
	if got := b.ask(read, "GET /v1/jobs/one", ""); got.header.Get(server.StandbyHeader) != "b" {
		t.Errorf("the copy is not read: %+v", got)
	}

	// A copy that does not come as far is not read until it has.
	local.behind.Store(true)
	a.revision.Store(9)
	if got := b.ask(operate, "POST /v1/resume", `{"scope":"worker:shell"}`, "Content-Type", "application/json"); got.status != 200 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		at   int64
		want string
	}{{8, ""}, {9, "b"}} {
		local.at.Store(c.at)
		if got := b.ask(read, "GET /v1/jobs/one", ""); got.status != 200 || got.header.Get(server.StandbyHeader) != c.want {
			t.Errorf("with the copy at %d: %+v", c.at, got)
		}
	}
}
