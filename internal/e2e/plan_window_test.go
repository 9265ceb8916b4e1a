package e2e

import (
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestCostWindow: what a tenant may spend in an hour is spent once, whichever
// process dies meanwhile.
func TestCostWindow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["cost_windows"] = []obj{{"tenant": "tests", "window": "1h", "max_usd": 0.01}}
	b.kind("modest", `echo '{"type":"usage","input_tokens":1,"cost_usd":0.004}'`+"\n"+result("cheap"))
	b.kind("greedy", endless(`{"type":"usage","input_tokens":1,"cost_usd":0.002}`))
	file := b.jobs(withPriority(on("modest", "modest", nil), 1), on("waits-0", "modest", obj{"runnable_at": "1h"}))
	r := b.start("run", file)
	r.end("modest", job.RunCompleted)
	// What is left is 0.006: three lines reach it. It goes on until it is stopped.
	b.submit(b.jobsOf("tests", "greedy.yaml", on("greedy", "greedy", nil)))
	r.end("greedy", job.RunFailed)
	if j := b.show("greedy"); len(j.Attempts) != 1 || b.last(j).Class != job.Budget || b.last(j).StopMillis <= 0 || j.Job.Spent.CostUSD < 0.006-1e-9 || j.Job.Spent.CostUSD > 1 {
		r.fatalf("the run that filled the window: %s", asJSON(t, j))
	}
	// From here on it is full, and another tenant's is not.
	n := 0
	full := func(when string) {
		t.Helper()
		t.Log("the window is full", when)
		n++
		name, other := "waits-"+string(rune('0'+n)), "other-"+string(rune('0'+n))
		b.submit(b.jobsOf("tests", name+".yaml", on(name, "modest", nil)))
		b.submit(b.jobsOf("others", other+".yaml", on(other, "modest", nil)))
		r.end(job.Name(other), job.RunCompleted)
		b.waits(name, 0, "0.0100")
	}
	full("at once")
	r.killCore()
	r.awaitCore(2)
	full("after the core was killed")
	r.kill()
	b.noProcess()
	r = b.start("run", file)
	r.awaitCore(1)
	full("after the scheduler was killed")
	r.killAll()
	r = b.start("run", "--cores", "2", file)
	r.awaitCore(2)
	full("after both were killed")
	r.signal(syscall.SIGINT)
	r.exit(130)
	b.soundState()
}
