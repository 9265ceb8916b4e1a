package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/job"
)

// record is what is remembered of a workspace, out of the agent's reach.
type record struct {
	Job  job.ID        `json:"job"`
	Name job.Name      `json:"name"`
	Spec job.Workspace `json:"workspace"`
	// Ready is set by the last step of Prepare. Whatever is found without it
	// was left half-made by a crash, and no worker has ever been in it.
	Ready bool `json:"ready"`

	Folder     string `json:"folder,omitempty"`      // name of the tree in the job's home
	DirectTree string `json:"direct_tree,omitempty"` // the tree of isolation direct, absolute
	// Scope limits the comparison to a subfolder of the tree, slash separated:
	// the user's folder inside its repository with isolation direct.
	Scope string `json:"scope,omitempty"`
	// Sub is the job's folder below what is compared: the user's folder inside
	// its repository with isolation worktree.
	Sub string `json:"sub,omitempty"`

	Repo        *repo  `json:"repo,omitempty"`         // the user's repository, if any
	Admin       string `json:"admin,omitempty"`        // of a linked worktree: its folder in Repo.Common/worktrees
	Branch      string `json:"branch,omitempty"`       // of a worktree, without refs/heads/
	Refs        string `json:"refs,omitempty"`         // hash of the packed-refs that a worktree began with
	StartCommit string `json:"start_commit,omitempty"` // of a worktree
	StartTree   string `json:"start_tree,omitempty"`   // "" means there is nothing to compare with
	// Submodules maps the path of each submodule to the tree of what its
	// folder held at the start.
	Submodules map[string]string `json:"submodules,omitempty"`
	// Reads are what a git that looks at the workspace reads of the user's (see reads).
	Reads []string `json:"reads,omitempty"`
	// Settings are those of Repo at the start, as hashes (see settings).
	Settings map[string]string `json:"settings,omitempty"`
	Stash    []string          `json:"stash,omitempty"` // that of Repo at the start (see stashed)
	Notes    []string          `json:"notes,omitempty"`
	// Stacked is the commit of a worktree that holds the patches of other jobs,
	// on top of StartCommit; "" without any. Clashes are where they did not fit.
	Stacked string  `json:"stacked,omitempty"`
	Clashes []Clash `json:"clashes,omitempty"`
	Saved   *saved  `json:"saved,omitempty"`
	// Title is that of the Request. Committed is what Collect did to Branch, nil if
	// it did nothing.
	Title     string     `json:"title,omitempty"`
	Committed *committed `json:"committed,omitempty"`

	unrecorded bool // there is no file of it (see makeEmpty)
}

// saved is the last patch that was collected.
type saved struct {
	Tree     string `json:"tree"`            // what the workspace held
	Patch    string `json:"patch,omitempty"` // absolute, "" when nothing had changed
	SHA256   string `json:"sha256,omitempty"`
	Complete bool   `json:"complete"` // whether the patch holds everything
	Applied  bool   `json:"applied,omitempty"`
}

func (m *Manager) recordPath(id job.ID) string { return filepath.Join(m.home(id), "record.json") }

// readRecord fails with fs.ErrNotExist when there is none, and no workspace
// that needs none.
func (m *Manager) readRecord(id job.ID) (*record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(m.recordPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		if rec, err := m.unrecordedEmpty(id); !errors.Is(err, fs.ErrNotExist) {
			return rec, err
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the workspace of job %s: %w", id, err)
	}
	rec := new(record)
	if err := json.Unmarshal(b, rec); err != nil {
		return nil, fmt.Errorf("read the workspace of job %s: %s: %w", id, m.recordPath(id), err)
	}
	return rec, nil
}

func (m *Manager) writeRecord(rec *record) error {
	b, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("write the workspace of job %s: %w", rec.Job, err)
	}
	if err := os.MkdirAll(m.home(rec.Job), 0o700); err != nil {
		return fmt.Errorf("write the workspace of job %s: %w", rec.Job, err)
	}
	if err := writeFileAtomic(m.recordPath(rec.Job), b); err != nil {
		return fmt.Errorf("write the workspace of job %s: %w", rec.Job, err)
	}
	return nil
}

// writeFileAtomic leaves the old content or the new one, also after a power cut.
func writeFileAtomic(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once renamed, as it should
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
