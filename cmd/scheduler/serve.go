package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/parts"
	"github.com/agentsched/agentsched/queue"
)

func (m *Main) serveCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Work on whatever is submitted, until it is told to stop",
		Long: `Work on whatever is submitted to the state directory, until SIGINT or SIGTERM: jobs of
` + "`scheduler submit`" + `, of triggers, of programs on the socket, dead letters that are
requeued, and what unfinished runs have left.

The first signal stops it in order: running jobs are told to stop and go on, with
their agents' sessions, at the next start. A second one stops them at once.
SIGHUP reads the configuration again.

Exit code: 0 it was told to stop; 1 it could not go on; 2 the command line, the
configuration or the host is not right and nothing was started.`,
		Example: "  scheduler serve\n  scheduler serve --json > events.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.serve(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print everything that happens as JSON Lines")
	m.engineFlags(cmd)
	return cmd
}

func (m *Main) serve(ctx context.Context, o runOptions) error {
	cfg, err := m.loadConfig()
	if err != nil {
		return err
	}
	if err := m.overrule(&cfg); err != nil {
		return err
	}
	state, err := m.own(ctx)
	if err != nil {
		return err
	}
	defer state.Close()
	if err := state.store.Apply(ctx, queue.Adopt{}); err != nil {
		return failure(fmt.Errorf("take over what unfinished runs have left: %w", err))
	}
	o.plain = true // there is no end to draw a live view for
	o.started = func(e *engine) error {
		triggers, err := m.newTriggers(e)
		if err != nil {
			return usage(err)
		}
		e.triggers = triggers
		e.beside = append(e.beside,
			parts.Part{Name: "upkeep", Run: e.upkeep}, parts.Part{Name: "dead letters", Run: e.redrive}, parts.Part{Name: "triggers", Run: e.fire})
		if !o.json {
			fmt.Fprintf(m.stderr, "working on what is submitted to %s; Ctrl-C stops\n", state.dir.Path())
		}
		return nil
	}
	_, err = m.runBatch(ctx, state, &cfg, "", o)
	if stopped, ok := errors.AsType[*exitError](err); ok && stopped.code == exitInterrupted {
		return nil // as it was told
	}
	return err
}
