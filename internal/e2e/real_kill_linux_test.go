package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// nap returns a duration for sleep(1) that nobody else on this machine uses.
func (b *bench) nap() string {
	nap := fmt.Sprintf("300.%09d", rand.IntN(1e9))
	b.stray = append(b.stray, nap)
	return nap
}

// asleep is a run in which an agent's command sleeps, beside a process that it
// has detached into a session of its own.
type asleep struct {
	*run
	naps    []string
	session string // the agent's own
	file    string
}

// sleepingAgent starts a run and returns when both processes are asleep and
// the agent's session is known.
func sleepingAgent(b *bench, kind job.WorkerKind, limits obj) asleep {
	b.t.Helper()
	a := startAgent(b, kind, limits)
	u := a.await("the agent's session", func(u *api.Update) bool { return u.Event != nil && u.Event.Kind == job.EventSession })
	a.session = u.Event.Session
	if !a.asleep() {
		a.fatalf("the agent's commands do not run: %v of %v", sleeping(a.naps), a.naps)
	}
	return a
}

// asleep blocks until both sleeps are alive; false if the run ended before. What
// an agent starts tells us nothing, so it looks at intervals.
func (a asleep) asleep() bool {
	over := false
	testrun.Moving(a.b.t, func() (seen int, done bool) {
		select {
		case <-a.ended:
			over = true
		default:
		}
		seen = a.seen(func(*api.Update) bool { return true })
		return seen, over || len(sleeping(a.naps)) >= len(a.naps)
	})
	return !over && len(sleeping(a.naps)) >= len(a.naps)
}

func startAgent(b *bench, kind job.WorkerKind, limits obj) asleep {
	b.t.Helper()
	b.use(kind)
	attached, detached := b.nap(), b.nap()
	b.play("sleep", scriptmodel.Play(
		scriptmodel.Edit("step-1.txt", "before"),
		scriptmodel.Run(fmt.Sprintf("setsid sleep %s >/dev/null 2>&1 & sleep %s", detached, attached)),
		scriptmodel.Say("Never reached."),
	).Resuming(scriptmodel.Edit("step-2.txt", "after"), scriptmodel.Say("Resumed and done.")))
	a := asleep{file: b.jobs(b.task("sleep", kind, "sleep", obj{"limits": limits})), naps: []string{attached, detached}}
	a.run = b.start("run", a.file)
	return a
}

// endsEmpty waits until the job is told to have ended: then, and not later,
// its processes are gone.
func (a asleep) endsEmpty(state job.RunState) {
	a.b.t.Helper()
	a.await("the job's end", func(u *api.Update) bool {
		return u.Kind == api.UpdateJob && u.Entry == job.Completed && u.State == state
	})
	if left := sleeping(a.b.stray); len(left) > 0 {
		a.fatalf("alive after the job's end: %v", left)
	}
}

// resumed checks that the job completed in a second attempt of one session.
func (b *bench) resumed(a asleep) api.JobDetail {
	b.t.Helper()
	j := b.show("sleep")
	o := b.last(j)
	if len(j.Attempts) != 2 || !o.Succeeded() || o.Answer != "Resumed and done." {
		b.fatalf("want a second attempt that completes: %s", asJSON(b.t, j))
	}
	if j.Attempts[0].Session != a.session || j.Attempts[1].Session != a.session {
		b.fatalf("sessions %q and %q, want %q in both", j.Attempts[0].Session, j.Attempts[1].Session, a.session)
	}
	told := false
	for _, r := range b.model.Requests() {
		told = told || r.Resumed
	}
	if !told {
		b.fatalf("the model was never asked within the resumed conversation")
	}
	clone := b.applied(o)
	b.content(clone+"/step-1.txt", "before")
	b.content(clone+"/step-2.txt", "after")
	return j
}

// kills are the ways in which a sleeping agent may come to its end.
func kills() map[string]func(b *bench, kind job.WorkerKind) {
	return map[string]func(b *bench, kind job.WorkerKind){
		"cancel": func(b *bench, kind job.WorkerKind) {
			a := sleepingAgent(b, kind, obj{"max_attempts": 3})
			if out, errs, code := b.command("cancel", "sleep"); code != 0 {
				b.fatalf("cancel: exit code %d\n%s%s", code, out, errs)
			}
			a.endsEmpty(job.RunCancelled)
			a.exit(1)
			b.noProcess()
			j := b.show("sleep")
			if o := b.last(j); j.Job.ExitKind != job.ExitCancelled || o.State != job.RunCancelled || o.StopMillis == 0 {
				b.fatalf("want a cancelled run and how long that took: %s", asJSON(b.t, j))
			}
			b.content(b.applied(b.last(j))+"/step-1.txt", "before") // what was done is kept
		},
		"timeout": func(b *bench, kind job.WorkerKind) {
			var a asleep
			// Until the CLI is fast enough on this machine to fall asleep before its time is up.
			for limit := 10 * time.Second; ; limit *= 2 {
				if a = startAgent(b, kind, obj{"timeout": limit.String(), "max_attempts": 1}); a.asleep() {
					break
				}
				a.exit(1)
				if limit > 5*time.Minute {
					a.fatalf("the agent's commands do not run within %s", limit)
				}
			}
			a.endsEmpty(job.RunFailed)
			a.exit(1)
			b.noProcess()
			j := b.show("sleep")
			if o := b.last(j); o.Class != job.Timeout || j.Job.DeadLetter == "" {
				b.fatalf("want %s: %s", job.Timeout, asJSON(b.t, j))
			}
		},
		"core killed": func(b *bench, kind job.WorkerKind) {
			a := sleepingAgent(b, kind, obj{"max_attempts": 3})
			a.killCore()
			a.awaitCore(2)
			if left := sleeping(b.stray); len(left) > 0 {
				b.fatalf("alive when the next core is up: %v", left)
			}
			a.exit(0)
			b.noProcess()
			j := b.resumed(a)
			if first := j.Attempts[0]; first.Lost || first.Outcome.Class != job.Crash {
				b.fatalf("want a first attempt that counts and ends with %s: %s", job.Crash, asJSON(b.t, first))
			}
		},
		"worker killed": func(b *bench, kind job.WorkerKind) {
			a := sleepingAgent(b, kind, obj{"max_attempts": 3})
			if err := syscall.Kill(b.worker(a.core(), "sleep"), syscall.SIGKILL); err != nil {
				b.fatalf("kill the worker: %v", err)
			}
			a.exit(0)
			b.noProcess()
			first := b.resumed(a).Attempts[0]
			if o := first.Outcome; first.Lost || o.Class != job.Crash || o.Signal != "killed" {
				b.fatalf("want a first attempt that counts and ends with %s: %s", job.Crash, asJSON(b.t, first))
			}
		},
		"scheduler killed": func(b *bench, kind job.WorkerKind) {
			a := sleepingAgent(b, kind, obj{"max_attempts": 3})
			a.kill()
			b.noProcess() // the core ended it all, and itself
		},
		"interrupted": func(b *bench, kind job.WorkerKind) {
			a := sleepingAgent(b, kind, obj{"max_attempts": 3})
			a.signal(syscall.SIGINT)
			a.exit(130)
			b.noProcess()
			b.start("run", a.file).exit(0)
			b.noProcess()
			j := b.resumed(a)
			if first := j.Attempts[0]; !first.Lost || j.Job.Counted != 1 {
				b.fatalf("an attempt that the user's own interrupt cut short must not count: %s", asJSON(b.t, j))
			}
		},
		"both killed": func(b *bench, kind job.WorkerKind) {
			a := sleepingAgent(b, kind, obj{"max_attempts": 3})
			a.killAll()
			again := b.start("run", a.file)
			again.awaitCore(1)
			if left := sleeping(b.stray); len(left) > 0 {
				b.fatalf("alive when the next core is up: %v", left)
			}
			again.exit(0)
			b.noProcess()
			j := b.resumed(a)
			if first := j.Attempts[0]; !first.Lost || j.Job.Counted != 1 {
				b.fatalf("an attempt that the scheduler's own end cut short must not count: %s", asJSON(b.t, j))
			}
		},
	}
}

// daily is the CLI that each way is tried with when the tests do not soak: each
// CLI in two ways or more.
var daily = map[string]string{
	"cancel": "opencode", "timeout": "claude", "core killed": "opencode", "worker killed": "codex",
	"scheduler killed": "claude", "interrupted": "claude", "both killed": "codex",
}

func TestRealKill(t *testing.T) {
	for name, kill := range kills() {
		t.Run(name, func(t *testing.T) {
			eachCLI(t, daily[name], func(t *testing.T, kind job.WorkerKind) { kill(newBench(t), kind) })
		})
	}
}

// TestRealKillWithoutCgroup repeats what the other nets must catch as well: the
// walk over descendants, and the sweep for the tag.
func TestRealKillWithoutCgroup(t *testing.T) {
	for _, c := range []struct {
		name string
		kind job.WorkerKind
	}{{"cancel", "opencode"}, {"core killed", "codex"}, {"scheduler killed", "claude"}, {"both killed", "claude"}} {
		t.Run(c.name+" "+string(c.kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.env = append(b.env, "AGENTSCHED_NO_CGROUP=1")
			kills()[c.name](b, c.kind)
		})
	}
}

// awaitAsked blocks until the model was asked and its server has chosen what to
// answer, of which it gives no signal.
func (b *bench) awaitAsked(model string) {
	b.t.Helper()
	if !testrun.Until(b.t, func() bool { return len(b.asked(model)) > 0 }) {
		b.fatalf("model %s was not asked", model)
	}
}

// worker returns the process id of the worker of a job's first attempt: the
// one of its processes that the core has started.
func (b *bench) worker(core int, name string) int {
	b.t.Helper()
	procs, err := proc.Alive(job.RunTag(job.InstanceID(b.instance()), b.show(name).Job.ID, 1))
	for _, p := range procs {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid)) // gone meanwhile: not it
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", core)) {
			return p.Pid
		}
	}
	b.fatalf("no child of the core among %v (%v)", procs, err)
	return 0
}

// TestRealKillBeforeTheFirstAnswer: a session of which nothing was kept cannot
// be resumed; the job completes all the same.
func TestRealKillBeforeTheFirstAnswer(t *testing.T) {
	eachCLI(t, "codex", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("early", scriptmodel.Always(scriptmodel.Hang()))
		r := b.start("run", b.jobs(b.task("early", kind, "early", nil)))
		b.awaitAsked("early")
		b.play("early", scriptmodel.Play(scriptmodel.Edit("a.txt", "a"), scriptmodel.Say("Done.")))
		r.killCore()
		r.exit(0)
		j := b.show("early")
		if first := j.Attempts[0].Outcome; first.Class != job.Crash || len(j.Attempts) > 3 {
			r.fatalf("want a first attempt that ends with %s: %s", job.Crash, asJSON(t, j.Attempts))
		}
		b.content(b.applied(b.last(j))+"/a.txt", "a")
		b.noProcess()
	})
}

// TestRealDaemon: what a worker leaves behind is gone before its result counts.
func TestRealDaemon(t *testing.T) {
	eachCLI(t, "claude", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		nap := b.nap()
		b.play("daemon", scriptmodel.Play(scriptmodel.Run("setsid sleep "+nap+" >/dev/null 2>&1 & echo started"), scriptmodel.Say("It runs.")))
		r := b.start("run", b.jobs(b.task("daemon", kind, "daemon", nil)))
		asleep{run: r}.endsEmpty(job.RunCompleted)
		r.exit(0)
		if left := b.last(b.show("daemon")).LeftBehind; kind != "codex" && !slices.ContainsFunc(left, func(p string) bool { return strings.Contains(p, "sleep") }) {
			r.fatalf("left behind: %q; want the sleep (Codex's own sandbox ends it by itself)", left)
		}
		b.noProcess()
	})
}
