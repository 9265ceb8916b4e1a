package e2e

import (
	"testing"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// TestOverload: while too much waits, work that can wait is kept away and the
// rest runs; afterwards that has its turn.
func TestOverload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 3, "per_worker": obj{"narrow": 1}} // a queue, and yet there is room
	b.config["watchdog"] = obj{"defence": obj{
		"thresholds": obj{"queue_depth": obj{"shed": obj{"enter": 2, "leave": 0}}},
		"dwell":      obj{"normal": "1s", "shed": "1s"},
	}}
	b.kind("narrow", until(b.folder("go"))+"\n"+result("through"))
	r := b.start("run", b.jobs(b.keeper(), on("first", "narrow", nil), on("second", "narrow", nil), on("third", "narrow", nil)))
	r.await("the stage", told(scheduler.UpdateCore, "at stage shed", "queue_depth"))
	if st := b.status(); len(st.Cores) != 1 || st.Cores[0].Stage != "shed" || st.Cores[0].Evidence == "" {
		r.fatalf("the stage is not in the status: %s", asJSON(t, st))
	}
	batch := with(shell("batch", nil, "true", nil), obj{"class": "batch"})
	b.submit(b.jobsOf("tests", "classes.yaml", batch,
		shell("standard", nil, "true", nil), with(shell("person", nil, "true", nil), obj{"class": "interactive"})))
	r.end("standard", job.RunCompleted)
	r.end("person", job.RunCompleted)
	b.waits("batch", 0, "GLOBAL_SHED", "QUEUE_STALL")

	b.write(b.folder("go"), "")
	for _, name := range []job.Name{"first", "second", "third"} {
		r.end(name, job.RunCompleted)
	}
	r.await("the end of it", told(scheduler.UpdateCore, "at stage normal"))
	r.end("batch", job.RunCompleted)
	b.release()
	r.exit(0)
	b.soundState()
}
