package e2e

// SIGKILL at random moments: of the core, of the scheduler, of both at once.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// maxUpdates is the most that happens between two kills.
const maxUpdates = 16

// TestKillCore kills five cores of a scheduler, in a soak of each of four: a core
// that dies again and again is replaced later and later.
func TestKillCore(t *testing.T) {
	const kills = 5
	rounds := 1 // TestScenarios of internal/faults kills cores, too
	if testrun.Soaking() {
		rounds = 4
	}
	random := newRand(t)
	for round := range rounds {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.start("run", b.crowd())
			killed, seen := 0, 0
			for range kills {
				var running bool
				if seen, running = r.awaitUpdates(seen, 1+random.IntN(maxUpdates)); !running {
					break
				}
				if r.killNextCore(killed) {
					killed++
				}
			}
			r.exit(0)
			if killed < kills-2 {
				t.Fatalf("the jobs were done after %d kills: too few to show anything", killed)
			}
			died := r.seen(func(u *api.Update) bool {
				return u.Kind == api.UpdateCore && strings.Contains(u.Text, "died")
			})
			// The last one may have been killed when all was done: no other follows it then, and its end is not told.
			ups := r.seen(func(u *api.Update) bool { return u.CorePID != 0 })
			if died != killed && !(died == killed-1 && ups == killed) {
				t.Errorf("%d cores of %d were killed, %d deaths were told", killed, ups, died)
			}
			b.checkCrowd()
		})
	}
}

// killNextCore kills the core that came up as number n, counted from 0, and
// waits for it before. It is false if the scheduler ended first.
func (r *run) killNextCore(n int) bool {
	r.b.t.Helper()
	for from := 0; ; {
		r.mu.Lock()
		cores := r.cores
		r.mu.Unlock()
		if len(cores) > n {
			// Its end may have come by itself a moment ago.
			return syscall.Kill(cores[n], syscall.SIGKILL) == nil
		}
		var running bool
		if from, running = r.awaitUpdates(from, 1); !running {
			return false
		}
	}
}

func TestKillScheduler(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	b := newBench(t)
	file := b.crowd()
	kills := 8
	if testrun.Soaking() {
		kills = 20
	}
	for n := range kills {
		r := b.start("run", file)
		_, running := r.awaitUpdates(0, 1+random.IntN(maxUpdates))
		if running { // or it has ended meanwhile
			running = r.cmd.Process.Kill() == nil
		}
		if !running {
			if n < kills/2 {
				r.fatalf("the jobs were done after %d kills: too few to show anything", n)
			}
			r.exit(0)
			break
		}
		<-r.ended
		// Where the kill came after the last job, the same command would do all of it anew.
		if left, total := b.unfinished(); total > 0 && left == 0 {
			if n+1 < kills/2 {
				r.fatalf("the jobs were done after %d kills: too few to show anything", n+1)
			}
			break
		}
	}
	if n, _ := b.unfinished(); n > 0 {
		b.start("run", file).exit(0)
	} else { // the last kill came after the last job: what it left, such as cgroups, the next scheduler removes
		b.serve().stop()
	}
	b.checkCrowd()
}

// unfinished counts the jobs that have not ended, of total.
func (b *bench) unfinished() (n, total int) {
	b.t.Helper()
	out, errs, code := b.command("ls", "--all", "--json")
	var list api.Jobs
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		b.fatalf("ls: exit code %d, %v\n%s", code, err, errs)
	}
	for _, e := range list.Jobs {
		if !e.State.Terminal() {
			n++
		}
	}
	return n, list.Total
}

// TestKillBoth kills scheduler and core in one moment, with daemons about that
// have left every group and, where cgroups are the net, even their environment.
func TestKillBoth(t *testing.T) {
	linuxOnly(t)
	for _, cgroups := range []bool{true, false} {
		t.Run(fmt.Sprintf("cgroups=%t", cgroups), func(t *testing.T) {
			t.Parallel()
			testKillBoth(t, cgroups)
		})
	}
}

func testKillBoth(t *testing.T, cgroups bool) {
	b := newBench(t)
	b.config["sandbox"] = obj{"level": "standard"} // at level strict the kernel has ended them
	switch {
	case !cgroups:
		b.env = append(b.env, "AGENTSCHED_NO_CGROUP=1")
	case !b.hasCgroups():
		t.Skip("no cgroup v2 that may be written: `scheduler doctor` says more")
	}
	_, workspace := b.direct("daemons")
	script := "test -e second && exit\ntouch second\n" +
		"sleep " + b.unique() + " &\n" +
		"setsid sleep " + b.unique() + " &\n" +
		"(setsid sh -c 'sleep " + b.unique() + " & exit' &)\n" +
		"nohup setsid sleep " + b.unique() + " > nohup.txt 2>&1 &\n"
	if cgroups {
		script += "env -i setsid sleep " + b.unique() + " &\nenv -i setsid sh -c 'sleep " + b.unique() + " & exit' &\n"
	}
	script += "echo all started\nsleep " + b.unique() + "\n"
	file := b.jobs(shell("daemons", workspace, script, nil), shell("other", nil, "true", nil))

	r := b.start("run", file)
	r.await("the daemons", onText("daemons", "all started"))
	b.awaitSleeps()
	// The core is stopped first, or on a busy machine it would see that the
	// scheduler is dead, and clean up, between the two kills.
	core := r.core()
	testrun.Freeze(t, core)
	for _, pid := range []int{r.cmd.Process.Pid, core} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-r.ended
	if left := b.alive(); len(left) == 0 {
		t.Fatal("nothing outlived the two: there is nothing to show")
	}

	again := b.start("run", file)
	again.await("a core that is up", func(u *api.Update) bool { return u.CorePID != 0 })
	// The core is up: nothing of the first run may live any more.
	if left := sleeping(b.stray); len(left) > 0 {
		again.fatalf("work was given out while these of the last run lived: %v", left)
	}
	again.exit(0)
	b.completedOnce(b.show("daemons"))
	if j := b.show("daemons"); j.Job.Counted != 1 || !j.Attempts[0].Lost {
		t.Errorf("the attempt that was cut short counts: %+v", j)
	}
	b.soundState()
}

// TestLeftoverSchedulerOfAnOrdinaryUser: a scheduler that a run has started, as one
// that works on this program does, is of that run. Where no cgroup tells, its
// environment does, which an ordinary user may read as well.
func TestLeftoverSchedulerOfAnOrdinaryUser(t *testing.T) {
	linuxOnly(t)
	t.Parallel()
	b := newBench(t)
	b.unheld()
	inner := b.jobsOf("tests", "inner.yaml", shell("inner", nil, "sleep "+b.unique(), nil))
	_, workspace := b.direct("outer")
	script := "test -e second && exit\ntouch second\n" +
		"setsid " + schedulerProgram() + " --state " + b.folder("inner") + " run " + inner + " > inner.txt 2>&1 &\n" +
		"sleep " + b.unique() + "\n"
	file := b.jobs(shell("outer", workspace, script, nil))
	b.hand(1234)
	b.env = append(b.env, "AGENTSCHED_NO_CGROUP=1")
	r := b.start("run", file)
	b.awaitSleeps()
	lock, err := os.ReadFile(b.folder("inner", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(lock), &pid)
	left, err := proc.Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	r.killAll()
	again := b.start("run", file)
	again.awaitCore(1)
	if now, err := proc.Find(pid); err == nil && now == left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Error("work was given out while a scheduler of the last run lived")
	}
	again.exit(0)
	b.completedOnce(b.show("outer"))
	b.soundState()
}

// hasCgroups asks the doctor whether runs get a cgroup of their own.
func (b *bench) hasCgroups() bool {
	out, _, _ := b.command("doctor")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "cgroup v2") {
			return strings.Contains(line, " ok ")
		}
	}
	b.t.Fatalf("the doctor says nothing about cgroups:\n%s", out)
	return false
}

// awaitSleeps waits until every sleep of the bench's scripts is there: a
// program started in the background gives no signal of having begun.
func (b *bench) awaitSleeps() {
	b.t.Helper()
	b.eventually("the scripts' sleeps run", func() bool { return len(sleeping(b.stray)) == len(b.stray) })
}

// TestHalfMadeWorktree: what a git of an earlier version that was killed in
// `worktree add` leaves makes every git fail that lists worktrees, until somebody
// removes it.
func TestHalfMadeWorktree(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := filepath.Join(b.repo, ".git", "worktrees", "torn")
	if err := os.MkdirAll(admin, 0o700); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(admin, "gitdir"), filepath.Join(b.state, "work", "some-job", "torn", ".git")+"\n")
	b.write(filepath.Join(admin, "HEAD"), b.git("rev-parse", "HEAD"))
	b.write(filepath.Join(admin, "commondir"), "")
	b.start("run", b.jobs(shell("job", b.workspace(), "echo new > new.txt", nil))).exit(0)
	b.completedOnce(b.show("job"))
	b.soundState()
}

// folder returns a path below the bench's folder.
func (b *bench) folder(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}
