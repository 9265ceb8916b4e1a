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

	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// confinement holds the processes of one run to what its job was granted, and serves them what they may use of the
// outside. It is a worker.Sandbox.
type confinement struct {
	held    Held
	notHeld []string
	folders ConfinedFolders
	user    func(name string) string // variables of the user's environment
	seen    *denials
	can     sandbox.Host

	keys     []redact.Value
	address  string // of the endpoint, HOST:PORT as the run sees it
	own      bool   // the endpoint lies on a loopback of the run's own: each process brings its listener
	endpoint *endpoint
	proxy    *egress.Proxy // nil with the full network
	rules    egress.Rules
	proxyURL string
	git      []string // settings of its git, NAME=VALUE
	models   *models  // nil: none are served
}

// ownPort is where the endpoint lies on a loopback of the run's own, away from what dev servers take.
const ownPort = 20780

// level returns how the run is to be held: what its job asks for, else what the configuration says. The error is a
// *worker.Failure: a job that asks for less than the host allows, or for what the host cannot do, does not run.
func (e *execution) level() (sandbox.Level, error) {
	settings, asked := &e.settings.Sandbox, e.submit.Spec.Sandbox.Level
	level := cmp.Or(asked, settings.Level, job.SandboxNone)
	if least := cmp.Or(settings.Least, settings.Level, job.SandboxNone); level.Weaker(least) {
		return "", &worker.Failure{Class: job.Config, Message: fmt.Sprintf("the job asks for sandbox level %s, and this host allows no less than %s", level, least),
			Hint: "ask for that or more, or have sandbox.least lowered in the configuration"}
	}
	if err := e.session.can.Can(sandbox.Level(level)); err != nil {
		best, _ := e.session.can.Best()
		return "", &worker.Failure{Class: job.Config, Message: fmt.Sprintf("this host cannot hold a run at sandbox level %s: %v", level, err),
			Hint: fmt.Sprintf("`scheduler doctor` says what mends it; the strongest level that this host can do now is %s", best)}
	}
	return sandbox.Level(level), nil
}

// confine returns what holds the run; nil if nothing does. It is closed when the run has ended.
func (e *execution) confine(ctx context.Context, ws *workspace.Workspace, dir string, adapter worker.Adapter) (*confinement, error) {
	level, err := e.level()
	if err != nil || level == sandbox.None {
		return nil, err
	}
	home, tenant := e.session.dir.Home(e.submit.Job, e.submit.Choice.Worker), cmp.Or(e.submit.Spec.Tenant, job.DefaultTenant)
	c := &confinement{
		held: Held{
			Level: level, Spec: &e.submit.Spec, Settings: e.settings.Sandbox,
			Own: []string{home, e.temp, filepath.Join(dir, "scratch")}, Unasked: e.session.can.Notify != nil,
		},
		folders: ConfinedFolders{Home: filepath.Join(home, "user"), Temp: e.temp},
		notHeld: e.session.can.NotHeld(level),
		user:    e.userVariable,
		seen:    newDenials(e.emit, e.stop),
		can:     e.session.can,
	}
	if c.folders.Cache, err = e.session.dir.MakeCache(tenant); err != nil {
		return nil, err
	}
	c.held.Cache = c.folders.Cache
	c.held.Borrowed, c.held.Workspace = ws.Grants()
	for _, pattern := range Hidden(c.user("HOME")) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("hide %s: %w", pattern, err)
		}
		for _, path := range paths {
			if !belowAny(path, []string{"/etc"}) { // see sandbox.SystemSecrets
				c.held.Hidden = append(c.held.Hidden, path)
			}
		}
	}
	if err := c.serve(ctx, e, adapter); err != nil {
		return nil, errors.Join(err, c.close())
	}
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
func (c *confinement) serve(ctx context.Context, e *execution, adapter worker.Adapter) error {
	full := c.held.Spec.HasFullNetwork()
	c.endpoint = newEndpoint(ctx)
	c.own = c.held.Level == sandbox.Strict && !full
	port := uint16(ownPort)
	if !c.own {
		l, err := listenLoopback()
		if err != nil {
			return err
		}
		c.endpoint.serve(l)
		port = uint16(l.Addr().(*net.TCPAddr).Port)
	}
	c.held.Ports = []uint16{port}
	c.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	if !full {
		if err := c.openNetwork(ctx, e); err != nil {
			return err
		}
	}
	if err := c.openGit(e); err != nil {
		return err
	}
	return c.openModels(e, adapter)
}

// Policy returns what the process of a command may do.
func (c *confinement) Policy(cmd *worker.Command) *sandbox.Policy {
	held := c.held
	held.Tools = slices.Concat(Toolchains(c.user("HOME"), c.user, cmd.Path), cmd.Read)
	held.Own = slices.Concat(held.Own, cmd.Write)
	p := held.Policy()
	p.Temp, p.Host, p.Denied = c.folders.Temp, &c.can, c.seen.sandbox
	return &p
}

// Started serves a process that was started at the address that it knows.
func (c *confinement) Started(s *sandbox.Start) {
	for _, l := range s.Listeners() {
		c.endpoint.serve(l)
	}
}

// sandbox returns c for a Runner; nil of a run that nothing holds.
func (c *confinement) sandbox() worker.Sandbox {
	if c == nil {
		return nil
	}
	return c
}

// environ returns the environment of the run's processes: what of the user's leads into the user's folders, to the user's
// agents and to the network is replaced or left out.
func (c *confinement) environ(env []string) []string {
	if c == nil {
		return env
	}
	env = ConfinedEnv(env, c.folders, c.user, GoEnv(c.user))
	if c.proxy != nil {
		return append(env, c.rules.Env(c.proxyURL, c.git...)...)
	}
	return slices.Concat(env, gitEnviron(c.git), hostsProxies(c.user))
}

// makeFolders makes the folders that the run's processes find.
func (c *confinement) makeFolders() error {
	return os.MkdirAll(c.folders.Home, 0o700)
}

// holding is what is recorded of how the run was held.
func (c *confinement) holding() *job.Holding {
	if c == nil {
		return nil
	}
	return &job.Holding{Level: job.SandboxLevel(c.held.Level), NotHeld: c.notHeld, Denied: c.seen.count()}
}

// close ends what serves the run.
func (c *confinement) close() error {
	if c == nil {
		return nil
	}
	c.models.close()
	if c.proxy != nil {
		c.proxy.Close()
	}
	return c.endpoint.close()
}

// modelEndpoint returns where the run's program finds its models; nil if they are not served.
func (c *confinement) modelEndpoint() *worker.ModelEndpoint {
	if c == nil || c.models == nil {
		return nil
	}
	return &worker.ModelEndpoint{URL: "http://" + c.address, Key: c.models.session.Key(), API: c.models.upstream.API, Login: c.models.upstream.Login}
}

// meter returns who says what the run uses; nil if that is its program.
func (c *confinement) meter() *worker.Meter {
	if c == nil || c.models == nil {
		return nil
	}
	return c.models.meter
}

// newKey returns a key that nobody guesses.
func newKey() string { return rand.Text() }
