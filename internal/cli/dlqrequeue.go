package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// requeueFlags are how dead letters are to be done again.
type requeueFlags struct {
	deadLetterFlags
	all, fresh bool
	to, model  string
}

func dlqRequeueCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	var f requeueFlags
	cmd := &cobra.Command{
		Use: "requeue JOB... | requeue --all [filters]", Short: "Run dead letters again", Args: cobra.ArbitraryArgs,
		Long: `Run dead letters again, each as a new job that knows what it was requeued from. The new
jobs begin with all their attempts, on their first worker. An agent that worked in the
user's own folder (isolation direct) goes on with its session, unless --reset-session
is given; in a fresh workspace it begins anew. A deadline that has passed is left out.

A running scheduler works on them at once, else the next ` + "`scheduler serve` or `run`" + `.`,
		Example: "  scheduler dlq requeue 01a1fcce\n  scheduler dlq requeue --all --class SERVER,NETWORK --newer 24h\n  scheduler dlq requeue --all --on codex --worker claude",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter := f.given(cmd.Flags())
			switch {
			case f.all && len(args) > 0:
				return usage(errors.New("name dead letters or give --all, not both"))
			case !f.all && filter != "":
				return usage(fmt.Errorf("--%s selects dead letters with --all only", filter))
			case !f.all && len(args) == 0:
				return usage(errors.New("no dead letters were named"), "`scheduler dlq ls` lists what there is; --all requeues all of it")
			}
			return at.do(func(p *peer) error { return requeueDeadLetters(cmd.Context(), con, prog, local, p, args, &f) })
		},
	}
	f.add(cmd.Flags(), "on")
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead letters that the filters select")
	cmd.Flags().StringVar(&f.to, "worker", "", "run them on this `WORKER` instead")
	cmd.Flags().StringVar(&f.model, "model", "", "run them with this `MODEL` instead, as the worker's program calls it")
	cmd.Flags().BoolVar(&f.fresh, "reset-session", false, "let the agents begin without their sessions")
	con.jsonFlag(cmd, "print the new jobs as JSON")
	return cmd
}

func requeueDeadLetters(ctx context.Context, con *console, prog *program, local *local, p *peer, refs []string, f *requeueFlags) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	var letters []api.Job
	if f.all {
		var all api.Jobs
		all, err = p.deadLetters(ctx, q, 0)
		letters = all.Jobs
		slices.Reverse(letters) // the oldest first
	} else {
		letters, err = p.chosen(ctx, refs)
	}
	switch {
	case err != nil:
		return err
	case len(letters) == 0:
		fmt.Fprintln(con.stderr, "no dead letters")
		if con.json {
			return writeJSON(con.stdout, api.Requeued{Jobs: []api.Job{}})
		}
		return nil
	}
	in := api.Requeue{ResetSession: f.fresh}
	for i := range letters {
		in.Letters = append(in.Letters, api.RequeueLetter{ID: letters[i].ID, Spec: f.elsewhere(&letters[i].Spec)})
	}
	return requeue(ctx, con, prog, local, p, in)
}

// elsewhere returns the specification for another worker or model; nil if none
// is asked for. What the job could fall back on, it still can; a model is one of
// its worker's.
func (f *requeueFlags) elsewhere(s *job.Spec) *job.Spec {
	if f.to == "" && f.model == "" {
		return nil
	}
	other := *s
	if f.to != "" && f.to != string(s.Worker) {
		other.Worker, other.Model = job.WorkerKind(f.to), ""
	}
	if f.model != "" {
		other.Model = f.model
	}
	first := job.Choice{Worker: other.Worker, Model: other.Model}
	other.Fallback = slices.DeleteFunc(slices.Clone(s.Fallback), func(c job.Choice) bool { return c == first })
	return &other
}

// requeue has dead letters run again, after a look at the jobs that are changed, by the
// rules of a submission, and prints what became of it.
func requeue(ctx context.Context, con *console, prog *program, local *local, p *peer, in api.Requeue) error {
	var specs []job.Spec
	var errs []error
	for _, l := range in.Letters {
		if l.Spec == nil {
			continue
		}
		specs = append(specs, *l.Spec)
		for _, bad := range l.Spec.Validate() {
			errs = append(errs, fmt.Errorf("job %s (%s): %s: %s", l.ID, l.Spec.Name, bad.Field, bad.Message))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usage(err)
	}
	if len(specs) > 0 && p.offline != nil { // another host's programs are not seen from here
		cfg, err := prog.loadConfig()
		if err == nil {
			err = local.checkJobs(ctx, specs, &cfg, nil)
		}
		if err != nil {
			return err
		}
	}
	out, err := change(ctx, p, func() (api.Requeued, error) { return p.Requeue(ctx, in) })
	if err != nil {
		return err
	}
	if con.json {
		if err := writeJSON(con.stdout, out); err != nil {
			return err
		}
	} else {
		for i := range out.Jobs {
			fmt.Fprintf(con.stdout, "%s  %s  requeued from %s\n", out.Jobs[i].ID, out.Jobs[i].Spec.Name, out.Jobs[i].RequeuedFrom)
		}
		if len(out.Jobs) > 0 {
			tellIdle(con, p)
		}
	}
	if len(out.Refused) > 0 {
		return failure(errors.New(strings.Join(out.Refused, "\n")))
	}
	return nil
}

func dlqDropCommand(con *console, at *target) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "drop JOB...", Short: "Give dead letters up for good", Args: cobra.ArbitraryArgs,
		Long: `Give dead letters up for good: they are not listed any more, and are forgotten like
jobs that succeeded. On a terminal it asks first.`,
		Example: "  scheduler dlq drop 01a1fcce\n  scheduler dlq drop --yes $(scheduler dlq ls --older 720h --json | jq -r '.jobs[].id')",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(errors.New("no dead letters were named"), "`scheduler dlq ls` lists what there is")
			}
			return at.do(func(p *peer) error { return dropDeadLetters(cmd.Context(), con, p, args, yes) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	con.jsonFlag(cmd, "print the dead letters as JSON")
	return cmd
}

func dropDeadLetters(ctx context.Context, con *console, p *peer, refs []string, yes bool) error {
	letters, err := p.chosen(ctx, refs)
	if err != nil {
		return err
	}
	if !yes && con.canAsk() && !con.confirm(letters) {
		fmt.Fprintln(con.stderr, "nothing was dropped")
		return &exitError{code: exitFailed}
	}
	ids := make([]job.ID, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	out, err := change(ctx, p, func() (api.Jobs, error) { return p.Drop(ctx, ids) })
	switch {
	case err != nil:
		return err
	case con.json:
		return writeJSON(con.stdout, out)
	}
	for i := range letters {
		fmt.Fprintf(con.stdout, "%s  %s  dropped\n", letters[i].ID, letters[i].Spec.Name)
	}
	return nil
}

// confirm asks whether the letters are to be dropped.
func (con *console) confirm(letters []api.Job) bool {
	for i := range letters {
		fmt.Fprintln(con.stderr, link(&letters[i]))
	}
	return con.agree(fmt.Sprintf("Drop %s?", count(len(letters), "dead letter")))
}
