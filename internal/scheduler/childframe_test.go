package scheduler

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestChildrenFitIntoAFrame: whatever the agents of as many children as there may be say of their failures, their lead can be told.
func TestChildrenFitIntoAFrame(t *testing.T) {
	c := child{Name: strings.Repeat("n", 32), ID: job.NewID(), entry: queue.Entry{State: job.Completed, ExitKind: job.ExitFailed, DeadLetter: strings.Repeat("\x01", 100_000)}}
	var all ipc.Children
	for range 100 { // children.max_jobs at most
		all.Children = append(all.Children, c.wire())
	}
	if text, err := json.Marshal(all); err != nil || len(text) > ipc.MaxFrame*3/4 {
		t.Errorf("%d children have %d bytes, %v; a frame has %d", len(all.Children), len(text), err, ipc.MaxFrame)
	}
}
