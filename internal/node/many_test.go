package node

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestMany: a leader dies, and all of its nodes come to the next one at once, each with a run: all are there within the time
// that their backoff allows, and none loses its lease and what follows.
func TestMany(t *testing.T) {
	count := 100
	if testrun.Soaking() {
		count = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l := lead(t, &net, "s", func(l *leader) { l.keeps = false })
		defer l.stop()
		dir := t.TempDir()
		all := make([]*worker, count)
		for i := range all {
			all[i] = workAs(t, &net, fmt.Sprintf("%s/%d", dir, i), fmt.Sprintf("n%d", i), func() time.Duration { return 0 }, "s:1", "r:1")
			defer all[i].end() //nolint:errcheck // told to
		}
		for _, w := range all {
			<-w.live
		}
		pass(lastRetry)
		l.mu.Lock()
		if len(l.cores) != count {
			t.Fatalf("%d cores of %d nodes are up", len(l.cores), count)
		}
		for c := range l.cores {
			if err := c.Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: job.ID("of-" + c.Node()), Attempt: 1}, nil); err != nil {
				t.Error(err)
			}
		}
		l.mu.Unlock()
		l.stop()
		next := lead(t, &net, "r", nil)
		defer next.stop()
		pass(2 * lastRetry)
		text := next.take()
		for i, w := range all {
			if !strings.Contains(text, fmt.Sprintf("held by n%d: of-n%d/1 past=false counts=true", i, i)) {
				t.Errorf("node %d has not come with its run", i)
			}
			if !w.leased() {
				t.Errorf("node %d has no lease", i)
			}
		}
	})
}
