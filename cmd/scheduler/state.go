package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// statePath returns the state directory that the flags ask for.
func (m *Main) statePath() (string, error) {
	if m.stateDir != "" {
		return m.stateDir, nil
	}
	path, err := statedir.Default()
	if err != nil {
		return "", usage(err)
	}
	return path, nil
}

// mustExist refuses to continue what never began, without making anything.
func (m *Main) mustExist() error {
	path, err := m.statePath()
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
func (m *Main) look(ctx context.Context) (*statedir.Dir, *sqlite.Store, error) {
	path, err := m.statePath()
	if err != nil {
		return nil, nil, err
	}
	dir, err := statedir.OpenExisting(path)
	if err != nil {
		return nil, nil, usage(err)
	}
	store, err := sqlite.OpenReadOnly(ctx, dir.Database())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, usage(fmt.Errorf("no jobs yet in state directory %s", dir.Path()))
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
	log   zerolog.Logger
	file  *os.File // of the log
}

// own opens the state directory to work on it, and makes it if need be.
func (m *Main) own(ctx context.Context) (*owned, error) {
	path, err := m.statePath()
	if err != nil {
		return nil, err
	}
	if _, err := m.level(); err != nil {
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
	o := &owned{dir: dir, lock: lock}
	if o.file, o.log, err = m.openLog(dir); err != nil {
		lock.Release()
		return nil, usage(err)
	}
	if o.store, err = sqlite.Open(ctx, dir.Database(), sqlite.Options{Log: o.log}); err != nil {
		o.file.Close()
		lock.Release()
		err = fmt.Errorf("open the queue: %w", err)
		if errors.Is(err, queue.ErrCorrupt) {
			return nil, usage(err, damagedHints()...)
		}
		return nil, usage(err)
	}
	return o, nil
}

func (o *owned) Close() error {
	err := o.store.Close()
	o.lock.Release()
	return errors.Join(err, o.file.Close())
}

// level returns what --log-level asks for.
func (m *Main) level() (zerolog.Level, error) {
	level, err := zerolog.ParseLevel(m.logLevel)
	if err != nil || level == zerolog.NoLevel {
		return level, fmt.Errorf("--log-level %q is unknown, want debug, info, warn or error", m.logLevel)
	}
	return level, nil
}

// maxLogFile is the size from which a log file is put aside at the next start.
const maxLogFile = 16 << 20

// openLog opens scheduler.log in the state directory, as JSON lines. The one
// before is kept once, as scheduler.log.1.
func (m *Main) openLog(dir *statedir.Dir) (*os.File, zerolog.Logger, error) {
	level, err := m.level()
	if err != nil {
		return nil, zerolog.Nop(), err
	}
	path := dir.Log()
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogFile {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, zerolog.Nop(), fmt.Errorf("put the log aside: %w", err)
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, zerolog.Nop(), fmt.Errorf("open the log: %w", err)
	}
	return file, zerolog.New(file).Level(level).With().Timestamp().Str("process", "scheduler").Int("pid", os.Getpid()).Logger(), nil
}

// cancelJob cancels through the running scheduler, or in the store if none runs.
func (m *Main) cancelJob(ctx context.Context, ref string) (queue.Entry, error) {
	dir, err := m.existing()
	if err != nil {
		return queue.Entry{}, err
	}
	door := client.New(dir.Socket())
	defer door.Close()
	j, err := door.Cancel(ctx, ref)
	if !errors.Is(err, client.ErrNotRunning) {
		return j.Job, failure(err)
	}
	o, err := m.own(ctx)
	if err != nil {
		return queue.Entry{}, err
	}
	defer o.Close()
	e, err := queue.Find(ctx, o.store, ref)
	if err != nil {
		return queue.Entry{}, failure(err)
	}
	if e.State.Terminal() {
		return queue.Entry{}, failure(fmt.Errorf("job %s is %s already", e.Spec.Name, stateWord(&e)))
	}
	if err := o.store.Apply(ctx, queue.Cancel{ID: e.ID, Now: utcNow()}); err != nil {
		return queue.Entry{}, failure(err)
	}
	e, err = o.store.Get(ctx, e.ID)
	return e, failure(err)
}

// failure marks err, if it is one, as a failure of the command itself.
func failure(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitFailed, err: err}
}
