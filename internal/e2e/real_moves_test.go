package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// TestRealSessionMoves: agents are cut short on a node that is drained and removed. They go on with their sessions, and with
// what they had changed, on another one, whose folders have other paths. (OpenCode goes on only where they have the same.)
func TestRealSessionMoves(t *testing.T) {
	t.Parallel()
	var naps []string
	kinds := []job.WorkerKind{"codex", "claude"}
	b, base, r := newQueue(t, func(b *bench) {
		b.config["fleet"].(obj)["work"] = false
		b.use(kinds...)
		for _, kind := range kinds {
			name, nap := string(kind), b.nap()
			naps = append(naps, nap)
			b.play("of-"+name, scriptmodel.Play(
				scriptmodel.Edit("before-"+name+".txt", "before"),
				scriptmodel.Run("sleep "+nap),
				scriptmodel.Say("Never reached."),
			).Resuming(scriptmodel.Edit("after-"+name+".txt", "after"), scriptmodel.Say("Resumed and done.")))
		}
	})
	one := b.node("one", base, "--slots", "2")
	r.awaitNode("one")
	l := b.laptop(base, b.token("ann", "submit"))
	var jobs []obj
	for _, kind := range kinds {
		jobs = append(jobs, b.task("by-"+string(kind), kind, "of-"+string(kind), obj{"workspace": obj{"path": "."}}))
	}
	l.files(map[string]string{"web/jobs.yaml": asJSON(t, obj{"tenant": "tests", "jobs": jobs})})
	l.do("web", "submit", "jobs.yaml")
	if !testrun.Until(t, func() bool { return len(sleeping(naps)) == len(naps) }) {
		r.fatalf("the agents' commands do not run: %v", sleeping(naps))
	}
	b.nodes("drain", "one", "--mode", "stop", "--wait")
	one.run.signal(syscall.SIGTERM)
	one.run.exit(0)
	b.nodes("rm", "one", "--force")
	two := b.node("two", base, "--slots", "2")
	r.awaitNode("two")
	for _, kind := range kinds {
		name := "by-" + string(kind)
		r.end(job.Name(name), job.RunCompleted)
		j := b.show(name)
		if n := len(j.Attempts); n != 2 || j.Attempts[0].Node != "one" || j.Attempts[1].Node != "two" || j.Attempts[0].Session == "" || j.Attempts[1].Session != j.Attempts[0].Session || b.last(j).Answer != "Resumed and done." {
			t.Errorf("%s: %s", name, asJSON(t, j))
		}
		l.do("", "apply", name)
		for _, file := range []string{"before", "after"} {
			if text, err := os.ReadFile(filepath.Join(l.repo, "web", file+"-"+string(kind)+".txt")); err != nil || string(text) != file {
				t.Errorf("%s made %q, %v", kind, text, err)
			}
		}
	}
	two.run.signal(syscall.SIGTERM)
	two.run.exit(0)
	one.noProcess()
	two.noProcess()
	r.stop()
}
