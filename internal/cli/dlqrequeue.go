package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// requeueFlags are how dead letters are to be done again.
type requeueFlags struct {
	letterFlags
	all, fresh, asJSON bool
	to, model          string
}

func (m *Main) dlqRequeueCommand() *cobra.Command {
	var f requeueFlags
	cmd := &cobra.Command{
		Use: "requeue JOB... | requeue --all [filters]", Short: "Do dead letters again", Args: cobra.ArbitraryArgs,
		Long: `Do dead letters again, each as a new job that knows what it was requeued from. The new
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
			return m.requeue(cmd.Context(), args, &f)
		},
	}
	f.add(cmd.Flags(), "on")
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead letters that the filters select")
	cmd.Flags().StringVar(&f.to, "worker", "", "run them on this `WORKER` instead")
	cmd.Flags().StringVar(&f.model, "model", "", "run them with this `MODEL` instead, as the worker's program calls it")
	cmd.Flags().BoolVar(&f.fresh, "reset-session", false, "let the agents begin without their sessions")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the new jobs as JSON")
	return cmd
}

func (m *Main) requeue(ctx context.Context, refs []string, f *requeueFlags) error {
	filter, err := f.filter(utcNow())
	if err != nil {
		return err
	}
	letters, err := m.chosen(ctx, refs, f.all, filter)
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		fmt.Fprintln(m.stderr, "no dead letters")
		if f.asJSON {
			return failure(writeJSON(m.stdout, api.Requeued{Jobs: []api.Job{}}))
		}
		return nil
	}
	list := make([]scheduler.Again, len(letters))
	for i := range letters {
		list[i] = scheduler.Again{Letter: letters[i], Spec: f.elsewhere(&letters[i].Spec), Fresh: f.fresh}
	}
	if err := m.checkChanged(ctx, list); err != nil {
		return err
	}
	return m.again(ctx, list, f.asJSON)
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

// chosen reads the dead letters that the command is about, the oldest first.
func (m *Main) chosen(ctx context.Context, refs []string, all bool, filter scheduler.LetterFilter) ([]queue.Entry, error) {
	_, store, err := m.look(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if !all {
		return waitingLetters(ctx, store, refs)
	}
	letters, _, err := scheduler.DeadLetters(ctx, store, filter)
	slices.Reverse(letters)
	return letters, failure(err)
}

// checkChanged looks at the jobs that are not done again as they were, by the
// rules of a submission.
func (m *Main) checkChanged(ctx context.Context, list []scheduler.Again) error {
	var specs []job.Spec
	var errs []error
	for i := range list {
		s := list[i].Spec
		if s == nil {
			continue
		}
		specs = append(specs, *s)
		for _, bad := range s.Validate() {
			errs = append(errs, fmt.Errorf("job %s (%s): %s: %s", list[i].Letter.ID, s.Name, bad.Field, bad.Message))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usage(err)
	}
	if len(specs) == 0 {
		return nil
	}
	cfg, err := m.loadConfig()
	if err != nil {
		return err
	}
	return m.checkJobs(ctx, specs, &cfg, nil)
}

// again requeues through the running scheduler, or in the store if none runs,
// and prints what became of it.
func (m *Main) again(ctx context.Context, list []scheduler.Again, asJSON bool) error {
	in := api.Requeue{}
	for i := range list {
		in.Letters = append(in.Letters, api.RequeueLetter{ID: list[i].Letter.ID, Spec: list[i].Spec})
		in.ResetSession = in.ResetSession || list[i].Fresh
	}
	var out api.Requeued
	idle, err := m.change(ctx, func(c *client.Client) (err error) { out, err = c.Requeue(ctx, in); return err }, func(o *owned) error {
		out = m.requeueIn(ctx, o, list)
		return nil
	})
	if err != nil {
		return err
	}
	return m.printRequeued(&out, asJSON, idle)
}

func (m *Main) requeueIn(ctx context.Context, o *owned, list []scheduler.Again) api.Requeued {
	entries, err := scheduler.Requeue(ctx, o.store.Enqueue, list, utcNow())
	for i := range entries {
		m.did(ctx, o.dir, aboutJob(deedRequeue, entries[i].RequeuedFrom, entries[i].Spec.Name, map[string]any{"as": entries[i].ID}))
	}
	return api.Requeued{Jobs: stored(entries...), Refused: server.Sentences(err)}
}

func (m *Main) printRequeued(out *api.Requeued, asJSON, idle bool) error {
	if asJSON {
		if err := writeJSON(m.stdout, out); err != nil {
			return failure(err)
		}
	} else {
		for i := range out.Jobs {
			fmt.Fprintf(m.stdout, "%s  %s  requeued from %s\n", out.Jobs[i].ID, out.Jobs[i].Spec.Name, out.Jobs[i].RequeuedFrom)
		}
		if idle && len(out.Jobs) > 0 {
			fmt.Fprintln(m.stderr, "no scheduler is running: the next `scheduler serve`, or `run`, works on them")
		}
	}
	if len(out.Refused) > 0 {
		return failure(errors.New(strings.Join(out.Refused, "\n")))
	}
	return nil
}

func (m *Main) dlqDropCommand() *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use: "drop JOB...", Short: "Do nothing more about dead letters", Args: cobra.ArbitraryArgs,
		Long: `Do nothing more about dead letters: they are not listed any more, and forgotten like
jobs that succeeded. On a terminal it asks first.`,
		Example: "  scheduler dlq drop 01a1fcce\n  scheduler dlq drop --yes $(scheduler dlq ls --older 720h --json | jq -r '.jobs[].id')",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(errors.New("no dead letters were named"), "`scheduler dlq ls` lists what there is")
			}
			return m.dropLetters(cmd.Context(), args, yes, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the dead letters as JSON")
	return cmd
}

func (m *Main) dropLetters(ctx context.Context, refs []string, yes, asJSON bool) error {
	letters, err := m.chosen(ctx, refs, false, scheduler.LetterFilter{})
	if err != nil {
		return err
	}
	if !yes && m.stdin != nil && term.IsTerminal(int(m.stdin.Fd())) && !m.confirm(letters) {
		fmt.Fprintln(m.stderr, "nothing was dropped")
		return &exitError{code: exitFailed}
	}
	ids := make([]job.ID, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	_, err = m.change(ctx, func(c *client.Client) error { _, err := c.Drop(ctx, ids); return err }, func(o *owned) error {
		var ops []queue.Op
		for _, id := range ids {
			ops = append(ops, queue.Drop{ID: id, Now: utcNow()})
		}
		if err := o.store.Apply(ctx, ops...); err != nil {
			return fmt.Errorf("drop dead letters: %w", err)
		}
		for _, id := range ids {
			m.did(ctx, o.dir, audit.Entry{Action: deedDrop, Job: id})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if asJSON {
		return failure(writeJSON(m.stdout, api.Jobs{Jobs: stored(letters...), Total: len(letters)}))
	}
	for i := range letters {
		fmt.Fprintf(m.stdout, "%s  %s  dropped\n", letters[i].ID, letters[i].Spec.Name)
	}
	return nil
}

// confirm asks whether the letters are to be dropped.
func (m *Main) confirm(letters []queue.Entry) bool {
	for _, j := range stored(letters...) {
		fmt.Fprintf(m.stderr, "%s\n", link(&j))
	}
	fmt.Fprintf(m.stderr, "Drop %s? [y/N] ", count(len(letters), "dead letter"))
	answer, _ := bufio.NewReader(m.stdin).ReadString('\n') // none is no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
