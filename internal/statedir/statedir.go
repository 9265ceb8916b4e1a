package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// Version of the layout. A directory of a newer one is refused.
const Version = 1

// ErrNewer is wrapped when the directory was written by a newer program.
var ErrNewer = errors.New("state directory of a newer version")

// Dir is an opened state directory.
type Dir struct {
	path string // absolute, symlinks resolved
	info info
}

// info is the content of instance.json.
type info struct {
	Version  int            `json:"version"`
	Instance job.InstanceID `json:"instance"`
	Created  time.Time      `json:"created"`
	// Sandbox is sandboxEnforce in a directory that was made by a version which holds runs, "" in an older one.
	Sandbox string `json:"sandbox,omitempty"`
}

const sandboxEnforce = "enforce"

// Default returns the directory that is used when the user names none:
// $XDG_STATE_HOME/agentsched, or ~/.local/state/agentsched.
func Default() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentsched"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the state directory: %w; name one with --state DIR", err)
	}
	return filepath.Join(home, ".local", "state", "agentsched"), nil
}

// Open opens the state directory at path and makes it, with mode 0700, if it
// is not there. One that other users may read is made 0700 too. That of another
// user is for root alone, who leaves its mode.
func Open(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w; name another with --state DIR", err)
	}
	d, err := read(abs)
	if !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = keep(abs)
		}
		if err != nil {
			return nil, err
		}
		return d, d.makeFolders()
	}
	if err := keepNew(abs); err != nil {
		return nil, err
	}
	in := info{Version: Version, Instance: job.NewInstanceID(), Created: time.Now().UTC().Truncate(time.Second), Sandbox: sandboxEnforce}
	if err := writeInfo(filepath.Join(abs, "instance.json"), in); err != nil {
		return nil, fmt.Errorf("state directory %s: %w; make it writable for this user or name another with --state DIR", abs, err)
	}
	// Somebody else may have been first; what the file says counts.
	if d, err = read(abs); err != nil {
		return nil, err
	}
	return d, d.makeFolders()
}

// keep has nobody but its owner look into the state directory at path.
func keep(path string) error {
	stat, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", path, err)
	}
	if sys, ok := stat.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		if os.Geteuid() == 0 {
			return nil
		}
		return fmt.Errorf("state directory %s belongs to the user with id %d, and you are the user with id %d: run this as that user, or name another with --state DIR", path, sys.Uid, os.Geteuid())
	}
	if mode := stat.Mode().Perm(); mode&0o077 != 0 {
		if err := os.Chmod(path, 0o700); err != nil {
			return fmt.Errorf("state directory %s is open to other users (mode %04o): %w; run: chmod 700 %s", path, mode, err, path)
		}
	}
	return nil
}

// keepNew is keep for a folder that is about to become a state directory. If it
// holds something already, it serves others too, as a home or /tmp does, so that
// its mode is theirs to change.
func keepNew(path string) error {
	stat, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", path, err)
	}
	there, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", path, err)
	}
	// What another process makes of it at this moment counts as nothing.
	there = slices.DeleteFunc(there, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "instance") })
	if mode := stat.Mode().Perm(); mode&0o077 != 0 && len(there) > 0 {
		return fmt.Errorf("%s is open to other users (mode %04o) and holds other files, so it is not made a state directory: run: chmod 700 %s, or name another with --state DIR", path, mode, path)
	}
	return keep(path)
}

// OpenExisting opens a state directory that must be there already: for
// commands that only look. The error wraps fs.ErrNotExist if it is not.
func OpenExisting(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", path, err)
	}
	d, err := read(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no jobs yet in state directory %s: %w; `scheduler run` makes it, --state DIR names another", abs, fs.ErrNotExist)
	}
	return d, err
}

func read(abs string) (*Dir, error) {
	file := filepath.Join(abs, "instance.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var in info
	if err := json.Unmarshal(data, &in); err != nil || in.Version < 1 || in.Instance == "" {
		return nil, fmt.Errorf("%s is not the instance file of a state directory; is --state right? If it is, restore the file from a backup", file)
	}
	if in.Version > Version {
		return nil, fmt.Errorf("%s: layout version %d, this program knows up to %d: %w; use the newer program, or another directory with --state DIR", abs, in.Version, Version, ErrNewer)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", abs, err)
	}
	return &Dir{path: real, info: in}, nil
}

// writeInfo makes the file appear with its whole content or not at all, and
// never replaces one that is there.
func writeInfo(file string, in info) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "instance-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(data, '\n'))
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (d *Dir) makeFolders() error {
	for _, dir := range []string{d.Locks(), d.Work(), d.join("jobs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("state directory: %w; make it writable for this user or name another with --state DIR", err)
		}
	}
	// A full disk or a read-only mount shows here and not in the middle of a run.
	probe, err := os.CreateTemp(d.path, "probe-*.tmp")
	if err != nil {
		return fmt.Errorf("state directory %s is not writable: %w; name another with --state DIR", d.path, err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

func (d *Dir) join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// At returns the layout of the state directory at path, absolute, which its
// owner has opened: for the core, which is told of it. It touches nothing.
func At(path string, instance job.InstanceID) *Dir {
	return &Dir{path: path, info: info{Version: Version, Instance: instance}}
}

// Path returns the directory itself, absolute and without symlinks.
func (d *Dir) Path() string { return d.path }

// Instance returns the id that tags every process started for this directory.
func (d *Dir) Instance() job.InstanceID { return d.info.Instance }

// EnforcesSandbox reports whether the directory was made by a version that holds runs. Jobs of an older one were written
// for runs that nothing holds.
func (d *Dir) EnforcesSandbox() bool { return d.info.Sandbox == sandboxEnforce }

// Database returns the path of the queue's SQLite file.
func (d *Dir) Database() string { return d.join("queue.db") }

// Socket returns the path of the running scheduler's socket.
func (d *Dir) Socket() string { return d.join("scheduler.sock") }

// Key returns the path of the file with what requests at the socket send.
func (d *Dir) Key() string { return d.join("key") }

// Locks returns the folder of the workspace locks.
func (d *Dir) Locks() string { return d.join("locks") }

// Folders returns the folder of the locks on what jobs change in place. It is the
// same for all state directories of a user, so that two schedulers do not change
// one folder at once; where the user has no home that can be written, that of Locks.
func (d *Dir) Folders() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return d.Locks()
	}
	path := filepath.Join(home, ".local", "state", "agentsched-folders")
	if err := os.MkdirAll(path, 0o700); err != nil || unix.Access(path, unix.W_OK) != nil {
		return d.Locks()
	}
	return path
}

// Work returns the folder of the worktrees and copies.
func (d *Dir) Work() string { return d.join("work") }

// Mirrors returns the folder of the mirrors of repositories; see package travel.
func (d *Dir) Mirrors() string { return d.join("mirrors") }

// Parcels returns the folder of submitters' folders that were uploaded; see package parcel.
func (d *Dir) Parcels() string { return d.join("parcels") }

// Job returns the folder of one job's attempts and private agent state.
func (d *Dir) Job(id job.ID) string { return d.join("jobs", string(id)) }

// Attempt returns the folder for the logs and artifacts of one attempt.
func (d *Dir) Attempt(id job.ID, attempt int) string {
	return filepath.Join(d.Job(id), strconv.Itoa(attempt))
}

// AttemptOf returns whose file a path is that an attempt has left, in whichever host's state directory.
func AttemptOf(path string) (id job.ID, attempt int, ok bool) {
	folder, name := filepath.Split(filepath.Clean(path))
	folder, number := filepath.Split(filepath.Clean(folder))
	folder, of := filepath.Split(filepath.Clean(folder))
	attempt, err := strconv.Atoi(number)
	ok = err == nil && attempt > 0 && filepath.Base(folder) == "jobs" && filepath.IsLocal(of) && of != "." && filepath.IsLocal(name)
	return job.ID(of), attempt, ok
}

// Here returns where in this directory a file lies that an attempt left, by its path in that of another host; "" if the path is not
// that of such a file. The file need not be there.
func (d *Dir) Here(path string) string {
	id, attempt, ok := AttemptOf(path)
	if !ok {
		return ""
	}
	return filepath.Join(d.Attempt(id, attempt), filepath.Base(path))
}

// Home returns the folder for the private state of one kind of worker in one
// job: an agent's sessions live there, so that a later attempt can resume them.
func (d *Dir) Home(id job.ID, kind job.WorkerKind) string {
	return filepath.Join(d.Job(id), "home-"+string(kind))
}

// Crashes returns the folder of the reports of cores that died.
func (d *Dir) Crashes() string { return d.join("crashes") }

// Fleet is the folder of a copy of a queue that lies in a database; see package
// queue/postgres. It is there if the state directory's queue does.
func (d *Dir) Fleet() string { return d.join("fleet") }

// Spool is the folder of what a node has to tell its scheduler; see package internal/wire.
func (d *Dir) Spool() string { return d.join("spool") }

// Audit is the folder of the audit log.
func (d *Dir) Audit() string { return d.join("audit") }

// UIAddress is the file that holds the address which browsers have found the
// dashboard at, where none is configured.
func (d *Dir) UIAddress() string { return d.join("ui.addr") }

// Log returns the path of the scheduler's log.
func (d *Dir) Log() string { return d.join("scheduler.log") }
