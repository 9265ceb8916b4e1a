package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a server on a socket in a folder of its own.
// kinds are the kinds of worker that the tests' schedulers have.
var kinds = map[string]job.WorkerTraits{"shell": {Script: true}, "claude": {}, "codex": {}}

type served struct {
	t      testing.TB
	socket string
	sched  *scheduler.Scheduler
	store  *sqlite.Store
	book   *isolation.Book
	http   *http.Client
	ids    []job.ID
	stop   func() // ends Serve
	server *server.Server
	last   job.ID // of the job that attempt has had done
}

// open serves a scheduler with two queued jobs, "one" and "two", on a socket
// whose path has the given length at least.
func open(t testing.TB, length int, changes ...func(*server.Options)) *served {
	t.Helper()
	dir := t.TempDir()
	for len(dir) < length {
		dir = filepath.Join(dir, "a-rather-long-folder")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "queue.db"), sqlite.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	d := &served{t: t, store: store, socket: filepath.Join(dir, "scheduler.sock"), ids: []job.ID{job.NewID(), job.NewID()}}
	now := time.Now().UTC()
	var entries []queue.Entry
	for i, name := range []job.Name{"one", "two"} {
		entries = append(entries, queue.Entry{ID: d.ids[i], Batch: "b", State: job.Queued, CreatedAt: now, RunnableAt: now, Spec: job.Spec{Name: name, Tenant: "t", Worker: "shell"}})
	}
	if err := store.Enqueue(t.Context(), queue.Batch{ID: "b", CreatedAt: now}, entries); err != nil {
		t.Fatal(err)
	}
	d.book = &isolation.Book{}
	var hears supervisor.Handler
	d.sched = scheduler.New(scheduler.Config{Store: store, Log: zerolog.Nop(), Isolations: d.book, Traits: kinds, Supervise: func(h supervisor.Handler) scheduler.Cores {
		hears = h
		return supervisor.New(supervisor.Config{Handler: h}) // never run: nothing is dispatched
	}})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	opt := server.Options{Store: store, Sched: d.sched, Log: zerolog.Nop(), Version: "test", Nodes: newFixedNodes(t, dir, hears)}
	for _, change := range changes {
		change(&opt)
	}
	d.server = server.New(opt)
	l, err := daemon.ListenSocket(d.socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { served <- d.server.Serve(ctx, l) }()
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", d.socket)
	}}}
	d.stop = sync.OnceFunc(func() {
		d.http.CloseIdleConnections()
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		d.stop()
		if _, err := os.Stat(d.socket); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// ask sends a request, checks the status and decodes the answer into v.
func (d *served) ask(method, path string, status int, v any) {
	d.t.Helper()
	d.send(method, path, "", status, v)
}

// send is ask with a body.
func (d *served) send(method, path, body string, status int, v any) {
	d.t.Helper()
	r, err := http.NewRequest(method, "http://scheduler"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		d.t.Errorf("%s %s: status %d, want %d", method, path, resp.StatusCode, status)
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		d.t.Errorf("%s %s: %v", method, path, err)
	}
}

func TestReads(t *testing.T) {
	d := open(t, 0)
	var jobs api.Jobs
	d.ask("GET", "/v1/jobs?limit=1&newest=true", 200, &jobs)
	if jobs.Total != 2 || len(jobs.Jobs) != 1 || jobs.Jobs[0].Spec.Name != "two" {
		t.Errorf("jobs %+v", jobs)
	}
	d.ask("GET", "/v1/jobs?state=completed", 200, &jobs)
	if jobs.Total != 0 {
		t.Errorf("completed jobs %+v", jobs)
	}
	for status, want := range map[string]int{"pending": 2, "failed": 0, "failed&status=pending": 2, "waiting_approval": 0, "pending&state=completed": 0} {
		if d.ask("GET", "/v1/jobs?status="+status, 200, &jobs); jobs.Total != want || len(jobs.Jobs) != want {
			t.Errorf("status=%s: %d jobs of %d, want %d", status, len(jobs.Jobs), jobs.Total, want)
		}
	}
	for _, ref := range []string{"one", string(d.ids[0])} {
		var j api.JobDetail
		if d.ask("GET", "/v1/jobs/"+ref, 200, &j); j.Job.ID != d.ids[0] {
			t.Errorf("job %s: %+v", ref, j)
		}
	}
	var events api.Events
	d.ask("GET", "/v1/jobs/one/events", 200, &events)
	if len(events.Events) != 0 {
		t.Errorf("events %+v", events)
	}
	var p api.Problem
	d.ask("GET", "/v1/jobs/none", 404, &p)
	if p.Status != 404 || !strings.Contains(p.Detail, `"none"`) {
		t.Errorf("problem %+v", p)
	}
	for path, location := range map[string]string{
		"/v1/jobs?limit=x": "query.limit", "/v1/jobs?limit=0": "query.limit", "/v1/jobs?limit=1001": "query.limit", "/v1/jobs?offset=1": "query.offset",
		"/v1/jobs?state=asleep": "query.state[0]", "/v1/jobs?status=held": "query.status[0]", "/v1/jobs?cursor=x": "query.cursor", "/v1/jobs/one/events?after=1e3": "query.after",
	} {
		var p api.Problem
		if d.ask("GET", path, 400, &p); p.Name() != "bad_request" || len(p.Errors) != 1 || p.Errors[0].Location != location || !strings.Contains(p.Detail, location) {
			t.Errorf("%s: problem %+v", path, p)
		}
	}
}

// TestCancel: what a job cannot do now is said in words, without those of the sentinel.
func TestCancel(t *testing.T) {
	d := open(t, 0)
	c := client.New(d.socket)
	defer c.Close()
	_, retried := c.Retry(t.Context(), "one")
	_, stopped := c.Checkpoint(t.Context(), "one", api.Checkpoint{})
	for want, err := range map[string]error{
		"job one is pending; only a job that has ended can be run again":   retried,
		"job one is pending; only a running job can stop at its next step": stopped,
	} {
		var p *api.Problem
		if !errors.As(err, &p) || p.Name() != "illegal_transition" || p.Detail != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	j, err := c.Cancel(t.Context(), "one")
	if err != nil || j.Job.State != job.Cancelled {
		t.Errorf("cancel: %+v, %v", j, err)
	}
	_, err = c.Cancel(t.Context(), "one")
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != http.StatusConflict || p.Name() != "illegal_transition" || p.Detail != "job one is cancelled already" {
		t.Errorf("second cancel: %v", err)
	}
}

// TestAmbiguous: several jobs may be meant, which is the asker's to mend.
func TestAmbiguous(t *testing.T) {
	d := open(t, 0)
	var p api.Problem
	if d.ask("GET", "/v1/jobs/"+string(d.ids[0])[:8], 400, &p); len(p.Errors) != 1 || p.Errors[0].Location != "path.job" || !strings.Contains(p.Detail, string(d.ids[1])) || strings.Contains(p.Detail, "path.job") {
		t.Errorf("problem %+v", p)
	}
}

// TestLongPath: a socket's address has 108 bytes at most, its path may have more.
func TestLongPath(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc here: the path is refused with a message")
	}
	d := open(t, 150)
	info, err := os.Stat(d.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info.Mode(), err)
	}
}

func TestNobodyThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scheduler.sock")
	c := client.New(path)
	defer c.Close()
	if _, err := c.Job(t.Context(), "one"); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	// What a killed scheduler leaves is a socket that nobody listens on.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := c.Job(t.Context(), "one"); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("a leftover: %v", err)
	}
}
