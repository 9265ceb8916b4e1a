package e2e

// Jobs with a key that wait for another one have their turn however that ends.

import (
	"testing"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sched"
)

// TestTurnAfterOneThatNeverRan: jobs that wait for one that is withdrawn, in
// either way, or expires, run in its place, whatever their priority.
func TestTurnAfterOneThatNeverRan(t *testing.T) {
	for name, withdraw := range map[string]func(b *bench, c *client.Client, id job.ID) error{
		"deadline": nil,
		"kernel.sched": func(b *bench, c *client.Client, id job.ID) error {
			return c.Call(b.t.Context(), sched.MethodCancel, sched.ByID{SchedID: id}, nil)
		},
		"jobs": func(b *bench, c *client.Client, id job.ID) error {
			_, err := c.Cancel(b.t.Context(), string(id))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.config["concurrency"] = obj{"max": 3, "per_worker": obj{"narrow": 1}}
			b.kind("narrow", until(b.folder("go"))+"\n"+result("through"))
			r := b.serve()
			c := b.client()
			b.submit(b.jobs(on("blocker", "narrow", nil)))
			same := func(policy string) obj { return obj{"key": "report", "on_duplicate": policy} }
			first, ends := on("first", "narrow", same("coalesce")), job.RunCancelled
			if withdraw == nil {
				first["deadline"], ends = "2s", job.RunFailed
			}
			b.submit(b.jobsOf("tests", "one.yaml", first))
			b.submit(b.jobsOf("tests", "two.yaml", with(withPriority(shell("instead", nil, "echo instead", nil), 5), same("coalesce"))))
			b.submit(b.jobsOf("tests", "three.yaml", with(withPriority(shell("after", nil, "echo after", nil), -5), same("serialize"))))
			b.submit(b.jobsOf("tests", "four.yaml", shell("free", nil, "true", nil)))
			r.end("free", job.RunCompleted) // so the others were looked at
			if withdraw != nil {
				if err := withdraw(b, c, b.show("first").Job.ID); err != nil {
					b.fatalf("withdraw: %v", err)
				}
			}
			r.end("first", ends)
			r.end("instead", job.RunCompleted)
			r.end("after", job.RunCompleted)
			b.write(b.folder("go"), "")
			r.end("blocker", job.RunCompleted)
			r.stop()
			b.soundState()
			for _, name := range []string{"instead", "after"} {
				b.completedOnce(b.show(name))
			}
		})
	}
}
