package agentcore

import (
	"fmt"
	"testing"

	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestAuditedDenials: what the audit log tells of is bounded, leaves room for calls, and never stops a run.
func TestAuditedDenials(t *testing.T) {
	var told []string
	var stopped *worker.Stop
	d := newDenials(func(e job.Event) { told = append(told, e.Text) }, func(s *worker.Stop) { stopped = s })
	for i := range 10 * maxAudited {
		d.audited(sandbox.Denial{Call: sandbox.DeniedRead, Detail: fmt.Sprintf("/srv/%d", i)})
	}
	if len(told) != maxAudited+1 || told[0] != "refused by the sandbox: read /srv/0" || told[maxAudited] != "refused by the sandbox: more than 25 different files; the rest is not told" {
		t.Errorf("told of %d: %q", len(told), told)
	}
	d.sandbox(sandbox.Denial{Call: "mount", Hostile: true})
	if last := told[len(told)-1]; last != "refused by the sandbox: mount" {
		t.Errorf("told of %q last", last)
	}
	if stopped != nil || d.count() != 10*maxAudited+1 {
		t.Errorf("stopped by %v, %d are counted", stopped, d.count())
	}
}
