package e2e

// The plan's second test: a run that is not wanted any more is stopped with
// everything that it started.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// hydra is a script that is hard to stop: it ignores signals and starts what
// leaves its group, its session and its parent, and ignores them too. "ready"
// is printed when all of that lives.
func (b *bench) hydra() string {
	deaf := `trap "" INT TERM HUP; `
	return "trap '' INT TERM HUP\n" +
		"sleep " + b.unique() + " &\n" +
		"setsid sleep " + b.unique() + " &\n" +
		"sh -c '" + deaf + "sleep " + b.unique() + "; true' &\n" +
		"setsid sh -c '" + deaf + "sleep " + b.unique() + " & sleep " + b.unique() + "; true' &\n" +
		"(setsid sh -c 'sleep " + b.unique() + " & exit' &)\n" +
		"nohup setsid sleep " + b.unique() + " > /dev/null 2>&1 &\n" +
		"echo ready\nwhile :; do sleep 0.05; done\n"
}

func TestCancelStopsTheTree(t *testing.T) {
	for _, cgroups := range []bool{true, false} {
		t.Run(fmt.Sprintf("cgroups=%t", cgroups), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			switch {
			case !cgroups:
				b.env = append(b.env, "AGENTSCHED_NO_CGROUP=1")
			case !b.hasCgroups():
				t.Skip("no cgroup v2 that may be written: `scheduler doctor` says more")
			}
			r := b.start("run", b.jobs(shell("hydra", nil, b.hydra(), nil)))
			r.await("the job", onText("hydra", "ready"))
			b.awaitSleeps()
			if out, errs, code := b.command("cancel", "hydra"); code != 0 {
				b.fatalf("cancel: exit code %d\n%s%s", code, out, errs)
			}
			r.end("hydra", job.RunCancelled)
			if left := sleeping(b.stray); len(left) > 0 { // now, not soon
				r.fatalf("alive after the job's end: %v", left)
			}
			r.exit(1)
			b.soundState()
			// The bench's stages: 500 ms after SIGINT, 500 ms after SIGTERM.
			if j := b.show("hydra"); j.Job.ExitKind != job.ExitCancelled || len(j.Attempts) != 1 || b.last(j).StopMillis < 1000 {
				t.Errorf("%s", asJSON(t, j))
			}
		})
	}
}

// TestLatestWins: the older job is cancelled, and its last process is gone
// before the newer one's worker starts. What a tree holds a lock with shows
// how long it lives: every process of it has inherited that.
func TestLatestWins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	latest := obj{"key": "deploy", "on_duplicate": "latest_wins"}
	lock := func(name string) string {
		return fmt.Sprintf("exec 9> %s; flock -n 9 || echo %s >> %s\necho %s >> %s\n", b.folder("lock"), name, b.folder("overlaps"), name, b.folder("order"))
	}
	r := b.start("run", b.jobs(b.keeper(), with(shell("older", nil, lock("older")+b.hydra(), nil), latest)))
	r.await("the older job", onText("older", "ready"))
	b.awaitSleeps()
	// Two at once: of these the first is never to run at all.
	b.submit(b.jobsOf("tests", "newer.yaml",
		with(shell("middle", nil, lock("middle"), nil), latest),
		with(shell("newest", nil, lock("newest")+"echo deployed", nil), latest)))
	// Another tenant's key is another key.
	b.submit(b.jobsOf("others", "others.yaml", with(shell("other", nil, "true", nil), latest)))
	r.end("newest", job.RunCompleted)
	r.end("older", job.RunCancelled)
	r.end("middle", job.RunCancelled)
	r.end("other", job.RunCompleted)
	if left := sleeping(b.stray); len(left) > 0 {
		r.fatalf("of the older job there live: %v", left)
	}
	b.release()
	r.exit(1) // jobs were cancelled
	b.soundState()

	if order := b.lines("order"); !slices.Equal(order, []string{"older", "newest"}) {
		t.Errorf("what ran: %v", order)
	}
	if both := b.lines("overlaps"); len(both) > 0 {
		t.Errorf("began while a process of another held the lock: %v", both)
	}
	newest := b.show("newest")
	b.completedOnce(newest)
	for name, by := range map[string]job.ID{"older": "", "middle": newest.Job.ID} {
		j := b.show(name)
		if j.Job.SupersededBy == "" || by != "" && j.Job.SupersededBy != by {
			t.Errorf("%s does not say which job took its place: %s", name, asJSON(t, j.Job))
		}
	}
	if j := b.show("older"); len(j.Attempts) != 1 || b.last(j).StopMillis < 1000 || j.Job.ExitKind != job.ExitCancelled {
		t.Errorf("the older job: %s", asJSON(t, j))
	}
	if j := b.show("middle"); len(j.Attempts) != 0 || j.Job.State != job.Cancelled || !strings.Contains(j.Job.Waiting, "newest") {
		t.Errorf("the job that was superseded at once: %s", asJSON(t, j))
	}
}

// TestLatestWinsAfterACrash: the scheduler dies between the newer job's
// submission and the older one's end. The next one knows which of them counts.
func TestLatestWinsAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["stop"] = obj{"interrupt": "5m", "terminate": "5m", "kill": "10s"} // the end of the older one takes for ever
	latest := obj{"key": "deploy", "on_duplicate": "latest_wins"}
	order := "echo $AGENTSCHED_RUN >> " + b.folder("order") + "\n"
	file := b.jobs(b.keeper(), with(shell("older", nil, order+b.hydra(), nil), latest))
	r := b.start("run", file)
	r.await("the older job", onText("older", "ready"))
	b.awaitSleeps()
	b.submit(b.jobsOf("tests", "newer.yaml", with(shell("newer", nil, order, nil), latest)))
	r.killAll()

	r = b.start("run", file)
	r.end("newer", job.RunCompleted)
	if left := sleeping(b.stray); len(left) > 0 {
		r.fatalf("of the older job there live: %v", left)
	}
	b.release()
	r.exit(1)
	b.soundState()
	older, newer := b.show("older"), b.show("newer")
	b.completedOnce(newer)
	if older.Job.SupersededBy != newer.Job.ID || len(older.Attempts) != 1 || older.Job.Status.State != job.RunCancelled {
		t.Errorf("the older job: %s", asJSON(t, older))
	}
	if n := len(b.lines("order")); n != 2 {
		t.Errorf("%d runs, want one of each", n)
	}
}
