package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// person is the prefix of the locks of workspaces in which people work.
const person = "person-"

// TakeOver locks the workspace of a job for a person who works in it, of whatever isolation. It never waits: the error is a
// *BusyError while somebody else does, or another job changes the folder. The kernel releases it when this process dies.
func (m *Manager) TakeOver(ctx context.Context, id job.ID, w job.Workspace) (*Lock, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	l, err := m.Lock(ctx, w)
	if err != nil {
		return nil, err
	}
	f, err := flock(m.locks, person, m.home(id), unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(m.InHands(id), l.Close())
	}
	if err == nil {
		l.files = append(l.files, f)
		note, _ := json.Marshal(lockNote{Path: m.home(id), PID: os.Getpid(), Use: usePerson})
		err = rewrite(f, note)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the workspace of job %s: %w", id, err), l.Close())
	}
	return l, nil
}

const usePerson = "a person's terminal"

// InHands returns a *BusyError while a person works in the workspace of a job (TakeOver), else nil or why that cannot be known.
func (m *Manager) InHands(id job.ID) error {
	path := lockFile(m.locks, person, m.home(id))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nobody ever has
	}
	if err == nil {
		if err = tryFlock(f, unix.LOCK_SH); err == nil {
			unlock(f)
			return nil
		}
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("look whether somebody works in the workspace of job %s: %w", id, err)
	}
	b := &BusyError{Path: "the workspace of job " + id.Short(), Holder: usePerson}
	var n lockNote
	if raw, err := os.ReadFile(path); err == nil && json.Unmarshal(raw, &n) == nil {
		b.Holder = fmt.Sprintf("%s (process %d)", usePerson, n.PID)
	}
	return b
}
