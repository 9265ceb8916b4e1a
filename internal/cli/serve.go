package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/scheduler"
)

func serveCommand(runs *runner) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Work on whatever is submitted, until it is told to stop",
		Long: `Work on whatever is submitted to the state directory, until SIGINT or SIGTERM: jobs of
` + "`scheduler submit`" + `, of triggers, of programs on the socket, dead letters that are
requeued, and what unfinished runs have left. Its log goes to standard error and into the
state directory; docs/daemon.md tells how a service manager runs it, docs/security.md who
may ask it for what.

The first signal stops it in order: running jobs are told to stop and go on, with
their agents' sessions, at the next start. A second one stops them at once.
SIGHUP reads the configuration again, ` + "`scheduler upgrade`" + ` puts a new program in its place.

Exit code: 0 it was told to stop; 1 it could not go on; 2 the command line, the
configuration or the host is not right and nothing was started.`,
		Example: "  scheduler serve\n  scheduler serve --json > events.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runs.serve(cmd.Context(), o)
		},
	}
	runs.con.jsonFlag(cmd, "print everything that happens as JSON Lines")
	runs.engineFlags(cmd)
	cmd.Flags().StringVar(&runs.store, "store", "", "share the queue in a PostgreSQL `DATABASE` with other schedulers: postgres://USER@HOST/NAME, service=NAME, file:PATH or env:NAME (default from the configuration)")
	return cmd
}

// errReplaced is the cause of the end when another program takes this one's place.
var errReplaced = fmt.Errorf("replaced by a new program: %w", errInterrupted)

// serve works until it is told to stop. Told to make room for another program it
// ends in order and becomes that one; where that fails, it goes on itself.
func (runs *runner) serve(ctx context.Context, o runOptions) error {
	var err error
	if runs.inherited, err = daemon.Inherit(runs.con.environ); err != nil {
		return usage(err)
	}
	runs.con.environ = daemon.WithoutSockets(runs.con.environ)
	if len(runs.inherited) == 0 { // else it is the next program of a scheduler that was asked
		if err := runs.serveUnheld(ctx); err != nil {
			return err
		}
	}
	for {
		next := &replacement{}
		err := runs.serveOnce(ctx, o, next)
		if next.handover == nil {
			return err
		}
		err = next.handover.Exec(next.program, os.Args, runs.con.environ)
		fmt.Fprintf(runs.con.stderr, "scheduler: %v; this program goes on\n", err)
		if runs.inherited, err = next.handover.Listeners(); err != nil {
			return failure(fmt.Errorf("go on after an upgrade that failed: %w", err))
		}
	}
}

// replacement is the program that a server makes room for.
type replacement struct {
	// stopped is set by a signal to end. It ends the server, also while that makes
	// room: whoever asks for the end does not want a new program.
	stopped atomic.Bool

	mu       sync.Mutex
	program  string
	handover *daemon.Handover
}

func (runs *runner) serveOnce(ctx context.Context, o runOptions, next *replacement) error {
	cfg, err := runs.prog.loadConfig()
	if err != nil {
		return err
	}
	if err := runs.overrule(&cfg); err != nil {
		return err
	}
	open := runs.local.ownLogging
	if cfg.Fleet.Store != "" {
		open = runs.local.ownDirectory
	}
	state, err := open(ctx, &cfg.Log, runs.con.stderr)
	if err != nil {
		return err
	}
	defer state.Close()
	if cfg.Fleet.Store != "" {
		err = runs.serveFleet(ctx, state, &cfg, o, next)
	} else {
		err = runs.serveQueue(ctx, state, &cfg, o, next)
	}
	if next.handover != nil && (err != nil || next.stopped.Load()) {
		next.handover.Release() // before another scheduler may have the state directory, and a socket in it
		next.handover = nil
	}
	return err
}

// serveQueue works on the store of state until it is told to stop.
func (runs *runner) serveQueue(ctx context.Context, state *owned, cfg *config.Config, o runOptions, next *replacement) error {
	setLimits(state.store, cfg)
	if err := scheduler.AdoptRuns(ctx, state.store); err != nil {
		return failure(fmt.Errorf("take over what unfinished runs have left: %w", err))
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	o.plain = true // there is no end to draw a live view for
	told := o.stopped
	o.stopped = func() {
		next.stopped.Store(true)
		if told != nil {
			told()
		}
	}
	o.started = func(e *engine) error {
		triggers, err := runs.newTriggers(ctx, e)
		if err != nil {
			return usage(err)
		}
		e.triggers = triggers
		e.notifier, err = daemon.NewNotifier(e.health, state.logs.For(logging.Daemon))
		if err != nil {
			return usage(err)
		}
		e.listeners.together = o.together
		e.listeners.upgrade = func(ctx context.Context, in api.Upgrade) error { return runs.replace(ctx, e, in, next, stop) }
		if err := e.listeners.prepare(); err != nil {
			return usage(err)
		}
		e.listeners.opened = func() { e.notifier.Ready("working on what is submitted to " + state.dir.Path()) }
		e.beside = append(e.beside,
			daemon.Part{Name: "upkeep", Run: e.upkeep}, daemon.Part{Name: "dead letters", Run: e.redrive}, daemon.Part{Name: "triggers", Run: e.fire},
			daemon.Part{Name: "sign of life", Run: e.notifier.Run})
		if !runs.con.json {
			fmt.Fprintf(runs.con.stderr, "working on what is submitted to %s; Ctrl-C stops\n", state.dir.Path())
		}
		return nil
	}
	_, err := runs.runBatch(ctx, state, cfg, "", o)
	if stopped, ok := errors.AsType[*exitError](err); ok && stopped.code == exitInterrupted {
		err = nil // as it was told
	}
	return err
}

// replace begins to make room for another program, and returns when that is
// certain: the new one was looked at, and the sockets are kept for it.
func (runs *runner) replace(ctx context.Context, e *engine, in api.Upgrade, next *replacement, stop context.CancelCauseFunc) error {
	program, err := in.Program, error(nil)
	if program == "" {
		if program, err = daemon.Program(os.Args[0]); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(program) {
		return fmt.Errorf("invalid program %q: use an absolute path on the scheduler's host", program)
	}
	version, err := daemon.Check(ctx, program, daemon.Through(e.host, string(e.state.dir.Instance())+"/upgrade", e.env))
	if err != nil {
		return err
	}
	next.mu.Lock()
	defer next.mu.Unlock()
	if next.handover != nil || next.program != "" {
		return fmt.Errorf("a handover to %s is under way already", next.program)
	}
	next.program = program
	log := e.state.logs.For(logging.Daemon)
	log.Info().Str("program", program).Str("version", version).Str("mode", in.Mode).Msg("an upgrade begins")
	e.sched.Feed.Tell(fmt.Sprintf("this program is replaced by %s (%s), by %s", program, version, in.Mode))
	handOver := func() error {
		handover, err := daemon.Pass(e.listeners.all())
		if err != nil {
			return err
		}
		next.handover = handover
		e.notifier.Replacing("replaced by version " + version)
		e.waiting.Go(func() {
			// First what was asked is answered: nobody is told that the scheduler ends.
			e.listeners.leave(e.draining)
			stop(errReplaced)
		})
		return nil
	}
	if in.Mode != "drain" {
		if err := handOver(); err != nil {
			next.program = ""
			return err
		}
		return nil
	}
	e.notifier.Status("replaced by version " + version + " when what runs has ended")
	e.waiting.Go(func() {
		err := e.sched.Drain(e.draining)
		next.mu.Lock()
		defer next.mu.Unlock()
		if err == nil {
			err = handOver()
		}
		if err != nil {
			next.program = ""
			log.Error().Err(err).Msg("the upgrade was given up")
		}
	})
	return nil
}
