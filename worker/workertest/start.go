package workertest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

func (c Config) testStartWrites(t *testing.T) {
	task := c.task(t, "writes")
	base := filepath.Dir(task.Dir)
	// What the adapter itself asks its process's environment for is watched too.
	t.Setenv("HOME", filepath.Join(base, "user"))
	t.Setenv("TMPDIR", filepath.Join(base, "user", "tmp"))
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, filepath.Join(base, "user", strings.ToLower(name)))
	}
	may := []string{task.Home, task.Scratch, filepath.Join(base, "tmp")} // the last is the TMPDIR of task.Environ
	before := listing(t, base, may...)
	c.start(t, task).Command()
	after := listing(t, base, may...)
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if after[path] != before[path] {
			t.Errorf("Start wrote %s, want writes only in Home, Scratch and the run's TMPDIR", path)
		}
	}
	for path := range before {
		if _, there := after[path]; !there {
			t.Errorf("Start removed %s", path)
		}
	}
}

// listing returns what each file and folder below base looks like, except
// those below one of the folders in but.
func listing(t *testing.T, base string, but ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(but, path) {
			return filepath.SkipDir
		}
		if d.IsDir() {
			files[path] = "folder"
			return nil
		}
		info, err := os.Lstat(path)
		if err == nil {
			files[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// testIndependent runs two sessions of one adapter, of which one is told
// everything and the other nothing.
func (c Config) testIndependent(t *testing.T) {
	first, second := c.task(t, "first"), c.task(t, "second")
	a, b := c.start(t, first), c.start(t, second)
	cmdA, cmdB := a.Command(), b.Command()
	if cmdA.Dir == cmdB.Dir {
		t.Errorf("both sessions work in %s", cmdA.Dir)
	}
	for _, word := range slices.Concat(cmdB.Args, cmdB.Env) {
		for _, foreign := range []string{first.Home, first.Scratch, first.Dir} {
			if strings.Contains(word, foreign) {
				t.Errorf("the second session's command has %q, which is of the first", word)
			}
		}
	}
	for _, r := range c.transcripts(t) {
		for _, line := range r.lines {
			a.Step(Now, worker.Output{Line: line})
		}
	}
	got := end(t, b, worker.Exit{})
	if got.Class == job.NoError && !c.PlainOutput {
		t.Error("a session that was told nothing succeeded after another one was told of a run")
	}
	if got.Answer != "" {
		t.Errorf("a session that was told nothing has the answer %q", got.Answer)
	}
}

// testManyGoroutines uses one adapter at once from many; the race detector is
// the judge.
func (c Config) testManyGoroutines(t *testing.T) {
	lines := [][]byte{[]byte("plain"), []byte(`{"type":"x"}`)}
	for _, r := range c.transcripts(t) {
		lines = append(lines, r.lines...)
	}
	var tasks []*worker.Task
	for i := range 8 {
		tasks = append(tasks, c.task(t, fmt.Sprintf("job%d", i)))
	}
	var all sync.WaitGroup
	for _, task := range tasks {
		all.Go(func() {
			s, err := c.Adapter.Start(task)
			if err != nil {
				t.Errorf("start %s: %v", task.Name, err)
				return
			}
			s.Command()
			for _, line := range lines {
				s.Step(Now, worker.Output{Line: line})
			}
			s.Step(Now, worker.Cancel{})
			check(t, "after Cancel", end(t, s, worker.Exit{Code: 1}), worker.Exit{Code: 1})
		})
	}
	all.Wait()
}
