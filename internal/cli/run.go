package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// runOptions are the flags of `run`.
type runOptions struct {
	one     oneJob // --worker and what belongs to it
	plain   bool
	paths   bool // in the summary
	fresh   bool // --new
	started func(*engine) error
	stopped func() // called at the first signal to end; nil means nobody is told
	// together is what one of several schedulers of a queue has besides; else nil.
	together *together
}

func runCommand(runs *runner) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [FILE...] | run --worker WORKER [flags] INSTRUCTIONS",
		Short: "Run jobs to their end",
		Long: `Run the jobs of one or more job files, or the one of the command line, to their end.

A run that was stopped or killed is continued by the same command: finished jobs
are not run again, and an agent goes on with its own session. Without arguments,
the newest unfinished run is continued.

While scheduler serve works on the state directory, the jobs are handed to it: it
runs them, this command waits. Ctrl-C stops them, and the same command continues
them. What their env names has the values of this command's environment.

Exit code: 0 every job completed; 1 a job failed; 2 the command line, a file or
the host is not right and nothing was started; 130 stopped by Ctrl-C.`,
		Example: "  scheduler run examples/hello.yaml\n  scheduler run --worker codex --workspace . \"Fix the failing test\"\n  scheduler run jobs.yaml --json > events.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.one.misplaced(cmd.Flags()); err != nil {
				return err
			}
			return runs.runJobs(cmd.Context(), args, o)
		},
	}
	o.one.flags(cmd.Flags())
	runs.con.jsonFlag(cmd, "print everything that happens as JSON Lines")
	cmd.Flags().BoolVar(&o.plain, "plain", false, "print plain lines, also on a terminal")
	cmd.Flags().BoolVar(&o.paths, "paths", false, pathsUsage)
	cmd.Flags().BoolVar(&o.fresh, "new", false, "start over: cancel what an unfinished run of the same source left")
	runs.engineFlags(cmd)
	return cmd
}

// pathsUsage is the help of the flag --paths.
const pathsUsage = "say in the summary where each patch and log lies"

// engineFlags adds the flags that override the configuration.
func (runs *runner) engineFlags(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&runs.atOnce, "concurrency", "c", 0, "run at most `N` jobs at once (default from the configuration)")
	cmd.Flags().IntVar(&runs.cores, "cores", 0, "run `N` agentcore processes: when one dies the others go on (default from the configuration)")
}

func (runs *runner) runJobs(ctx context.Context, args []string, o runOptions) error {
	cfg, err := runs.prog.loadConfig()
	if err != nil {
		return err
	}
	if err := runs.overrule(&cfg); err != nil {
		return err
	}
	src, err := runs.prog.readJobs(args, o.one, &cfg)
	if err != nil {
		return err
	}
	// Nothing is started before everything was looked at.
	if !runs.local.isHeld() { // else another scheduler runs them, by its own configuration
		if err := runs.local.consent(ctx, &cfg); err != nil {
			return err
		}
	}
	if err := runs.local.checkJobs(ctx, src.specs, &cfg, nil); err != nil {
		return err
	}
	if err := runs.prog.checkPipelines(&src.workflow, src.specs, &cfg); err != nil {
		return err
	}
	if src.resume {
		if err := runs.local.mustExist(); err != nil {
			return err
		}
	}
	state, err := runs.local.own(ctx)
	var locked *statedir.LockedError
	for began := time.Now(); errors.As(err, &locked); state, err = runs.local.own(ctx) {
		ran := runs.runElsewhere(ctx, locked, src, o)
		if !errors.Is(ran, client.ErrNotRunning) {
			return ran
		}
		// It is about to open its socket, or to end.
		if time.Since(began) > answerTime || pause(ctx, followEvery) != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	defer state.Close()
	setLimits(state.store, &cfg)
	batch, told, err := openBatch(ctx, state.store, src, o.fresh, func(list []queue.Entry) { runs.local.submitted(ctx, state.dir, list) })
	if err != nil {
		return err
	}
	if !runs.con.json {
		fmt.Fprintln(runs.con.stderr, told)
	}
	batches, err := runs.runBatch(ctx, state, &cfg, batch, o)
	if sumErr := runs.closeBatches(ctx, state, batches, o, err); sumErr != nil {
		return sumErr
	}
	return err
}

// overrule puts the flags of engineFlags above the configuration.
func (runs *runner) overrule(cfg *config.Config) error {
	for _, f := range []struct {
		name  string
		value int
		field *int
	}{{"--concurrency", runs.atOnce, &cfg.Concurrency.Max}, {"--cores", runs.cores, &cfg.Cores.Count}} {
		if f.value < 0 {
			return usage(fmt.Errorf("invalid %s %d: use 1 or more", f.name, f.value))
		}
		if f.value > 0 {
			*f.field = f.value
		}
	}
	if runs.cores > config.MaxCores {
		return usage(fmt.Errorf("invalid --cores %d: use 1 to %d", runs.cores, config.MaxCores))
	}
	if runs.store != "" {
		cfg.Fleet.Store = runs.store
	}
	if cfg.Fleet.Store != "" && cfg.Heartbeat.PermitValidity == 0 {
		return usage(errors.New("heartbeat.permit_validity is 0s, by which runs would go on beside the next leader's; use a duration such as 1m"))
	}
	return nil
}

// loadConfig reads the configuration and adds to it the CLIs that
// install-workers has installed, where neither it nor PATH has another.
func (prog *program) loadConfig() (config.Config, error) {
	return prog.loadConfigWith(prog.configOptions())
}

func (prog *program) loadConfigWith(opts config.Options) (config.Config, error) {
	cfg, err := prog.readConfig(opts)
	if err != nil {
		return cfg, err
	}
	dir, err := agentcli.CacheDir()
	if err != nil {
		return cfg, nil // no cache folder, nothing installed
	}
	for kind, program := range prog.packages().Find(dir, prog.packages().Kinds()) {
		w := cfg.Workers[kind]
		if _, err := prog.adapters[string(kind)].Locate(w); err == nil || len(w.Command) > 0 || w.Adapter != "" && w.Adapter != string(kind) {
			continue
		}
		w.Command = []string{program}
		cfg.Workers[kind] = w
	}
	return cfg, nil
}

func (prog *program) readConfig(opts config.Options) (config.Config, error) {
	path := prog.configPath
	if path == "" {
		byDefault, err := config.DefaultPath()
		if err != nil {
			return withoutFile(opts) // no home folder, no file
		}
		if _, err := os.Stat(byDefault); errors.Is(err, os.ErrNotExist) {
			return withoutFile(opts)
		}
		path = byDefault
	}
	cfg, err := config.Load(path, opts)
	if err != nil {
		return cfg, usage(err)
	}
	return cfg, nil
}

// withoutFile is the configuration of a host that has no file for it.
func withoutFile(opts config.Options) (config.Config, error) {
	cfg, err := config.WithoutFile(opts)
	if err != nil {
		return cfg, usage(err)
	}
	return cfg, nil
}

// errInterrupted is the cause of the end after Ctrl-C or SIGTERM.
var errInterrupted = errors.New("stopped by the user")

// runBatch runs the batch, and what is submitted meanwhile, to its end, or until
// a signal. It returns the batches that it has worked on. The first signal
// stops gracefully, the second at once; SIGHUP without a hangup reloads the
// configuration.
func (runs *runner) runBatch(ctx context.Context, state *owned, cfg *config.Config, batch job.BatchID, o runOptions) ([]job.BatchID, error) {
	e, err := runs.newEngine(ctx, state, cfg, batch)
	if err != nil {
		return []job.BatchID{batch}, err
	}
	defer e.close()
	if o.started != nil {
		if err := o.started(e); err != nil {
			return e.sched.Batches(), err
		}
	}
	view, err := runs.view(ctx, state, e.sched.Batches(), o)
	if err != nil {
		return e.sched.Batches(), failure(err)
	}
	defer view.Done() // whatever happens, the terminal is given back
	ctx, stop := runs.stopOnSignals(ctx, e, o.stopped, terminal.Beside(view, runs.con.stderr))
	defer stop()
	err = e.run(ctx, view)
	return e.sched.Batches(), explained(err)
}

// explained gives the end of a run its exit code.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errInterrupted):
		return &exitError{code: exitInterrupted}
	case errors.Is(err, supervisor.ErrIncompatible):
		return usage(err) // nothing was started
	case errors.Is(err, scheduler.ErrFatal):
		return &exitError{code: exitFailed, err: err, hints: []string{
			"`scheduler status` shows what is isolated and why", "`scheduler resume global` lifts it; then the same command goes on"}}
	default:
		return failure(err)
	}
}

// stopOnSignals returns a context that ends with errInterrupted at the first
// signal to end, and calls stopped, if that is not nil; a second one hurries the
// engine. What happens is told on out.
func (runs *runner) stopOnSignals(ctx context.Context, e *engine, stopped func(), out io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := runs.signals
	if signals == nil {
		signals = make(chan os.Signal, 2)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	}
	terminal := hasTerminal()
	// A reader that went away (`scheduler run | head`) does not concern the
	// jobs. Caught, not ignored: children would inherit that.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for n := 0; ; {
			var got os.Signal
			select {
			case got = <-signals:
			case <-done:
				return
			}
			if got == syscall.SIGHUP && !hungUp(terminal) {
				runs.reload(ctx, e, out)
				continue
			}
			if n++; n == 1 {
				fmt.Fprintln(out, "stopping: running jobs are told to stop and go on at the next run; once more stops them at once")
				if stopped != nil {
					stopped()
				}
				cancel(errInterrupted)
				continue
			}
			e.sched.Hurry()
		}
	})
	return ctx, func() {
		close(done)
		watching.Wait()
		if runs.signals == nil {
			signal.Stop(signals)
		}
		signal.Stop(broken)
		cancel(nil)
	}
}

// maxShown is how many of the jobs that wait already a server's view knows of
// when it starts.
const maxShown = 1000

// view returns what shows the run's progress.
func (runs *runner) view(ctx context.Context, state *owned, batches []job.BatchID, o runOptions) (terminal.View, error) {
	if runs.con.json {
		return terminal.NewJSON(runs.con.stdout), nil
	}
	entries, err := state.JobsOf(ctx, batches)
	if err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		left, _, err := state.store.List(ctx, queue.Filter{States: []job.EntryState{job.Queued, job.Dispatched}, Limit: maxShown})
		if err != nil {
			return nil, err
		}
		entries = stored(left...)
	}
	if out := runs.con.stdoutFile(); !o.plain && out != nil && terminal.CanLive(out, runs.con.getenv("TERM")) {
		return terminal.NewLive(out, runs.con.stdin, progressJobs(entries), terminal.LiveOptions{Colour: runs.con.colour(out)}), nil
	}
	return terminal.NewPlain(runs.con.stdout, progressJobs(entries), nil), nil
}

// JobsOf returns the jobs of the batches.
func (o *owned) JobsOf(ctx context.Context, batches []job.BatchID) ([]api.Job, error) {
	var all []api.Job
	for _, b := range batches {
		entries, _, err := o.store.List(ctx, queue.Filter{Batch: b, Limit: 1 << 30})
		if err != nil {
			return nil, err
		}
		all = append(all, stored(entries...)...)
	}
	return all, nil
}

// restarted returns the jobs that a later one does again for its team.
func restarted(entries []api.Job) map[job.ID]bool {
	type member struct {
		batch  job.BatchID
		tenant job.Tenant
		name   job.Name
	}
	newest := map[member]int{}
	of := func(e *api.Job) member {
		name, _, _ := strings.Cut(string(e.Spec.Name), "+")
		return member{e.Batch, e.Spec.Tenant, job.Name(name)}
	}
	for i := range entries {
		newest[of(&entries[i])] = max(newest[of(&entries[i])], entries[i].Spec.Flow.Restart)
	}
	again := map[job.ID]bool{}
	for i := range entries {
		if entries[i].Spec.Flow.Restart < newest[of(&entries[i])] {
			again[entries[i].ID] = true
		}
	}
	return again
}

// runRecord is what is known of a run at its end.
type runRecord interface {
	attempts
	JobsOf(context.Context, []job.BatchID) ([]api.Job, error)
	FailedTeams(context.Context, job.BatchID) ([]api.FailedTeam, error)
	// CloseRun says that the summary of a run was given.
	CloseRun(context.Context, job.BatchID) error
}

// closeBatches prints the summary and has those batches marked as done with of
// which every job has ended. ran is the error that the run itself ended with.
func (runs *runner) closeBatches(ctx context.Context, of runRecord, batches []job.BatchID, o runOptions, ran error) error {
	ctx = context.WithoutCancel(ctx)
	entries, err := of.JobsOf(ctx, batches)
	if err != nil {
		return coded(err)
	}
	unfinished := 0
	open := map[job.BatchID]bool{}
	for i := range entries {
		if !entries[i].State.Terminal() {
			unfinished++
			open[entries[i].Batch] = true
		}
	}
	failed := anyFailed(entries)
	if err := runs.con.printSummary(ctx, of, entries, o.paths); err != nil {
		return failure(err)
	}
	for _, b := range batches {
		teams, err := of.FailedTeams(ctx, b)
		if err == nil && !open[b] {
			err = of.CloseRun(ctx, b)
		}
		if err != nil {
			return coded(err)
		}
		failed = failed || len(teams) > 0
		for _, t := range teams {
			if !runs.con.json {
				fmt.Fprintf(runs.con.stderr, "team %s has failed: %s\n", t.Team, terminal.Clean(t.Why))
			}
		}
	}
	if unfinished > 0 && !runs.con.json {
		fmt.Fprintf(runs.con.stderr, "%d of %d jobs are unfinished; the same command continues them\n", unfinished, len(entries))
	}
	switch {
	case ran != nil:
		return nil
	case unfinished > 0:
		return failure(fmt.Errorf("%d jobs are unfinished", unfinished))
	case failed:
		return &exitError{code: exitFailed}
	}
	return nil
}
