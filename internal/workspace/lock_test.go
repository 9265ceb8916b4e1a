package workspace

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

func TestLock(t *testing.T) {
	h := newHouse(t, nil)
	dir := filepath.Dir(h.repo)
	for _, d := range []string{"a/b/c", "a/bb", "z"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "a/b"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, first, second string
		busy                bool
	}{
		{"same", "a/b", "a/b", true},
		{"child", "a/b", "a/b/c", true},
		{"parent", "a/b", "a", true},
		{"grandparent", "a/b/c", "a", true},
		{"sibling", "a/b", "a/bb", false},
		{"other", "a", "z", false},
		{"link to it", "a/b", "link", true},
		{"below a link to it", "a/b", "link/c", true},
		{"parent of a link's target", "link", "a", true},
		{"unclean", "a/b", "a/./bb/../b", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			lock := func(p string) (*Lock, error) {
				return h.m.Lock(t.Context(), job.Workspace{Path: dir + "/" + p, Isolation: job.Direct})
			}
			first, err := lock(c.first)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			second, err := lock(c.second)
			busy := (*BusyError)(nil)
			if errors.As(err, &busy) != c.busy || err != nil && busy == nil {
				t.Fatalf("got %v, want busy %v", err, c.busy)
			}
			if c.busy && !strings.Contains(busy.Holder, "direct on "+realOrSame(filepath.Join(dir, c.first))) {
				t.Errorf("holder %q", busy.Holder)
			}
			first.Close()
			first.Close() // twice is fine
			if second == nil {
				if second, err = lock(c.second); err != nil {
					t.Errorf("after release: %v", err)
				}
			}
			second.Close()
		})
	}
}

// Schedulers with state directories of their own share the folder of locks; those of
// several users share only the folder that is worked in.
func TestLockAmongStateDirectories(t *testing.T) {
	h := newHouse(t, nil)
	inner := filepath.Join(h.repo, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	manager := func(name, folders string) *Manager {
		return New(Config{Root: h.root + name, Locks: h.root + name + "-locks", Folders: h.root + folders})
	}
	one := manager("one", "ann")
	first, err := one.Lock(t.Context(), job.Workspace{Path: h.repo, Isolation: job.Direct})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who    *Manager
		path   string
		holder string // "": it gets the lock
	}{
		{manager("two", "ann"), h.repo, "direct on " + h.repo},
		{manager("two", "ann"), inner, "direct on " + h.repo},
		{manager("two", "ben"), h.repo, "locked the folder itself"},
		{manager("two", "ben"), filepath.Dir(h.repo), ""},
	} {
		l, err := c.who.Lock(t.Context(), job.Workspace{Path: c.path, Isolation: job.Direct})
		var busy *BusyError
		if errors.As(err, &busy) != (c.holder != "") || busy != nil && !strings.Contains(busy.Holder, c.holder) {
			t.Errorf("%s: %v, want %q", c.path, err, c.holder)
		}
		l.Close()
	}
	first.Close()
	second, err := manager("two", "ben").Lock(t.Context(), job.Workspace{Path: h.repo, Isolation: job.Direct})
	if err != nil {
		t.Error(err)
	}
	second.Close()
	if left, err := os.ReadDir(h.repo); err != nil || len(left) != 1 {
		t.Errorf("something was written into the folder: %v, %v", left, err)
	}
}

// TestReleaseBesideAFork: a child between fork and exec holds a copy of every
// descriptor. The lock is free all the same once it was released.
func TestReleaseBesideAFork(t *testing.T) {
	h := newHouse(t, nil)
	direct := job.Workspace{Path: h.repo, Isolation: job.Direct}
	first, err := h.m.Lock(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range first.files {
		copied, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(copied)
	}
	first.Close()
	second, err := h.m.Lock(t.Context(), direct)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	second.Close()
}

func TestLockOnlyInPlace(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	direct, err := h.m.Lock(t.Context(), h.spec(job.Direct))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.NoWorkspace} {
		l, err := h.m.Lock(t.Context(), h.spec(i))
		if err != nil {
			t.Errorf("%s: %v", i, err)
		}
		l.Close()
	}
	// While a job works in the folder it can be branched off but not copied.
	h.prepare(job.NewID(), h.spec(job.Worktree), false)
	busy := (*BusyError)(nil)
	if _, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: h.spec(job.Copy)}); !errors.As(err, &busy) {
		t.Errorf("copied a folder in use: %v", err)
	}
	// A child process does not keep the lock.
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	direct.Close()
	if l, err := h.m.Lock(t.Context(), h.spec(job.Direct)); err != nil {
		t.Errorf("a child process inherited the lock: %v", err)
	} else {
		l.Close()
	}
	in.Close()
	child.Wait()
	h.prepare(job.NewID(), h.spec(job.Copy), false)
}

// TestOrphanKeepsTheJobLocked lets a helper command outlive the process that
// started it, as far as the lock can tell.
func TestOrphanKeepsTheJobLocked(t *testing.T) {
	h := newHouse(t, nil)
	var orphan *exec.Cmd
	var in io.WriteCloser
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error {
		path, err := exec.LookPath("cat")
		if err != nil {
			return err
		}
		cmd.Path, cmd.Args = path, []string{"cat"}
		if in, err = cmd.StdinPipe(); err != nil {
			return err
		}
		orphan = cmd
		return cmd.Start()
	}
	held, err := h.m.makeAndLockJob(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := (git{m: h.m, dir: h.repo, held: held}).run(t.Context(), nil, nil, "gc"); err != nil {
		t.Fatal(err)
	}
	held.release()
	f, err := os.Open(h.m.home("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tryFlock(f, unix.LOCK_EX); !errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		t.Errorf("got %v, want the lock to be held by the command", err)
	}
	in.Close()
	orphan.Wait()
	if held, err = h.m.lockJob(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	held.release()
}

// TestCopiesWaitForEachOther: copies of one folder that are made at once all are,
// also where one meets a lock whose holder has not said yet who it is, or has just
// let go of it.
func TestCopiesWaitForEachOther(t *testing.T) {
	h := newHouse(t, nil)
	const copies, rounds = 6, 60
	var all sync.WaitGroup
	for range copies {
		all.Go(func() {
			for range rounds {
				l, err := h.m.lockForCopy(t.Context(), h.repo)
				if err != nil {
					t.Error(err)
					return
				}
				l.Close()
			}
		})
	}
	all.Wait()
	direct, err := h.m.lockPath(h.repo, "direct")
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	var busy *BusyError
	if _, err := h.m.lockForCopy(t.Context(), h.repo); !errors.As(err, &busy) || busy.use != "direct" {
		t.Errorf("beside a job that works in the folder: %v", err)
	}
}

// TestRepositoryIsLockedShortly: jobs on one repository wait for each other
// while a branch is deleted, and for nothing else.
func TestRepositoryIsLockedShortly(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "b": "2"})
	repo := &repo{Common: filepath.Join(h.repo, ".git")}
	var locked, all []string
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error {
		args := slices.DeleteFunc(slices.Clone(cmd.Args[1+len(quiet):]), func(a string) bool { return strings.HasPrefix(a, "-") })
		name := args[0]
		if name == "branch" {
			name = strings.Join(args[:2], " ")
		}
		all = append(all, name)
		held, err := flock(h.m.locks, "repo-", repo.Common, unix.LOCK_EX)
		switch {
		case err == nil:
			unlock(held)
		case errors.Is(err, unix.EWOULDBLOCK):
			locked = append(locked, name)
		default:
			return err
		}
		return cmd.Run()
	}
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), true)
	h.write(ws.Root, map[string]string{"a": "3", "c": "4"})
	h.collect(ws)
	h.prepare(id, h.spec(job.Worktree), true)
	if err := h.m.Remove(t.Context(), id, h.spec(job.Worktree), RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"show-ref", "branch " + ws.Branch, "update-ref", "show-ref"}; !slices.Equal(locked, want) {
		t.Errorf("under the lock on the repository ran %q, want %q", locked, want)
	}
	for _, slow := range []string{"read-tree", "diff-files", "ls-files", "update-index", "pack-objects"} {
		if !slices.Contains(all, slow) {
			t.Errorf("%s did not run: %q", slow, all)
		}
	}
}

// TestRemoveUnlocked: the files of a worktree are removed before the repository
// is locked.
func TestRemoveUnlocked(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), true)
	held, err := h.m.lockRepo(t.Context(), &repo{Common: filepath.Join(h.repo, ".git")})
	if err != nil {
		t.Fatal(err)
	}
	// It asks for a lock once before it looks whether it may wait.
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	err = h.m.Remove(hurried, id, h.spec(job.Worktree), RemoveOptions{Force: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the repository is locked, but the error is %v", err)
	}
	if _, err := os.Lstat(ws.Root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the files are still there: %v", err)
	}
	held.release()
	if err := h.m.Remove(t.Context(), id, h.spec(job.Worktree), RemoveOptions{Force: true}); err != nil {
		t.Error(err)
	}
	if got := h.git(h.repo, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("a worktree is left: %s", got)
	}
}
