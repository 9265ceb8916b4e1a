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

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

func backupCommand(con *console, local *local) *cobra.Command {
	var back bool
	cmd := &cobra.Command{
		Use: "backup FILE | backup --restore FILE", Short: "Copy the queue to a file, also while a scheduler runs", Args: cobra.ExactArgs(1),
		Long: `Copy the whole queue, as it is at one moment, to a new file: jobs, attempts, events, what was
used and granted. A scheduler may run meanwhile. The copy was read back when the command
ends; if it fails there is no file. It holds prompts and answers, so only you may read it.
Workspaces, patches and logs lie in files of their own beside the queue.

With --restore, put a backup in the queue's place. No scheduler may run. The queue that
was there is kept under another name. What ran since the backup runs again.`,
		Example: "  scheduler backup queue-monday.db\n  scheduler backup --restore queue-monday.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			work := backup
			if back {
				work = restore
			}
			if e := work(ctx, con, local, args[0]); e != nil && errors.Is(e, context.Canceled) {
				return &exitError{code: exitInterrupted}
			} else if e != nil {
				return e
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&back, "restore", false, "put the backup in the queue's place")
	return cmd
}

// backedUp is what `backup --json` prints.
type backedUp struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes,omitempty"` // of the copy
	Aside string `json:"aside,omitempty"` // with --restore: where the queue lies that was there
}

func backup(ctx context.Context, con *console, local *local, path string) error {
	_, store, err := local.look(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	err = store.Backup(ctx, path)
	if errors.Is(err, fs.ErrExist) {
		return usage(fmt.Errorf("%s exists already; a backup is never written over a file", path))
	}
	if err != nil {
		return damaged(failure(err))
	}
	info, err := os.Stat(path)
	if err != nil {
		return failure(err)
	}
	if con.json {
		return failure(writeJSON(con.stdout, backedUp{Path: path, Bytes: info.Size()}))
	}
	fmt.Fprintf(con.stdout, "%s: %s\n", path, sizeText(info.Size()))
	return nil
}

func restore(ctx context.Context, con *console, local *local, path string) error {
	dir, lock, err := local.lockState()
	if err != nil {
		return err
	}
	defer lock.Release()
	aside, err := sqlite.Restore(ctx, path, dir.Database(), utcNow())
	if errors.Is(err, queue.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, queue.ErrNewerVersion) {
		return usage(err, "the queue is as it was")
	}
	if err != nil {
		return failure(err)
	}
	if con.json {
		return failure(writeJSON(con.stdout, backedUp{Path: path, Aside: aside}))
	}
	fmt.Fprintf(con.stdout, "the queue is now that of %s\n", path)
	if aside != "" {
		fmt.Fprintf(con.stdout, "the one before is %s\n", aside)
	}
	return nil
}

// lockState takes the state directory, but not its queue, which may be damaged and lies
// there.
func (local *local) lockState() (*statedir.Dir, *statedir.Lock, error) {
	dir, lock, err := local.lockFolder()
	if err != nil {
		return nil, nil, err
	}
	if err := local.inDatabase(dir); err != nil {
		lock.Release()
		return nil, nil, err
	}
	return dir, lock, nil
}

// lockFolder takes the state directory, wherever its queue lies.
func (local *local) lockFolder() (*statedir.Dir, *statedir.Lock, error) {
	dir, err := local.existing()
	if err != nil {
		return nil, nil, err
	}
	lock, err := dir.Lock()
	if err != nil {
		return nil, nil, usage(err)
	}
	if err := local.outsideAlone(dir); err != nil {
		lock.Release()
		return nil, nil, err
	}
	return dir, lock, nil
}

// damaged adds to an error about a damaged queue what can be done.
func damaged(err error) error {
	var exit *exitError
	if !errors.Is(err, queue.ErrCorrupt) || !errors.As(err, &exit) {
		return err
	}
	return &exitError{code: exit.code, err: exit.err, hints: append(exit.hints, damagedHints()...)}
}

func damagedHints() []string {
	return []string{
		"nothing was changed",
		"`scheduler backup --restore FILE` puts a backup in its place",
		"`scheduler recover --set-aside` makes a new queue of what can still be read, and keeps the damaged file",
	}
}
