package agentcore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// readPatch is the scheduler's side of read_patch: its pieces are small.
func (p parcelStore) readPatch(params json.RawMessage) (any, error) {
	var r ipc.ReadPatch
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, err
	}
	text, ok := p[r.Path]
	switch {
	case p == nil:
		return nil, errors.New("not now")
	case !ok:
		return ipc.ReadPatchResult{Missing: "it is nowhere"}, nil
	}
	from := min(r.Offset, int64(len(text)))
	return ipc.ReadPatchResult{Data: text[from:min(from+7, int64(len(text)))]}, nil
}

// TestPatchesElsewhere: a core gets the patches that a run builds on from the scheduler, those that its words name too, and
// believes none that is not what was recorded.
func TestPatchesElsewhere(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	const path = "/nowhere/jobs/01a1fcce-6b90-7022-94af-83e4d513c5ef/1/patch"
	text := "diff --git a/made b/made\nnew file mode 100644\n--- /dev/null\n+++ b/made\n@@ -0,0 +1 @@\n+by another\n"
	sum := sha256.Sum256([]byte(text))
	of := job.Patch{Job: "other", Path: path, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}
	c.patches = parcelStore{path: []byte(text)}
	attempt := func(id job.ID, away bool, of job.Patch) job.Outcome {
		t.Helper()
		s := spec("true", func(s *job.Spec) { s.Workspace = job.Workspace{Path: t.TempDir(), Isolation: job.Copy} })
		with := &job.Resolved{Instructions: "cat made; grep -c another " + path + "; ! grep -q nowhere \"$AGENTSCHED_INPUT\"", Input: json.RawMessage(`"` + path + `"`), Patches: []job.Patch{of}}
		return c.runResolved(id, 1, s, with, func(r *ipc.SubmitJob) { r.Away, r.Named = away, []job.Patch{of} })
	}
	for id, away := range map[job.ID]bool{"a": true, "b": false} {
		if o := attempt(id, away, of); !o.Succeeded() || o.Answer != "by another\n1" {
			t.Errorf("away %v: %+v", away, o)
		}
	}
	other := of
	other.SHA256 = strings.Repeat("0", 64)
	if o := attempt("c", true, other); o.Class != job.Config || !strings.Contains(o.Message, "cannot be trusted") {
		t.Errorf("another patch: %s %q", o.Class, o.Message)
	}
	other = of
	other.Bytes--
	if o := attempt("d", true, other); o.Class != job.Config || !strings.Contains(o.Message, "has more than") {
		t.Errorf("a longer one: %s %q", o.Class, o.Message)
	}
	c.patches = parcelStore{}
	if o := attempt("e", true, of); o.Class != job.Config || !strings.Contains(o.Message, "the patch of job other is missing: "+path+": it is nowhere") {
		t.Errorf("none: %s %q", o.Class, o.Message)
	}
	c.patches = nil
	if o := attempt("f", true, of); o.Class != job.Network {
		t.Errorf("a scheduler that cannot answer now: %s %q", o.Class, o.Message)
	}
	c.end()
}
