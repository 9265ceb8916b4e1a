package agentcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Confining is what a run's confinement is made of: what its job asks for, what the host allows and can do, and where the
// run's files lie. All paths are absolute.
type Confining struct {
	Spec     *job.Spec
	Granted  []string // entries of Spec.Network that people have allowed besides
	Settings ipc.Sandbox
	Host     sandbox.Host
	Dir      *statedir.Dir
	Job      job.ID // whose private folders it uses
	Worker   job.WorkerKind
	Programs []string // the command that the worker's settings name, if they do

	Workspace []string // the folder that it works in, which it may change if its job may edit
	Borrowed  []string // what the workspace refers to and the run may read, such as git's objects
	Temp      string   // its folder for temporary files
	Scratch   string   // that of its worker's program

	User func(name string) string // variables of the user's environment

	Credentials Credentials        // nil serves no repositories
	Audit       *sandbox.AuditLog  // hears of files that runs are refused, if Settings.Audit says so; may be nil
	NewMark     func() uint64      // of the host that starts the processes (proc.Host.NewMark); may be nil
	Emit        func(job.Event)    // is told what the run was refused, and whom it has connected to
	Stop        func(*worker.Stop) // is called for a run that tries what no honest program does

	more    func(*Confinement) error // opens what else is served; may be nil
	seeds   *goSeeds                 // for a tenant that has no cache of Go yet; may be nil
	environ []string                 // of the run's processes, as the user has it
}

// Confinement holds the processes of one run to what its job was granted, and serves them what they may use of the
// outside. It is a worker.Sandbox. A nil one holds nothing.
type Confinement struct {
	held    Held
	host    sandbox.Host
	folders ConfinedFolders
	user    func(name string) string
	emit    func(job.Event)
	seen    *denials
	newMark func() uint64
	audit   *sandbox.AuditedRun // nil: nothing is told of files

	keys     []redact.Value
	address  string // of the endpoint, HOST:PORT as the run sees it
	own      bool   // the endpoint lies on a loopback of the run's own: each process brings its listener
	endpoint *endpoint
	proxy    *egress.Proxy // nil with the full network
	rules    egress.Rules
	relays   relays
	proxyURL string
	git      []string // settings of its git, NAME=VALUE
	models   *models  // nil: none are served
}

// ownPort is where the endpoint lies on a loopback of the run's own, away from what dev servers take.
const ownPort = 20780

// Level returns how the run is to be held: what its job asks for, else what the configuration says. The error is a
// *worker.Failure: a job that asks for less than the host allows does not run.
func (c *Confining) Level() (sandbox.Level, error) {
	level := sandboxLevel(c.Spec, &c.Settings)
	least := cmp.Or(c.Settings.Least, c.Settings.Level, job.SandboxNone)
	if level == job.SandboxStrongest {
		level = Strongest(c.Host, least)
	}
	if level.Weaker(least) {
		return "", &worker.Failure{Class: job.Config, Message: fmt.Sprintf("the job asks for sandbox level %s, and this host allows no less than %s", level, least),
			Hint: "ask for that or more, or have sandbox.least lowered in the configuration"}
	}
	return sandbox.Level(level), nil
}

// Strongest returns the strongest level that a host has, or least if that is less, which it then cannot do.
func Strongest(host sandbox.Host, least job.SandboxLevel) job.SandboxLevel {
	best, _ := host.Best()
	if level := job.SandboxLevel(best); !level.Weaker(least) {
		return level
	}
	return least
}

// sandboxLevel returns what a job asks for, else what the configuration says, which can be job.SandboxStrongest.
func sandboxLevel(spec *job.Spec, settings *ipc.Sandbox) job.SandboxLevel {
	return cmp.Or(spec.Sandbox.Level, settings.Level, job.SandboxNone)
}

// can returns nil if the host can hold a run so, else a *worker.Failure.
func (c *Confining) can(level sandbox.Level) error {
	err := c.Host.Can(level)
	if err == nil {
		return nil
	}
	best, _ := c.Host.Best()
	return &worker.Failure{Class: job.Config, Message: fmt.Sprintf("this host cannot hold a run at sandbox level %s: %v", level, err),
		Hint: fmt.Sprintf("`scheduler doctor` says what mends it; the strongest level that this host can do now is %s", best)}
}

// Held returns what the run's policy is made of, without its ports, and without what a program of it needs (see
// Held.For).
func (c *Confining) Held(level sandbox.Level) (Held, error) {
	h := Held{
		Level: level, Spec: c.Spec, Settings: c.Settings, Workspace: c.Workspace, Borrowed: c.Borrowed,
		Own: []string{c.home(), c.Temp, c.Scratch}, Cache: c.Dir.Cache(c.tenant()),
	}
	var err error
	if h.Hidden, err = hiddenPaths(c.User("HOME")); err != nil {
		return Held{}, err
	}
	h.State, h.Programs = c.Dir.Path(), c.Programs
	return h, nil
}

func (c *Confining) home() string { return c.Dir.Home(c.Job, c.Worker) }

func (c *Confining) tenant() job.Tenant { return cmp.Or(c.Spec.Tenant, job.DefaultTenant) }

// Confine returns what holds the run; nil if nothing does. It is closed when the run has ended. An error that is a
// *worker.Failure is one of the job or of the configuration.
func Confine(ctx context.Context, of Confining) (*Confinement, error) {
	level, err := of.Level()
	if err != nil || level == sandbox.None {
		return nil, err
	}
	if err := of.can(level); err != nil {
		return nil, err
	}
	c := &Confinement{
		host: of.Host, user: of.User, emit: of.Emit, seen: newDenials(of.Emit, of.Stop), newMark: of.NewMark,
		folders: ConfinedFolders{Home: filepath.Join(of.home(), "user"), Temp: of.Temp},
	}
	if c.held, err = of.Held(level); err != nil {
		return nil, err
	}
	c.host.Audit = sandbox.ErrAuditOff
	if of.Settings.Audit && of.Audit != nil && level == sandbox.Standard {
		c.audit, c.host.Audit = of.Audit.Follow(c.seen.audited)
	}
	if c.folders.Cache, err = of.Dir.MakeCache(of.tenant()); err != nil {
		return nil, err
	}
	if of.seeds != nil && slices.ContainsFunc(of.Workspace, holdsGo) {
		if err := of.seeds.seed(ctx, c.folders.Cache, of.Temp, c.toolEnviron(of.environ), c.user); err != nil {
			c.emit(job.Event{Kind: job.EventWarning, Text: "the tenant's cache of Go begins empty: " + err.Error()})
		}
	}
	if err := c.serve(ctx, &of); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// confine returns what holds the run; nil if nothing does. It is closed when the run has ended.
func (e *execution) confine(ctx context.Context, ws *workspace.Workspace, dir string, adapter worker.Adapter) (*Confinement, error) {
	borrowed, folder := ws.Grants()
	granted := e.grants.list()
	c, err := Confine(ctx, Confining{
		Spec: &e.submit.Spec, Settings: e.settings.Sandbox, Host: e.session.can, Dir: e.session.dir, Job: e.folder(), Worker: e.submit.Choice.Worker,
		Programs: e.settings.Workers[e.submit.Choice.Worker].Command, Workspace: folder, Borrowed: borrowed, Temp: e.temp, Scratch: filepath.Join(dir, "scratch"),
		User: e.userVariable, Credentials: outside{host: e.session.host}.credentials, Audit: &e.session.audit, Emit: e.emit, Stop: e.stop,
		Granted: granted, NewMark: e.session.host.NewMark,
		more: func(c *Confinement) error {
			if e.lead != nil {
				e.lead.serveIn(c.endpoint, c.address, adapter)
				c.keys = append(c.keys, e.lead.redacted())
			}
			return c.openModels(e, adapter)
		},
		seeds: &goSeeds{program: e.core.cfg.Self, run: e.session.host.Run, dir: e.session.dir.Caches()}, environ: worker.BaseEnv(e.core.cfg.Environ),
	})
	if c == nil {
		return nil, err
	}
	e.grants.serve(c, granted)
	// Worth nothing outside of the run, and not to be read in its log by other users of the host.
	e.secrets = e.secrets.With(c.keys...)
	return c, nil
}

// userVariable returns a variable of the user's environment: that of the program which handed the job over, if it was
// passed, else the core's own.
func (e *execution) userVariable(name string) string {
	if value, ok := e.submit.Environ[name]; ok {
		return value
	}
	if e.core.cfg.Lookup == nil {
		return ""
	}
	value, _ := e.core.cfg.Lookup(name)
	return value
}

// serve opens the run's endpoint.
func (c *Confinement) serve(ctx context.Context, of *Confining) error {
	full := of.Spec.HasFullNetwork()
	c.endpoint = newEndpoint(ctx)
	c.own = c.held.Level == sandbox.Strict && !full
	port := uint16(ownPort)
	if !c.own {
		l, err := listenLoopback()
		if err != nil {
			return err
		}
		defer c.endpoint.serve(l) // when all is there that it serves; Close closes it
		port = uint16(l.Addr().(*net.TCPAddr).Port)
	}
	c.held.Ports = []uint16{port}
	c.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	if !full {
		if err := c.openNetwork(ctx, of.Granted); err != nil {
			return err
		}
	}
	if of.Credentials != nil {
		if err := c.openGit(of.Credentials); err != nil {
			return err
		}
	}
	if of.more == nil {
		return nil
	}
	return of.more(c)
}

// Policy returns what the process of a command may do.
func (c *Confinement) Policy(cmd *worker.Command) *sandbox.Policy {
	held := c.held.For(cmd, c.user)
	p := held.Policy()
	if c.newMark != nil {
		p.Mark = c.newMark()
	}
	p.Temp, p.Host, p.NoNotifier, p.Denied = c.folders.Temp, &c.host, c.host.Notify != nil, c.seen.sandbox
	p.Audit = c.audit
	return &p
}

// Started serves a process that was started at the address that it knows.
func (c *Confinement) Started(s *sandbox.Start) {
	for i, l := range s.Listeners() {
		if i == 0 {
			c.endpoint.serve(l)
			continue
		}
		c.relays.serve(c.proxy, l, c.held.Ports[i])
	}
}

// Environ returns the environment of the run's processes: what of the user's leads into the user's folders, to the user's
// agents and to the network is replaced or left out.
func (c *Confinement) Environ(env []string) []string {
	if c == nil {
		return env
	}
	env = c.toolEnviron(env)
	if c.proxy != nil {
		return append(env, c.rules.Env(c.proxyURL, c.git...)...)
	}
	return slices.Concat(env, gitEnviron(c.git), hostsProxies(c.user))
}

// toolEnviron is what of Environ is about files.
func (c *Confinement) toolEnviron(env []string) []string {
	return ConfinedEnv(env, c.folders, c.user, GoEnv(c.user))
}

// MakeFolders makes the folders that the run's processes find, whose environment is environ. It comes before the first
// process.
func (c *Confinement) MakeFolders(environ []string) error {
	for _, path := range append(slices.Clone(c.held.Own), c.folders.Home) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("make the run's folders: %w", err)
		}
	}
	if err := c.furnish((&worker.Task{Environ: environ}).Getenv("PATH")); err != nil {
		return fmt.Errorf("make the run's home: %w", err)
	}
	return nil
}

// furnish has login shells keep the PATH, and git know its user. Codex runs commands in a login shell: /etc/profile sets the
// system's PATH there, and what adds the user's toolchains to it is in the user's home. An earlier attempt may have put links
// into the run's.
func (c *Confinement) furnish(path string) error {
	parent, home := filepath.Split(c.folders.Home)
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	defer root.Close()
	text := "PATH='" + strings.ReplaceAll(path, "'", `'\''`) + "'\nexport PATH\n"
	for _, name := range []string{".profile", ".zprofile"} {
		name = filepath.Join(home, name)
		if err := root.RemoveAll(name); err != nil {
			return err
		}
		if err := root.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	settings := filepath.Join(home, ".gitconfig")
	if _, err := root.Lstat(settings); err == nil { // the run's own by now
		return nil
	}
	return root.WriteFile(settings, []byte(gitIdentity(filepath.Join(c.user("HOME"), ".gitconfig"))), 0o600)
}

// gitIdentity returns a configuration of git with what that at a path says of its user, as far as it stands in the file itself:
// a test that makes a repository and commits needs it.
func gitIdentity(path string) string {
	text, err := readBounded(path, 64<<10)
	if err != nil {
		return ""
	}
	var b strings.Builder
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.ToLower(line)
			continue
		}
		key, _, ok := strings.Cut(line, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		if ok && section == "[user]" && (key == "name" || key == "email") && !strings.HasSuffix(line, "\\") {
			if b.Len() == 0 {
				b.WriteString("[user]\n")
			}
			b.WriteString("\t" + line + "\n")
		}
	}
	return b.String()
}

// holding is what is recorded of how the run was held.
func (c *Confinement) holding() *job.Holding {
	if c == nil {
		return nil
	}
	return &job.Holding{Level: job.SandboxLevel(c.held.Level), NotHeld: c.host.NotHeld(c.held.Level), Denied: c.seen.count()}
}

// Close ends what serves the run.
func (c *Confinement) Close() error {
	if c == nil {
		return nil
	}
	c.models.close()
	c.audit.Close()
	if c.proxy != nil {
		c.proxy.Close()
	}
	return errors.Join(c.relays.close(), c.endpoint.close())
}

// modelEndpoint returns where the run's program finds its models; nil if they are not served.
func (c *Confinement) modelEndpoint() *worker.ModelEndpoint {
	if c == nil || c.models == nil {
		return nil
	}
	return &worker.ModelEndpoint{URL: "http://" + c.address, Key: c.models.session.Key(), API: c.models.upstream.API, Login: c.models.upstream.Login}
}

// meter returns who says what the run uses; nil if that is its program.
func (c *Confinement) meter() *worker.Meter {
	if c == nil || c.models == nil {
		return nil
	}
	return c.models.meter
}

// waits reports whether the run waits for its models and not they for it: for a rate, or until a budget has room.
func (c *Confinement) waits() bool { return c != nil && c.models != nil && c.models.session.Waiting() }

// explain says of a failed attempt what is known of its models.
func (c *Confinement) explain(o *job.Outcome) {
	if c != nil {
		c.models.explain(o)
	}
}

// newKey returns a key that nobody guesses.
func newKey() string { return rand.Text() }
