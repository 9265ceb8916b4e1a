package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func dlqCommand(con *console, prog *program, local *local, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Manage dead letters: jobs that were given up", Args: cobra.NoArgs,
		Long: `Manage dead letters: jobs that were given up, until somebody requeues or drops them.
It works whether or not a scheduler is running. docs/recovery.md tells when a job is
given up, and how dead letters are requeued without anybody asking.`,
		Example: "  scheduler dlq ls --newer 24h\n  scheduler dlq show fix-login",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(dlqLsCommand(con, at), dlqShowCommand(at), dlqRequeueCommand(con, prog, local, at), dlqEditCommand(con, prog, local, at), dlqDropCommand(con, at))
	return cmd
}

// deadLetterFlags select dead letters.
type deadLetterFlags struct {
	classes              []string
	tenant, worker, grep string
	older, newer         time.Duration
	names                []string // of the flags, to tell whether one was given
}

// add adds the flags; worker is the name of that for the worker.
func (f *deadLetterFlags) add(flags *pflag.FlagSet, worker string) {
	flags.StringSliceVar(&f.classes, "class", nil, "only these `CLASSES` of failures, e.g. SERVER,NETWORK")
	flags.StringVar(&f.tenant, "tenant", "", "only those of this `TENANT`")
	flags.StringVar(&f.worker, worker, "", "only those that ran on this kind of `WORKER` last")
	flags.DurationVar(&f.older, "older", 0, "only those given up at least so `LONG` ago, e.g. 24h")
	flags.DurationVar(&f.newer, "newer", 0, "only those given up less than so `LONG` ago")
	flags.StringVar(&f.grep, "grep", "", "only those whose name, reason or instructions match this `REGEXP`")
	f.names = []string{"class", "tenant", worker, "older", "newer", "grep"}
}

// given names a filter that the command line has, or "".
func (f *deadLetterFlags) given(flags *pflag.FlagSet) string {
	for _, name := range f.names {
		if flags.Changed(name) {
			return name
		}
	}
	return ""
}

// query returns what the flags select.
func (f *deadLetterFlags) query() (q client.LetterQuery, err error) {
	q = client.LetterQuery{Tenant: job.Tenant(f.tenant), Worker: job.WorkerKind(f.worker), Older: job.Duration(f.older), Newer: job.Duration(f.newer)}
	for _, text := range f.classes {
		class := job.ErrorClass(strings.ToUpper(text))
		if !slices.Contains(job.ErrorClasses(), class) {
			return q, unknownClass(text)
		}
		q.Classes = append(q.Classes, class)
	}
	for name, age := range map[string]time.Duration{"older": f.older, "newer": f.newer} {
		if age < 0 {
			return q, usage(fmt.Errorf("invalid --%s %s: use an age such as 30m or 24h", name, age))
		}
	}
	if f.grep == "" {
		return q, nil
	}
	q.Grep = "(?i)" + f.grep
	_, err = regexp.Compile(q.Grep)
	if wrong, ok := errors.AsType[*syntax.Error](err); ok {
		err = usage(fmt.Errorf("--grep %q is no regular expression: %s", f.grep, wrong.Code))
	}
	return q, err
}

// deadLetters returns the dead letters that q selects, the newest first, at most limit;
// 0: all.
func (p *peer) deadLetters(ctx context.Context, q client.LetterQuery, limit int) (api.Jobs, error) {
	all := api.Jobs{Jobs: []api.Job{}}
	for q.Limit = maxPage; ; q.Offset += maxPage {
		if limit > 0 {
			q.Limit = min(limit-q.Offset, maxPage)
		}
		page, err := p.DeadLetters(ctx, q)
		if err != nil {
			return all, err
		}
		all.Jobs, all.Total = append(all.Jobs, page.Jobs...), page.Total
		if n := len(all.Jobs); len(page.Jobs) < q.Limit || n == limit {
			return all, nil
		}
	}
}

func unknownClass(text string) error {
	var known []string
	for _, c := range job.ErrorClasses() {
		known = append(known, string(c))
	}
	if near := fields.Nearest(strings.ToUpper(text), known); near != "" {
		return usage(fmt.Errorf("unknown --class %q; did you mean %s?", text, near))
	}
	return usage(fmt.Errorf("unknown --class %q: use one of %s", text, strings.Join(known, ", ")))
}

func dlqLsCommand(con *console, at *target) *cobra.Command {
	var f deadLetterFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List dead letters, the newest first", Args: cobra.NoArgs,
		Long: `List the jobs that were given up and wait for somebody, the newest first, with why. A dead
letter is listed if it matches all filters.`,
		Example: "  scheduler dlq ls --class SERVER,NETWORK --newer 24h\n  scheduler dlq ls --grep 'login' --json",
	}
	f.add(cmd.Flags(), "worker")
	limit := cmd.Flags().IntP("limit", "n", 50, "list at most `N`; 0: all")
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Jobs, error) {
		if *limit < 0 {
			return api.Jobs{}, usage(fmt.Errorf("invalid --limit %d: use a number, or 0 for all", *limit))
		}
		q, err := f.query()
		if err != nil {
			return api.Jobs{}, err
		}
		return p.deadLetters(ctx, q, *limit)
	}, func(w io.Writer, list api.Jobs) error { return printDeadLetters(at.con, w, list) })
}

func printDeadLetters(con *console, w io.Writer, list api.Jobs) error {
	if list.Total == 0 {
		_, err := fmt.Fprintln(con.stderr, "no dead letters")
		return err
	}
	err := table(w, "ID\tJOB\tTENANT\tCLASS\tATTEMPTS\tAGE\tREASON", func(w io.Writer) {
		for i := range list.Jobs {
			e, age := &list.Jobs[i], "-"
			if e.CompletedAt != nil {
				age = ago(*e.CompletedAt, time.Now())
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.ID.Short(), e.Spec.Name, terminal.Clean(string(e.Spec.Tenant)), orDash(e.ErrorClass != "", "%s", e.ErrorClass),
				e.Attempts, age, terminal.Clean(firstLine(e.DeadLetter)))
		}
	})
	if err == nil && len(list.Jobs) < list.Total {
		_, err = fmt.Fprintf(w, "%d of %d dead letters; --limit 0 lists them all\n", len(list.Jobs), list.Total)
	}
	return err
}

// chosen returns the dead letters that refs name, each once. All of them must
// wait for somebody.
func (p *peer) chosen(ctx context.Context, refs []string) (list []api.Job, err error) {
	var errs []error
	for _, ref := range refs {
		l, err := p.deadLetter(ctx, ref)
		if err == nil && l.Settled != "" {
			err = failure(errors.New(l.Settled))
		}
		errs = append(errs, err)
		if err == nil && !slices.ContainsFunc(list, func(e api.Job) bool { return e.ID == l.Job.ID }) {
			list = append(list, l.Job)
		}
	}
	return list, joined(errs)
}
