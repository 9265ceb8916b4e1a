package e2e

// Every way in which scheduler, core and run can be killed or stand still, at each level of the sandbox, with cgroups and
// without, as root and as an ordinary user: what is left of the run, and until when.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// clinging starts what is hard to find and hard to end: processes that have lost their parents, left their session, cleared
// their environment, ignore signals or were stopped, and one that takes off the mark of its core where it may. "all started"
// is printed when every one was started.
func (b *bench) clinging() string {
	return "test -e second && exit\ntouch second\n" +
		"sleep " + b.unique() + " &\n" +
		"setsid sleep " + b.unique() + " &\n" +
		"(setsid sh -c 'sleep " + b.unique() + " & exit' &)\n" +
		"nohup setsid sleep " + b.unique() + " >/dev/null 2>&1 &\n" +
		"sh -c \"trap '' INT TERM HUP; sleep " + b.unique() + "; true\" &\n" +
		"env -i setsid sleep " + b.unique() + " &\n" +
		"env -i setsid sh -c 'trap \"\" INT TERM HUP; sleep " + b.unique() + " & exit' &\n" +
		"env -i setsid bash -c 'ulimit -x 5; exec sleep " + b.unique() + "' 2>/dev/null &\n" +
		"env -i setsid sleep " + b.unique() + " & p=$!\n" +
		"until grep -q sleep /proc/$p/comm; do sleep 0.01; done; kill -STOP $p\n" +
		"echo all started\nsleep " + b.unique() + "\n"
}

// The ways of the matrix. Each ends with a scheduler that has the job done.
var ways = []struct {
	name  string
	daily map[string]bool // cells that are tried when the tests do not soak: "LEVEL CGROUPS USER"
	do    func(c *killCell)
}{
	{"scheduler killed", map[string]bool{"strict none user": true}, func(c *killCell) {
		c.r.kill()
		c.b.noProcess() // the core ends the run and itself
		c.goOn()
	}},
	{"core killed", map[string]bool{"standard none user": true}, func(c *killCell) {
		c.r.killCore()
		c.replaced()
	}},
	{"both killed", map[string]bool{"strict none user": true, "standard none user": true, "standard read-only root": true}, func(c *killCell) {
		c.r.killAll()
		if c.level == "strict" {
			c.b.noProcess() // nobody sweeps: it is the kernel's doing
		} else if len(sleeping(c.b.stray)) == 0 {
			c.b.fatalf("nothing outlived the two: there is nothing to show")
		}
		c.goOn()
	}},
	{"all killed", map[string]bool{"strict none root": true}, func(c *killCell) {
		core := c.r.stopBoth() // or they would note how the run ends
		all := append(c.b.aliveProcs(), proc.Proc{Pid: core}, proc.Proc{Pid: c.r.cmd.Process.Pid})
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, p := range all {
				if err := syscall.Kill(p.Pid, sig); err != nil && err != syscall.ESRCH {
					c.b.t.Fatal(err)
				}
			}
		}
		<-c.r.ended
		c.b.noProcess()
		c.goOn()
	}},
	{"scheduler frozen", nil, func(c *killCell) {
		c.r.signal(syscall.SIGSTOP)
		c.b.eventually("nothing of the run is left while the scheduler is frozen", func() bool { return len(sleeping(c.b.stray)) == 0 })
		if state := stateOf(c.r.cmd.Process.Pid); state != "T" {
			c.b.fatalf("the scheduler is in state %q, want T: it must be frozen still", state)
		}
		c.r.signal(syscall.SIGCONT)
		c.r.exit(0)
	}},
	{"core frozen", nil, func(c *killCell) {
		if err := syscall.Kill(c.r.core(), syscall.SIGSTOP); err != nil {
			c.b.t.Fatal(err)
		}
		c.replaced()
	}},
	{"both frozen", nil, func(c *killCell) {
		core := c.r.core()
		c.r.signal(syscall.SIGSTOP)
		if err := syscall.Kill(core, syscall.SIGSTOP); err != nil {
			c.b.t.Fatal(err)
		}
		c.b.eventually("nothing of the run is left while both are frozen", func() bool { return len(sleeping(c.b.stray)) == 0 })
		for _, pid := range []int{core, c.r.cmd.Process.Pid} {
			if state := stateOf(pid); state != "T" {
				c.b.fatalf("process %d is in state %q, want T: it must be frozen still", pid, state)
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				c.b.t.Fatal(err)
			}
		}
		c.r.exit(0)
		if j := c.b.show("clinging"); j.Job.Counted != 1 || !j.Attempts[0].Lost || !strings.Contains(j.Attempts[0].Outcome.Message, "its fuse has ended the run") {
			c.b.fatalf("the attempt that the fuse has ended: %s", asJSON(c.b.t, j))
		}
	}},
}

// killCell is a cell of the matrix while its run works.
type killCell struct {
	b     *bench
	r     *run
	level string
	file  string // of the job
}

// goOn starts the next scheduler. When its core is up, before it is given work, nothing of the run may live.
func (c *killCell) goOn() {
	c.b.t.Helper()
	c.r = c.b.start("run", c.file)
	c.r.awaitCore(1)
	if left := c.b.aliveBut(c.r); len(left) > 0 {
		c.r.fatalf("work was given out while these of the last run lived: %v", left)
	}
	c.r.exit(0)
	if j := c.b.show("clinging"); j.Job.Counted != 1 || !j.Attempts[0].Lost {
		c.b.fatalf("the attempt that was cut short counts: %s", asJSON(c.b.t, j))
	}
}

// replaced waits for the next core. When it is up, nothing of the run may live.
func (c *killCell) replaced() {
	c.b.t.Helper()
	c.r.awaitCore(2)
	if left := sleeping(c.b.stray); len(left) > 0 {
		c.r.fatalf("alive when the next core is up: %v", left)
	}
	c.r.exit(0)
}

// aliveBut lists what lives of the state directory but a scheduler, its core and what that has started since.
func (b *bench) aliveBut(r *run) (left []proc.Proc) {
	alive := b.aliveProcs() // before its own are listed, which may become more meanwhile
	below, err := proc.Below(r.cmd.Process.Pid)
	if err != nil {
		b.t.Fatal(err)
	}
	own := map[int]bool{r.cmd.Process.Pid: true}
	for _, p := range below {
		own[p.Pid] = true
	}
	for _, p := range alive {
		if _, err := proc.Find(p.Pid); err == nil && !own[p.Pid] {
			left = append(left, p)
		}
	}
	return left
}

func TestKillMatrix(t *testing.T) {
	users := []string{"user"}
	if os.Geteuid() == 0 {
		users = append(users, "root")
	}
	for _, way := range ways {
		for _, level := range []string{"strict", "standard"} {
			for _, cgroups := range []string{"own", "none", "read-only"} {
				for _, user := range users {
					cell := strings.Join([]string{level, cgroups, user}, " ")
					if !testrun.Soaking() && !way.daily[cell] || cgroups == "read-only" && user != "root" {
						continue
					}
					t.Run(way.name+"/"+cell, func(t *testing.T) {
						t.Parallel()
						c := newKillCell(t, level, cgroups, user)
						way.do(c)
						j := c.b.show("clinging")
						c.b.completedOnce(j)
						if got := c.b.last(j).Sandbox; got == nil || string(got.Level) != level {
							c.b.fatalf("the run was not held at level %s: %s", level, asJSON(t, j))
						}
						c.b.soundState()
					})
				}
			}
		}
	}
}

// newKillCell starts the run, and returns when all of it is there.
func newKillCell(t *testing.T, level, cgroups, user string) *killCell {
	b := newBench(t)
	b.config["sandbox"] = obj{"level": level}
	b.shortValidity()
	switch cgroups {
	case "none":
		b.env = append(b.env, "AGENTSCHED_NO_CGROUP=1")
	case "read-only":
		// As in a container of Docker's: they are there, and nobody may make one.
		b.within = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
			`mount -o bind,ro /sys/fs/cgroup /sys/fs/cgroup && awk '$2 ~ "^/sys/fs/cgroup/" {print $2}' /proc/mounts | while read -r m; do mount -o remount,bind,ro "$m" 2>/dev/null || umount -l "$m"; done; exec "$@"`, "sh"}
	}
	_, workspace := b.direct("clinging")
	file := b.jobs(shell("clinging", workspace, b.clinging(), nil), shell("other", nil, "true", nil))
	if user == "user" {
		b.hand(1234)
	}
	if cgroups == "own" && !b.hasCgroups() {
		t.Skip("no cgroup v2 that may be written: `scheduler doctor` says more")
	}
	c := &killCell{b: b, level: level, file: file, r: b.start("run", file)}
	c.r.await("the run", onText("clinging", "all started"))
	b.awaitSleeps()
	return c
}

// TestKillBeforeTheProgram kills scheduler and core while bubblewrap has forked what is to become the run's first process and
// has not let it go on. That child has not asked for a signal at bubblewrap's end yet, so it stays, having started nothing.
// The next scheduler ends it.
func TestKillBeforeTheProgram(t *testing.T) {
	for _, user := range []string{"root", "user"} {
		t.Run(user, func(t *testing.T) {
			if user == "root" && os.Geteuid() != 0 {
				t.Skip("this is no root")
			}
			t.Parallel()
			b := newBench(t)
			b.config["sandbox"] = obj{"level": "strict"}
			bin := b.folder("bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			// With this option bubblewrap waits at just that moment for a byte that nobody sends. It excludes --disable-userns,
			// which the run's arguments have.
			b.write(filepath.Join(bin, "bwrap"), `#!/bin/bash
PATH=${PATH#*:}
if test -e `+b.folder("armed")+` && mkdir `+b.folder("met")+` 2>/dev/null; then
	exec {never}<> <(:) {info}>/dev/null
	exec bwrap --userns-block-fd $never --info-fd $info --unshare-user --unshare-pid --die-with-parent --ro-bind / / true
fi
exec bwrap "$@"
`)
			if err := os.Chmod(filepath.Join(bin, "bwrap"), 0o755); err != nil {
				t.Fatal(err)
			}
			for i, v := range b.env {
				if path, ok := strings.CutPrefix(v, "PATH="); ok {
					b.env[i] = "PATH=" + bin + ":" + path
				}
			}
			file, early := b.jobs(b.keeper()), b.jobsOf("tests", "early.yaml", shell("early", nil, "echo done", nil))
			if user == "user" {
				b.hand(1234)
			}
			r := b.start("run", file)
			r.await("the keeper", func(u *api.Update) bool { return u.Name == "keeper" && u.State == job.Running }) // the host's bubblewrap has been tried
			b.write(b.folder("armed"), "")
			b.submit(early)
			// Bubblewrap's child is bubblewrap, too. The script has its name as well, and forks.
			waits := func(pid int) bool { return strings.HasPrefix(argsOf(pid), "bwrap\x00--userns-block-fd\x00") }
			var child int
			b.eventually("bubblewrap has forked", func() bool {
				below, err := proc.Below(r.cmd.Process.Pid)
				if err != nil {
					b.fatalf("look for processes: %v", err)
				}
				for _, p := range below {
					if parent, err := proc.Parent(p.Pid); err == nil && waits(p.Pid) && waits(parent) {
						child = p.Pid
					}
				}
				return child != 0
			})
			b.release()
			r.killAll()
			// Another that was just being started has left such a child, too.
			var left []proc.Proc
			b.eventually("bubblewrap is killed by the kernel, and leaves children that have started nothing", func() bool {
				all, err := proc.Alive(b.instance())
				if err != nil {
					b.fatalf("look for processes: %v", err)
				}
				left = all
				return slices.ContainsFunc(all, func(p proc.Proc) bool { return p.Pid == child }) && !slices.ContainsFunc(all, func(p proc.Proc) bool {
					parent, err := proc.Parent(p.Pid)
					return err != nil || p.Comm != "bwrap" || strings.HasPrefix(argsOf(parent), "bwrap\x00")
				})
			})
			r = b.start("run", file)
			r.awaitCore(1)
			for _, before := range left {
				if now, err := proc.Find(before.Pid); err == nil && now == before {
					r.fatalf("work was given out while bubblewrap's child %d lived", before.Pid)
				}
			}
			r.exit(0)
			b.completedOnce(b.show("early"))
			b.soundState()
		})
	}
}

// argsOf returns a process's command line, each argument followed by a NUL byte, or "".
func argsOf(pid int) string {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(args)
}
