package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
)

// Inner is the program of a tree whose leader only makes the surroundings of the program, such as namespaces, and ends
// when the program has ended. Signals go to the program, and the exit state is the program's.
type Inner interface {
	// Pid of the program, as this process sees it.
	Pid() int
	// Signal sends sig to the program's process group. It returns os.ErrProcessDone when the program has ended.
	Signal(sig syscall.Signal) error
	// Exit is how the program ended. It is called when the leader has ended, as leader says, and must not wait.
	Exit(leader ExitState) ExitState
	// LeftBehind lists what lived on when the program had ended, as far as it was seen. It is called after Exit.
	LeftBehind() []Proc
	// Around lists the processes that make the surroundings. They are no part of the run.
	Around() []int
}

// enter waits for the program that the leader starts. If there is none, the tree is ended.
func (t *Tree) enter(spec Spec) error {
	if spec.Enter == nil {
		return nil
	}
	inner, err := spec.Enter(t.pid)
	if err == nil {
		t.host.mu.Lock()
		t.inner = inner
		t.host.mu.Unlock()
		return nil
	}
	_, left := t.Stop(context.Background(), Stages{})
	if t.stderr != nil && left == nil {
		// The leader's own words; the tree is empty, so they have an end.
		if said, _ := io.ReadAll(io.LimitReader(t.stderr, maxLastWords)); len(said) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said)))
		}
	}
	t.ClosePipes()
	return errors.Join(err, left)
}

// maxLastWords bounds what an error repeats of a leader's standard error, in bytes.
const maxLastWords = 2 << 10

// program is the tree's Inner, or nil.
func (t *Tree) program() Inner {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	return t.inner
}

// tellOfInner takes the surroundings out of what was killed, and adds what the program had left behind.
func (rep *Report) tellOfInner(inner Inner) {
	around := inner.Around()
	rep.Killed = slices.DeleteFunc(rep.Killed, func(p Proc) bool { return slices.Contains(around, p.Pid) })
	for _, p := range inner.LeftBehind() {
		if !slices.ContainsFunc(rep.Killed, func(k Proc) bool { return k.Pid == p.Pid && k.Start == p.Start }) {
			rep.Killed = append(rep.Killed, p)
		}
	}
}
