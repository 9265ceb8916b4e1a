package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// A file that is too large for a patch is recorded as changed, with its size, and
// not read: this one has a TiB, of which nothing is on the disk.
func TestLargeFiles(t *testing.T) {
	const size = 1 << 40
	for _, i := range all {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"keep": "k", "grows": "g"})
			ws := h.prepare(job.NewID(), h.spec(i), false)
			h.write(ws.Root, map[string]string{"small": "s", "sub/new": "n"})
			for _, name := range []string{"grows", "sub/new"} {
				if err := os.Truncate(filepath.Join(ws.Root, name), size); err != nil {
					t.Skip(err) // this file system has no such files
				}
			}
			c, err := h.m.Collect(t.Context(), ws, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []job.FileChange{
				{Path: "grows", Change: "modified", Bytes: size}, {Path: "sub/new", Change: "added", Bytes: size}, {Path: "small", Change: "added"},
			} {
				if !slices.Contains(c.Files, want) {
					t.Errorf("%+v is missing in %+v", want, c.Files)
				}
			}
			if len(c.Files) != 3 {
				t.Errorf("files %+v", c.Files)
			}
			if patch := h.read(c.Patch); !strings.Contains(patch, "small") || strings.Contains(patch, "grows") || strings.Contains(patch, "sub/new") {
				t.Errorf("patch:\n%s", patch)
			}
			if notes := strings.Join(c.Notes, "\n"); !strings.Contains(notes, `"grows": it has 1099511627776 bytes`) {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}
