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
	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (m *Main) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Look after dead letters: jobs that were given up", Args: cobra.NoArgs,
		Long: `Look after dead letters: jobs that were given up, until somebody requeues or drops them.
It works whether or not a scheduler is running. docs/recovery.md tells when a job is
given up, and how dead letters are requeued without anybody asking.`,
		Example: "  scheduler dlq ls --newer 24h\n  scheduler dlq show fix-login",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(m.dlqLsCommand(), m.dlqShowCommand(), m.dlqRequeueCommand(), m.dlqEditCommand(), m.dlqDropCommand())
	return cmd
}

// letterFlags select dead letters.
type letterFlags struct {
	classes              []string
	tenant, worker, grep string
	older, newer         time.Duration
	names                []string // of the flags, to tell whether one was given
}

// add adds the flags; worker is the name of that for the worker.
func (f *letterFlags) add(flags *pflag.FlagSet, worker string) {
	flags.StringSliceVar(&f.classes, "class", nil, "only these `CLASSES` of failures, e.g. SERVER,NETWORK")
	flags.StringVar(&f.tenant, "tenant", "", "only those of this `TENANT`")
	flags.StringVar(&f.worker, worker, "", "only those that ran on this kind of `WORKER` last")
	flags.DurationVar(&f.older, "older", 0, "only those given up at least so `LONG` ago, e.g. 24h")
	flags.DurationVar(&f.newer, "newer", 0, "only those given up less than so `LONG` ago")
	flags.StringVar(&f.grep, "grep", "", "only those whose name, reason or instructions match this `REGEXP`")
	f.names = []string{"class", "tenant", worker, "older", "newer", "grep"}
}

// given names a filter that the command line has, or "".
func (f *letterFlags) given(flags *pflag.FlagSet) string {
	for _, name := range f.names {
		if flags.Changed(name) {
			return name
		}
	}
	return ""
}

// filter returns what the flags say at the time.
func (f *letterFlags) filter(now time.Time) (scheduler.LetterFilter, error) {
	out := scheduler.LetterFilter{Tenant: job.Tenant(f.tenant), Worker: job.WorkerKind(f.worker)}
	for _, text := range f.classes {
		class := job.ErrorClass(strings.ToUpper(text))
		if !slices.Contains(job.ErrorClasses(), class) {
			return out, unknownClass(text)
		}
		out.Classes = append(out.Classes, class)
	}
	for _, age := range []struct {
		flag  string
		value time.Duration
		field *time.Time
	}{{"--older", f.older, &out.Older}, {"--newer", f.newer, &out.Newer}} {
		if age.value < 0 {
			return out, usage(fmt.Errorf("%s %s: want an age such as 30m or 24h", age.flag, age.value))
		}
		if age.value > 0 {
			*age.field = now.Add(-age.value)
		}
	}
	if f.grep != "" {
		re, err := regexp.Compile("(?i)" + f.grep)
		if wrong, ok := errors.AsType[*syntax.Error](err); ok {
			return out, usage(fmt.Errorf("--grep %q is no regular expression: %s", f.grep, wrong.Code))
		}
		out.Grep = re
	}
	return out, nil
}

func unknownClass(text string) error {
	var known []string
	for _, c := range job.ErrorClasses() {
		known = append(known, string(c))
	}
	if near := fields.Nearest(strings.ToUpper(text), known); near != "" {
		return usage(fmt.Errorf("--class %q is no class of failures; did you mean %s?", text, near))
	}
	return usage(fmt.Errorf("--class %q is no class of failures, want one of %s", text, strings.Join(known, ", ")))
}

func (m *Main) dlqLsCommand() *cobra.Command {
	var f letterFlags
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Short: "List dead letters, the newest first", Args: cobra.NoArgs,
		Long: `List the jobs that were given up and wait for somebody, the newest first, with why. The
filters must all fit.`,
		Example: "  scheduler dlq ls --class SERVER,NETWORK --newer 24h\n  scheduler dlq ls --grep 'login' --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage(fmt.Errorf("--limit %d: want a number, or 0 for all", limit))
			}
			now := utcNow()
			filter, err := f.filter(now)
			if err != nil {
				return err
			}
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			filter.Limit = limit
			entries, total, err := scheduler.DeadLetters(cmd.Context(), store, filter)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, api.Jobs{Jobs: stored(entries...), Total: total}))
			}
			return failure(m.printLetters(entries, total, now))
		},
	}
	f.add(cmd.Flags(), "worker")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "list at most `N`; 0: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (m *Main) printLetters(entries []queue.Entry, total int, now time.Time) error {
	if total == 0 {
		_, err := fmt.Fprintln(m.stderr, "no dead letters")
		return err
	}
	err := table(m.out(), "ID\tJOB\tTENANT\tCLASS\tATTEMPTS\tAGE\tREASON", func(w io.Writer) {
		for i := range entries {
			e := &entries[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.ID.Short(), e.Spec.Name, terminal.Clean(string(e.Spec.Tenant)), orDash(e.ErrorClass != "", "%s", e.ErrorClass),
				e.Attempts, letterAge(e, now), terminal.Clean(firstLine(e.DeadLetter)))
		}
	})
	if err != nil {
		return err
	}
	if len(entries) < total {
		fmt.Fprintf(m.stdout, "%d of %d dead letters; --limit 0 lists them all\n", len(entries), total)
	}
	return nil
}

func letterAge(e *queue.Entry, now time.Time) string {
	if e.CompletedAt == nil {
		return "-"
	}
	return ago(*e.CompletedAt, now)
}

// findLetter returns the dead letter that a user means by ref: an id, a
// beginning of one, or a name, of which the newest dead letter is meant. What it
// returns may have been requeued or dropped, or be a job that is none.
func findLetter(ctx context.Context, store queue.Reader, ref string) (queue.Entry, error) {
	byName, _, err := store.List(ctx, queue.Filter{Name: job.Name(ref), DeadLetters: true, Limit: 1, Newest: true})
	if err != nil {
		return queue.Entry{}, failure(err)
	}
	if len(byName) > 0 {
		return byName[0], nil
	}
	e, err := queue.Find(ctx, store, ref)
	if errors.Is(err, queue.ErrNotFound) {
		letters, _, listErr := store.List(ctx, queue.Filter{DeadLetters: true, Newest: true, Limit: maxNames})
		if listErr != nil {
			letters = nil // then nobody knows what was meant
		}
		return e, meantOf(server.JobsOf(letters), ref, &exitError{code: exitFailed, err: fmt.Errorf("dead letter %q: %w", ref, queue.ErrNotFound), hints: []string{"`scheduler dlq ls` lists what there is"}})
	}
	return e, failure(err)
}

// waiting returns the dead letters that refs name, all of which must wait for somebody.
func waitingLetters(ctx context.Context, store queue.Reader, refs []string) ([]queue.Entry, error) {
	var list []queue.Entry
	var errs []error
	seen := map[job.ID]bool{}
	for _, ref := range refs {
		e, err := findLetter(ctx, store, ref)
		if err == nil {
			err = failure(scheduler.WaitsForSomebody(&e))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !seen[e.ID] {
			seen[e.ID] = true
			list = append(list, e)
		}
	}
	return list, joined(errs)
}
