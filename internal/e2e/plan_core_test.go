package e2e

// The plan's fifth test, and what else happens to cores while jobs run.

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// placed is a job that says which core runs it, and as which process; then it
// waits for the file "go", on its first run only.
func (b *bench) placed(name string, limits obj) obj {
	b.unheld() // of namespaces of its own it would tell other numbers
	return shell(name, nil, fmt.Sprintf(`
echo "on $PPID as $$"
test -e %[1]s || { touch %[1]s; echo ready; %[2]s; }
echo "on $PPID as $$"`, b.folder(name), until(b.folder("go"))), limits)
}

// place is where a run of the job says that it is.
type place struct{ core, worker int }

// place waits until the job has begun to wait.
func (r *run) place(name job.Name) place {
	r.b.t.Helper()
	var p place
	r.await("where "+string(name)+" is", func(u *api.Update) bool {
		if onText(name, "on ")(u) {
			fmt.Sscanf(u.Event.Text, "on %d as %d", &p.core, &p.worker)
		}
		return onText(name, "ready")(u)
	})
	return p
}

// placeOf returns what the answer of a job says of that.
func (b *bench) placeOf(name string) place {
	b.t.Helper()
	answer := strings.TrimSpace(b.last(b.show(name)).Answer)
	var p place
	if _, err := fmt.Sscanf(answer[strings.LastIndex(answer, "\n")+1:], "on %d as %d", &p.core, &p.worker); err != nil {
		b.fatalf("%s answered %q: %v", name, answer, err)
	}
	return p
}

func TestCoreKilledWithJobsInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 4}
	r := b.start("run", b.jobs(b.placed("a", nil), b.placed("b", obj{"max_attempts": 2}), b.placed("c", nil), b.placed("last-try", obj{"max_attempts": 1}), shell("later", nil, "true", nil)))
	for _, name := range []job.Name{"a", "b", "c", "last-try"} {
		r.place(name)
	}
	r.killCore()
	r.end("last-try", job.RunFailed)
	r.exit(1)
	b.soundState()
	for _, name := range []string{"a", "b", "c"} {
		j := b.show(name)
		b.completedOnce(j)
		first := j.Attempts[0]
		if len(j.Attempts) != 2 || j.Job.Counted != 2 || first.Lost || first.State != job.RunFailed || first.Outcome.Class != job.Crash || !strings.Contains(first.Outcome.Message, "core died") {
			t.Errorf("%s: %s", name, asJSON(t, j))
		}
	}
	if j := b.show("last-try"); j.Job.ExitKind != job.ExitFailed || len(j.Attempts) != 1 || j.Job.Counted != 1 ||
		!strings.Contains(j.Job.DeadLetter, "core died") || !strings.Contains(j.Job.DeadLetter, "its only attempt is used up") {
		t.Errorf("a job without an attempt left: %s", asJSON(t, j))
	}
	if j := b.show("later"); len(j.Attempts) != 1 {
		t.Errorf("a job that had not begun: %s", asJSON(t, j))
	}
	b.completedOnce(b.show("later"))
	if _, total := b.unfinished(); total != 5 {
		t.Errorf("%d jobs, want 5", total)
	}
	if out, errs, code := b.command("crashes"); code != 0 || !strings.Contains(out, "killed") {
		t.Errorf("crashes: exit code %d, want one that tells of the signal\n%s%s", code, out, errs)
	}
}

// TestOneCoreOfTwoKilled: what the other core runs does not notice.
func TestOneCoreOfTwoKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.unheld() // see placed
	b.config["concurrency"] = obj{"max": 4}
	names := []job.Name{"a", "b", "c", "d"}
	r := b.start("run", "--cores", "2", b.jobs(tomorrow()))
	r.awaitCore(2)
	b.submit(b.jobsOf("tests", "placed.yaml", b.placed("a", nil), b.placed("b", nil), b.placed("c", nil), b.placed("d", nil)))
	places, runs := map[job.Name]place{}, map[int]int{}
	for _, name := range names {
		p := r.place(name)
		places[name] = p
		runs[p.core]++
	}
	victim := places["a"].core
	if len(runs) != 2 || runs[victim] != 2 {
		r.fatalf("the jobs are not spread over two cores: %v", places)
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if places[name].core == victim {
			r.end(name, job.RunCompleted)
		}
	}
	b.write(b.folder("go"), "")
	for _, name := range names {
		r.end(name, job.RunCompleted)
	}
	r.endTomorrow()
	b.soundState()
	for _, name := range names {
		j, before, after := b.show(string(name)), places[name], b.placeOf(string(name))
		b.completedOnce(j)
		switch {
		case before.core == victim && (len(j.Attempts) != 2 || j.Job.Counted != 2 || after.core == victim):
			t.Errorf("a job of the core that died: %+v, then %+v, %s", before, after, asJSON(t, j))
		case before.core != victim && (len(j.Attempts) != 1 || before != after):
			t.Errorf("a job of the other core: %+v, then %+v, %s", before, after, asJSON(t, j))
		}
	}
}

// restartCore replaces the cores in the background; the exit code and what was
// printed are sent when the successors are up.
func (b *bench) restartCore(args ...string) <-chan string {
	done := make(chan string, 1)
	go func() {
		out, errs, code := b.command(append([]string{"restart-core"}, args...)...)
		done <- fmt.Sprintf("%d\n%s%s", code, out, errs)
	}()
	return done
}

func TestRestartCore(t *testing.T) {
	for _, cores := range []int{1, 2} {
		for _, drain := range []bool{true, false} {
			t.Run(fmt.Sprintf("cores=%d,drain=%t", cores, drain), func(t *testing.T) {
				t.Parallel()
				testRestartCore(t, cores, drain)
			})
		}
	}
}

func testRestartCore(t *testing.T, cores int, drain bool) {
	b := newBench(t)
	// One attempt, since one that is cut short must not count.
	r := b.start("run", "--cores", fmt.Sprint(cores), b.jobs(b.placed("running", obj{"max_attempts": 1}), tomorrow()))
	r.awaitCore(cores)
	before := r.place("running")
	next := b.jobsOf("tests", "next.yaml", b.placed("next", nil))
	succeeded := func(done <-chan string) {
		t.Helper()
		if said := <-done; !strings.HasPrefix(said, "0\n") {
			r.fatalf("restart-core: exit code %s", said)
		}
	}
	if drain {
		done := b.restartCore("--drain")
		r.await("the core to be drained", told(api.UpdateCore, fmt.Sprint(before.core), "takes no new jobs"))
		b.submit(next)
		b.write(b.folder("go"), "")
		succeeded(done)
	} else {
		done := b.restartCore()
		r.await("another attempt", func(u *api.Update) bool { return u.Name == "running" && u.Attempt > 1 })
		b.write(b.folder("go"), "")
		succeeded(done)
		b.submit(next)
	}
	r.end("next", job.RunCompleted)
	r.end("running", job.RunCompleted)
	r.endTomorrow()
	b.soundState()
	r.awaitCore(2 * cores)
	j, after := b.show("running"), b.placeOf("running")
	b.completedOnce(j)
	switch {
	case drain && (len(j.Attempts) != 1 || before != after):
		t.Errorf("the job was not left alone: %+v, then %+v, %s", before, after, asJSON(t, j))
	case !drain && (len(j.Attempts) < 2 || !j.Attempts[0].Lost || j.Job.Counted != 1 || after.core == before.core):
		t.Errorf("the job that was interrupted: %+v, then %+v, %s", before, after, asJSON(t, j))
	}
	if next := b.placeOf("next"); next.core == before.core {
		t.Errorf("the next job ran on the core that was replaced")
	}
	if died := r.seen(told(api.UpdateCore, "died")); died != 0 {
		t.Errorf("%d cores died: a replacement is no death", died)
	}
	if out, _, _ := b.command("crashes"); !strings.Contains(out, "no core has crashed") {
		t.Errorf("a replacement is no crash:\n%s", out)
	}
}
