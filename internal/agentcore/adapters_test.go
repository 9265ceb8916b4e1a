package agentcore_test

import (
	"maps"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestTraits: what the rest of the program knows of a worker is what its adapter says.
func TestTraits(t *testing.T) {
	want := map[string]job.WorkerTraits{
		"acp": {NeedsCommand: true, Forks: true}, "claude": {Forks: true}, "codex": {ClosedSchemas: true, Forks: true}, "opencode": {}, "shell": {Script: true},
		"exec": {Streams: true, NeedsCommand: true, Forks: true},
	}
	if got := worker.AllTraits(agentcore.Adapters()); !maps.Equal(got, want) {
		t.Errorf("traits %+v, want %+v", got, want)
	}
	providers := map[string]string{}
	for name, a := range agentcore.Adapters() {
		if p, ok := a.(worker.Provided); ok {
			providers[name] = p.Provider()
		}
	}
	if want := map[string]string{"codex": "openai", "claude": "anthropic"}; !maps.Equal(providers, want) {
		t.Errorf("providers %v, want %v", providers, want)
	}
}
