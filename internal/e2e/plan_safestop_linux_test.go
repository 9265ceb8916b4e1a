package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// TestSafeStop: a disk that is nearly full puts everything out of use before
// anything fails for lack of room; when there is room, all goes on by itself.
func TestSafeStop(t *testing.T) {
	for _, choice := range []string{"drain", "stop"} {
		t.Run(choice, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.mountSmall()
			// The core looks each second, and tells of the full disk again when half of the cool-down is over.
			b.config["escalation"] = obj{"safe_stop": choice, "disk": obj{"min_free_bytes": 1 << 30, "min_free_ratio": 0.3, "cool_down": "8s"}}
			r := b.start("run", b.jobs(b.placed("running", obj{"max_attempts": 1}))) // one: a stop must not count
			before := r.place("running")
			if st := b.status(); len(st.Isolations) > 0 {
				r.fatalf("isolated at the start: %s", asJSON(t, st.Isolations))
			}
			ballast := filepath.Join(b.state, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil { // of 8
				t.Fatal(err)
			}
			u := r.await("the escalation", func(u *api.Update) bool {
				return u.Kind == api.UpdateEscalation && u.Escalation != nil && u.Escalation.Scope == string(isolation.Global)
			})
			if u.Escalation.Cause != string(isolation.CauseDisk) || u.Escalation.Action != string(isolation.SafeStop) {
				r.fatalf("escalation %s", asJSON(t, u.Escalation))
			}
			b.submit(b.jobsOf("tests", "later.yaml", shell("later", nil, "true", nil)))
			if choice == "drain" {
				b.write(b.folder("go"), "")
				r.end("running", job.RunCompleted) // while the disk is as full as before
			} else {
				r.await("the run to be cut short", func(u *api.Update) bool { return u.Name == "running" && u.Attempt == 1 && u.Entry == job.Queued })
			}
			if j := b.show("later"); j.Job.State != job.Queued || len(j.Attempts) != 0 {
				r.fatalf("a job that began in spite of it: %s", asJSON(t, j))
			}
			if st := b.status(); len(st.Isolations) != 1 || st.Isolations[0].Scope != isolation.Global {
				r.fatalf("isolated are: %s", asJSON(t, st.Isolations))
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			b.write(b.folder("go"), "")
			r.exit(0)
			b.soundState()
			b.completedOnce(b.show("later"))
			j := b.show("running")
			b.completedOnce(j)
			switch {
			case choice == "drain" && (len(j.Attempts) != 1 || b.placeOf("running") != before):
				t.Errorf("the run was to end by itself: %s", asJSON(t, j))
			case choice == "stop" && (len(j.Attempts) != 2 || !j.Attempts[0].Lost || j.Job.Counted != 1):
				t.Errorf("the run was to be cut short without counting: %s", asJSON(t, j))
			}
		})
	}
}
