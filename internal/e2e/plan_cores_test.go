package e2e

// Several cores: limits hold over all of them, and one that dies again and
// again is left alone.

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
)

// TestLimitsHoldOverCores has the workers count how many they are, of their
// kind, of their tenant and in all, while two cores give them their permits.
func TestLimitsHoldOverCores(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.unheld() // its runs tell process ids
	b.config["concurrency"] = obj{"max": 5, "per_worker": obj{"shell": 2}, "per_tenant": obj{"small": 1}}
	b.config["workers"].(obj)["other"] = obj{"adapter": "shell"}
	count := func(groups ...string) string {
		var enter, look, leave string
		for _, g := range append(groups, "all") {
			dir := b.folder("here", g)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			enter += fmt.Sprintf("mkdir %s/$$\n", dir)
			look += fmt.Sprintf("ls %[1]s | wc -l >> %[1]s.counts; ", dir)
			leave += fmt.Sprintf("rmdir %s/$$\n", dir)
		}
		return fmt.Sprintf("%sfor i in 1 2 3 4 5; do %ssleep 0.03; done\n%secho $PPID >> %s\n", enter, look, leave, b.folder("cores"))
	}
	var jobs, small []obj
	for i := range 8 {
		jobs = append(jobs, shell(fmt.Sprintf("shell-%d", i), nil, count("shell"), nil),
			with(shell(fmt.Sprintf("other-%d", i), nil, count("other"), nil), obj{"worker": "other"}))
		if i < 4 {
			small = append(small, with(shell(fmt.Sprintf("small-%d", i), nil, count("other", "small"), nil), obj{"worker": "other"}))
		}
	}
	r := b.start("run", "--cores", "2", b.jobs(tomorrow()))
	r.awaitCore(2)
	b.submit(b.jobsOf("small", "small.yaml", small...))
	b.submit(b.jobsOf("tests", "many.yaml", jobs...))
	for _, j := range append(jobs, small...) {
		r.end(job.Name(j["id"].(string)), job.RunCompleted)
	}
	r.endTomorrow()
	b.soundState()
	for group, want := range map[string]int{"shell": 2, "small": 1, "all": 5} {
		if most := highest(t, b.folder("here", group+".counts")); most > want || group == "shell" && most < want {
			t.Errorf("%d of %s were there at once, want %d and no more", most, group, want)
		}
	}
	cores := map[string]bool{}
	for _, pid := range b.lines("cores") {
		cores[pid] = true
	}
	if len(cores) != 2 {
		t.Errorf("the jobs ran on %d cores", len(cores))
	}
}

// TestCoreCrashLoop: one core of two is killed until it is isolated; the other
// goes on, and an operator brings the first back.
func TestCoreCrashLoop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 4}
	b.config["cores"] = obj{"count": 2, "restarts": obj{"count": 2, "within": "10m", "isolate": "1h"}}
	r := b.start("run", b.jobs(tomorrow(), b.placed("long", nil)))
	r.awaitCore(2)
	long := r.place("long")
	victim := func() *scheduler.CoreStatus { // the one that does not run the job
		st := b.status()
		for i := range st.Cores {
			// By its number: the pid changes with each restart.
			if c := &st.Cores[i]; c.PID != long.core {
				return c
			}
		}
		return nil
	}
	index, before := victim().Index, 0
	for range 3 {
		var c *scheduler.CoreStatus
		b.eventually("another core is up", func() bool { c = victim(); return c.State == supervisor.Up && c.PID != before })
		before = c.PID
		if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	scope := fmt.Sprintf("core:%d", index)
	r.await("the word that it is isolated", told(api.UpdateEscalation, scope, "crash loop"))
	b.eventually("it is isolated", func() bool { return victim().State == supervisor.Isolated })
	if c := victim(); c.State != supervisor.Isolated || c.Index != index || c.IsolatedUntil.IsZero() || c.Cause == "" {
		r.fatalf("the core in a crash loop: %s", asJSON(t, c))
	}
	b.submit(b.jobsOf("tests", "meanwhile.yaml", b.placed("a", nil), b.placed("b", nil)))
	if a, b := r.place("a"), r.place("b"); a.core != long.core || b.core != long.core {
		r.fatalf("ran on cores %d and %d, want the healthy one, %d", a.core, b.core, long.core)
	}
	if out, errs, code := b.command("resume", scope); code != 0 {
		r.fatalf("resume: exit code %d\n%s%s", code, out, errs)
	}
	b.eventually("the core is up again", func() bool { return victim().State == supervisor.Up })
	b.submit(b.jobsOf("tests", "after.yaml", b.placed("after", nil)))
	if after := r.place("after"); after.core == long.core || after.core != victim().PID {
		r.fatalf("the next job ran on core %d, want the one with nothing to do, %d", after.core, victim().PID)
	}
	b.write(b.folder("go"), "")
	for _, name := range []job.Name{"long", "a", "b", "after"} {
		r.end(name, job.RunCompleted)
	}
	r.endTomorrow()
	b.soundState()
	if j := b.show("long"); len(j.Attempts) != 1 || b.placeOf("long") != long {
		t.Errorf("the job on the other core: %s", asJSON(t, j))
	}
	if out, _, code := b.command("crashes"); code != 0 || strings.Count(out, "killed") != 3 {
		t.Errorf("crashes: exit code %d, want three\n%s", code, out)
	}
}
