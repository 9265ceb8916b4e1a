package statedir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// Whatever a run does with its folder, the next one gets an empty one that is
// private, under its own name, and at the end none is left.
func TestTempsAreEmptyAndPrivate(t *testing.T) {
	do := func(f func(path string) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := f(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(path string) error { return os.WriteFile(filepath.Join(path, "file"), nil, 0o600) }
	for _, tc := range []struct {
		name string
		use  func(*testing.T, string) // before it is returned
		idle func(*testing.T, string) // while it is spare
		kept bool
	}{
		{name: "left empty", kept: true},
		{name: "a file left", use: do(file)},
		{name: "a folder left", use: do(func(p string) error { return os.Mkdir(filepath.Join(p, "x"), 0) })},
		{name: "opened to others", use: do(func(p string) error { return os.Chmod(p, 0o777) })},
		{name: "removed", use: do(os.Remove)},
		{name: "replaced by a link", use: do(func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Symlink(os.TempDir(), p)
		})},
		{name: "cleaned away", idle: do(os.Remove), kept: true},
		{name: "replaced by another", kept: true, idle: do(func(p string) error {
			if err := os.Rename(p, p+"-elsewhere"); err != nil { // keeps its number from being used again
				return err
			}
			if err := os.Mkdir(p, 0o777); err != nil {
				return err
			}
			if err := file(p); err != nil {
				return err
			}
			return os.Remove(p + "-elsewhere")
		})},
		{name: "filled", kept: true, idle: do(file)},
		{name: "filled within one tick of the file system's clock", kept: true, idle: do(func(p string) error {
			info, err := os.Lstat(p)
			if err != nil {
				return err
			}
			return errors.Join(file(p), os.Chtimes(p, info.ModTime(), info.ModTime()))
		})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			dir := statedir.At(t.TempDir(), job.NewInstanceID())
			temps := dir.Temps(1)
			take := func(id string) string {
				tag := job.RunTag(dir.Instance(), job.ID(id), 1)
				path, err := temps.Take(tag)
				if err != nil || path != dir.Temp(tag) {
					t.Fatalf("got %q, %v", path, err)
				}
				return path
			}
			first := take("a")
			before, err := os.Lstat(first)
			if err != nil {
				t.Fatal(err)
			}
			if tc.use != nil {
				tc.use(t, first)
			}
			if err := temps.Return(first); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(first); !os.IsNotExist(err) {
				t.Errorf("it is still there after its return: %v", err)
			}
			spare, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
			if err != nil || (len(spare) == 1) != tc.kept {
				t.Fatalf("spare: %q, %v", spare, err)
			}
			if tc.idle != nil {
				tc.idle(t, spare[0])
			}
			second := take("b")
			after, err := os.Lstat(second)
			if err != nil || after.Mode() != os.ModeDir|0o700 {
				t.Errorf("the next one: %v, %v", after.Mode(), err)
			}
			if entries, err := os.ReadDir(second); err != nil || len(entries) > 0 {
				t.Errorf("the next one holds %v, %v", entries, err)
			}
			if tc.kept && tc.idle == nil && !os.SameFile(before, after) {
				t.Error("the spare folder was not used")
			}
			// What is there of an earlier attempt under the same tag is gone.
			if err := file(second); err != nil {
				t.Fatal(err)
			}
			third := take("b")
			if entries, err := os.ReadDir(third); err != nil || len(entries) > 0 {
				t.Errorf("taken again it holds %v, %v", entries, err)
			}
			if err := temps.Return(third); err != nil {
				t.Fatal(err)
			}
			if err := temps.Close(); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
