package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestBreaker is the plan's third test: one kind of worker fails again and
// again, its circuit opens and the jobs are done by another; when it has
// healed, a probe shows it, and jobs go to it again.
func TestBreaker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["breaker"] = obj{"min_requests": 3, "open_for": "2s", "window": "1m", "bucket_period": "1s"}
	b.config["escalation"] = obj{"worker_crashes": obj{"count": 0}} // which would isolate the kind
	sick := b.folder("sick")
	b.write(sick, "")
	b.sickly("flaky", sick)
	b.kind("steady", result("by steady"))
	jobs := []obj{b.keeper()}
	for i := range 6 {
		jobs = append(jobs, on(fmt.Sprintf("job-%d", i), "flaky", obj{"fallback": []string{"steady"}, "limits": patient}))
	}
	r := b.start("run", b.jobs(jobs...))
	for i := range 6 {
		r.end(job.Name(fmt.Sprintf("job-%d", i)), job.RunCompleted)
		if j := b.show(fmt.Sprintf("job-%d", i)); b.last(j).Answer != "by steady" {
			r.fatalf("done %q: %s", b.last(j).Answer, asJSON(t, j))
		}
	}
	circuit := func(state string) func(*api.Update) bool {
		return func(u *api.Update) bool {
			return u.Kind == api.UpdateCircuit && u.Worker == "flaky" && strings.Contains(u.Text, "is "+state)
		}
	}
	r.await("the circuit to open", circuit("open"))

	// A job that has nowhere else to go waits for the probe, which fails.
	b.submit(b.jobsOf("tests", "waits.yaml", on("waits", "flaky", obj{"limits": patient})))
	r.await("the probe", circuit("half-open"))
	r.awaitTimes(2, "the circuit to open again", circuit("open"))
	if st := b.status(); !slices.ContainsFunc(st.Circuits, func(c ipc.Circuit) bool { return c.Worker == "flaky" && c.State != "closed" }) {
		r.fatalf("the circuit is not in the status: %s", asJSON(t, st))
	}
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	r.end("waits", job.RunCompleted)
	r.await("the circuit to close", circuit("closed"))
	crashed := b.crashes()

	b.submit(b.jobsOf("tests", "again.yaml", on("again", "flaky", obj{"fallback": []string{"steady"}}), on("too", "flaky", nil)))
	r.end("again", job.RunCompleted)
	r.end("too", job.RunCompleted)
	b.release()
	r.exit(0)
	b.soundState()
	for _, name := range []string{"again", "too"} {
		if j := b.show(name); len(j.Attempts) != 1 || b.last(j).Answer != "by flaky" {
			t.Errorf("%s was to be done at once by the kind that has healed: %s", name, asJSON(t, j))
		}
	}
	// Three crashes opened it, of at most three runs at once, and each probe was one.
	if probes := r.seen(circuit("half-open")); crashed > 3+2+probes || b.crashes() != crashed {
		t.Errorf("%d crashes and %d probes", crashed, probes)
	}
}
