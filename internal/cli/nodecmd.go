package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// nodeOptions are the flags of `scheduler node`.
type nodeOptions struct {
	labels []string
	slots  int
}

func nodeCommand(runs *runner, at *target) *cobra.Command {
	var o nodeOptions
	cmd := &cobra.Command{
		Use: "node", Short: "Run jobs on this host for a scheduler on another one", Args: cobra.NoArgs,
		Long: `Run jobs on this host for the scheduler at --server, which may be several addresses of schedulers
that share a queue, with commas between them: the one that leads is found. Nothing has to reach this
host: it dials out. It is known by the name of its token (` + "`scheduler token create NAME --role node`" + `).

Programs of workers, keys, secrets, the sandbox and what runs may use of this host are as this host's
own configuration says; who runs what, limits over all hosts, prices and how runs are stopped, as the
scheduler's does. What runs have to tell lies in the state directory until the scheduler has stored it.

The first signal stops the runs here, in stages: their jobs go on, elsewhere or here again. A second
one stops them at once. docs/fleet.md tells what is promised when a host or a network fails.

Exit code: 0 it was told to stop; 1 it could not go on; 2 the command line, the configuration or the
host is not right and nothing was started.`,
		Example: "  scheduler node --server https://queue.example.com:7433 --token-file node-a.token\n" +
			"  scheduler node --server https://a:7433,https://b:7433 --token-file t --label gpu=no --slots 8",
		RunE: func(cmd *cobra.Command, _ []string) error { return runs.node(cmd.Context(), at, o) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.labels, "label", nil, "a label `NAME=VALUE` of this host that jobs can ask for; may be repeated")
	f.IntVar(&o.slots, "slots", 0, "how many jobs may run on this host at once (default: concurrency.max of the configuration)")
	f.IntVar(&runs.cores, "cores", 0, "how many agentcores to run (default from the configuration)")
	return cmd
}

// node works for a scheduler on another host until it is told to stop.
func (runs *runner) node(ctx context.Context, at *target, o nodeOptions) (err error) {
	cfg, err := runs.prog.loadConfig()
	if err != nil {
		return err
	}
	if err := runs.overrule(&cfg); err != nil {
		return err
	}
	n, labels, err := at.nodeConfig(o)
	if err != nil {
		return usage(err)
	}
	state, err := runs.local.ownDirectory(ctx, &cfg.Log, runs.con.stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	can := runs.prog.host(ctx) // before there is a proc.Host
	host, err := runs.newHost(state)
	if err != nil {
		return err
	}
	defer host.Close() //nolint:errcheck // nothing is left that it could own
	limitRuns(host, &cfg, state.log)
	command, err := runs.prog.coreProgram()
	if err != nil {
		return err
	}
	own, err := tuning(&cfg, state.dir.EnforcesSandbox())
	if err != nil {
		return failure(err)
	}
	n.Spool, n.Instance, n.Version, n.Log = state.dir.Spool(), state.dir.Instance(), runs.prog.version, state.logs.For(logging.Nodes)
	n.Attempt = state.dir.Attempt
	n.Clock, n.Cores = proc.Uptime, cfg.Cores.Count
	n.Adapt = func(c ipc.Configure) ipc.Configure {
		return adapted(c, &own.Settings, cmp.Or(o.slots, cfg.Concurrency.Max))
	}
	n.Supervise = func(h supervisor.Handler) node.Supervisor { return runs.supervise(state, &cfg, host, command, h) }
	level, levels := holds(can, &own.Settings.Sandbox)
	if !slices.Contains(levels, level) {
		fmt.Fprintf(runs.con.stderr, "this node is given no job that names no sandbox level: %v\nhint: `scheduler doctor` says what mends it; `sandbox: {level: none}` in the configuration lets runs do all that their user may\n", can.Can(sandbox.Level(level)))
	}
	n.Inventory = (&inventory{runs: runs, cfg: &cfg, slots: o.slots, labels: labels, mirrors: state.dir.Mirrors(), level: level, levels: levels}).look
	notifier, err := daemon.NewNotifier(func(context.Context) error { return nil }, state.logs.For(logging.Daemon))
	if err != nil {
		return usage(err)
	}
	n.Changed = func(_ bool, text string) { notifier.Status(text) }
	works, err := node.New(n)
	if err != nil {
		return usage(err)
	}
	ctx, stop := stopOn(ctx, works.Hurry)
	defer stop()
	var beside sync.WaitGroup
	defer beside.Wait()
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	beside.Go(func() { notifier.Run(alive) }) //nolint:errcheck // it ends with alive
	notifier.Ready("looking for the scheduler")
	fmt.Fprintf(runs.con.stderr, "working for the scheduler at %s; Ctrl-C stops\n", at.server)
	err = works.Run(ctx)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return explained(err)
}

// stopOn returns a context that ends with errInterrupted at the first signal to end; at the second one it calls hurry.
func stopOn(ctx context.Context, hurry func()) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-signals:
			case <-done:
				return
			}
			if n == 0 {
				cancel(errInterrupted)
			} else {
				hurry()
			}
		}
	})
	return ctx, func() {
		close(done)
		watching.Wait()
		signal.Stop(signals)
		cancel(nil)
	}
}

// nodeConfig reads what the flags say of a node, and its labels.
func (at *target) nodeConfig(o nodeOptions) (c node.Config, labels map[string]string, err error) {
	if at.server == "" {
		return c, nil, errors.New("--server is missing: it must name the scheduler, such as https://queue.example.com:7433")
	}
	if c.Servers, err = wire.ParseAddresses(at.server); err != nil {
		return c, nil, fmt.Errorf("--server: %w", err)
	}
	for _, u := range c.Servers {
		if err := client.CheckURL(u); err != nil {
			return c, nil, fmt.Errorf("--server: %w", err)
		}
	}
	if c.TLS, err = trusted(at.caFile); err != nil {
		return c, nil, fmt.Errorf("--ca: %w", err)
	}
	if at.tokenFile == "" && at.con.getenv(tokenVariable) == "" {
		return c, nil, fmt.Errorf("--token-file is missing: it must name the file with the node's token, or %s hold it; `scheduler token create NAME --role node` makes one", tokenVariable)
	}
	c.Token = at.token // read anew each time, so that it can be changed
	if _, err := c.Token(); err != nil {
		return c, nil, err
	}
	labels = map[string]string{}
	for _, text := range o.labels {
		name, value, _ := strings.Cut(text, "=")
		if err := node.CheckLabel(name, value); err != nil {
			return c, nil, fmt.Errorf("--label %q: %w", text, err)
		}
		labels[name] = value
	}
	if o.slots < 0 {
		return c, nil, fmt.Errorf("invalid --slots %d: use 1 or more", o.slots)
	}
	return c, labels, nil
}

// trusted returns whose certificates are trusted: those of the system without a file.
func trusted(file string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return c, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate, want PEM", file)
	}
	return c, nil
}

// adapted returns what the cores of this host enforce: the scheduler's settings, but for what belongs to the host.
func adapted(c ipc.Configure, own *ipc.Configure, slots int) ipc.Configure {
	workers := map[job.WorkerKind]job.WorkerSettings{}
	for kind, w := range own.Workers {
		w.MaxConcurrent = 0
		workers[kind] = w
	}
	for kind, theirs := range c.Workers {
		w := workers[kind]
		w.MaxConcurrent = theirs.MaxConcurrent
		workers[kind] = w
	}
	c.Workers, c.MaxConcurrent = workers, slots
	c.RunLimits, c.TrustFilters, c.Sandbox, c.Secrets, c.Watchdog = own.RunLimits, own.TrustFilters, own.Sandbox, own.Secrets, own.Watchdog
	return c
}

// holds returns the level at which runs are held whose job names none, and those that a job may name on this host: what
// a core refuses is not among them.
func holds(host sandbox.Host, own *ipc.Sandbox) (level job.SandboxLevel, levels []job.SandboxLevel) {
	level = cmp.Or(own.Level, job.SandboxNone)
	least := cmp.Or(own.Least, own.Level, job.SandboxNone)
	if level == job.SandboxStrongest {
		level = agentcore.Strongest(host, least)
	}
	levels = []job.SandboxLevel{}
	for _, l := range job.SandboxLevels() {
		if !l.Weaker(least) && host.Can(sandbox.Level(l)) == nil {
			levels = append(levels, l)
		}
	}
	return level, levels
}

// token returns the token for a scheduler on another host.
func (at *target) token() (string, error) {
	if at.tokenFile == "" {
		return at.con.getenv(tokenVariable), nil
	}
	text, err := os.ReadFile(at.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("--token-file %s is empty: it must hold a token as `scheduler token create` prints it", at.tokenFile)
	}
	return token, nil
}
