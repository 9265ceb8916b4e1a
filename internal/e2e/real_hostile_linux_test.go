package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// TestRealHostile has each CLI do the acts of TestHostile, which its model asks for: what is held for a program of ours is held
// for it, too, with models that it reaches by the run's own key.
func TestRealHostile(t *testing.T) {
	eachCLI(t, "codex opencode", func(t *testing.T, kind job.WorkerKind) {
		for _, level := range []string{"standard", "strict"} {
			t.Run(level, func(t *testing.T) {
				if level == "standard" && kind != "codex" {
					testrun.Long(t, "done at level strict, and at this one by codex")
				}
				w := newWorld(t, 0)
				w.b.use(kind)
				w.begin(level)
				w.sibling(level)
				// Each run does four attacks at most, and a CLI takes seconds to start: the attacks are the soak's.
				rows := rowsOf(hostileTable(), func(r hostileRow) bool { return r.job == "" && (!r.attacks || testrun.Soaking()) })
				w.check(level, rows, w.tryCLI(kind, level, rows))
				w.endSibling()
				w.run.stop()
			})
		}
	})
}

// tryCLI is try with a CLI that its model tells to do the acts, in as few turns as batches.
func (w *world) tryCLI(kind job.WorkerKind, level string, rows []hostileRow) map[string]hostileResult {
	t := w.b.t
	t.Helper()
	w.prepare()
	told := w.Public + "/cli.world"
	w.b.write(told, asJSON(t, w.surroundings))
	all := batches(rows)
	var jobs []obj
	for i, acts := range all {
		name := fmt.Sprintf("cli-%d", i)
		w.b.play(name, scriptmodel.Play(
			scriptmodel.Run(fmt.Sprintf("%s/hostile %s %s > %s/results/%s; echo done", w.Public, told, strings.Join(acts, " "), w.Public, name)),
			scriptmodel.Say("All done.")))
		jobs = append(jobs, w.b.task(name, kind, name, obj{
			"limits":  obj{"max_attempts": 1},
			"env":     []string{"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"},
			"sandbox": obj{"level": level, "read": []string{w.Public}, "write": []string{w.Public + "/results"}},
		}))
	}
	w.b.submit(w.b.jobsOf("tests", "cli.yaml", jobs...))
	got := make(map[string]hostileResult)
	for i := range all {
		name := fmt.Sprintf("cli-%d", i)
		w.run.end(job.Name(name), job.RunCompleted)
		data, err := os.ReadFile(w.Public + "/results/" + name)
		if err != nil {
			t.Fatal(err)
		}
		w.take(got, data)
	}
	return got
}
