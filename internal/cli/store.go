package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue/postgres"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func storeCommand(con *console, local *local) *cobra.Command {
	cmd := &cobra.Command{
		Use: "store", Short: "Move the queue between the state directory and a PostgreSQL database", Args: knownCommand,
		Long: `The queue lies in the state directory, or in a PostgreSQL database that several schedulers
share (docs/fleet.md). It is moved from the one to the other while no scheduler works on it.`,
		Example: "  scheduler store copy sqlite: postgres://scheduler@db.example.com/agents?sslmode=verify-full",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(storeCopyCommand(con, local))
	return cmd
}

// inFile stands for the state directory on the command line.
const inFile = "sqlite:"

func storeCopyCommand(con *console, local *local) *cobra.Command {
	cmd := &cobra.Command{
		Use: "copy FROM TO", Short: "Copy the queue, compare the copy row by row, and use it from then on", Args: cobra.ExactArgs(2),
		Long: `Copy the queue with everything that belongs to it: jobs, attempts, events, accounts, workflows,
tokens, sessions of browsers, isolations, cordons of nodes and what triggers did. FROM and TO are sqlite: for the
state directory (--state), and a database: postgres://USER@HOST/NAME, service=NAME, file:PATH or
env:NAME, without a password on the command line.

A queue that is there at TO is never overwritten; tokens, sessions, isolations, cordons and marks are. The
copy is read back and compared with what was copied, row by row. Then it is the queue of this
state directory: the old file keeps its rows under another name, and a database that was left
keeps its own. Patches, logs and worktrees stay where they are.`,
		Example: "  scheduler store copy sqlite: postgres://scheduler@db.example.com/agents?sslmode=verify-full\n  scheduler store copy service=agents sqlite:",
		RunE: func(cmd *cobra.Command, args []string) error {
			return copyStore(cmd.Context(), con, local, args[0], args[1])
		},
	}
	con.jsonFlag(cmd, "print JSON")
	return cmd
}

// storeCopied is what `store copy --json` prints.
type storeCopied struct {
	Jobs      int64  `json:"jobs"`
	Batches   int64  `json:"batches"`
	Rows      int64  `json:"rows"` // in all tables
	Documents int    `json:"documents"`
	Parcels   int    `json:"parcels"`         // folders of submitters
	Aside     string `json:"aside,omitempty"` // where the old file is
}

func copyStore(ctx context.Context, con *console, local *local, from, to string) error {
	if (from == inFile) == (to == inFile) {
		return usage(fmt.Errorf("copy from %q to %q: one is %s for the state directory, and the other one a database such as postgres://scheduler@db.example.com/agents", from, to, inFile))
	}
	move, address := local.intoFile, from
	if from == inFile {
		move, address = local.intoDatabase, to
	}
	where, err := postgres.ParseWhere(address, con.getenv)
	if err != nil {
		return usage(err)
	}
	dir, lock, err := local.lockFolder()
	if err != nil {
		return err
	}
	defer lock.Release()
	done, err := move(ctx, dir, where)
	if errors.Is(err, postgres.ErrInUse) || errors.Is(err, postgres.ErrNotEmpty) {
		return usage(err, "nothing was moved")
	}
	if err != nil {
		return failure(err)
	}
	if con.json {
		return failure(writeJSON(con.stdout, done))
	}
	fmt.Fprintf(con.stdout, "%s were copied, with all that belongs to them, %s, and compared\n", count(int(done.Jobs), "job"), count(int(done.Rows), "row"))
	if done.Aside != "" {
		fmt.Fprintf(con.stdout, "the file before is %s\n", done.Aside)
	}
	return nil
}

// intoDatabase moves the queue of a state directory into a database.
func (local *local) intoDatabase(ctx context.Context, dir *statedir.Dir, where postgres.Where) (done storeCopied, err error) {
	if err := local.inDatabase(dir); err != nil {
		return done, err
	}
	if _, err := os.Stat(dir.Database()); errors.Is(err, fs.ErrNotExist) {
		return done, noJobsYet(dir.Path())
	}
	db, err := local.connect(ctx, dir, where)
	if err != nil {
		return done, err
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, dir.Database(), sqlite.Options{})
	if err != nil {
		return done, err
	}
	m, err := db.Import(ctx, store, dir.Documents(), parcel.NewFolder(dir.Parcels()))
	if err := errors.Join(err, store.Close()); err != nil {
		return done, err
	}
	done = storeCopied{Jobs: m.Jobs, Batches: m.Batches, Rows: m.Rows, Documents: m.Documents, Parcels: m.Parcels}
	// First the mark: whatever comes between, the queue has one place.
	if err := writeWhere(dir, db.Where()); err != nil {
		return done, err
	}
	done.Aside, err = sqlite.SetAside(dir.Database(), "moved", utcNow())
	return done, err
}

// intoFile moves the queue of a database into a state directory.
func (local *local) intoFile(ctx context.Context, dir *statedir.Dir, where postgres.Where) (done storeCopied, err error) {
	db, err := local.connect(ctx, dir, where)
	if err != nil {
		return done, err
	}
	defer db.Close()
	m, err := db.Export(ctx, dir.Database(), dir.Documents(), parcel.NewFolder(dir.Parcels()))
	if err != nil {
		return done, err
	}
	return storeCopied{Jobs: m.Jobs, Batches: m.Batches, Rows: m.Rows, Documents: m.Documents, Parcels: m.Parcels}, os.RemoveAll(dir.Fleet())
}

// writeWhere writes down in which database the queue of a state directory lies.
func writeWhere(dir *statedir.Dir, where postgres.Where) error {
	if err := os.MkdirAll(dir.Fleet(), 0o700); err != nil {
		return err
	}
	return statedir.WriteFile(whereIn(dir), []byte(strings.TrimSpace(where.String())+"\n"))
}
