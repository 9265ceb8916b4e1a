package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pass lets time pass, and what is due by then happen: a goroutine that wakes at the same moment as the test has not
// done anything yet.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// cable is a network in memory between nodes and schedulers, which can be parted.
type cable struct {
	mu     sync.Mutex
	hosts  map[string]*socket
	conns  []net.Conn
	parted bool
}

func (c *cable) listen(name string) net.Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil {
		c.hosts = map[string]*socket{}
	}
	s := &socket{conns: make(chan net.Conn), done: make(chan struct{})}
	c.hosts[name] = s
	return s
}

func (c *cable) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	c.mu.Lock()
	to, parted := c.hosts[host], c.parted
	c.mu.Unlock()
	if to == nil || parted {
		return nil, errors.New("no way there")
	}
	near, far := net.Pipe()
	select {
	case to.conns <- far:
	case <-to.done:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, near, far)
	return near, nil
}

// part cuts what there is, and lets nothing through until it is mended.
func (c *cable) part(parted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parted = parted
	for _, x := range c.conns {
		x.Close()
	}
	c.conns = nil
}

type socket struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (s *socket) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}
func (s *socket) Close() error   { s.once.Do(func() { close(s.done) }); return nil }
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: "cable"} }

// leader is a scheduler that writes down what it hears.
type leader struct {
	t     *testing.T
	nodes *Nodes
	stop  func()

	mu     sync.Mutex
	heard  []string
	cores  map[*supervisor.Core]bool
	counts func(supervisor.HeldRun) supervisor.Verdict
	keeps  bool // what is told is recorded at once
	silent bool // it may not confirm

	isolated bool // NodeIsolated has said so last; no two of its calls come at the same time

	cordons *Cordons // nil: none are kept
}

func (l *leader) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, fmt.Sprintf(format, args...))
}

// take returns what was heard since it was called last.
func (l *leader) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.Join(l.heard, "\n")
	l.heard = nil
	return text
}

func (l *leader) theCore() *supervisor.Core {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.cores {
		return c
	}
	l.t.Fatal("no core is up")
	return nil
}

func (l *leader) Settings(*supervisor.Core) ipc.Configure {
	return ipc.Configure{
		MaxConcurrent: 7, PermitValidity: job.Duration(validity),
		Workers: map[job.WorkerKind]job.WorkerSettings{"shell": {Command: []string{"/opt/own"}, MaxConcurrent: 3}}, Secrets: map[string]ipc.Secret{"key": {}},
	}
}
func (l *leader) CoreUp(c *supervisor.Core) {
	l.note("up %s/%d past=%v", c.Node(), c.Place(), c.Past())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cores[c] = true
}
func (l *leader) CoreNotify(c *supervisor.Core, method string, params json.RawMessage) {
	var e struct {
		Job     job.ID `json:"job"`
		Attempt int    `json:"attempt"`
		Seq     int64  `json:"seq"`
	}
	if err := json.Unmarshal(params, &e); err != nil {
		l.t.Errorf("%s: %v", method, err)
	}
	l.note("%s %s seq=%d past=%v", method, e.Job, e.Seq, c.Past())
	l.mu.Lock()
	keeps := l.keeps
	l.mu.Unlock()
	if keeps {
		c.Recorded(e.Job, e.Attempt, e.Seq, method == ipc.NotifyJobCompleted)
	}
}
func (l *leader) CoreCall(_ context.Context, _ *supervisor.Core, method string, params json.RawMessage) (any, error) {
	l.note("asked %s", method)
	return params, nil
}
func (l *leader) RenewPermits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.silent
}
func (l *leader) CoreDraining(c *supervisor.Core, why string, _ bool) {
	l.note("draining %d: %s", c.Place(), why)
}
func (l *leader) CoreRuns(*supervisor.Core) []string { return nil }
func (l *leader) CoreDown(c *supervisor.Core, cause error) {
	l.note("down %s/%d lost=%v replaced=%v", c.Node(), c.Place(), errors.Is(cause, supervisor.ErrLost), errors.Is(cause, supervisor.ErrReplaced))
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cores[c] {
		l.t.Error("a core is down that was not up")
	}
	delete(l.cores, c)
}
func (l *leader) CoreFailed(index int, cause error)                 { l.note("failed: %v", cause) }
func (l *leader) CoreIsolated(index int, _ time.Time, _ error)      {}
func (l *leader) CoreHas(c *supervisor.Core, id job.ID, _ int) bool { return id != "void" }
func (l *leader) CoresChanged()                                     {}
func (l *leader) NodeIsolated(node string, until time.Time, why string) {
	if !until.IsZero() {
		l.note("%s isolated for %s: %s", node, time.Until(until).Round(time.Second), why)
		l.isolated = true
	} else if l.isolated {
		l.note("%s is tried again", node)
		l.isolated = false
	}
}
func (l *leader) CoresTakeOver(_ context.Context, node string, runs []supervisor.HeldRun) (list []supervisor.Verdict, _ error) {
	for _, r := range runs {
		v := supervisor.Verdict{Counts: true}
		if l.counts != nil {
			v = l.counts(r)
		}
		l.note("held by %s: %s/%d past=%v counts=%v", node, r.Job, r.Attempt, r.Core.Past(), v.Counts)
		list = append(list, v)
	}
	return list, nil
}

const (
	lease    = 8 * time.Second
	validity = 4 * time.Second
)

func lostAfter() time.Duration {
	return ipc.Lease{Node: lease, Validity: validity, Stop: time.Second}.Lost()
}

// lead begins a scheduler on the cable.
func lead(t *testing.T, net *cable, name string, set func(*leader)) *leader {
	l := &leader{t: t, cores: map[*supervisor.Core]bool{}, keeps: true}
	if set != nil {
		set(l)
	}
	var err error
	l.nodes, err = NewNodes(NodesConfig{Handler: l, Lease: lease, Log: zerolog.Nop(), Cordons: l.cordons, LostAfter: lostAfter, Attempt: attemptIn(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.nodes.Run(ctx) }) //nolint:errcheck // it is told to end
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if err := l.nodes.Accept(w, r, token); err != nil {
			l.note("refused: %v", err)
		}
	})}
	running.Go(func() { srv.Serve(net.listen(name)) }) //nolint:errcheck // it is closed
	synctest.Wait()
	l.stop = sync.OnceFunc(func() {
		cancel()
		srv.Close()
		running.Wait()
	})
	return l
}

// worker is a host whose only core is played by the test.
type worker struct {
	*Node
	t       *testing.T
	handler supervisor.Handler
	core    *supervisor.Core
	end     func() error // what Run has returned
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	offers  *Inventory // nil: two slots
	asked   []string
	slow    func(method string) error // what the core does before it answers; nil: nothing
	resumed int                       // how often its cores in a crash loop were to be tried again
	beats   sync.WaitGroup
	stops   []func()
	live    chan struct{}
}

// Run is the supervisor's.
func (w *worker) Run(ctx context.Context) error {
	w.up()
	close(w.live)
	<-ctx.Done()
	w.down(supervisor.ErrReplaced)
	return context.Cause(ctx)
}
func (w *worker) Hurry() {}
func (w *worker) Reconfigure(ctx context.Context) error {
	return w.core.Call(ctx, ipc.MethodConfigure, w.handler.Settings(w.core), nil)
}
func (w *worker) Restart(context.Context, int, bool) error { return nil }
func (w *worker) Resume(int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed++
	return true
}

// up has a core come up.
func (w *worker) up() {
	fromCore, toNode := io.Pipe()
	fromNode, toCore := io.Pipe()
	theirs := ipc.NewPeer(fromCore, toCore, ipc.Config{Name: "agentcore", HangLimit: time.Hour})
	own := ipc.NewPeer(fromNode, toNode, ipc.Config{Name: "node", Handler: w.played(), HangLimit: time.Hour})
	for _, p := range []*ipc.Peer{theirs, own} {
		w.beats.Go(func() { p.Run(context.Background()) }) //nolint:errcheck // it is stopped
		w.stops = append(w.stops, func() { p.Stop(nil) })
	}
	w.core = supervisor.Join(supervisor.Away{Index: 1, PID: 99, Peer: theirs})
	w.handler.CoreUp(w.core)
}

func (w *worker) down(cause error) {
	for _, stop := range w.stops {
		stop()
	}
	w.beats.Wait()
	w.handler.CoreDown(w.core, cause)
}

type played struct{ w *worker }

func (w *worker) played() played { return played{w} }

func (p played) HandleNotify(context.Context, string, json.RawMessage) {}
func (p played) HandleCall(_ context.Context, method string, params json.RawMessage) (any, error) {
	p.w.mu.Lock()
	p.w.asked = append(p.w.asked, method)
	slow := p.w.slow
	p.w.mu.Unlock()
	if slow != nil {
		if err := slow(method); err != nil {
			return nil, err
		}
	}
	if method == "unknown" {
		return nil, ipc.MethodNotFound(method)
	}
	return ipc.Empty{}, nil
}

func (w *worker) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.asked
	w.asked = nil
	return list
}

// tell has the core tell something of a run.
func (w *worker) tell(method string, id job.ID, seq int64) {
	params, err := json.Marshal(map[string]any{"job": id, "attempt": 1, "seq": seq})
	if err != nil {
		w.t.Error(err)
	}
	w.handler.CoreNotify(w.core, method, params)
}

// work begins a node on the cable, with a spool in dir.
func work(t *testing.T, net *cable, dir string, servers ...string) *worker {
	return workBy(t, net, dir, func() time.Duration { return 0 }, servers...)
}

// workBy is work on a host that has slept for so long.
func workBy(t *testing.T, net *cable, dir string, slept func() time.Duration, servers ...string) *worker {
	return workAs(t, net, dir, "a", slept, servers...)
}

// workAs is workBy of a node with a name.
func workAs(t *testing.T, net *cable, dir, name string, slept func() time.Duration, servers ...string) *worker {
	w := &worker{t: t, live: make(chan struct{})}
	base := time.Now()
	cfg := Config{
		Attempt: attemptIn(filepath.Join(dir, "jobs")),
		Token:   func() (string, error) { return name, nil }, Spool: dir, Cores: 1, Log: zerolog.Nop(), DialContext: net.dial, Clock: func() time.Duration { return time.Since(base) + slept() },
		Inventory: func(context.Context) Inventory { return w.offered() }, Adapt: func(c ipc.Configure) ipc.Configure { return c },
		Supervise: func(h supervisor.Handler) Supervisor { w.handler = h; return w },
	}
	for _, s := range servers {
		cfg.Servers = append(cfg.Servers, &url.URL{Scheme: "http", Host: s})
	}
	var err error
	if w.Node, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	w.cancel = cancel
	ended := make(chan error, 1)
	go func() { ended <- w.Node.Run(ctx) }()
	w.end = sync.OnceValue(func() error { cancel(errDone); return <-ended })
	return w
}

// workBeforeNext has a host work for the scheduler s, which records nothing of what it hears; r may follow.
func workBeforeNext(t *testing.T, net *cable) (*leader, *worker) {
	l := lead(t, net, "s", func(l *leader) { l.keeps = false })
	t.Cleanup(l.stop)
	w := work(t, net, t.TempDir(), "s:1", "r:1")
	t.Cleanup(func() { w.end() }) //nolint:errcheck // told to
	<-w.live
	synctest.Wait()
	return l, w
}

// offered returns what the host offers.
func (w *worker) offered() Inventory {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.offers == nil {
		return Inventory{Slots: 2}
	}
	return *w.offers
}

func (w *worker) offer(v Inventory) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offers = &v
}

func attemptIn(dir string) func(job.ID, int) string {
	return func(id job.ID, n int) string { return filepath.Join(dir, string(id), strconv.Itoa(n)) }
}

var errDone = errors.New("done")

func wants(t *testing.T, what, got string, want ...string) {
	t.Helper()
	if got != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, strings.Join(want, "\n"))
	}
}
