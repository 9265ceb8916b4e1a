package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/mcp"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// listeners are the ways by which others reach the engine: the unix socket of the
// state directory, and TCP, where it is configured or somebody wants to see the
// dashboard.
type listeners struct {
	runs     *runner
	e        *engine
	tokens   *access.Tokens
	sessions *access.Sessions
	links    access.Links
	unix     *access.Guard
	tcp      *access.Guard
	server   *server.Server
	mcp      *mcp.Handler // of a server that leads
	// together is what one of several schedulers has besides; nil: this one works alone.
	together *together
	// upgrade begins to hand over to another program; nil: this program cannot.
	upgrade             func(context.Context, api.Upgrade) error
	opened              func()        // is called whenever all are open; may be nil
	leaving             chan struct{} // closed when another program is to have the listeners
	left                chan struct{} // closed when, after that, all requests are answered
	leaveOnce, leftOnce sync.Once

	mu        sync.Mutex                   // guards what follows
	socket    func() (net.Listener, error) // what listen has come to, until serve takes it; nil: nothing
	inherited map[string]daemon.Inherited
	open      map[string]net.Listener // by the names of package daemon
	address   string                  // of TCP, once it is open
	secure    bool                    // it speaks TLS
	more      chan net.Listener       // serves one more listener, while serve runs
}

// newListeners prepares the listeners; nothing listens yet. They have what was inherited, which
// stays for those who come next if there is an error; else giveBack returns what was not needed.
func (runs *runner) newListeners(ctx context.Context, e *engine) (*listeners, error) {
	d := &listeners{runs: runs, e: e, inherited: runs.inherited, open: map[string]net.Listener{}, more: make(chan net.Listener), leaving: make(chan struct{}), left: make(chan struct{})}
	var err error
	if d.tokens, err = access.OpenTokens(ctx, e.state.docs); err != nil {
		return nil, err
	}
	if d.sessions, err = access.OpenSessions(ctx, e.state.docs); err != nil {
		return nil, err
	}
	key, err := access.OpenKey(e.state.dir.Key())
	if err != nil {
		return nil, err
	}
	if d.unix, err = access.NewGuard(access.GuardConfig{Door: access.Socket, Key: key, Origin: e.origin, OnRefused: d.refused}); err != nil {
		return nil, err
	}
	d.tcp, err = access.NewGuard(access.GuardConfig{
		Door: access.TCP, Tokens: d.tokens, Sessions: d.sessions, Settings: accessSettings(&e.cfg), OnRefused: d.refused,
	})
	if err != nil {
		return nil, err
	}
	runs.inherited = nil
	return d, nil
}

// giveBack leaves what was inherited and not listened on to the listeners that come next in
// this process, and closes what was opened and never served: else they would find their own
// address taken.
func (d *listeners) giveBack() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs.inherited == nil && len(d.inherited) > 0 {
		d.runs.inherited = map[string]daemon.Inherited{}
	}
	maps.Copy(d.runs.inherited, d.inherited)
	d.inherited = nil
	for _, l := range d.open {
		l.Close()
	}
	d.open = map[string]net.Listener{}
}

func accessSettings(cfg *config.Config) access.Settings {
	hosts := slices.Clone(cfg.API.Hosts)
	if u, err := url.Parse(cfg.API.PublicURL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	return access.Settings{Hosts: hosts, PerSecond: cfg.API.Rate.PerSecond, Burst: cfg.API.Rate.Burst}
}

// refused records a request that a guard has refused. Those that are
// answered 401 and 403 are recorded where all answers are seen.
func (d *listeners) refused(ctx context.Context, r access.Refusal) {
	if d.e.audit == nil {
		return
	}
	who := api.AuditWho{Name: r.Name, Role: r.Role, Door: string(r.Door)}
	if r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden {
		audit.Explain(ctx, who, r.Remote, r.Why)
		return
	}
	d.e.audit.RecordRefused(audit.Request{Who: who, Method: r.Method, Target: r.Path, Status: r.Status, From: r.Remote, Why: r.Why}, int64(r.Unreported))
}

// newServer returns what answers the requests of all listeners.
func (d *listeners) newServer() *server.Server {
	opt := d.ownOptions()
	if by, standsBy := d.together.standsBy(); standsBy {
		opt.Upgrade = func(context.Context, api.Upgrade) error { return errStandsBy }
		return server.NewStandby(opt, by)
	}
	e, runs := d.e, d.runs
	opt.Sched, opt.Evaluator, opt.Artifacts, opt.Parcels = e.sched, e.eval, e.state.dir.Attempt, e.parcels
	opt.ReadFile = func(ctx context.Context, f api.JobFile) (api.Submission, error) { return runs.readFile(ctx, e, f) }
	opt.Workers = func(context.Context) []api.Worker { return runs.workersNow(e) }
	opt.Budgets = func(context.Context) []api.Budget { return e.budgetsNow() }
	opt.Domains = func() []string { cfg := e.config(); return domains(&cfg) }
	opt.Bounds = func() queue.Bounds { cfg := e.config(); return bounds(&cfg) }
	opt.MaxAtOnce = func() int { cfg := e.config(); return cfg.Concurrency.Max }
	opt.Ready, opt.Reload, opt.Upgrade = e.ready, e.reloadNow, d.upgrade
	opt.MCP = d.newMCP
	if e.state.artifacts != nil {
		opt.FetchArtifact = e.state.fetchFile
	}
	if e.nodes != nil {
		opt.Node, opt.Nodes = http.HandlerFunc(e.takeNode), e.nodes
	}
	if e.triggers != nil {
		opt.Triggers = e.triggers.Status
	}
	return server.New(opt)
}

// errStandsBy refuses an upgrade: a scheduler that stands by has no jobs to hand over.
var errStandsBy = errors.New("this scheduler stands by and has no jobs to hand over: put the new program in its place and restart it; nothing is lost by that")

// ownOptions are those by which a scheduler answers about itself, whether it leads or not.
func (d *listeners) ownOptions() server.Options {
	e := d.e
	opt := server.Options{
		Store: e.state.store, Log: e.state.logs.For(logging.API), Version: d.runs.prog.version, Self: d.self(), NewUILink: d.newLink,
		Me: http.HandlerFunc(access.Me), Login: access.LoginHandler(&d.links, d.sessions, d.stranger), Metrics: e.telemetry,
		Authorize: access.Authorize, Principal: func(ctx context.Context) string { p, _ := access.From(ctx); return string(p.Door) + ":" + p.Name },
		WrongLink: access.WrongLink, LinkUsed: linkUsed,
		Who: answers, Wrap: d.wrap, ConnContext: access.ConnContext, MaxBody: int64(e.config().API.MaxBody),
	}
	if d.together != nil {
		opt.Fleet = d.together.fleet
	}
	return opt
}

// newMCP returns what answers /mcp.
func (d *listeners) newMCP(routes http.Handler, ending func(context.Context) <-chan struct{}) http.Handler {
	d.mcp = mcp.NewHandler(mcp.HandlerOptions{
		Options: mcp.Options{Version: d.runs.prog.version}, Routes: routes, Ending: ending,
		Who: func(ctx context.Context) (name, role string) {
			p, _ := access.From(ctx)
			return string(p.Door) + ":" + p.Name, string(p.Role)
		},
	})
	return d.mcp
}

// answers names whose answer a request brings: at the socket, where its owner may
// speak for others, the request says it itself.
func answers(ctx context.Context) string {
	if p, ok := access.From(ctx); ok && p.Door != access.Socket {
		return p.Name
	}
	return ""
}

// linkUsed has the audit log say whose link has answered, and what.
func linkUsed(r *http.Request, id job.ID, by, is string) {
	audit.Name(r.Context(), api.AuditWho{Name: by, Role: string(access.Visitor), Door: "link"})
	audit.Say(r.Context(), id, is)
}

// wrap puts the guards around all routes, and the audit log around these.
func (d *listeners) wrap(next http.Handler) http.Handler {
	routes := http.NewServeMux()
	routes.Handle("/", next)
	routes.Handle("POST /logout", access.LogoutHandler(d.sessions))
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == server.AnswerPath {
			r = access.AsVisitor(r)
		}
		audit.Routed(routes).ServeHTTP(w, r)
	})
	if d.e.audit == nil {
		return access.ByDoor(d.unix, d.tcp, routed)
	}
	failed := func(err error) {
		log := d.e.state.logs.For(logging.Audit)
		log.Error().Err(err).Msg("a request was not recorded in the audit log")
	}
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := access.From(r.Context()); ok {
			audit.Name(r.Context(), api.AuditWho{Name: p.Name, Role: string(p.Role), Door: string(p.Door)})
		}
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/runs"), r.URL.Path == server.AnswerPath:
			audit.WithoutBody(r.Context()) // values of the caller's variables, or a link's code
		case r.URL.Path == "/mcp":
			audit.WithoutRecord(r.Context()) // its tools ask other routes
		}
		routed.ServeHTTP(w, r)
	})
	unknown := func(context.Context) (name, role, door string) { return "", "", "" }
	return d.e.audit.Handler(access.ByDoor(d.unix, d.tcp, named), unknown, failed)
}

// prepare listens where the configuration says, before anything is started, so that
// an address that is taken, or that may not be listened on, is an error then.
func (d *listeners) prepare() error {
	if addr := d.e.config().API.Listen; addr != "" {
		return d.openTCP(addr)
	}
	return nil
}

// leave answers what was asked and takes nothing more, since another program is to
// have the listeners: what is asked from now on waits for that. It returns when all
// is answered, or ctx ends.
func (d *listeners) leave(ctx context.Context) {
	d.leaveOnce.Do(func() { close(d.leaving) })
	select {
	case <-d.left:
	case <-ctx.Done():
	}
}

// listen listens on the socket before the loop begins: whoever sees what that does, a
// core that is up say, and then asks for something, waits until serve answers. If it
// fails, serve says why.
func (d *listeners) listen() {
	l, err := d.openSocket()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.socket = func() (net.Listener, error) { return l, err }
}

// listening returns what listen has come to, once, and opens the socket after that.
func (d *listeners) listening() (net.Listener, error) {
	d.mu.Lock()
	opened := d.socket
	d.socket = nil
	d.mu.Unlock()
	if opened == nil {
		opened = d.openSocket
	}
	return opened()
}

// unlisten closes the socket that listen has opened if nobody has served it.
func (d *listeners) unlisten() {
	d.mu.Lock()
	opened := d.socket
	d.socket = nil
	d.mu.Unlock()
	if opened == nil {
		return
	}
	if l, err := opened(); err == nil {
		l.Close()
	}
}

// serve opens the listeners and answers until ctx ends. It may be called again.
func (d *listeners) serve(ctx context.Context) error {
	select {
	case <-d.leaving: // the listeners are another's
		d.leftOnce.Do(func() { close(d.left) })
		<-ctx.Done()
		return context.Cause(ctx)
	default:
	}
	until := ctx
	d.mcp = nil
	d.server = d.newServer()
	unix, err := d.listening()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.mcp != nil {
		defer d.mcp.Close() // when all is answered
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	answer := func(name string, l net.Listener) {
		d.mu.Lock()
		d.open[name] = l
		d.mu.Unlock()
		serving.Go(func() {
			if err := d.server.Serve(ctx, l); ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	serving.Go(func() { d.server.Keep(ctx) }) //nolint:errcheck // it ends with ctx
	if t := d.together; t != nil {
		serving.Go(func() {
			if err := d.server.ServePassed(ctx, t.peers.Listen(t.at.Turn()), t.peers); ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	answer(daemon.Socket, unix)
	defer d.closed()
	if l := d.openedTCP(); l != nil {
		answer(daemon.API, l)
	} else if addr := d.wanted(); addr != "" {
		if err := d.openTCP(addr); err != nil {
			if d.e.config().API.Listen != "" {
				cancel(err)
				return err
			}
			log := d.e.state.logs.For(logging.API)
			log.Warn().Err(err).Msg("the dashboard's previous address is in use; `scheduler ui` finds another one")
		} else {
			answer(daemon.API, d.openedTCP())
		}
	}
	if d.opened != nil {
		d.opened()
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.leaving:
			cancel(errReplaced)
			serving.Wait()
			d.leftOnce.Do(func() { close(d.left) })
			<-until.Done()
			return context.Cause(until)
		case l := <-d.more:
			answer(daemon.API, l)
		}
	}
}

// closed forgets the listeners, which nobody serves any more.
func (d *listeners) closed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.address = map[string]net.Listener{}, ""
}

// listeners returns what is listened on.
func (d *listeners) all() map[string]net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := map[string]net.Listener{}
	for name, l := range d.open {
		list[name] = l
	}
	return list
}

func (d *listeners) openSocket() (net.Listener, error) {
	path := d.e.state.dir.Socket()
	if l, ok := d.take(daemon.Socket); ok {
		return daemon.AdoptSocket(l.Listener, path, l.Kept)
	}
	return daemon.ListenSocket(path)
}

// take returns the inherited listener of the name, once.
func (d *listeners) take(name string) (daemon.Inherited, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.inherited[name]
	delete(d.inherited, name)
	return l, ok
}

// wanted returns the address to listen on for TCP from the start: as configured,
// or where browsers have found the dashboard before.
func (d *listeners) wanted() string {
	cfg := d.e.config()
	if cfg.API.Listen != "" || d.upgrade == nil {
		return cfg.API.Listen
	}
	text, err := os.ReadFile(d.e.state.dir.UIAddress())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.e.state.log.Warn().Err(err).Msg("read the dashboard's address")
	}
	return strings.TrimSpace(string(text))
}

// openTCP listens on addr and keeps the listener.
func (d *listeners) openTCP(addr string) error {
	cfg := d.e.config()
	c := access.Config{Addr: addr, CertFile: cfg.API.TLS.Cert, KeyFile: cfg.API.TLS.Key, Tokens: d.tokens, Log: d.e.state.logs.For(logging.API)}
	if l, ok := d.take(daemon.API); ok {
		if c.Inherited = l.Listener; !sameAddress(l.Addr().String(), addr) {
			c.Inherited = nil // another was configured meanwhile
			l.Close()
		}
	}
	l, err := access.Listen(c)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[daemon.API], d.address, d.secure = l, l.Addr().String(), l.TLS()
	return nil
}

// sameAddress reports whether what is listened on is what is wanted.
func sameAddress(listening, wanted string) bool {
	addr, err := net.ResolveTCPAddr("tcp", wanted)
	if err != nil {
		return false
	}
	have, err := net.ResolveTCPAddr("tcp", listening)
	if err != nil {
		return false
	}
	unspecified := func(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }
	return have.Port == addr.Port && (have.IP.Equal(addr.IP) || unspecified(have.IP) && unspecified(addr.IP))
}

func (d *listeners) openedTCP() net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[daemon.API]
}

// firstUI is where the dashboard is looked for first, where nothing is configured.
const firstUI = "127.0.0.1:7433"

// newLink returns a link that opens the dashboard once, for who asks. Where TCP is
// not listened on, a port of this host alone is opened for it.
func (d *listeners) newLink(ctx context.Context, role string) (api.UILink, error) {
	r := access.Operate
	if role != "" {
		var err error
		if r, err = access.ParseRole(role); err != nil {
			return api.UILink{}, err
		}
	}
	if d.openedTCP() == nil {
		if err := d.openUI(ctx); err != nil {
			return api.UILink{}, err
		}
	}
	name := "somebody"
	if p, ok := access.From(ctx); ok {
		name = p.Name
	}
	link, err := d.links.NewLink(name, r)
	if err != nil {
		return api.UILink{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	scheme := "http"
	if d.secure {
		scheme = "https"
	}
	return api.UILink{Role: string(r), URL: scheme + "://" + reachable(d.address) + link.Path(), ExpiresAt: link.Expires}, nil
}

// stranger reports whether a request at the port that was opened for the dashboard comes
// from another user of this host. Where the configuration says where to listen, a proxy of
// another user may stand in front.
func (d *listeners) stranger(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || d.e.config().API.Listen != "" {
		return false
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	uid, known := proc.ConnectionUser(remote, local.AddrPort())
	return known && uid != 0 && uid != uint32(os.Geteuid())
}

// openUI opens a port of this host for the dashboard, and writes down which, so
// that a browser finds it there after a restart.
func (d *listeners) openUI(ctx context.Context) error {
	if err := d.openTCP(firstUI); err != nil {
		if err = d.openTCP("127.0.0.1:0"); err != nil {
			return err
		}
	}
	l := d.openedTCP()
	if err := statedir.WriteFile(d.e.state.dir.UIAddress(), []byte(l.Addr().String()+"\n")); err != nil {
		d.e.state.log.Warn().Err(err).Msg("write down the dashboard's address")
	}
	select {
	case d.more <- l:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), l.Close())
	case <-time.After(uiTime):
		return errors.Join(errors.New("the scheduler is about to end"), l.Close())
	}
}

// uiTime is how long it may take to serve one more listener.
const uiTime = 5 * time.Second

// reachable returns an address that a browser on this host can ask for.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}

// ready says why no job could begin now, if the engine itself is why.
func (e *engine) ready() error {
	st := e.sched.Status()
	if st.Stopping {
		return errors.New("the scheduler is about to end")
	}
	for _, c := range st.Cores {
		if c.PID != 0 {
			return nil
		}
	}
	return errors.New("no agentcore is up")
}

// health says whether the engine still moves: its lock is free and its store
// answers.
func (e *engine) health(ctx context.Context) error {
	e.sched.Status()
	if e.state.shared { // a database that is away is nothing that a restart mends
		return nil
	}
	if _, err := e.state.store.Get(ctx, job.ID("none")); err != nil && !isNotFound(err) {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	return nil
}
