package proc

import (
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func originOf(t *testing.T, h *Host, pid int) Origin {
	t.Helper()
	p, err := Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	o, err := h.Origin(p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOrigin: whatever a process does to its session, its parent and its
// environment, it descends from who started it or adopts its orphans.
func TestOrigin(t *testing.T) {
	h := newHost(t, "")
	ask := func(pid int) Origin { return originOf(t, h, pid) }
	a := start(t, h, script(t.Name()+"/a", "sh -c 'echo $$; exec sleep 300' & "+asDaemon+asCleared+"exec sleep 300"))
	pids := []int{a.pid(), a.pid(), a.pid()}
	if o := ask(a.Pid()); !o.Below || o.Tree != a.Run() || o.Tag != a.Run() {
		t.Errorf("the leader: %+v", o)
	}
	for _, pid := range pids {
		o := ask(pid)
		if !o.Below || o.Inherited || o.Tree != a.Run() && o.Tree != "" || o.Tree == "" && len(o.Above) > 0 {
			t.Errorf("process %d: %+v", pid, o)
		}
	}
	b := start(t, h, script(t.Name()+"/b", asBoth+"echo ready; exec sleep 300"))
	if o := ask(b.readyPid()); !o.Below || o.Tree != "" || o.Tag != "" {
		t.Errorf("a cleared daemon: %+v", o)
	}
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		if o := ask(pid); o.Below || o.Tree != "" {
			t.Errorf("process %d: %+v", pid, o)
		}
	}
	leader, err := Find(b.Pid())
	if err != nil {
		t.Fatal(err)
	}
	a.stop(Stages{})
	b.stop(Stages{})
	if _, err := h.Origin(leader); !errors.Is(err, ErrGone) {
		t.Errorf("of a process that has ended: %v", err)
	}
	leader = Proc{Pid: os.Getppid(), Start: 1}
	if _, err := h.Origin(leader); !errors.Is(err, ErrGone) {
		t.Errorf("of a pid that another process has: %v", err)
	}
}

// TestOriginMarked: what a marked process has started keeps the mark, whatever it does
// to its session, its parent and its environment.
func TestOriginMarked(t *testing.T) {
	h := newHost(t, "")
	marked := func(pid int) bool { return originOf(t, h, pid).Marked }
	var own unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &own); err != nil || lockLimit("self") != own.Max {
		t.Fatalf("the own limit is %d, want %d, %v", lockLimit("self"), own.Max, err)
	}
	spec := script(t.Name()+"/a", "read -r line; "+asBoth+"echo ready; exec sleep 300")
	spec.PipeStdin = true
	a := start(t, h, spec)
	if marked(a.Pid()) {
		t.Error("it is marked before anybody has marked it")
	}
	if err := unix.Prlimit(a.Pid(), unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: 7, Max: min(firstMark, own.Max-1)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stdin().Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	if !marked(a.readyPid()) {
		t.Error("a cleared daemon has lost the mark")
	}
	a.stop(Stages{})
}

// TestPeer: who connected to a socket is told while it lives.
func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	own, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if p, uid, err := Peer(int(fd)); p != own || int(uid) != os.Geteuid() || err != nil {
			t.Errorf("%+v, user %d, %v", p, uid, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMarks: a mark is lower than what was there before, and keeps whose it is however often that was marked.
func TestMarks(t *testing.T) {
	limit := uint64(math.MaxUint64)
	for _, name := range []string{"a", "b", "a"} {
		mark := markBelow(limit, name)
		if mark >= limit || !markedBy(mark, name) || markedBy(mark, name+"x") || markedBy(limit, name) {
			t.Errorf("the mark of %s below %#x is %#x", name, limit, mark)
		}
		limit = mark
	}
	if got := markBelow(7, "a"); got != 6 || markedBy(got, "a") {
		t.Errorf("below 7 it is %d", got)
	}
	if markedBy(math.MaxUint64, "a") {
		t.Error("what has no limit is marked")
	}
}

// TestMarkedTrees: what has lost its parents, left its session and cleared its environment is known by its tree's mark, and
// not kept for a run whose processes bear another.
func TestMarkedTrees(t *testing.T) {
	own := lockLimit("self")
	orphan := ProcInfo{Proc: Proc{Pid: os.Getpid(), Start: 10}}
	ended, other := &Tree{pid: -1, run: "ended", mark: own - 1, start: 1}, &Tree{pid: -2, run: "other", mark: own, start: 2}
	h := &Host{trees: map[*Tree]bool{ended: true, other: true}, started: map[int]*child{}}
	if got := h.ownerLocked(orphan); got != other {
		t.Errorf("it is taken for %+v, want the tree with its mark", got)
	}
	if h.strayLocked(orphan, ended) {
		t.Error("it goes with a tree whose mark it does not have")
	}
	other.mark = own - 2
	if !h.strayLocked(orphan, ended) {
		t.Error("it is kept for a tree whose mark it does not have")
	}
	other.mark = 0
	if h.strayLocked(orphan, ended) {
		t.Error("it goes although it can be of a tree without a mark")
	}
}
