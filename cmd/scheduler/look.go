package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func utcNow() time.Time { return time.Now().UTC().Round(0) }

func (m *Main) lsCommand() *cobra.Command {
	var asJSON, all bool
	var limit int
	var tenant string
	cmd := &cobra.Command{
		Use: "ls", Short: "List jobs, the newest first", Args: cobra.NoArgs,
		Example: "  scheduler ls\n  scheduler ls --all --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			f := queue.Filter{Limit: limit, Newest: true, Tenant: job.Tenant(tenant)}
			if all {
				f.Limit = 1 << 30
			}
			entries, total, err := store.List(cmd.Context(), f)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, client.Jobs{Jobs: entries, Total: total}))
			}
			w := tabwriter.NewWriter(m.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "JOB\tID\tTENANT\tWORKER\tSTATE\tATTEMPTS\tAGE\tNOTE")
			for i := range entries {
				e := &entries[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.Spec.Name, e.ID, progress.Clean(string(e.Spec.Tenant)), workerOf(e), stateWord(e), e.Attempts,
					time.Since(e.CreatedAt).Round(time.Second), progress.Clean(note(e)))
			}
			if err := w.Flush(); err != nil {
				return failure(err)
			}
			if len(entries) < total {
				fmt.Fprintf(m.stdout, "%d of %d jobs; --all lists them all\n", len(entries), total)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "all", false, "list every job")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "list at most `N` jobs")
	cmd.Flags().StringVar(&tenant, "tenant", "", "list only the jobs of this tenant")
	return cmd
}

func workerOf(e *queue.Entry) job.WorkerKind {
	choices := e.Spec.Choices()
	return choices[min(e.Choice, len(choices)-1)].Worker
}

// stateWord is the state of a job in one word: that of its run, or "expired".
func stateWord(e *queue.Entry) string {
	if e.State == job.Expired {
		return string(job.Expired)
	}
	if e.Skipped != "" {
		return "skipped"
	}
	return string(scheduler.StateOf(e))
}

// note says in one line why a job is where it is.
func note(e *queue.Entry) string {
	switch {
	case e.DeadLetter != "":
		return firstLine(e.DeadLetter)
	case !e.State.Terminal() && e.CancelRequested:
		return "is being cancelled"
	case e.State == job.Queued:
		return firstLine(e.Waiting)
	case e.Skipped != "":
		return firstLine(e.Skipped)
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (m *Main) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show JOB", Short: "Show a job: its state, its attempts, and where its patch and logs lie", Args: cobra.ExactArgs(1),
		Long: "Show a job. JOB is its id in the job file (the newest of that name), its full id, or the first 8 or more characters of that.",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			e, err := queue.Find(cmd.Context(), store, args[0])
			if err != nil {
				return failure(err)
			}
			attempts, err := store.Attempts(cmd.Context(), e.ID)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, client.Job{Job: e, Attempts: attempts}))
			}
			showJob(m.stdout, dir, &e, attempts)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showJob(w io.Writer, dir *statedir.Dir, e *queue.Entry, attempts []job.Attempt) {
	s := &e.Spec
	line := func(name, format string, args ...any) {
		if text := progress.Clean(fmt.Sprintf(format, args...)); text != "" {
			fmt.Fprintf(w, "%-13s %s\n", name+":", text)
		}
	}
	line("job", "%s", s.Name)
	line("id", "%s", e.ID)
	line("state", "%s", stateWord(e))
	line("why", "%s", note(e))
	line("tenant", "%s", s.Tenant)
	line("worker", "%s", workerOf(e))
	line("model", "%s", s.Model)
	line("workspace", "%s %s", s.Workspace.Isolation, s.Workspace.Path)
	line("instructions", "%s", firstLine(s.Instructions))
	line("class", "%s", s.Class)
	line("agent", "%s", s.Agent)
	line("domain", "%s", s.Domain)
	line("trigger", "%s", s.Trigger)
	line("payload", "%s", firstLine(string(s.Payload)))
	line("requeued", "%s", requeuedText(e))
	line("key", "%s", e.Key)
	line("needs", "%s", joinedWords(s.Flow.Needs))
	line("if", "%s", s.Flow.If)
	if a := e.Approval; a != nil && a.DecidedAt != nil {
		word := "rejected"
		if a.Approved {
			word = "approved"
		}
		line(word, "by %s on %s %s", dash(a.By), a.DecidedAt.Local().Format(time.DateTime), a.Comment)
	}
	line("output", "%s", firstLine(string(e.Result)))
	line("result of", "%s", e.CoalescedWith) // what follows are its attempts
	line("submitted", "%s", e.CreatedAt.Local().Format(time.DateTime))
	line("tokens", "%d", e.Spent.Tokens())
	line("cost", "%s", progress.Cost(e.Spent))
	for i := range attempts {
		a := &attempts[i]
		state := a.State
		if a.Outcome != nil && a.Outcome.Checkpointed {
			state = job.Checkpointed
		}
		fmt.Fprintf(w, "\nattempt %d on %s: %s\n", a.Number, a.Choice.Worker, state)
		if state == job.Checkpointed {
			line("  note", "stopped between two steps (%s); does not count as an attempt", firstLine(a.Outcome.Message))
		} else if a.Lost {
			line("  note", "cut short by the scheduler's own end; does not count as an attempt")
		}
		line("  session", "%s", a.Session)
		if o := a.Outcome; o != nil {
			if o.Class != job.NoError {
				line("  failure", "%s: %s", o.Class, firstLine(o.Message))
			}
			line("  hint", "%s", o.Hint)
			if !o.StartedAt.IsZero() {
				line("  took", "%s", o.EndedAt.Sub(o.StartedAt).Round(time.Millisecond))
			}
			line("  changes", "%s", o.DiffStat)
			for _, art := range o.Artifacts {
				line("  "+art.Name, "%s", art.Path)
			}
			if len(o.LeftBehind) > 0 {
				line("  left behind", "%s (ended)", strings.Join(o.LeftBehind, ", "))
			}
			line("  answer", "%s", firstLine(o.Answer))
		}
		line("  folder", "%s", attemptFolder(dir, a))
	}
}

// requeuedText says which dead letter a job does again, and which job does it again.
func requeuedText(e *queue.Entry) string {
	var parts []string
	if e.RequeuedFrom != "" {
		parts = append(parts, "from "+string(e.RequeuedFrom))
	}
	if e.RequeuedAs != "" {
		parts = append(parts, "as "+string(e.RequeuedAs))
	}
	if e.DroppedAt != nil {
		parts = append(parts, "dropped on "+e.DroppedAt.Local().Format(time.DateTime))
	}
	return strings.Join(parts, ", ")
}

// attemptFolder returns where an attempt has left its logs and artifacts, or ""
// if it said nothing and left none.
func attemptFolder(dir *statedir.Dir, a *job.Attempt) string {
	path := dir.Attempt(a.Job, a.Number)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func (m *Main) logsCommand() *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use: "logs JOB", Short: "Print what happened in a job's runs", Args: cobra.ExactArgs(1),
		Long: "Print what happened in a job's runs. With -f go on until the job has ended. The workers' raw output lies in the\nattempt's folder, see `scheduler show JOB`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err = printLog(ctx, m.stdout, store, args[0], follow, asJSON)
			if errors.Is(err, context.Canceled) {
				return &exitError{code: exitInterrupted}
			}
			return failure(err)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an event")
	return cmd
}

// followEvery is how often a followed log is read: it is the store that is
// followed, so that it works whichever process runs the job, or none yet.
const followEvery = 200 * time.Millisecond

func printLog(ctx context.Context, w io.Writer, store queue.Store, ref string, follow, asJSON bool) error {
	e, err := queue.Find(ctx, store, ref)
	if err != nil {
		return err
	}
	of := e.ID
	if e.CoalescedWith != "" {
		of = e.CoalescedWith // it had no run of its own
	}
	enc := json.NewEncoder(w)
	for after := int64(0); ; {
		// The state is read before the events: when it is terminal, all are there.
		if e, err = store.Get(ctx, e.ID); err != nil {
			return err
		}
		events, err := store.Events(ctx, of, after, 1000)
		if err != nil {
			return err
		}
		for i := range events {
			after = events[i].Cursor
			if asJSON {
				err = enc.Encode(events[i])
			} else {
				_, err = fmt.Fprintln(w, progress.EventLine(&events[i].Event))
			}
			if err != nil {
				return err
			}
		}
		switch {
		case len(events) > 0:
			continue
		case !follow || e.State.Terminal():
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Canceled
		case <-time.After(followEvery):
		}
	}
}

func (m *Main) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel JOB...", Short: "Withdraw waiting jobs, stop running ones", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, ref := range args {
				e, err := m.cancelJob(cmd.Context(), ref)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if e.State.Terminal() {
					fmt.Fprintf(m.stdout, "%s: cancelled\n", e.Spec.Name)
				} else {
					fmt.Fprintf(m.stdout, "%s: its worker is being stopped; `scheduler show %s` tells when it is gone\n", e.Spec.Name, e.Spec.Name)
				}
			}
			return errors.Join(errs...)
		},
	}
}
