package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/user"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/fleet"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// led is a fleet with a leader, in which everybody is registered.
type led struct{ leader fleet.Leader }

func (l *led) Leader(context.Context) (fleet.Leader, error) { return l.leader, nil }
func (*led) Member(string) bool                             { return true }
func (*led) Changed() <-chan struct{}                       { return nil }

// TestStandBy: a scheduler that stands by answers at its socket what is read, has its
// leader answer what is not, and in the name of who asks. When it is to lead, who connects
// waits for what comes next.
func TestStandBy(t *testing.T) {
	m := newTestMain(t, io.Discard)
	state, err := m.local.own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	at := utcNow()
	id := job.NewID()
	e := queue.Entry{ID: id, CreatedAt: at, RunnableAt: at, Spec: job.Spec{Name: "fix", Worker: "shell", Instructions: "true"}}
	if err := state.store.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID(), CreatedAt: at}, []queue.Entry{e}); err != nil {
		t.Fatal(err)
	}
	copied, err := sqlite.OpenReadOnly(t.Context(), state.dir.Database())
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()

	members := &led{}
	asked := make(chan access.Caller, 1)
	members.leader = newLeader(t, members, func(w http.ResponseWriter, r *http.Request) {
		caller, _ := access.ParseCaller(r.Header.Get(access.CallerHeader))
		asked <- caller
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(api.JobDetail{Job: api.Job{State: job.Cancelled}}) //nolint:errcheck // the client says so
	})
	identity, err := fleet.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	peers, err := fleet.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peers.Close()
	pass := fleet.NewPass(fleet.PassConfig{Identity: identity, Members: members, Log: zerolog.Nop()})
	defer pass.Close()
	cfg := config.Default()
	standby, err := m.runs.newStandby(t.Context(), state, &cfg, copied, &together{
		self: api.FleetMember{Instance: "b"}, peers: &fleet.Peers{Identity: identity, Members: members}, at: peers, pass: pass,
		fleet: func(context.Context) (api.Fleet, error) {
			return api.Fleet{Instance: "b", Leader: &api.FleetTerm{Instance: "a"}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	standby.listeners.opened = func() { close(opened) }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var kept map[string]daemon.Inherited
	var ended error
	var serving sync.WaitGroup
	serving.Go(func() { kept, ended = standby.standBy(ctx) })
	<-opened

	c := client.New(state.dir.Socket())
	defer c.Close()
	if j, err := c.Job(t.Context(), "fix"); err != nil || j.Job.ID != id || len(asked) > 0 {
		t.Errorf("a read: %+v, %v; the leader was asked %d times", j, err, len(asked))
	}
	if f, err := c.Fleet(t.Context()); err != nil || f.Leader == nil || f.Leader.Instance != "a" {
		t.Errorf("the fleet: %+v, %v", f, err)
	}
	if h, err := c.Ready(t.Context()); err != nil || !h.OK || !h.Standby {
		t.Errorf("ready: %+v, %v", h, err)
	}
	if j, err := c.Cancel(t.Context(), "fix"); err != nil || j.Job.State != job.Cancelled {
		t.Errorf("a write: %+v, %v", j, err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if by := <-asked; by.Name != me.Username || by.Role != access.Operate || by.Door != access.Socket || !strings.HasPrefix(by.Remote, "uid ") {
		t.Errorf("the leader was asked by %+v", by)
	}
	// It has nothing to hand over.
	var p *api.Problem
	if err := c.Upgrade(t.Context(), api.Upgrade{Mode: "drain"}); !errors.As(err, &p) || p.Status != 409 || !strings.Contains(err.Error(), "stands by") {
		t.Errorf("an upgrade: %v", err)
	}

	c.Close()
	stop()
	serving.Wait()
	if ended != nil || len(kept) != 1 {
		t.Fatalf("it ended with %v and keeps %v", ended, kept)
	}
	waiting, err := net.Dial("unix", state.dir.Socket())
	if err != nil {
		t.Fatalf("who connects while nobody serves: %v", err)
	}
	defer waiting.Close()
	next := kept[daemon.Socket]
	conn, err := next.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	next.Close()
	if err := standby.close(); err != nil {
		t.Error(err)
	}
}

// newLeader serves a leader's peers.
func newLeader(t *testing.T, members fleet.Members, answer http.HandlerFunc) fleet.Leader {
	t.Helper()
	identity, err := fleet.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := fleet.Peers{Identity: identity, Members: members}
	srv := &http.Server{Handler: answer, ConnContext: p.ConnContext}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(p.Listen(l)) //nolint:errcheck // it ends with Close
	}()
	t.Cleanup(func() { srv.Close(); <-done })
	return fleet.Leader{Epoch: 1, Instance: "a", Address: l.Addr().String(), Fingerprint: identity.Fingerprint()}
}

// TestPassedIsRecorded: the leader's audit log has who asked another scheduler, and from
// where, not the scheduler that has passed it on.
func TestPassedIsRecorded(t *testing.T) {
	m := newTestMain(t, io.Discard)
	state, err := m.local.own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	cfg := config.Default()
	e, err := m.runs.newStandby(t.Context(), state, &cfg, state.store, &together{})
	if err != nil {
		t.Fatal(err)
	}
	h := access.TakeCaller(e.listeners.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.Authorize(r.Context(), r, string(access.Submit)); err != nil {
			w.WriteHeader(http.StatusForbidden)
		}
	})))
	for _, role := range []access.Role{access.Submit, access.Read} {
		text, err := json.Marshal(access.Caller{Name: "ci", Role: role, Door: access.TCP, Remote: "192.0.2.7:4000"})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/jobs", strings.NewReader("{}"))
		r.Header.Set(access.CallerHeader, string(text))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if err := e.close(); err != nil {
		t.Fatal(err)
	}
	list, _, err := audit.Last(state.dir.Audit(), 10, func(r *api.AuditRecord) bool { return r.Who.Name == "ci" })
	if err != nil || len(list) != 2 {
		t.Fatalf("%d records of ci, %v", len(list), err)
	}
	for i, want := range []string{"submit", "read"} {
		r := &list[i]
		if r.Who.Role != want || r.Who.Door != "tcp" || !strings.Contains(string(r.Detail), "192.0.2.7:4000") {
			t.Errorf("record %d: %+v %s", i, r, r.Detail)
		}
	}
}

// awayDocuments are documents that cannot be read now.
type awayDocuments struct{ statedir.Documents }

func (awayDocuments) Read(context.Context, string) ([]byte, string, error) {
	return nil, "", queue.ErrUnavailable
}

// TestDoorsOutliveAFailedStart: a scheduler that is to lead, and cannot begin to since the database
// is away, stands by again at the addresses that it had.
func TestDoorsOutliveAFailedStart(t *testing.T) {
	m := newTestMain(t, io.Discard)
	state, err := m.local.own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.API.Listen = l.Addr().String()
	m.runs.inherited = map[string]daemon.Inherited{daemon.API: {Listener: l}}
	docs := state.docs
	state.docs = awayDocuments{docs}
	if _, err := m.runs.newStandby(t.Context(), state, &cfg, state.store, &together{}); !errors.Is(err, queue.ErrUnavailable) {
		t.Fatalf("without documents: %v", err)
	}
	state.docs = docs
	for _, end := range []string{"the first has it from who was before", "the next listens anew"} {
		e, err := m.runs.newStandby(t.Context(), state, &cfg, state.store, &together{})
		if err != nil {
			t.Fatalf("%s: %v", end, err)
		}
		if err := e.close(); err != nil { // nobody has served
			t.Fatal(err)
		}
	}
}
