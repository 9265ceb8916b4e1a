package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func triggersCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "triggers", Short: "Show the triggers, which submit jobs by themselves", Args: cobra.NoArgs,
		Long: `Show the triggers of the running server: when each is due, what it has submitted and
skipped, and why its last attempt failed. They are set up in the configuration: docs/triggers.md.`,
		Example: "  scheduler triggers\n  scheduler triggers --json",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) ([]api.Trigger, error) {
		list, err := p.Triggers(ctx)
		if p.offline != nil && isNotFound(err) {
			err = usage(client.ErrNotRunning, "`scheduler serve` fires triggers; `scheduler config check` looks at how they are set up")
		}
		return list, err
	}, func(w io.Writer, list []api.Trigger) error { return printTriggers(w, list, time.Now()) })
}

func printTriggers(w io.Writer, list []api.Trigger, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no triggers are set up")
		return err
	}
	return table(w, "TRIGGER\tSOURCE\tNEXT\tLAST\tFIRED\tSKIPPED\tNOTE", func(w io.Writer) {
		for _, t := range list {
			note := firstLine(t.LastError)
			switch {
			case !t.Enabled:
				note = "disabled"
			case t.Isolated != "":
				note = t.Isolated
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", t.Name, t.Source, orDash(!t.Next.IsZero(), "%s", clock(t.Next, now)),
				orDash(!t.Last.IsZero(), "%s", clock(t.Last, now)), t.Fired, t.Skipped, note)
		}
	})
}

// newTriggers returns what fires the triggers of the configuration.
func (runs *runner) newTriggers(ctx context.Context, e *engine) (*trigger.Runner, error) {
	cfg := e.config()
	return trigger.New(ctx, trigger.Config{
		Triggers: cfg.Triggers, State: e.state.docs, Getenv: runs.con.getenv, Log: e.state.logs.For(logging.Triggers),
		Submit:  func(ctx context.Context, f trigger.Firing) error { return runs.submitFiring(ctx, e, f) },
		Outcome: e.outcomeOfFiring, Isolate: e.isolateTrigger, Isolated: e.triggerIsolated,
		Run: trigger.Through(e.host, string(e.state.dir.Instance())+"/trigger", e.env),
		Listen: func() (net.Listener, error) {
			cfg := e.config()
			return cfg.Webhooks.Open()
		},
	})
}

// submitFiring submits the jobs of a firing. One that was submitted before, by a
// scheduler that was killed before it could write that down, is not again.
func (runs *runner) submitFiring(ctx context.Context, e *engine, f trigger.Firing) error {
	from := sourceOfFiring(f.ID)
	before, err := e.state.store.Batches(ctx, from)
	if err != nil || len(before) > 0 {
		return err
	}
	cfg := e.config()
	jobs, err := runs.prog.firingJobs(f, &cfg)
	if err != nil {
		return err
	}
	if err := runs.local.checkJobs(ctx, jobs.Specs, &cfg, e.host.Run); err != nil {
		return err
	}
	if err := runs.prog.checkPipelines(&jobs.Workflow, jobs.Specs, &cfg); err != nil {
		return err
	}
	digest, err := (&source{name: from, specs: jobs.Specs, workflow: jobs.Workflow}).digest()
	if err != nil {
		return err
	}
	b, entries := scheduler.NewBatch(from, digest, jobs.Specs, jobs.Workflow, utcNow())
	err = e.sched.Submit(ctx, b, entries)
	if twice, ok := errors.AsType[*queue.DuplicateError](err); ok && f.Settings.UnlessActive && twice.Key == activeKey(f.Trigger, twice.Name) {
		return fmt.Errorf("%w: %w", trigger.ErrActive, err)
	}
	return err
}

// firingJobs reads the jobs of a firing. With unless_active each gets a key, by
// which the store refuses them all while one of them is unfinished.
func (prog *program) firingJobs(f trigger.Firing, cfg *config.Config) (jobfile.Jobs, error) {
	jobs, err := jobfile.LoadJobs([]string{f.Settings.Job}, jobfile.Options{Now: utcNow(), Workers: prog.workerKinds(cfg), Domains: domains(cfg), Grants: cfg.Grants})
	if err != nil {
		return jobs, err
	}
	specs := jobs.Specs
	for i := range specs {
		if specs[i], err = f.Spec(specs[i], func(kind job.WorkerKind) bool { return prog.traits(cfg, kind).Script }); err != nil {
			return jobs, fmt.Errorf("%s: job %s: %w", f.Settings.Job, specs[i].Name, err)
		}
		if !f.Settings.UnlessActive {
			continue
		}
		if policy, _ := specs[i].Duplicates(); policy != job.RunEach {
			return jobs, fmt.Errorf("%s: job %s has a key or on_duplicate of its own, which unless_active would replace; leave one of them out", f.Settings.Job, specs[i].Name)
		}
		specs[i].Key, specs[i].OnDuplicate = activeKey(f.Trigger, specs[i].Name), job.Reject
	}
	return jobs, nil
}

// activeKey is the key of a trigger's job that is to run once at a time.
func activeKey(t trigger.Name, name job.Name) string { return fmt.Sprintf("trigger:%s/%s", t, name) }

// fire runs the triggers of a server until ctx ends.
func (e *engine) fire(ctx context.Context) error {
	err := e.triggers.Run(ctx)
	if err != nil && ctx.Err() == nil {
		e.sched.Feed.Tell(fmt.Sprintf("the triggers do not work: %v", err))
	}
	return err
}
