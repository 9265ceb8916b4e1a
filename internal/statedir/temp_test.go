package statedir_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

func TestTemp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := statedir.At(t.TempDir(), job.NewInstanceID())
	other := statedir.At(t.TempDir(), job.NewInstanceID())
	tag := func(d *statedir.Dir, id string, attempt int) string {
		return job.RunTag(d.Instance(), job.ID(id), attempt)
	}

	longest := dir.Temp(tag(dir, string(job.NewID()), 1000))
	// A socket's path has at most 108 bytes, and a program adds to ours.
	if name := filepath.Base(longest); len(name) > 64 || filepath.Dir(longest) != os.TempDir() {
		t.Errorf("folder %s: its name has %d bytes", longest, len(name))
	}
	fill := func() (ours []string, theirs string) {
		for _, tag := range []string{tag(dir, "a", 1), tag(dir, "a", 11), tag(dir, "b", 1), tag(dir, "../c", 1)} {
			ours = append(ours, dir.Temp(tag))
		}
		theirs = other.Temp(tag(other, "a", 1))
		for _, path := range append(slices.Clone(ours), theirs) {
			if filepath.Dir(path) != os.TempDir() {
				t.Errorf("folder %s", path)
			}
			if err := os.MkdirAll(filepath.Join(path, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return ours, theirs
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(os.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, filepath.Join(os.TempDir(), e.Name()))
		}
		return names
	}
	ours, theirs := fill()
	if distinct := slices.Compact(slices.Sorted(slices.Values(ours))); len(distinct) != 4 {
		t.Errorf("folders %q", ours)
	}
	if err := dir.RemoveTemp([]string{tag(dir, "a", 1), tag(dir, "never", 1)}); err != nil {
		t.Error(err)
	}
	if got := left(); len(got) != 4 || slices.Contains(got, ours[0]) {
		t.Errorf("left: %q", got)
	}
	if err := dir.RemoveTemp([]string{}); err != nil || len(left()) != 4 {
		t.Errorf("removing none: %v, left %q", err, left())
	}
	if err := dir.RemoveTemp(nil); err != nil || !slices.Equal(left(), []string{theirs}) {
		t.Errorf("removing all: %v, left %q", err, left())
	}
	if !strings.HasPrefix(dir.Crashes(), dir.Path()) {
		t.Errorf("crashes are in %s", dir.Crashes())
	}
}
