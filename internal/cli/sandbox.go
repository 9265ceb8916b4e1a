package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

func sandboxCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sandbox", Short: "Show what a job may do, and try commands under it",
		Long: `Show what a job may do on this host, and try commands under it.

It is made of the job, the configuration as it is now, and the workspace as it lies there.`,
		Example: "  scheduler sandbox show fix-login\n  scheduler sandbox exec fix-login -- git status",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(sandboxShowCommand(con, prog, at), sandboxExecCommand(con, prog, local, at))
	return cmd
}

func sandboxShowCommand(con *console, prog *program, at *target) *cobra.Command {
	return &cobra.Command{
		Use: "show JOB", Short: "Show what a job may read, change, see and reach", Args: cobra.ExactArgs(1),
		Long: `Show at which level a job is held, what it may read and change, what is hidden from it, which hosts,
repositories and models it reaches, and what the level does not hold on this host. What its worker's
program needs besides, such as its login, is not listed.`,
		Example: "  scheduler sandbox show fix-login\n  scheduler sandbox show fix-login --json | jq .write",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error {
				j, err := p.Job(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				c, err := confinedJobOf(cmd.Context(), con, prog, p, p.offline.dir, &j)
				if err != nil {
					return err
				}
				grants, err := c.grants(sandbox.Probe(cmd.Context()))
				if err != nil {
					return err
				}
				return con.print(grants, func(w io.Writer) error {
					grants.print(w)
					return nil
				})
			})
		},
	}
}

// confinedJob is a job with what its confinement is made of.
type confinedJob struct {
	name     job.Name
	cfg      config.Config
	settings job.WorkerSettings // of its worker, the model being the job's
	adapter  worker.Adapter
	program  string // of its worker; "" if it is not found
	tag      string // of its latest run, or of the first one
	tree     *workspace.Workspace
	of       agentcore.Confining // without Host, Emit and Stop
}

// confinedJobOf returns what holds the latest attempt of a job, or its first one.
func confinedJobOf(ctx context.Context, con *console, prog *program, p *peer, dir *statedir.Dir, j *api.JobDetail) (*confinedJob, error) {
	cfg, err := prog.loadConfig()
	if err != nil {
		return nil, err
	}
	grants, err := p.JobGrants(ctx, string(j.Job.ID))
	if err != nil {
		return nil, err
	}
	var granted []string
	for i := range grants.Grants {
		granted = append(granted, grants.Grants[i].Entry)
	}
	spec, number := &j.Job.Spec, 1
	choices := spec.Choices()
	choice := choices[min(j.Job.Choice, len(choices)-1)]
	if n := len(j.Attempts); n > 0 {
		number, choice = j.Attempts[n-1].Number, j.Attempts[n-1].Choice
	}
	c := &confinedJob{name: spec.Name, cfg: cfg, settings: workerSettings(&cfg)[choice.Worker], tag: job.RunTag(dir.Instance(), j.Job.ID, number)}
	c.settings.Model = cmp.Or(choice.Model, c.settings.Model)
	c.adapter = prog.adapters[cmp.Or(c.settings.Adapter, string(choice.Worker))]
	if c.adapter != nil {
		c.program, _ = c.adapter.Locate(c.settings) // else the run tells why not
	}
	c.of = agentcore.Confining{
		Spec: spec, Granted: granted, Settings: sandboxSettings(cfg.Sandbox, dir.EnforcesSandbox()), Dir: dir, Job: j.Job.WorksIn(), Worker: choice.Worker, Programs: c.settings.Command,
		Temp: dir.Temp(c.tag), Scratch: filepath.Join(dir.Attempt(j.Job.ID, number), "scratch"), User: con.getenv,
	}
	c.tree, err = workspaces(dir, nil).Open(ctx, j.Job.WorksIn(), spec.Workspace)
	switch {
	case err == nil:
		c.of.Borrowed, c.of.Workspace = c.tree.Grants()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, failure(err)
	case spec.Workspace.Isolation == job.Direct:
		c.of.Workspace = []string{spec.Workspace.Path}
	}
	return c, nil
}

// grants is what `sandbox show` prints. Lists are never null.
type grants struct {
	Job       job.ID        `json:"job"`
	Name      job.Name      `json:"name"`
	Level     sandbox.Level `json:"level"`
	Cannot    string        `json:"cannot,omitempty"`    // why this host does not hold it so: it does not run
	Workspace string        `json:"workspace,omitempty"` // absent: it is made when the job starts

	// Absolute paths; at level none the job has all that its user has.
	Read  []string `json:"read"`
	Write []string `json:"write"`
	Hide  []string `json:"hide"`

	Network      networkGrant     `json:"network"`
	Repositories []job.Repository `json:"repositories"`
	Secrets      []string         `json:"secrets"` // their names
	Models       *modelsGrant     `json:"models,omitempty"`
	NotHeld      []string         `json:"not_held"` // sentences on what it may do although no grant says so
}

// networkGrant says which hosts a job reaches.
type networkGrant struct {
	Access string      `json:"access"` // none, hosts or full
	Hosts  []hostGrant `json:"hosts,omitempty"`
}

type hostGrant struct {
	Host   string `json:"host"` // with a port, or for the usual two
	Preset string `json:"preset,omitempty"`
}

// modelsGrant says how a job reaches its models: through the core, or why it does not.
type modelsGrant struct {
	Provider string `json:"provider,omitempty"` // URL
	API      string `json:"api,omitempty"`
	Error    string `json:"error,omitempty"`
}

func (c *confinedJob) grants(host sandbox.Host) (*grants, error) {
	level, err := c.of.Level()
	if err != nil {
		return nil, usage(err, hintOf(err)...)
	}
	if !c.of.Settings.Audit {
		host.Audit = sandbox.ErrAuditOff
	}
	spec := *c.of.Spec
	spec.Widen(c.of.Granted)
	g := &grants{
		Job: c.of.Job, Name: c.name, Level: level, Workspace: strings.Join(c.of.Workspace, ", "), Network: networkOf(&spec),
		Repositories: append([]job.Repository{}, c.of.Spec.Git...), Secrets: append([]string{}, c.of.Spec.Secrets...),
		Read: []string{}, Write: []string{}, Hide: []string{}, NotHeld: host.NotHeld(level),
	}
	slices.Sort(g.Secrets)
	if err := host.Can(level); err != nil {
		g.Cannot = err.Error()
	}
	if level == sandbox.None {
		g.Network = networkGrant{Access: job.NetworkFull}
		return g, nil
	}
	held, err := c.of.Held(level)
	if err != nil {
		return nil, failure(err)
	}
	held = held.For(&worker.Command{Path: c.program}, c.of.User)
	p := held.Policy()
	g.Read, g.Write, g.Hide = append(g.Read, p.Read...), append(g.Write, p.Write...), append(g.Hide, p.Hide...)
	g.Models = c.models()
	return g, nil
}

// models says how the job reaches its models; nil if it asks none through the core.
func (c *confinedJob) models() *modelsGrant {
	if c.adapter == nil {
		return nil
	}
	upstream, err := agentcore.Upstream(c.adapter, c.settings, c.of.Settings.LoginVisible, c.of.User)
	switch {
	case err != nil:
		return &modelsGrant{Error: err.Error()}
	case upstream == nil:
		return nil
	}
	m := &modelsGrant{API: string(upstream.API)}
	if at, err := url.Parse(upstream.BaseURL); err == nil {
		m.Provider = (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}).String() // the rest may hold a key
	}
	return m
}

// networkOf returns the hosts that a job reaches, those of its presets one by one.
func networkOf(s *job.Spec) networkGrant {
	if s.HasFullNetwork() {
		return networkGrant{Access: job.NetworkFull}
	}
	n := networkGrant{Access: job.NetworkNone}
	presets := egress.Presets()
	for _, entry := range s.NetworkHosts() {
		n.Access = "hosts"
		i := slices.IndexFunc(presets, func(p egress.Preset) bool { return p.Name == entry })
		if i < 0 {
			n.Hosts = append(n.Hosts, hostGrant{Host: entry})
			continue
		}
		for _, host := range presets[i].Hosts {
			if !strings.Contains(host, ":") {
				host += ":443"
			}
			n.Hosts = append(n.Hosts, hostGrant{Host: host, Preset: entry})
		}
	}
	return n
}

// hintOf returns what a failure of a run tells its user to do.
func hintOf(err error) []string {
	if f, ok := errors.AsType[*worker.Failure](err); ok && f.Hint != "" {
		return []string{f.Hint}
	}
	return nil
}

// print writes the grants as a person reads them.
func (g *grants) print(w io.Writer) {
	line := func(name, text string) { fmt.Fprintf(w, "%-13s %s\n", name+":", terminal.Clean(text)) }
	list := func(name string, items []string) {
		if len(items) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s:\n", name)
		for _, item := range items {
			fmt.Fprintf(w, "  %s\n", terminal.Clean(item))
		}
	}
	line("job", string(g.Name))
	line("level", string(g.Level))
	if g.Cannot != "" {
		line("but", "this host cannot hold it so, and it does not run: "+g.Cannot)
	}
	line("workspace", cmp.Or(g.Workspace, "made when the job starts"))
	line("network", g.Network.Access)
	line("secrets", cmp.Or(strings.Join(g.Secrets, ", "), "none"))
	switch m := g.Models; {
	case m == nil:
		line("models", "none through the core")
	case m.Error != "":
		line("models", "none: "+m.Error)
	default:
		line("models", "of "+m.Provider+", through the core, which has the key")
	}
	var hosts, repositories []string
	for _, h := range g.Network.Hosts {
		if h.Preset != "" {
			h.Host += " (" + h.Preset + ")"
		}
		hosts = append(hosts, h.Host)
	}
	for _, r := range g.Repositories {
		if r.Push {
			r.Repository += " (push)"
		}
		repositories = append(repositories, r.Repository)
	}
	list("hosts", hosts)
	list("repositories", repositories)
	list("read", g.Read)
	list("write", g.Write)
	list("hide", g.Hide)
	list("not held", g.NotHeld)
}
