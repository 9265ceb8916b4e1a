package e2e

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
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
	r.await("the stage", told(api.UpdateCore, "at stage shed", "queue_depth"))
	if st := b.status(); len(st.Cores) != 1 || st.Cores[0].Stage != "shed" || st.Cores[0].Evidence == "" {
		r.fatalf("the stage is not in the status: %s", asJSON(t, st))
	}
	batch := with(shell("batch", nil, "true", nil), obj{"class": "batch"})
	b.submit(b.jobsOf("tests", "classes.yaml", batch,
		shell("standard", nil, "true", nil), with(shell("person", nil, "true", nil), obj{"class": "interactive"})))
	r.end("standard", job.RunCompleted)
	r.end("person", job.RunCompleted)
	b.waits("batch", 0, "less load")

	b.write(b.folder("go"), "")
	for _, name := range []job.Name{"first", "second", "third"} {
		r.end(name, job.RunCompleted)
	}
	r.await("the end of it", told(api.UpdateCore, "at stage normal"))
	r.end("batch", job.RunCompleted)
	b.release()
	r.exit(0)
	b.soundState()
}

// TestOverloadDegrades: once the host is to do less, a job with a smaller choice
// runs on that, and no more of them at once than are left; afterwards the first
// choice has its turn again.
func TestOverloadDegrades(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 4, "per_worker": obj{"narrow": 1}}
	band := obj{"enter": 2, "leave": 0}
	b.config["watchdog"] = obj{"defence": obj{
		"thresholds": obj{"queue_depth": obj{"shed": band, "throttle": band}},
		"dwell":      obj{"normal": "1s", "shed": "1s", "throttle": "1s"},
	}}
	b.kind("narrow", until(b.folder("go"))+"\n"+result("through"))
	b.kind("large", result("by large"))
	b.kind("small", result("by small"))
	r := b.start("run", b.jobs(b.keeper(), on("first", "narrow", nil), on("second", "narrow", nil), on("third", "narrow", nil)))
	r.await("the stage", told(api.UpdateCore, "at stage throttle", "queue_depth"))
	// Two of four slots are left, and both are taken: by the keeper and the first.
	choice := obj{"fallback": []string{"small"}}
	b.submit(b.jobsOf("tests", "choice.yaml", with(on("agent", "large", nil), choice)))
	b.write(b.folder("go"), "")
	r.end("agent", job.RunCompleted)
	j := b.show("agent")
	if n := len(j.Attempts); n != 1 || j.Attempts[0].Choice.Worker != "small" || j.Attempts[0].Outcome.Answer != "by small" {
		r.fatalf("the job did not run on its smaller choice: %s", asJSON(t, j))
	}
	r.await("the word about it", func(u *api.Update) bool {
		return u.Name == "agent" && u.Worker == "small" && strings.Contains(u.Text, "instead")
	})
	for _, name := range []job.Name{"first", "second", "third"} {
		r.end(name, job.RunCompleted)
	}
	r.await("the end of it", told(api.UpdateCore, "at stage normal"))
	b.submit(b.jobsOf("tests", "later.yaml", with(on("later", "large", nil), choice)))
	r.end("later", job.RunCompleted)
	if j := b.show("later"); j.Attempts[0].Choice.Worker != "large" {
		r.fatalf("afterwards the job still ran on its smaller choice: %s", asJSON(t, j))
	}
	b.release()
	r.exit(0)
	b.soundState()
}
