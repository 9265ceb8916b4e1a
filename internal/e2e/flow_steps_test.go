package e2e

// Durable steps: a run stops between two of them where it is asked to, and no step
// that is stored is done again.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// stepper sets up the worker "steps": each line of its instructions is a command
// and a step.
func (b *bench) stepper() {
	b.t.Helper()
	program := b.folder("steps")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/workers/steps").CombinedOutput(); err != nil {
		b.t.Fatalf("build the worker: %v\n%s", err, out)
	}
	b.config["workers"].(obj)["steps"] = obj{"adapter": "exec", "command": []string{program}}
}

// steps is a job of n steps, each of which says that it was done and then waits
// until it is let go: by the file NAME-1, NAME-2, …
func (b *bench) steps(name string, n int, more obj) obj {
	var lines []string
	for i := 1; i <= n; i++ {
		lines = append(lines, fmt.Sprintf("echo %s-%d >> %s; %s", name, i, b.folder("paid"), until(b.folder(fmt.Sprintf("%s-%d", name, i)))))
	}
	return with(obj{"id": name, "worker": "steps", "instructions": strings.Join(lines, "\n"), "capabilities": []string{"run_commands"}}, more)
}

// begun waits until a step of a job has begun.
func (b *bench) begun(step string) {
	b.t.Helper()
	b.eventually("step "+step+" has begun", func() bool { return strings.Contains(strings.Join(b.lines("paid"), " ")+" ", step+" ") })
}

// paidOnce wants each of these steps to have been done once.
func (b *bench) paidOnce(steps ...string) {
	b.t.Helper()
	count := map[string]int{}
	for _, s := range b.lines("paid") {
		count[s]++
	}
	for _, s := range steps {
		if count[s] != 1 {
			b.t.Errorf("step %s was done %d times", s, count[s])
		}
	}
}

func signalled(name job.Name, which api.Signal) func(*api.Update) bool {
	return func(u *api.Update) bool { return u.Name == name && u.Signal == which }
}

// TestCheckpoint: a run that is asked to stops at the end of its step and goes on
// from there; also when the scheduler is told to end meanwhile, and after it was
// killed in the middle of a step.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stepper()
	b.config["stop"] = obj{"interrupt": "20s", "terminate": "500ms", "kill": "10s"}
	file := b.jobs(b.steps("crawl", 4, obj{}), shell("plain", nil, "echo begun; "+until(b.folder("plain-end")), nil))
	r := b.start("run", file)
	b.begun("crawl-1")
	r.await("the job without steps", onText("plain", "begun"))
	if out, errs, code := b.command("checkpoint", "crawl", "-m", "for a test"); code != 0 || !strings.Contains(out, "stops at its next step") {
		t.Fatalf("checkpoint: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := b.command("checkpoint", "plain"); code != 1 || !strings.Contains(errs, "cannot stop at its next step") {
		t.Errorf("checkpoint of a job without steps: exit code %d\n%s%s", code, out, errs)
	}
	b.write(b.folder("crawl-1"), "")
	b.write(b.folder("plain-end"), "")
	r.await("the checkpoint", signalled("crawl", api.CheckpointCreated))
	r.await("the step that is not done again", signalled("crawl", api.StepReplayed))
	b.begun("crawl-2")

	// The scheduler is told to end in the middle of the second step.
	r.signal(syscall.SIGINT)
	b.eventually("the run is asked to stop", func() bool { return b.logged(`"reason":"the scheduler is about to end"`) })
	b.write(b.folder("crawl-2"), "")
	r.exit(130)
	if e := b.entry("crawl"); e.State != job.Queued || e.Counted != 0 {
		t.Errorf("after the end of the scheduler: %s", asJSON(t, e))
	}

	r = b.start("run", file)
	b.begun("crawl-3")
	b.write(b.folder("crawl-3"), "")
	b.begun("crawl-4")
	r.killAll() // step 4 is not done, and is begun again
	r.close()
	b.write(b.folder("crawl-4"), "")
	r = b.start("run", file)
	r.exit(0)
	b.paidOnce("crawl-1", "crawl-2", "crawl-3")
	if e := b.entry("crawl"); e.ExitKind != job.ExitSucceeded || e.Attempts != 4 {
		t.Errorf("at its end: %s", asJSON(t, e))
	}
	out, errs, code := b.command("replay", "crawl")
	if code != 0 || strings.Count(out, "\n") < 4 {
		t.Errorf("replay: exit code %d\n%s%s", code, out, errs)
	}
	b.soundState()
}

// TestPreempted: a job of a higher priority gets the place of one that can stop
// between two steps, which goes on afterwards; so does one whose owner has used up
// what was granted, when there is more.
func TestPreempted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stepper()
	b.config["concurrency"] = obj{"max": 1}
	r := b.serve()
	b.submit(b.jobs(b.steps("slow", 3, obj{})))
	b.begun("slow-1")
	b.submit(b.jobsOf("tests", "urgent.yaml", withPriority(shell("urgent", nil, "echo now", nil), 10)))
	b.eventually("the run is asked to stop", func() bool { return b.logged("asked for a checkpoint") })
	b.write(b.folder("slow-1"), "")
	r.await("the checkpoint", signalled("slow", api.CheckpointCreated))
	r.end("urgent", job.RunCompleted)
	b.begun("slow-2")
	if b.isDone("slow") {
		t.Error("the one that was preempted has ended first")
	}
	b.write(b.folder("slow-2"), "")
	b.write(b.folder("slow-3"), "")
	r.end("slow", job.RunCompleted)
	b.paidOnce("slow-1", "slow-2", "slow-3")
	r.stop()
	b.soundState()
}

// TestYields: a run of the marketplace gives its slot to a tenant with a contract between
// two steps, says to whom, and goes on afterwards without doing a step twice.
func TestYields(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stepper()
	b.config["concurrency"] = obj{"max": 1}
	b.config["policy"] = obj{"name": "credit", "tenants": obj{"big": obj{"contracted": true}}}
	r := b.serve()
	if out, errs, code := b.command("grant", "tests", "--credits", "1"); code != 0 {
		t.Fatalf("grant: exit code %d\n%s%s", code, out, errs)
	}
	b.submit(b.jobs(b.steps("slow", 2, obj{})))
	b.begun("slow-1")
	b.submit(b.jobsOf("big", "big.yaml", shell("contract", nil, "echo now", nil)))
	b.eventually("the run is asked to stop", func() bool { return b.logged("tenant big has a contract") })
	b.write(b.folder("slow-1"), "")
	r.await("the checkpoint", signalled("slow", api.CheckpointCreated))
	r.end("contract", job.RunCompleted)
	b.begun("slow-2")
	b.write(b.folder("slow-2"), "")
	r.end("slow", job.RunCompleted)
	b.paidOnce("slow-1", "slow-2")
	if out, errs, code := b.command("show", "slow"); code != 0 || !strings.Contains(out, "stopped between two steps (preempted by tenant big); does not count") {
		t.Errorf("show: exit code %d\n%s%s", code, out, errs)
	}
	if out, _, _ := b.command("grant", "show", "tests", "--json"); strings.Count(out, `"attempt"`) != 1 {
		t.Errorf("of two attempts one counts and was paid for: %s", out)
	}
	r.stop()
	b.soundState()
}

// TestBudgetUsedUp: a run whose owner has used up what was granted stops between
// two steps, and goes on when there is more.
func TestBudgetUsedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stepper()
	b.spender()
	b.open()
	r := b.serve()
	if out, errs, code := b.command("grant", "tests", "--tokens", "1000"); code != 0 {
		t.Fatalf("grant: exit code %d\n%s%s", code, out, errs)
	}
	b.submit(b.jobs(b.steps("long", 2, obj{})))
	b.begun("long-1")
	b.submit(b.jobsOf("tests", "spends.yaml", spend("spends", 2000, 0.5, nil)))
	b.eventually("the run is asked to stop", func() bool { return b.logged("the budget of tests is used up") })
	b.write(b.folder("long-1"), "")
	r.await("the checkpoint", signalled("long", api.CheckpointCreated))
	if e := b.entry("long"); e.State != job.Queued {
		t.Errorf("without a budget: %s", asJSON(t, e))
	}
	if out, errs, code := b.command("grant", "tests", "--tokens", "100000"); code != 0 {
		t.Fatalf("grant: exit code %d\n%s%s", code, out, errs)
	}
	b.begun("long-2")
	b.write(b.folder("long-2"), "")
	r.end("long", job.RunCompleted)
	b.paidOnce("long-1", "long-2")
	r.stop()
	b.soundState()
}

// TestBest: jobs that are to run on the best worker go to the one of the highest
// reputation, but for those that are drawn to look at the other.
func TestBest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{"poor", "good"} {
		b.config["workers"].(obj)[name] = obj{"adapter": "shell"}
	}
	b.config["concurrency"] = obj{"max": 1}
	b.config["evaluation"] = obj{"explore": 0.05}
	rated := func(id, worker, quality string) obj {
		return with(shell(id, nil, "true", nil), obj{"worker": worker, "evaluation": obj{"domain": "security", "command": "echo '{\"quality\": " + quality + ", \"adherence\": " + quality + "}'"}})
	}
	r := b.start("run", b.jobsOf("tests", "rate.yaml", rated("one", "poor", "0.1"), rated("two", "good", "0.9")))
	r.exit(0)
	var jobs []obj
	const n = 12
	for i := range n {
		jobs = append(jobs, with(shell(fmt.Sprintf("job-%02d", i), nil, "true", nil), obj{"worker": "best", "candidates": []string{"poor", "good"}, "evaluation": obj{"domain": "security"}}))
	}
	r = b.start("run", b.jobs(jobs...))
	r.exit(0)
	ran := map[job.WorkerKind]int{}
	for i := range n {
		j := b.show(fmt.Sprintf("job-%02d", i))
		ran[j.Attempts[0].Choice.Worker]++
	}
	if ran["good"] <= n/2 || ran["good"]+ran["poor"] != n {
		t.Errorf("they ran on %v", ran)
	}
	b.soundState()
}

// logged reports whether scheduler.log has a line with these words.
func (b *bench) logged(words string) bool {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.state, "scheduler.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Contains(string(text), words)
}
