package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/fleet"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// members are a fleet whose leader the test says.
type members struct {
	fleet.Directory
	// missed is told, if there is room, when somebody has asked in vain who leads.
	missed chan struct{}

	mu     sync.Mutex
	leader fleet.Leader
	known  []string
}

func newMembers() *members { return &members{missed: make(chan struct{}, 1)} }

func (m *members) Leader(ctx context.Context) (fleet.Leader, error) {
	l, err := m.Directory.Leader(ctx)
	if l == (fleet.Leader{}) {
		select {
		case m.missed <- struct{}{}:
		default:
		}
	}
	return l, err
}

func (m *members) register(id *fleet.Identity, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = slices.DeleteFunc(m.known, func(one string) bool { return one == id.Fingerprint() })
	if known {
		m.known = append(m.known, id.Fingerprint())
	}
	m.Set(m.leader, m.known...)
}

// lead makes a scheduler at an address the leader; nil: nobody is.
func (m *members) lead(name, address string, id *fleet.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch := m.leader.Epoch + 1
	m.leader = fleet.Leader{}
	if id != nil {
		m.leader = fleet.Leader{Epoch: epoch, Instance: name, Address: address, Fingerprint: id.Fingerprint(), Since: time.Now()}
	}
	m.Set(m.leader, m.known...)
}

// world is hosts that share a queue and tokens.
type world struct {
	*testing.T
	dir     string
	members *members
	tokens  *access.Tokens
	token   map[access.Role]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), members: newMembers(), token: map[access.Role]string{}}
	var err error
	if w.tokens, err = access.OpenTokens(t.Context(), statedir.Files(w.dir)); err != nil {
		t.Fatal(err)
	}
	for _, role := range access.Roles() {
		if _, w.token[role], err = w.tokens.Create(t.Context(), "the-"+string(role), role, 0); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// host is a scheduler of the fleet: its door for clients is plain TCP with tokens.
type host struct {
	w        *world
	name     string
	identity *fleet.Identity
	store    *sqlite.Store
	sched    *scheduler.Scheduler // nil if it stands by
	pass     *fleet.Pass          // nil if it leads
	door     string               // URL
	peers    string               // address
	revision atomic.Int64         // that it tells
	asked    atomic.Int64         // requests that were passed on to it
	stop     func()               // ends it
}

func (w *world) identity(name string) *fleet.Identity {
	w.Helper()
	id, err := fleet.NewIdentity()
	w.must(err)
	w.members.register(id, true)
	return id
}

// leader starts a scheduler that leads, once members says so.
func (w *world) leader(name string) *host {
	w.Helper()
	h := &host{w: w, name: name, identity: w.identity(name)}
	var err error
	h.store, err = sqlite.Open(w.Context(), filepath.Join(w.dir, "queue.db"), sqlite.Options{Log: zerolog.Nop()})
	w.must(err)
	h.sched = scheduler.New(scheduler.Config{Store: h.store, Log: zerolog.Nop(), Isolations: &isolation.Book{}, Traits: map[string]job.WorkerTraits{"shell": {Script: true}}, Supervise: func(sh supervisor.Handler) scheduler.Cores {
		return supervisor.New(supervisor.Config{Handler: sh}) // never run: nothing is dispatched
	}})
	opt := h.options()
	opt.Sched = h.sched
	h.serve(server.New(opt))
	return h
}

// standby starts one that stands by, on what the store's file holds.
func (w *world) standby(name string, changes ...func(*fleet.PassConfig)) *host {
	w.Helper()
	h := &host{w: w, name: name, identity: w.identity(name)}
	var err error
	h.store, err = sqlite.OpenReadOnly(w.Context(), filepath.Join(w.dir, "queue.db"))
	w.must(err)
	c := fleet.PassConfig{Identity: h.identity, Members: w.members, Log: zerolog.Nop()}
	for _, change := range changes {
		change(&c)
	}
	h.pass = fleet.NewPass(c)
	h.serve(server.NewStandby(h.options(), server.Standby{Pass: h.pass, Fresh: h.pass.Fresh}))
	return h
}

func (h *host) options() server.Options {
	socket, err := access.NewGuard(access.GuardConfig{Door: access.Socket})
	h.w.must(err)
	tcp, err := access.NewGuard(access.GuardConfig{Door: access.TCP, Tokens: h.w.tokens})
	h.w.must(err)
	return server.Options{
		Store: h.store, Log: zerolog.Nop(), Version: "test", Self: api.FleetMember{Instance: h.name},
		Authorize: access.Authorize, Principal: func(ctx context.Context) string { p, _ := access.From(ctx); return string(p.Door) + ":" + p.Name },
		Who: func(ctx context.Context) string { p, _ := access.From(ctx); return p.Name },
		Wrap: func(next http.Handler) http.Handler {
			return access.ByDoor(socket, tcp, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == server.AnswerPath {
					r = access.AsVisitor(r)
				}
				next.ServeHTTP(w, r)
			}))
		}, ConnContext: access.ConnContext,
		Me: http.HandlerFunc(access.Me),
	}
}

// serve opens both doors.
func (h *host) serve(s *server.Server) {
	h.w.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		h.w.must(err)
		return l
	}
	door, peers := listen(), listen()
	h.door, h.peers = "http://"+door.Addr().String(), peers.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	ends := func(err error) {
		if !errors.Is(err, context.Canceled) {
			h.w.Errorf("%s: serve: %v", h.name, err)
		}
	}
	p := fleet.Peers{Identity: h.identity, Members: h.w.members, Revision: h.revision.Load}
	serving.Go(func() { ends(s.Serve(ctx, door)) })
	serving.Go(func() {
		ends(s.ServePassed(ctx, p.Listen(peers), counted{&p, &h.asked}))
	})
	h.stop = sync.OnceFunc(func() {
		if h.pass != nil {
			h.pass.Close()
		}
		cancel()
		serving.Wait()
		if err := h.store.Close(); err != nil {
			h.w.Error(err)
		}
	})
	h.w.Cleanup(h.stop)
}

// counted are peers whose requests are counted.
type counted struct {
	*fleet.Peers
	requests *atomic.Int64
}

func (c counted) Handler(next http.Handler) http.Handler {
	return c.Peers.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requests.Add(1)
		next.ServeHTTP(w, r)
	}))
}

// leads makes it the leader.
func (h *host) leads() *host {
	h.w.members.lead(h.name, h.peers, h.identity)
	return h
}

// answer is what came of a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t *testing.T) *api.Problem {
	t.Helper()
	p := &api.Problem{}
	if err := json.Unmarshal([]byte(a.body), p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s %v is no problem", a.status, a.body, a.header)
	}
	return p
}

// ask sends a request to the door for clients, with headers in pairs.
func (h *host) ask(role access.Role, request, body string, headers ...string) answer {
	h.w.Helper()
	a, err := h.try(role, request, strings.NewReader(body), headers...)
	h.w.must(err)
	return a
}

func (h *host) try(role access.Role, request string, body io.Reader, headers ...string) (answer, error) {
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, h.door+path, body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+h.w.token[role])
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// job stores a queued job.
func (h *host) job(name job.Name) job.ID {
	h.w.Helper()
	now, id := time.Now().UTC().Round(0), job.NewID()
	h.w.must(h.store.Enqueue(h.w.Context(), queue.Batch{ID: job.BatchID(id), CreatedAt: now}, []queue.Entry{{
		ID: id, Batch: job.BatchID(id), State: job.Queued, CreatedAt: now, RunnableAt: now, Spec: job.Spec{Name: name, Tenant: "t", Type: job.Tool, Worker: "shell"},
	}}))
	return id
}

// submission is the body of one job.
func submission(name string) string {
	return `{"source":"s","jobs":[{"id":"` + name + `","tenant":"t","type":"TOOL","worker":"shell","instructions":"true","workspace":{"isolation":"none"}}]}`
}
