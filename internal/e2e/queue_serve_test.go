package e2e

// `scheduler serve`: it works on what is submitted, and on what others have
// left, until it is told to stop; what it has acknowledged outlives any kill.

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TestServe: jobs of other processes run; Ctrl-C ends it as it was told, and
// what ran then goes on at the next start.
func TestServe(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.serve()
	b.submit(b.jobsOf("website", "one.yaml", shell("quick", nil, "echo done", nil), shell("bad", nil, "exit 3", obj{"max_attempts": 1})))
	r.end("quick", job.RunCompleted)
	b.submit(b.jobsOf("website", "soon.yaml", with(shell("soon", nil, "true", nil), obj{"runnable_at": "700ms"})))
	r.end("soon", job.RunCompleted)
	if e := b.show("soon").Job; e.DispatchedAt.Before(e.RunnableAt) || e.DispatchedAt.Sub(e.RunnableAt) > time.Minute {
		t.Errorf("runnable at %s, dispatched at %s", e.RunnableAt, e.DispatchedAt)
	}
	r.end("bad", job.RunFailed)
	b.submit(b.jobsOf("website", "two.yaml",
		shell("long", nil, "echo begun; "+until(b.folder("go")), nil), with(shell("later", nil, "true", nil), obj{"runnable_at": "24h"})))
	r.await("the long one", onText("long", "begun"))
	r.stop()
	b.noProcess()
	if j := b.show("long"); j.Job.State != job.Queued || j.Job.Counted != 0 || len(j.Attempts) != 1 || !j.Attempts[0].Lost {
		b.fatalf("a job that Ctrl-C cut short: %s", asJSON(t, j))
	}
	if _, errs, code := b.trySubmit(b.jobsOf("website", "three.yaml", shell("nobody", nil, "true", nil))); code != 2 || !strings.Contains(errs, "no scheduler is running") {
		b.fatalf("submitted to nobody: exit code %d\n%s", code, errs)
	}

	b.write(b.folder("go"), "")
	r = b.serve()
	r.end("long", job.RunCompleted)
	if _, errs, code := b.command("cancel", "later"); code != 0 {
		b.fatalf("cancel: exit code %d\n%s", code, errs)
	}
	r.end("later", job.RunCancelled)
	r.stop() // although a job has failed, and one was cancelled
	b.soundState()
	b.completedOnce(b.show("long"))
	if j := b.show("long"); len(j.Attempts) != 2 || j.Job.Counted != 1 {
		t.Errorf("the attempt that was cut short counts: %s", asJSON(t, j))
	}
	if j := b.show("bad"); j.Job.DeadLetter == "" || len(j.Attempts) != 1 {
		t.Errorf("%s", asJSON(t, j))
	}
}

// TestServeAdopts: what a run that was killed or stopped has left is done by
// the server, and no run continues it a second time.
func TestServeAdopts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 1}
	wait := "echo begun; " + until(b.folder("go"))
	file := b.jobs(shell("own-1", nil, wait, nil), shell("own-2", nil, "echo 2", nil))
	r := b.start("run", file)
	r.await("the first", onText("own-1", "begun"))
	b.submit(b.jobsOf("others", "more.yaml", shell("given", nil, "echo given", nil)))
	r.killAll()

	again := b.jobsOf("others", "again.yaml", shell("stopped", nil, wait, nil))
	r = b.start("run", again)
	r.await("the other run", onText("stopped", "begun")) // it may have done what was given to the first
	r.signal(syscall.SIGINT)
	r.exit(130)

	b.write(b.folder("go"), "")
	r = b.serve()
	names := []job.Name{"own-1", "own-2", "given", "stopped"}
	for _, name := range names {
		if name != "given" {
			r.end(name, job.RunCompleted)
		}
	}
	b.eventually("all are done", func() bool { n, _ := b.unfinished(); return n == 0 })
	// Nothing takes the directory from a server that works on it.
	if out, errs, code := b.command("serve"); code != 2 || !strings.Contains(errs, "in use by the scheduler") {
		b.fatalf("serve beside a server: exit code %d\n%s%s", code, out, errs)
	}
	// A run asks it instead, and is told of what has been done of its jobs.
	if out, errs, code := b.command("run", file); code != 0 || !strings.Contains(out, "own-2") {
		b.fatalf("run beside a server: exit code %d\n%s%s", code, out, errs)
	}
	r.stop()
	b.soundState()
	for _, name := range names {
		b.completedOnce(b.show(string(name)))
	}
	if _, errs, code := b.command("run"); code != 2 || !strings.Contains(errs, "no unfinished run") {
		b.fatalf("run, with nothing to continue: exit code %d\n%s", code, errs)
	}
}

// TestServeKilledAmidSubmissions: eight clients submit while the server is
// killed again and again. Whatever was acknowledged is there afterwards and runs
// once; of what was not, all of a file or nothing.
func TestServeKilledAmidSubmissions(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	b := newBench(t)
	// All slots are taken until the killing is over: then nothing runs twice
	// because its scheduler died.
	b.config["concurrency"] = obj{"max": 1}
	r := b.serve()
	b.submit(b.jobsOf("tests", "first.yaml", withPriority(shell("blocker", nil, "echo begun; "+until(b.folder("go")), nil), 9)))
	r.await("the blocker", onText("blocker", "begun"))

	const clients, files, kills = 8, 20, 6
	name := func(c, f, n int) job.Name { return job.Name(fmt.Sprintf("c%d-f%02d-%d", c, f, n)) }
	paths := map[job.Name]string{}
	for c := range clients {
		for f := range files {
			note := "echo $AGENTSCHED_RUN >> " + b.folder("ran")
			paths[name(c, f, 0)] = b.jobsOf("tests", string(name(c, f, 0))+".yaml", shell(string(name(c, f, 0)), nil, note, nil), shell(string(name(c, f, 1)), nil, note, nil))
		}
	}
	var mu sync.Mutex
	acked := map[job.Name]bool{} // by the first name of a file
	more, done := make(chan struct{}, clients*files), make(chan struct{})
	go func() {
		defer close(done)
		each(clients, func(c int) {
			up := b.client()
			for f := range files {
				if _, _, code := b.trySubmit(paths[name(c, f, 0)]); code == 0 {
					mu.Lock()
					acked[name(c, f, 0)] = true
					mu.Unlock()
				} else {
					b.eventually("a server is there again", func() bool { _, err := up.Status(t.Context()); return err == nil })
				}
				more <- struct{}{}
			}
		})
	}()
	killed := 0
	for range kills {
		for range 1 + random.IntN(clients*files/kills) {
			select {
			case <-more:
			case <-done:
			}
		}
		select {
		case <-done: // nobody submits any more
			continue
		default:
		}
		r.kill()
		killed++
		r = b.serve()
	}
	<-done
	t.Logf("%d kills, %d submissions, %d of them acknowledged", killed, clients*files, len(acked))
	if killed < kills/2 || len(acked) < clients*files/4 {
		b.fatalf("%d kills and %d acknowledged submissions show nothing", killed, len(acked))
	}
	r.kill() // once more, with all of it waiting

	b.write(b.folder("go"), "")
	b.config["concurrency"] = obj{"max": 4}
	r = b.serve()
	stored := b.list()
	r.ends(len(stored))
	r.stop()
	b.soundState()
	ran := map[string]int{}
	for _, tag := range b.lines("ran") {
		ran[strings.Split(tag, "/")[1]]++
	}
	there := map[job.Name]bool{}
	for _, e := range b.list() {
		if there[e.Spec.Name] {
			t.Errorf("%s is there twice", e.Spec.Name)
		}
		there[e.Spec.Name] = true
		if e.Spec.Name == "blocker" {
			continue
		}
		if e.State != job.Completed || e.ExitKind != job.ExitSucceeded || e.Attempts != 1 || ran[string(e.ID)] != 1 {
			t.Errorf("%s is %s %s after %d attempts and ran %d times", e.Spec.Name, e.State, e.ExitKind, e.Attempts, ran[string(e.ID)])
		}
	}
	for c := range clients {
		for f := range files {
			first, second := there[name(c, f, 0)], there[name(c, f, 1)]
			switch {
			case acked[name(c, f, 0)] && !(first && second):
				t.Errorf("%s was acknowledged and is lost", name(c, f, 0))
			case first != second:
				t.Errorf("half of the file of %s was stored", name(c, f, 0))
			}
		}
	}
	b.completedOnce(b.show("blocker"))
}
