package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// sharedFiles are files of attempts by their names.
type sharedFiles struct {
	artifactStore
	files map[string]string
}

func (s sharedFiles) Write(_ context.Context, _ job.ID, _ int, name string, w io.Writer) error {
	text, ok := s.files[name]
	if !ok {
		return queue.ErrNotFound
	}
	_, err := io.WriteString(w, text)
	return err
}

// TestFileHere: a file that is recorded on another host is found here, or brought here from where all schedulers have it.
func TestFileHere(t *testing.T) {
	dir, err := statedir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := &owned{dir: dir, artifacts: sharedFiles{files: map[string]string{job.ArtifactPatch: "theirs"}}}
	of := func(id job.ID, name string) job.Artifact {
		return job.Artifact{Name: job.ArtifactPatch, Path: filepath.Join("/on/another/host/jobs", string(id), "2", name), Bytes: 6}
	}
	for _, id := range []job.ID{"brought", "brought"} { // the second time it is there
		a, err := o.fileHere(t.Context(), of(id, "changes.patch"))
		if text, rerr := os.ReadFile(a.Path); err != nil || rerr != nil || string(text) != "theirs" || a.Path != filepath.Join(dir.Attempt(id, 2), "patch") {
			t.Errorf("%+v holds %q, %v, %v", a, text, err, rerr)
		}
	}
	mine := filepath.Join(dir.Attempt("mine", 2), "changes.patch")
	if err := errors.Join(os.MkdirAll(filepath.Dir(mine), 0o700), os.WriteFile(mine, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if a, err := o.fileHere(t.Context(), of("mine", "changes.patch")); err != nil || a.Path != mine {
		t.Errorf("%+v, %v, want %s", a, err, mine)
	}
	o.artifacts = sharedFiles{}
	if _, err := o.fileHere(t.Context(), of("none", "patch")); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("one that nobody has: %v", err)
	}
	for _, path := range []string{"/etc/passwd", "/jobs/../1/patch", "/jobs/a/0/patch", "/jobs/a/1", ""} {
		if a, err := o.fileHere(t.Context(), job.Artifact{Name: job.ArtifactPatch, Path: path}); err != nil || a.Path != path {
			t.Errorf("%q becomes %q, %v", path, a.Path, err)
		}
	}
}
