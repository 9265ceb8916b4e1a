package job

import (
	"strings"
	"testing"
)

// TestASubmissionDoesNotReplay: it could name a run of somebody else's.
func TestASubmissionDoesNotReplay(t *testing.T) {
	w := Workflow{Pipelines: []Pipeline{{ID: "a"}, {ID: "b", Replays: &Replay{Batch: "other", Stage: "s"}}}}
	errs := w.Validate()
	if len(errs) != 1 || errs[0].Field != "pipelines[1].replays" || !strings.Contains(errs[0].Message, "the scheduler's to set") {
		t.Errorf("got %v", errs)
	}
}
