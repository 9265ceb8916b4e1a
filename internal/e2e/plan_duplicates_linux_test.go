package e2e

// The plan's fourth test: what becomes of jobs on one repository at the same
// time, with and without a key, while schedulers die.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// alone is a script that notes when it is not alone: everything that it starts
// inherits the lock. Then it says its run's tag, and does the work.
func (b *bench) alone(work string) string {
	return fmt.Sprintf("exec 9> %s; flock -n 9 || { echo $AGENTSCHED_RUN >> %s; exit 1; }\necho $AGENTSCHED_RUN >> %s\necho ready\n%s\n",
		b.folder("lock"), b.folder("overlaps"), b.folder("ran"), work)
}

func (b *bench) noOverlap() {
	b.t.Helper()
	if both := b.lines("overlaps"); len(both) > 0 {
		b.fatalf("began while another held the lock: %v", both)
	}
}

// ranOf returns the tags with which the scripts of a job ran.
func (b *bench) ranOf(j api.JobDetail) []string {
	return slices.DeleteFunc(b.lines("ran"), func(tag string) bool { return !strings.Contains(tag, string(j.Job.ID)) })
}

// TestOneFolderOneAtATime: jobs that work in one folder itself take turns, also
// when scheduler and core are killed amid one.
func TestOneFolderOneAtATime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, workspace := b.direct("folder")
	var jobs []obj
	for i := range 4 {
		jobs = append(jobs, shell(fmt.Sprintf("job-%d", i), workspace, b.alone("setsid sleep 0.3 & sleep 0.1; wait"), nil))
	}
	file := b.jobs(jobs...)
	b.config["concurrency"] = obj{"max": 4}
	r := b.start("run", file)
	for range 2 {
		r.awaitTimes(1, "a run", func(u *api.Update) bool { return u.Event != nil && u.Event.Text == "ready" })
		r.killAll()
		r = b.start("run", file)
	}
	r.exit(0)
	b.soundState()
	b.noOverlap()
	for i := range 4 {
		b.completedOnce(b.show(fmt.Sprintf("job-%d", i)))
	}
}

func TestDuplicateIsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, workspace := b.direct("folder")
	once := obj{"key": "deploy", "on_duplicate": "reject"}
	file := b.jobs(b.keeper(), with(shell("first", workspace, b.alone(until(b.folder("go"))), nil), once))
	second := b.jobsOf("tests", "second.yaml", shell("innocent", nil, "true", nil), with(shell("second", workspace, b.alone("true"), nil), once))
	rejected := func(what string, errs string, code int) {
		t.Helper()
		if code != 2 || !strings.Contains(errs, "first") || !strings.Contains(errs, "second") || !strings.Contains(errs, "deploy") {
			b.fatalf("%s: exit code %d, want 2 and a word on both jobs and the key\n%s", what, code, errs)
		}
		if _, total := b.unfinished(); total != 2 {
			b.fatalf("%s: there are %d jobs, want the 2 of before: all of a submission is taken or nothing", what, total)
		}
	}

	r := b.start("run", file)
	r.await("the first job", onText("first", "ready"))
	_, errs, code := b.trySubmit(second)
	rejected("submitted while it runs", errs, code)
	r.killAll()
	r = b.start("run", second)
	r.exit(2)
	rejected("run after a crash", r.stderr.String(), 2)
	r = b.start("run", file)
	r.awaitCore(1)
	_, errs, code = b.trySubmit(second)
	rejected("submitted after a crash", errs, code)

	b.write(b.folder("go"), "")
	r.end("first", job.RunCompleted)
	b.submit(second) // the key is free
	r.end("second", job.RunCompleted)
	r.end("innocent", job.RunCompleted)
	b.release()
	r.exit(0)
	b.soundState()
	b.noOverlap()
	for _, name := range []string{"first", "second", "innocent"} {
		b.completedOnce(b.show(name))
	}
}

// TestDuplicatesCoalesce: of several jobs that ask for the same one runs, and
// all get its answer; jobs without a name for it are told by what they ask.
func TestDuplicatesCoalesce(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%t", crash), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			_, workspace := b.direct("folder")
			same := obj{"on_duplicate": "coalesce"} // the key is derived
			script := b.alone(until(b.folder("go")) + "; echo the answer of $AGENTSCHED_RUN")
			file := b.jobs(b.keeper(), with(shell("asks", workspace, script, nil), same))
			r := b.start("run", file)
			r.await("the run", onText("asks", "ready"))
			b.submit(b.jobsOf("tests", "more.yaml",
				with(shell("asks-too", workspace, script, nil), same),
				with(shell("named", nil, "echo another answer", nil), obj{"key": "other"})))
			r.end("named", job.RunCompleted)
			b.waits("asks-too", 1, "asks")
			if crash {
				r.killAll()
				r = b.start("run", file)
				r.await("the run", onText("asks", "ready"))
			}
			b.write(b.folder("go"), "")
			r.end("asks", job.RunCompleted)
			r.end("asks-too", job.RunCompleted)
			b.release()
			r.exit(0)
			b.soundState()
			b.noOverlap()

			asks, too := b.show("asks"), b.show("asks-too")
			runs := 1
			if crash {
				runs = 2 // at least once
			}
			if n := len(b.ranOf(asks)); n != runs || len(asks.Attempts) != runs || len(b.ranOf(too)) != 0 {
				t.Errorf("%d runs of one and %d of the other", n, len(b.ranOf(too)))
			}
			if a, b := b.last(asks).Answer, b.last(too).Answer; a != b || !strings.Contains(a, "the answer of") {
				t.Errorf("answers %q and %q", a, b)
			}
			if too.Job.CoalescedWith != asks.Job.ID || too.Job.ExitKind != job.ExitSucceeded || too.Job.State != job.Completed {
				t.Errorf("the job that did not run itself: %s", asJSON(t, too.Job))
			}
		})
	}
}

// TestDuplicateTakesOver: when the one that runs for all is cancelled, the
// first of those that wait for it runs in its place.
func TestDuplicateTakesOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	same := obj{"key": "report"}
	r := b.start("run", b.jobs(b.keeper(), with(shell("one", nil, b.alone("while :; do sleep 0.05; done"), nil), same)))
	r.await("the run", onText("one", "ready"))
	b.submit(b.jobsOf("tests", "more.yaml", with(shell("two", nil, b.alone("echo by two"), nil), same), with(shell("three", nil, b.alone("echo by three"), nil), same)))
	b.waits("three", 1, "one")
	if _, errs, code := b.command("cancel", "one"); code != 0 {
		b.fatalf("cancel: exit code %d\n%s", code, errs)
	}
	r.end("one", job.RunCancelled)
	r.end("two", job.RunCompleted)
	r.end("three", job.RunCompleted)
	b.release()
	r.exit(1)
	b.soundState()
	b.noOverlap()
	two, three := b.show("two"), b.show("three")
	if !strings.Contains(b.last(two).Answer, "by two") || !strings.Contains(b.last(three).Answer, "by two") || three.Job.CoalescedWith != two.Job.ID || len(b.ranOf(three)) != 0 {
		t.Errorf("%s\n%s", asJSON(t, two), asJSON(t, three))
	}
}

// TestDuplicatesSerialize: one after the other in the order of submission,
// whatever is free and whoever dies.
func TestDuplicatesSerialize(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 6}
	turns := obj{"key": "migrate", "on_duplicate": "serialize"}
	turn := func(i int) obj {
		// The later ones would come first, if anything but the order counted.
		return with(withPriority(shell(fmt.Sprintf("job-%d", i), nil, b.alone(until(b.folder("go"))+fmt.Sprintf("; setsid sleep 0.2 & sleep 0.1; wait; echo %d >> %s", i, b.folder("order"))), nil), i), turns)
	}
	file := b.jobs(b.keeper(), turn(0), turn(1), turn(2))
	r := b.start("run", file)
	r.await("the first", onText("job-0", "ready"))
	b.submit(b.jobsOf("tests", "more.yaml", turn(3), turn(4)))
	r.killAll()
	b.write(b.folder("go"), "") // none has ended before
	r = b.start("run", file)
	for i := range 5 {
		r.end(job.Name(fmt.Sprintf("job-%d", i)), job.RunCompleted)
	}
	b.release()
	r.exit(0)
	b.soundState()
	b.noOverlap()
	if order := b.lines("order"); !slices.Equal(order, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("order %v", order)
	}
}
