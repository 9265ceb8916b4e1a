package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/testrun"
)

func TestStopNeverTouchesAnotherRun(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		const text = asDaemon + asCleared + "exec sleep 300"
		a := start(t, h, script(t.Name()+"/a", text))
		b := start(t, h, script(t.Name()+"/b", text))
		ofA, ofB := []int{a.Pid(), a.pid(), a.pid()}, []int{b.Pid(), b.pid(), b.pid()}
		a.stop(Stages{Interrupt: long})
		mustBeGone(t, ofA...)
		mustLive(t, ofB...)

		// The leader of b dies by itself; its cleared process is then an orphan that only a cgroup could tell.
		mustKill(t, b.Pid())
		b.waitExited()
		c := start(t, h, script(t.Name()+"/c", text))
		ofC := []int{c.Pid(), c.pid(), c.pid()}
		c.stop(Stages{})
		mustBeGone(t, ofC...)
		mustLive(t, ofB[1:]...)
		b.stop(Stages{})
		mustBeGone(t, ofB...)
	})
}

// Without a cgroup nothing tells whose an orphan with a cleared environment is, if two runs lived when it began.
func TestOrphanOfUnknownRun(t *testing.T) {
	h := newHost(t, "")
	early := start(t, h, script(t.Name()+"/early", "echo ready; exec sleep 300"))
	early.line()
	tr := start(t, h, script(t.Name()+"/1", asBoth+"exit 0"))
	orphan := tr.pid()
	tr.waitExited()

	tr.stop(Stages{})
	mustLive(t, orphan) // it may be of the early run
	late := lateStart(t, h, orphan)
	early.stop(Stages{})
	mustBeGone(t, orphan) // it cannot be of the late run
	mustLive(t, late.Pid())
	late.stop(Stages{})
}

// lateStart starts a run that began after the process did by the kernel's clock for start times, which ticks slowly.
func lateStart(t *testing.T, h *Host, pid int) *tree {
	p, err := readStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		tr := start(t, h, script(fmt.Sprintf("%s/late%d", t.Name(), i), "echo ready; exec sleep 300"))
		tr.line()
		if tr.start > p.Start {
			return tr
		}
		tr.stop(Stages{})
	}
}

func TestHelpersAreNoOrphans(t *testing.T) {
	h := newHost(t, "")
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", "(sh -c 'echo $$; exec sleep 300' &) ; exec sleep 300")
	cmd.Stdout = w
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, cmd) }()
	var pid int
	if _, err := fmt.Fscan(r, &pid); err != nil {
		t.Fatal(err)
	}

	start(t, h, script(t.Name(), "exit 0")).stop(Stages{})
	mustLive(t, pid) // in the helper's session, though its parent is gone

	cause := errors.New("enough")
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	w.Close()
	if rest, err := io.ReadAll(r); len(rest) > 1 || err != nil { // end of file: none of them holds it
		t.Errorf("read to the end: %q, %v", rest, err)
	}
}

func TestExitCodesAreNotStolen(t *testing.T) {
	h := newHost(t, "")
	const workers = 4
	rounds, strays := 60, 400
	if testrun.Soaking() {
		rounds, strays = 200, 1500
	}
	orphans := start(t, h, script(t.Name(), fmt.Sprintf(`n=0; while [ $n -lt %d ]; do n=$((n+1)); (sh -c 'exit 3' &) ; done; echo end`, strays)))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds / workers {
				want := (i + w) % 2 * 7
				err := h.Run(context.Background(), exec.Command("sh", "-c", fmt.Sprintf("exit %d", want)))
				var exit *exec.ExitError
				got := 0
				if errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					t.Errorf("helper %d: %v", i, err)
				}
				if got != want {
					t.Errorf("helper %d: got exit code %d, want %d", i, got, want)
				}
				tr, err := h.Start(Spec{Run: fmt.Sprintf("%s/%d/%d", t.Name(), w, i), Path: "/bin/sh",
					Args: []string{"-c", fmt.Sprintf("exit %d", want)}, NewSession: true})
				if err != nil {
					t.Error(err)
					return
				}
				if st := tr.ExitState(); st.Code != want || st.Err != nil {
					t.Errorf("leader %d: got %v, want %d", i, st, want)
				}
				if _, err := tr.Stop(context.Background(), Stages{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if orphans.line() != "end" {
		t.Error("no end")
	}
	orphans.stop(Stages{Interrupt: long})
	// No remains either: the reaper has seen all.
	h.reap()
	tab, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tab {
		if p.PPid == os.Getpid() {
			t.Errorf("child left: %+v", p)
		}
	}
}

// helperHost holds a host with one tree and lives until it is killed: args are the cgroup's name, the run, and a script
// whose output is the helper's. Without a cgroup, what it starts is marked.
func helperHost(args []string) int {
	h, err := NewHost(Config{Cgroup: args[0], Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel)})
	if err == nil && args[0] == "" {
		err = MarkDescendants(strings.TrimSuffix(args[1], "/job/1"))
	}
	if err == nil {
		spec := script(args[1], args[2])
		spec.PipeStdout, spec.Stdout, spec.PdeathSignal = false, os.Stdout, syscall.SIGKILL
		var tr *Tree
		if tr, err = h.Start(spec); err == nil {
			fmt.Printf("hosted %d %s\n", tr.Pid(), tr.Cgroup())
			select {}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// orphanOfDeadHost starts a helper with a host and a tree, kills the helper, checks that this killed the leader of its
// tree, and returns what is left: one process, adopted by us, and the tree's cgroup if it has one.
func orphanOfDeadHost(t *testing.T, h *Host, cgroup, instance, leave string) (dead *tree, orphan int, dir string) {
	t.Helper()
	spec := helper(instance+"/core/1", "host", cgroup, instance+"/job/1", leave+"exec sleep 300")
	spec.Subreaper = true
	dead = start(t, h, spec)
	var leader int
	for range 2 { // in either order
		line := dead.line()
		if rest, ok := strings.CutPrefix(line, "hosted "); ok {
			_, _ = fmt.Sscan(rest, &leader, &dir)
		} else {
			_, _ = fmt.Sscan(line, &orphan)
		}
	}
	if leader == 0 || orphan == 0 || (dir != "") != (cgroup != "") {
		t.Fatalf("got leader %d, orphan %d, cgroup %q", leader, orphan, dir)
	}
	mustLive(t, leader, orphan)
	mustKill(t, dead.Pid())
	dead.waitExited()
	// PR_SET_PDEATHSIG: nobody but the kernel kills it.
	if err := waitGone(leader, time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	waitOrphan(t, orphan)
	mustLive(t, orphan)
	return dead, orphan, dir
}

func TestSweepTagAfterTheDeathOfAHost(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		name := "" // only its mark tells that the orphan is the instance's
		if h.sys.base.dir != "" {
			name = h.cfg.Cgroup // or only the leftover cgroup
			h.mu.Lock()
			h.sys.noClone = true // else the leftover would lie in the cgroup of a tree that is ours and live
			h.mu.Unlock()
		}
		_, orphan, dir := orphanOfDeadHost(t, h, name, t.Name(), asBoth)
		if killed, err := h.SweepTag(context.Background(), t.Name()+"-other"); err != nil || name == "" && len(killed) > 0 {
			t.Errorf("sweep of another instance: %v, %v", killed, err)
		}
		killed, err := h.SweepTag(context.Background(), t.Name())
		if err != nil || name == "" && (len(killed) != 1 || killed[0].Pid != orphan) {
			t.Errorf("killed %v, %v, want %d", killed, err, orphan)
		}
		if dir != "" {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("cgroup %s is left: %v", dir, err)
			}
		}
		mustBeGone(t, orphan)
	})
}

func TestSweepTagSparesLiveTreesAndItself(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		tr := start(t, h, script(t.Name()+"/1", asDaemon+"echo ready; exec sleep 300"))
		tr.line()
		tr.line()
		if killed, err := h.SweepTag(context.Background(), t.Name()); err != nil || len(killed) > 0 {
			t.Errorf("killed %v, %v", killed, err)
		}
		if alive, err := Alive(t.Name()); err != nil || len(alive) != 2 {
			t.Errorf("alive: %v, %v", alive, err)
		}
		if _, err := h.SweepTag(context.Background(), ""); err == nil {
			t.Error("no error for a sweep of everything")
		}
		tr.stop(Stages{})
	})
}

func TestSweepAdopted(t *testing.T) {
	h := newHost(t, "")
	live := start(t, h, script(t.Name()+"/live/1", asDaemon+"exec sleep 300"))
	spared := []int{live.Pid(), live.pid()}

	t.Run("what no live run can have left", func(t *testing.T) {
		dead, orphan, _ := orphanOfDeadHost(t, h, "", t.Name(), asBoth)
		// The plain run that lives could be its origin, so it takes a match to say that it is not.
		if killed, err := h.SweepAdopted(context.Background(), Sweep{}); err != nil || len(killed) > 0 {
			t.Errorf("killed %v, %v", killed, err)
		}
		none := func(ProcInfo) bool { return false }
		if killed, err := h.SweepAdopted(context.Background(), Sweep{Match: none}); err != nil || len(killed) > 0 {
			t.Errorf("killed %v, %v", killed, err)
		}
		var seen []int
		all := func(p ProcInfo) bool { seen = append(seen, p.Pid); return true }
		killed, err := h.SweepAdopted(context.Background(), Sweep{Match: all})
		if err != nil || len(killed) != 1 || killed[0].Pid != orphan {
			t.Errorf("killed %v, %v, want %d", killed, err, orphan)
		}
		if len(seen) != 1 || seen[0] != orphan { // never asked about what is of a live run
			t.Errorf("asked about %v", seen)
		}
		mustBeGone(t, orphan)
		dead.stop(Stages{})
	})
	t.Run("by tag", func(t *testing.T) {
		dead, orphan, _ := orphanOfDeadHost(t, h, "", t.Name(), asDaemon)
		killed, err := h.SweepAdopted(context.Background(), Sweep{
			Match: func(ProcInfo) bool { return false }, TagPrefix: t.Name() + "/",
		})
		if err != nil || len(killed) != 1 || killed[0].Pid != orphan {
			t.Errorf("killed %v, %v, want %d", killed, err, orphan)
		}
		mustBeGone(t, orphan)
		dead.stop(Stages{})
	})
	mustLive(t, spared...)
	live.stop(Stages{})
	mustBeGone(t, spared...)
}

func TestSweepAdoptedByCgroup(t *testing.T) {
	h := cgroupHost(t)
	dead, orphan, dir := orphanOfDeadHost(t, h, h.cfg.Cgroup, t.Name(), asBoth)
	none := func(ProcInfo) bool { return false }
	if _, err := h.SweepAdopted(context.Background(), Sweep{Match: none, Cgroups: []string{t.TempDir()}}); err == nil {
		t.Error("no error for a directory that is no cgroup")
	}
	killed, err := h.SweepAdopted(context.Background(), Sweep{Match: none, Cgroups: []string{dir}})
	// It stands in the live tree of the dead host, which is the owner until that is stopped.
	if err != nil || len(killed) > 0 {
		t.Errorf("killed %v, %v", killed, err)
	}
	mustLive(t, orphan)
	dead.stop(Stages{})
	mustBeGone(t, orphan)
}

// The tree of a dead host is emptied by Stop alone, whatever its processes did, also while another host lives: that one
// adopts its own orphans.
func TestStopOfADeadHost(t *testing.T) {
	h := newHost(t, "")
	spec := helper(t.Name()+"/core/2", "host", "", t.Name()+"/job/2", asBoth+"exec sleep 300")
	spec.Subreaper = true
	other := start(t, h, spec)
	other.line()
	other.line()
	dead, orphan, _ := orphanOfDeadHost(t, h, "", t.Name(), asBoth)
	if rep := dead.stop(Stages{}); len(rep.Killed) != 1 {
		t.Errorf("got %+v", rep)
	}
	mustBeGone(t, orphan)
	if rep := other.stop(Stages{}); len(rep.Killed) < 3 { // host, leader, orphan
		t.Errorf("got %+v", rep)
	}
}

// Of two dead hosts, an orphan that nothing ties to one is killed with either.
func TestStopOfTwoDeadHosts(t *testing.T) {
	h := newHost(t, "")
	one, orphanOfOne, _ := orphanOfDeadHost(t, h, "", t.Name()+"/1", asBoth)
	two, orphanOfTwo, _ := orphanOfDeadHost(t, h, "", t.Name()+"/2", asBoth)
	one.stop(Stages{})
	mustBeGone(t, orphanOfOne, orphanOfTwo)
	two.stop(Stages{})
}

func TestCloseKillsWhatIsLive(t *testing.T) {
	eachWay(t, func(t *testing.T, h *Host) {
		tr := start(t, h, script(t.Name(), asBoth+"exec sleep 300"))
		pid := tr.pid()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		mustBeGone(t, pid, tr.Pid())
		if h.sys.base.dir != "" {
			if _, err := os.Stat(h.sys.base.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("cgroup is left: %v", err)
			}
		}
	})
}
