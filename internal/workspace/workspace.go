package workspace

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
)

// Config says where a Manager keeps things.
type Config struct {
	Root  string // folder of the workspaces, absolute; made when missing
	Locks string // folder of the lock files, absolute; made when missing
	// Folders is the folder of the locks on what jobs change in place, absolute; made
	// when missing. All programs of a user share it, whatever their Root. "" is Locks.
	Folders string
	// Exclude are folders that are never copied nor compared, absolute: the
	// state directory, should it lie inside the user's folder. Root and Locks
	// are excluded without being named.
	Exclude []string
	// TrustFilters lets the filters run that the configuration of a repository
	// itself defines. Agents can write that; without it only those of the user's
	// and the system's configuration run.
	TrustFilters bool
	// Run runs a helper command such as git to its end; nil means cmd.Run. It
	// must leave cmd.ExtraFiles alone (see heldLocks).
	Run func(ctx context.Context, cmd *exec.Cmd) error
	// Confined is Run for a command that reads what an agent wrote (see confine.go).
	// Beside the system's own files it needs to read, and to write, these paths, which
	// are absolute and of which some may not exist. It may add to cmd.ExtraFiles at the
	// end. Nil means Run.
	Confined func(ctx context.Context, cmd *exec.Cmd, read, write []string) error
	Log      zerolog.Logger
}

// Manager makes and inspects workspaces. It has no state but its folders, so
// that several processes may each have one on the same folders.
type Manager struct {
	root, locks string
	folders     string
	exclude     []string // with symbolic links resolved
	// trustFilters is Config.TrustFilters.
	trustFilters bool
	run          func(context.Context, *exec.Cmd) error
	confined     func(ctx context.Context, cmd *exec.Cmd, read, write []string) error
	log          zerolog.Logger
}

// New returns a Manager. It touches nothing before its first use.
func New(c Config) *Manager {
	m := &Manager{root: c.Root, locks: c.Locks, trustFilters: c.TrustFilters, run: c.Run, confined: c.Confined, log: c.Log}
	m.folders = cmp.Or(c.Folders, c.Locks)
	for _, p := range append([]string{c.Root, c.Locks, m.folders}, c.Exclude...) {
		m.exclude = append(m.exclude, realOrSame(p))
	}
	if m.run == nil {
		m.run = func(_ context.Context, cmd *exec.Cmd) error { return cmd.Run() }
	}
	return m
}

// TrustFilters returns a Manager on the same folders with Config.TrustFilters.
func (m *Manager) TrustFilters(yes bool) *Manager {
	c := *m
	c.trustFilters = yes
	return &c
}

// Confine returns a Manager on the same folders with Config.Confined.
func (m *Manager) Confine(run func(ctx context.Context, cmd *exec.Cmd, read, write []string) error) *Manager {
	c := *m
	c.confined = run
	return &c
}

// Workspace is the folder of one job.
type Workspace struct {
	Job job.ID
	// Dir is where the worker starts. It lies in Root, below it when the job
	// named a subfolder of a repository.
	Dir string
	// Root is what is compared; paths in a patch are relative to it.
	Root string
	// Start is what changes are compared with: a commit for a worktree, else
	// the id of the snapshot's tree; "" when the folder was too large for one.
	// It holds the patches of other jobs that the workspace began with.
	Start string
	// Branch is that of a worktree: of the agent in it, and of the user's repository
	// once work was collected; "" without one.
	Branch string
	// Env is to be added to the worker's environment. It keeps git inside the
	// workspace from finding a repository around the state directory.
	Env []string
	// Notes tell the user what the workspace lacks, e.g. its submodules.
	Notes []string
	// Clashes are where those patches did not fit, with job.ResolveConflict.
	Clashes []Clash

	// First says that the job has had no workspace before, so that DropReplaced has
	// nothing to do. False leaves it open.
	First bool

	unrecorded bool // it began empty and without a record
	tree       string
	repo       *repo // the user's, if any
	isolation  job.Isolation
}

// Open returns the workspace that an earlier Prepare made, or an error for
// which errors.Is(err, fs.ErrNotExist) holds when there is none.
func (m *Manager) Open(ctx context.Context, id job.ID, _ job.Workspace) (*Workspace, error) {
	held, err := m.lockJob(ctx, id)
	if err != nil {
		return nil, err
	}
	defer held.release()
	rec, err := m.readyRecord(id)
	if err != nil {
		return nil, err
	}
	return m.workspace(rec), nil
}

// readyRecord returns the record of a finished workspace whose folder exists.
func (m *Manager) readyRecord(id job.ID) (*record, error) {
	rec, err := m.readRecord(id)
	if err != nil {
		return nil, err
	}
	if !rec.Ready {
		return nil, fmt.Errorf("open the workspace of job %s: it was never finished: %w", id, os.ErrNotExist)
	}
	if _, err := os.Stat(m.tree(rec)); err != nil {
		return nil, fmt.Errorf("open the workspace of job %s: its folder is gone: %w", id, err)
	}
	return rec, nil
}

func (m *Manager) workspace(rec *record) *Workspace {
	tree := m.tree(rec)
	ws := &Workspace{
		Job: rec.Job, Root: filepath.Join(tree, rec.Scope), Dir: filepath.Join(tree, rec.Scope, rec.Sub),
		Start: cmp.Or(rec.Stacked, rec.StartCommit, rec.StartTree), Branch: rec.Branch, Notes: rec.Notes, Clashes: rec.Clashes, unrecorded: rec.unrecorded,
		tree: tree, repo: rec.Repo, isolation: rec.Spec.Isolation,
	}
	if rec.Spec.Isolation == job.Direct {
		ws.tree = ws.Root
	}
	if rec.Spec.Isolation != job.Direct {
		ws.Env = []string{"GIT_CEILING_DIRECTORIES=" + m.home(rec.Job)}
	}
	return ws
}

// Home is the folder of all that a job has here. It is gone when Remove has removed it.
func (m *Manager) Home(id job.ID) string { return m.home(id) }

// home is the job's folder under the root. It holds
//
//	record.json   what the workspace is, the truth after a crash
//	base/         the private git directory to compare with
//	start.index   the git index of the start
//	agent.index   of a linked worktree only (linked.go)
//	git.next/     a git directory for the worktree, half made
//	import/       the objects of an agent's commits, while they are taken over
//	NAME-SHORT/   the worktree, the copy or the empty folder; not for direct
//	discarded-N/  an older one of these, until DropReplaced has removed it
//
// of which an empty folder has only itself as long as nothing was found in it.
// The lock on a job is one on its home.
func (m *Manager) home(id job.ID) string { return filepath.Join(m.root, string(id)) }

// tree is the folder that git treats as the working tree when comparing.
func (m *Manager) tree(rec *record) string {
	if rec.Spec.Isolation == job.Direct {
		return rec.DirectTree
	}
	return filepath.Join(m.home(rec.Job), rec.Folder)
}

// folderName returns a name that tells a person which job this is and that no
// other job has. The end of a UUIDv7 is random; its beginning is the time,
// equal for jobs that were submitted together.
func folderName(id job.ID, name job.Name) string {
	s := strings.ReplaceAll(string(id), "-", "")
	if len(s) > 8 {
		s = s[len(s)-8:]
	}
	return string(name) + "-" + s
}

// checkID refuses an id that would lead out of the root.
func checkID(id job.ID) error {
	s := string(id)
	if s == "" || s != filepath.Base(s) || strings.HasPrefix(s, ".") {
		return fmt.Errorf("%q cannot be the id of a job", s)
	}
	return nil
}

// realOrSame resolves symbolic links of the longest part of path that exists.
func realOrSame(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(realOrSame(parent), filepath.Base(path))
	}
	return path
}
