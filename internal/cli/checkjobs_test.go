package cli

import (
	"errors"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestProgramElsewhere: what a job needs must be on this host only if no other can run it.
func TestProgramElsewhere(t *testing.T) {
	state, folder := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		name   string
		change func(*config.Config, *job.Spec)
		here   bool
	}{
		{"one host", func(*config.Config, *job.Spec) {}, true},
		{"a fleet", func(cfg *config.Config, _ *job.Spec) { cfg.Fleet.Store = "postgres://db/queue" }, false},
		{"a fleet, in a folder of this host", func(cfg *config.Config, s *job.Spec) {
			cfg.Fleet.Store = "postgres://db/queue"
			s.Workspace = job.Workspace{Path: folder, Isolation: job.Direct}
		}, true},
		{"only nodes work", func(cfg *config.Config, _ *job.Spec) { cfg.Fleet.Work = false }, false},
		{"a node by its label", func(_ *config.Config, s *job.Spec) { s.Node.Has = []string{"gpu"} }, false},
	} {
		cfg := config.Default()
		cfg.Workers = map[job.WorkerKind]job.WorkerSettings{"agent": {Adapter: "codex", Command: []string{"/nowhere/codex"}}}
		spec := job.Spec{Name: "one", Worker: "agent", Workspace: job.Workspace{Isolation: job.NoWorkspace}}
		c.change(&cfg, &spec)
		local := &local{prog: &program{adapters: agentcore.Adapters(), ownCore: true}, stateDir: state}
		err := local.checkJobs(t.Context(), []job.Spec{spec}, &cfg, nil)
		if missing := errors.Is(err, worker.ErrNotInstalled); missing != c.here {
			t.Errorf("%s: %v, want the program to be missed here: %t", c.name, err, c.here)
		}
	}
}
