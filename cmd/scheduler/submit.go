package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/client"
)

func (m *Main) submitCommand() *cobra.Command {
	var one oneJob
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "submit FILE... | submit --worker WORKER [flags] INSTRUCTIONS",
		Short: "Give jobs to the scheduler that is running",
		Long: `Give the jobs of one or more job files, or the one of the command line, to the
scheduler that is running on the state directory, and return when they are
durable. It works on them beside its own jobs, and its end waits for theirs.

A job with a key and on_duplicate says what happens when an unfinished job has
the same key: docs/job-file.md.`,
		Example: "  scheduler submit more.yaml\n  scheduler submit --worker codex --workspace . \"Fix the failing test\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.submit(cmd.Context(), args, one, asJSON)
		},
	}
	one.flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the jobs as JSON")
	return cmd
}

func (m *Main) submit(ctx context.Context, args []string, one oneJob, asJSON bool) error {
	cfg, err := m.loadConfig()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return usage(errors.New("no jobs were given"), "name a job file: scheduler submit FILE", "or one job: scheduler submit --worker codex \"…\"")
	}
	src, err := m.readJobs(args, one, &cfg)
	if err != nil {
		return err
	}
	if err := m.checkJobs(ctx, src.specs, &cfg, nil); err != nil {
		return err
	}
	if err := checkPipelines(&src.workflow, src.specs, &cfg); err != nil {
		return err
	}
	digest, err := src.digest()
	if err != nil {
		return failure(err)
	}
	dir, err := m.existing()
	if err != nil {
		return err
	}
	door := client.New(dir.Socket())
	defer door.Close()
	jobs, err := door.Submit(ctx, client.Submission{Source: submittedPrefix + src.name, Digest: digest, Jobs: src.specs, Workflow: src.workflow})
	if errors.Is(err, client.ErrNotRunning) {
		return usage(err, "`scheduler run FILE` starts one")
	}
	var refused *client.Problem
	if errors.As(err, &refused) && (refused.Status == http.StatusConflict || refused.Status == http.StatusBadRequest) {
		return usage(err)
	}
	if err != nil {
		return failure(err)
	}
	if asJSON {
		enc := json.NewEncoder(m.stdout)
		enc.SetIndent("", "  ")
		return failure(enc.Encode(jobs))
	}
	for _, e := range jobs.Jobs {
		fmt.Fprintf(m.stdout, "%s  %s\n", e.ID, e.Spec.Name)
	}
	fmt.Fprintf(m.stderr, "%s submitted\n", count(len(jobs.Jobs), "job"))
	return nil
}
