package scheduler

import (
	"slices"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestTraits: what an adapter says of its workers holds for every kind that the
// configuration gives it, whatever the kind is called.
func TestTraits(t *testing.T) {
	k := kinds{
		map[string]job.WorkerTraits{"strict": {ClosedSchemas: true}, "script": {Script: true}, "plain": {}},
		func() map[job.WorkerKind]job.WorkerSettings {
			return map[job.WorkerKind]job.WorkerSettings{"reviewer": {Adapter: "strict"}, "build": {Adapter: "script"}, "writer": {Adapter: "plain"}}
		},
	}
	stage := &job.Stage{ID: "s", Job: "a", Publishes: []job.EventType{"done"}}
	for kind, closed := range map[job.WorkerKind]bool{"strict": true, "reviewer": true, "plain": false, "writer": false, "unknown": false} {
		if schema := newOpenBatches(nil, k).answerSchema(&job.Spec{Worker: kind}, stage); (schema == nil) != closed {
			t.Errorf("%s is given the schema %s", kind, schema)
		}
	}
	shells := k.shells()
	slices.Sort(shells)
	if want := []job.WorkerKind{"build", "script"}; !slices.Equal(shells, want) {
		t.Errorf("shells %q, want %q", shells, want)
	}
}
