package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// statePath returns the state directory that the flags ask for.
func (local *local) statePath() (string, error) {
	if local.stateDir != "" {
		return local.stateDir, nil
	}
	path, err := statedir.Default()
	if err != nil {
		return "", usage(err)
	}
	return path, nil
}

// mustExist refuses to continue what never began, without making anything.
func (local *local) mustExist() error {
	path, err := local.statePath()
	if err != nil {
		return err
	}
	if _, err := statedir.OpenExisting(path); errors.Is(err, fs.ErrNotExist) {
		return nothingToContinue()
	}
	return nil
}

// look opens the state directory and its store to read, whether or not a
// scheduler is running on it.
func (local *local) look(ctx context.Context) (*statedir.Dir, *sqlite.Store, error) {
	dir, err := local.existing()
	if err != nil {
		return nil, nil, err
	}
	if err := local.inDatabase(dir); err != nil {
		return nil, nil, err
	}
	store, err := sqlite.OpenReadOnly(ctx, dir.Database())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, noJobsYet(dir.Path())
	}
	if errors.Is(err, queue.ErrCorrupt) {
		return nil, nil, usage(err, damagedHints()...)
	}
	if err != nil {
		return nil, nil, usage(err)
	}
	return dir, store, nil
}

// owned is a state directory that this process works on alone.
type owned struct {
	dir   *statedir.Dir
	lock  *statedir.Lock
	store *sqlite.Store
	docs  statedir.Documents
	// parcels are folders of submitters.
	parcels parcel.Store
	// artifacts keeps files of attempts where other schedulers find them; nil: nobody else looks.
	artifacts artifactStore
	// shared says that docs and parcels are those of a store that several schedulers share.
	shared bool
	logs   *logging.Logs
	log    zerolog.Logger // of the component "scheduler"
	file   *logging.File  // of the log
	// secrets takes out of texts what this process' environment holds of them.
	secrets *redact.Redactor
}

// own opens the state directory to work on it, and makes it if need be.
func (local *local) own(ctx context.Context) (*owned, error) {
	return local.ownLogging(ctx, &config.Log{}, nil)
}

// ownLogging is own with a log as it is configured, which goes to stream too, if
// that is not nil.
func (local *local) ownLogging(ctx context.Context, cfg *config.Log, stream io.Writer) (*owned, error) {
	o, err := local.ownDirectory(ctx, cfg, stream)
	if err != nil {
		return nil, err
	}
	if err := local.inDatabase(o.dir); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if o.store, err = sqlite.Open(ctx, o.dir.Database(), sqlite.Options{Log: o.logs.For(logging.Store)}); err != nil {
		o.Close() //nolint:errcheck // nothing was written
		err = fmt.Errorf("open the queue: %w", err)
		if errors.Is(err, queue.ErrCorrupt) {
			return nil, usage(err, damagedHints()...)
		}
		return nil, usage(err)
	}
	return o, nil
}

// ownDirectory is ownLogging without the store.
func (local *local) ownDirectory(_ context.Context, cfg *config.Log, stream io.Writer) (*owned, error) {
	path, err := local.statePath()
	if err != nil {
		return nil, err
	}
	if _, err := local.level(cfg); err != nil {
		return nil, usage(err)
	}
	dir, err := statedir.Open(path)
	if err != nil {
		return nil, usage(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		return nil, usage(err)
	}
	if err := local.outsideAlone(dir); err != nil {
		lock.Release()
		return nil, err
	}
	o := &owned{dir: dir, lock: lock, docs: dir.Documents(), parcels: parcel.NewFolder(dir.Parcels()), secrets: redact.New(redact.FromEnviron(local.con.environ)...)}
	if err := local.openLog(o, cfg, stream); err != nil {
		lock.Release()
		return nil, usage(err)
	}
	return o, nil
}

// FailedTeams returns the teams of a batch that have given up.
func (o *owned) FailedTeams(ctx context.Context, id job.BatchID) (list []api.FailedTeam, err error) {
	teams, err := scheduler.FailedTeams(ctx, o.store, id)
	for _, t := range teams {
		list = append(list, api.FailedTeam(t))
	}
	return list, err
}

// CloseRun marks a batch as done with.
func (o *owned) CloseRun(ctx context.Context, id job.BatchID) error {
	return o.store.Apply(ctx, queue.CloseBatch{ID: id, Now: utcNow()})
}

func (o *owned) Close() (err error) {
	if o.store != nil {
		err = o.store.Close()
	}
	o.logs.Close()
	o.lock.Release()
	return errors.Join(err, o.file.Close())
}

// level returns the level of the log: that of --log-level, else as configured.
func (local *local) level(cfg *config.Log) (logging.Level, error) {
	if local.logLevel == "" {
		return cmp.Or(cfg.Level, logging.Info), nil
	}
	level, err := logging.ParseLevel(local.logLevel)
	if err != nil {
		return level, fmt.Errorf("--log-level %w", err)
	}
	return level, nil
}

// openLog opens scheduler.log in the state directory, as JSON lines.
func (local *local) openLog(o *owned, cfg *config.Log, stream io.Writer) error {
	level, err := local.level(cfg)
	if err != nil {
		return err
	}
	if o.file, err = logging.OpenFile(o.dir.Log(), logging.MaxFile, logging.KeepFiles); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	o.logs, err = logging.New(logging.Options{
		Format: cfg.Format, Level: level, Levels: cfg.Levels, Out: stream, File: o.file,
		Redact: func(w io.Writer) io.Writer { return o.secrets.Writer(w) },
	})
	if err != nil {
		return errors.Join(err, o.file.Close())
	}
	o.log = o.logs.For(logging.Scheduler)
	return nil
}

// failure marks err, if it is one, as a failure of the command itself.
func failure(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitFailed, err: err}
}
