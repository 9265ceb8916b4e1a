package workertest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/worker"
)

// GoldenCommand checks a command of t's session, and the files that Start has left,
// against a golden file, in which {home}, {scratch}, {workspace} and {user} stand for the
// folders. Variables are shown unless the task's environment has them as they are. With
// update, the file is written instead.
func GoldenCommand(t *testing.T, golden string, update bool, task *worker.Task, c worker.Command) {
	t.Helper()
	var out bytes.Buffer
	list := func(title string, lines []string) {
		for _, l := range lines {
			fmt.Fprintf(&out, "%s %s\n", title, l)
		}
	}
	env := slices.DeleteFunc(slices.Clone(c.Env), func(kv string) bool { return slices.Contains(task.Environ, kv) })
	slices.Sort(env)
	list("arg", c.Args)
	list("env", env)
	list("read", c.Read)
	list("write", c.Write)
	for _, root := range []string{task.Home, task.Scratch} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				fmt.Fprintf(&out, "\n-- %s --\n%s\n", path, bytes.TrimSpace(Read(t, path)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	folders := strings.NewReplacer(task.Home, "{home}", task.Scratch, "{scratch}", task.Dir, "{workspace}", task.Getenv("HOME"), "{user}")
	got := []byte(folders.Replace(out.String()))
	if update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := Read(t, golden); !bytes.Equal(got, want) {
		t.Errorf("%s: got:\n%s\nwant:\n%s", golden, got, want)
	}
}
