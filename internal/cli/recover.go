package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func recoverCommand(con *console, local *local) *cobra.Command {
	var setAside bool
	cmd := &cobra.Command{
		Use: "recover", Short: "Check the queue for damage, and save what can be read", Args: cobra.NoArgs,
		Long: `Read the whole queue and tell what is wrong with it, if anything. No scheduler may run.

With --set-aside, a damaged queue gets another name, queue.db.corrupt-TIME, and a new one
is made of the jobs that can still be read in it. Nothing is removed: what the new one
lacks is still in the old one.

Exit code: 0 the queue is whole, or a new one was made; 1 it is damaged.`,
		Example: "  scheduler recover\n  scheduler recover --set-aside",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err := recoverQueue(ctx, con, local, setAside)
			if errors.Is(err, context.Canceled) {
				return &exitError{code: exitInterrupted}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&setAside, "set-aside", false, "make a new queue of what can be read, and keep the damaged one")
	return cmd
}

// recovered is what `recover --json` prints of a queue that is whole, or is again.
type recovered struct {
	Whole bool     `json:"whole"`           // nothing was wrong
	Aside string   `json:"aside,omitempty"` // where the damaged queue lies
	Jobs  int      `json:"jobs,omitempty"`  // that were saved
	Lost  []job.ID `json:"lost"`            // of which traces are left
}

func recoverQueue(ctx context.Context, con *console, local *local, setAside bool) error {
	dir, lock, err := local.lockState()
	if err != nil {
		return err
	}
	defer lock.Release()
	path := dir.Database()
	found := sqlite.Examine(ctx, path)
	switch {
	case found == nil && con.json:
		return failure(writeJSON(con.stdout, recovered{Whole: true, Lost: []job.ID{}}))
	case found == nil:
		fmt.Fprintln(con.stdout, "the queue is whole")
		return nil
	case errors.Is(found, fs.ErrNotExist):
		return noJobsYet(dir.Path())
	case !errors.Is(found, queue.ErrCorrupt):
		return failure(found)
	case !setAside:
		return damaged(failure(found))
	}
	fmt.Fprintln(con.stderr, found)
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a recovery that was cut short
		return failure(err)
	}
	saved, err := sqlite.Salvage(ctx, path, fresh, sqlite.Options{})
	if errors.Is(err, queue.ErrCorrupt) {
		fmt.Fprintf(con.stderr, "nothing of it can be read: %v\n", err)
		err = emptyStore(ctx, fresh)
	}
	if err != nil {
		return failure(err)
	}
	aside, err := sqlite.Replace(path, fresh, "corrupt", utcNow())
	if err != nil {
		return failure(err)
	}
	if con.json {
		return failure(writeJSON(con.stdout, recovered{Aside: aside, Jobs: saved.Jobs, Lost: append([]job.ID{}, saved.Lost...)}))
	}
	fmt.Fprintf(con.stdout, "the damaged queue is kept as %s\n", aside)
	fmt.Fprintf(con.stdout, "the new one has %s\n", count(saved.Jobs, "job"))
	for _, id := range saved.Lost {
		fmt.Fprintf(con.stdout, "lost: job %s\n", id)
	}
	if saved.Wrong != nil {
		fmt.Fprintf(con.stderr, "the new queue is not whole either: %v\n", saved.Wrong)
	}
	fmt.Fprintln(con.stdout, "more may be lost that left no trace; what was running runs again")
	return nil
}

// emptyStore makes a store without jobs.
func emptyStore(ctx context.Context, path string) error {
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}
