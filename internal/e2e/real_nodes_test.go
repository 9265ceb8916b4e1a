package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// TestRealNodes: agents work on three nodes in a repository that only the submitter has. A node dies in the midst of it; its
// job goes on elsewhere, and what each has made is applied to the submitter's folder.
func TestRealNodes(t *testing.T) {
	t.Parallel()
	kinds := []job.WorkerKind{"codex", "claude", "opencode"}
	var enough string
	b, base, r := newQueue(t, func(b *bench) {
		b.config["fleet"].(obj)["work"] = false
		b.use(kinds...)
		enough = b.folder("enough")
		for _, kind := range kinds {
			b.play("of-"+string(kind), scriptmodel.Play(
				scriptmodel.Edit("made-by-"+string(kind)+".txt", "by "+string(kind)),
				scriptmodel.Run("echo begun; until test -e "+enough+"; do sleep 0.05; done"),
				scriptmodel.Say("Done."),
			))
		}
	})
	nodes := map[string]*nodeBench{}
	for i := range kinds {
		name := fmt.Sprintf("node-%d", i+1)
		nodes[name] = b.node(name, base, "--slots", "1")
		r.awaitNode(name)
	}
	l := b.laptop(base, b.token("ann", "submit"))
	var jobs []obj
	for _, kind := range kinds {
		jobs = append(jobs, b.task("by-"+string(kind), kind, "of-"+string(kind), obj{"workspace": obj{"path": "."}}))
	}
	l.files(map[string]string{"web/jobs.yaml": asJSON(t, obj{"tenant": "tests", "jobs": jobs})})
	l.do("web", "submit", "jobs.yaml")
	for _, kind := range kinds {
		r.await("the command of "+string(kind), func(u *api.Update) bool {
			return u.Name == job.Name("by-"+string(kind)) && u.Event != nil && u.Event.Kind == job.EventSession
		})
	}
	dead := b.show("by-codex").Attempts[0].Node
	nodes[dead].die()
	b.nodes("rm", dead, "--force")
	b.write(enough, "")
	for _, kind := range kinds {
		name := "by-" + string(kind)
		r.end(job.Name(name), job.RunCompleted)
		j := b.show(name)
		last := j.Attempts[len(j.Attempts)-1]
		if lost := len(j.Attempts) == 2 && j.Attempts[0].Lost && j.Attempts[0].Node == dead; lost != (kind == "codex") || last.Node == dead || last.Node == "" || j.Job.Counted != 1 {
			t.Errorf("%s: %s", name, asJSON(t, j))
		}
		l.do("", "apply", name)
		if text, err := os.ReadFile(filepath.Join(l.repo, "web", "made-by-"+string(kind)+".txt")); err != nil || string(text) != "by "+string(kind) {
			t.Errorf("%s made %q, %v", kind, text, err)
		}
	}
	for name, n := range nodes {
		if name != dead {
			n.run.signal(syscall.SIGTERM)
			n.run.exit(0)
		}
		n.noProcess()
	}
	r.stop()
}
