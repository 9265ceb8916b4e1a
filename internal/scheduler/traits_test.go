package scheduler

import (
	"slices"
	"testing"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestTraits: what an adapter says of its workers holds for every kind that the
// configuration gives it, whatever the kind is called.
func TestTraits(t *testing.T) {
	s := &Scheduler{cfg: Config{
		Traits: map[string]job.WorkerTraits{"strict": {ClosedSchemas: true}, "script": {Script: true}, "plain": {}},
		Tuning: Tuning{Settings: ipc.Configure{Workers: map[job.WorkerKind]job.WorkerSettings{
			"reviewer": {Adapter: "strict"}, "build": {Adapter: "script"}, "writer": {Adapter: "plain"},
		}}},
	}}
	stage := &job.Stage{ID: "s", Job: "a", Publishes: []job.EventType{"done"}}
	for kind, closed := range map[job.WorkerKind]bool{"strict": true, "reviewer": true, "plain": false, "writer": false, "unknown": false} {
		if schema := s.answerSchema(&job.Spec{Worker: kind}, stage); (schema == nil) != closed {
			t.Errorf("%s is given the schema %s", kind, schema)
		}
	}
	shells := s.shells()
	slices.Sort(shells)
	if want := []job.WorkerKind{"build", "script"}; !slices.Equal(shells, want) {
		t.Errorf("shells %q, want %q", shells, want)
	}
}
