package trigger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// watched is a running trigger on files below dir.
type watched struct {
	t    *testing.T
	dir  string
	came chan Firing
}

// watch runs a trigger and returns once it watches. Its debounce is short.
func watch(t *testing.T, dir string, w Watch, q *queue) *watched {
	t.Helper()
	for i := range w.Paths {
		w.Paths[i] = filepath.Join(dir, w.Paths[i])
	}
	w.Debounce = job.Duration(50 * time.Millisecond)
	q.came = make(chan Firing, 100)
	cfg := config(t, q, map[Name]Settings{"a": {Watch: &w, Job: "/j.yaml"}})
	ready := make(chan bool)
	var once sync.Once
	cfg.Log = zerolog.New(writer(func(p []byte) {
		if strings.Contains(string(p), "files are watched") {
			once.Do(func() { close(ready) })
		}
	}))
	_, stop := started(t, cfg)
	t.Cleanup(stop)
	select {
	case <-ready:
	case <-testrun.After(t):
		t.Fatal("nothing is watched")
	}
	return &watched{t, dir, q.came}
}

// file makes a file or writes to one, each in a single step: between two, a busy
// system may take longer than the debounce.
func (w *watched) file(name string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		if f, err = os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString("text")
		}
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) folder(name string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Join(w.dir, name), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// want waits until all of the lines have come, in any number of firings, and
// fails for one that nobody expects.
func (w *watched) want(lines ...string) {
	w.t.Helper()
	missing := map[string]bool{}
	for _, line := range lines {
		missing[line] = true
	}
	timeout := testrun.After(w.t)
	for len(missing) > 0 {
		select {
		case f := <-w.came:
			if f.Kind != job.ByEvent || f.At.IsZero() || !strings.HasPrefix(f.ID, "a@") {
				w.t.Errorf("firing %+v", f)
			}
			for line := range strings.Lines(f.Event) {
				line = strings.Replace(strings.TrimSuffix(line, "\n"), " "+w.dir+"/", " ", 1)
				known := false
				for _, one := range lines {
					known = known || one == line
				}
				if !known {
					w.t.Errorf("unexpected: %s", line)
				}
				delete(missing, line)
			}
		case <-timeout:
			w.t.Fatalf("did not come: %v", missing)
		}
	}
}

func TestWatchFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "old"), "", 0o600)
	w := watch(t, dir, Watch{Paths: []string{""}, Ignore: []string{"*.log", "skip"}}, &queue{})
	w.file("old")
	w.want("write old")
	w.folder("sub")
	w.file("sub/deep") // not recursive
	w.file("a.log")
	w.file("new")
	w.want("create sub", "create new")
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	w.remove("old")
	w.want("rename new", "create moved", "remove old")
	w.file("two\nlines")
	w.want(`create "` + dir + `/two\nlines"`)
}

func TestWatchBelow(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"src/a", "src/.git", "src/node_modules/x"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, dir, Watch{Paths: []string{"src/**/*.go", "one.txt"}, Ignore: []string{".git", "src/generated", "node_modules"}}, &queue{})
	w.file("src/node_modules/x/no.go")
	w.file("src/.git/no.go")
	w.file("src/a/no.txt")
	w.file("src/a/yes.go")
	w.file("src/top.go")
	w.file("one.txt")
	w.file("two.txt")
	w.want("create src/a/yes.go", "create src/top.go", "create one.txt")
	// A folder with files in it that are there before anybody can watch it.
	w.folder("new/x/y")
	w.file("new/x/y/z.go")
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "src/new")); err != nil {
		t.Fatal(err)
	}
	w.want("create src/new/x/y/z.go")
	w.file("src/new/x/y/later.go")
	w.want("create src/new/x/y/later.go")
	// Moved away it is no longer watched.
	if err := os.Rename(filepath.Join(dir, "src/new"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	w.file("away/x/y/gone.go")
	w.file("src/end.go")
	w.want("create src/end.go")
}

func TestWatchChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "", 0o600)
	w := watch(t, dir, Watch{Paths: []string{"*"}, Changes: []Change{Chmod, Remove}}, &queue{})
	w.file("f")
	w.file("g")
	if err := os.Chmod(filepath.Join(dir, "f"), 0o640); err != nil {
		t.Fatal(err)
	}
	w.want("chmod f")
	w.remove("g")
	w.want("remove g")
}

// TestWatchComesAndGoes: what is watched is removed and made again.
func TestWatchComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	w := watch(t, dir, Watch{Paths: []string{"src"}, Recursive: true}, &queue{})
	w.folder("src") // it was not there
	w.want("create src", "and other changes")
	w.file("src/a")
	w.want("create src/a")
	w.remove("src")
	w.want("remove src/a", "and other changes")
	w.folder("src")
	w.want("create src", "and other changes")
}

// TestWatchRetries: changes that could not be submitted are kept, with those
// that came since.
func TestWatchRetries(t *testing.T) {
	tried := make(chan string, 9)
	q := &queue{}
	q.answer = func(f Firing) error {
		tried <- f.Event
		if strings.Contains(f.Event, "b") {
			return nil
		}
		return errors.New("no")
	}
	w := watch(t, t.TempDir(), Watch{Paths: []string{""}}, q)
	w.file("a")
	<-tried
	w.file("b")
	w.want("create a", "create b")
}

// TestWatchFails: a folder that cannot be watched is an error that is shown.
func TestWatchFails(t *testing.T) {
	cfg := config(t, &queue{}, map[Name]Settings{"a": {Watch: &Watch{Paths: []string{filepath.Join(t.TempDir(), "no/such/file")}}, Job: "/j.yaml"}})
	logged := make(chan string, 9)
	cfg.Log = zerolog.New(writer(func(p []byte) { logged <- string(p) }))
	r, stop := started(t, cfg)
	defer stop()
	if line := <-logged; !strings.Contains(line, "no such file") {
		t.Errorf("log %s", line)
	}
	if s := r.Status()[0]; !strings.Contains(s.LastError, "no such file") {
		t.Errorf("status %+v", s)
	}
}

// TestManyChanges: a storm is one firing of bounded size.
func TestManyChanges(t *testing.T) {
	q := &queue{came: make(chan Firing, 1)}
	s := &source{runner: &Runner{cfg: Config{Submit: q.submit}, book: &book{kept: statedir.NewSoleWriter(statedir.Files(t.TempDir()), "b"), records: map[Name]*record{}}}, name: "a"}
	w := &watcher{source: s, pending: map[string]Change{}}
	for range 2 {
		for i := range maxChanges + 1 {
			w.add("/srv/app/"+strings.Repeat("x", 10)+strconv.Itoa(i), Create)
		}
	}
	if err := w.submit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if f := <-q.came; len(f.Event) > MaxEvent || !strings.HasSuffix(f.Event, "left out]") {
		t.Errorf("%d bytes", len(f.Event))
	}
	if len(w.pending) != 0 || w.more {
		t.Errorf("%d pending", len(w.pending))
	}
	w.add("", "")
	if got := w.text(); got != "and other changes\n" {
		t.Errorf("%q", got)
	}
	w.add("/srv/new", Create)
	w.add("/srv/new", Write)
	if got := w.text(); got != "create /srv/new\nand other changes\n" {
		t.Errorf("%q", got)
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"*", "a", true}, {"*", "a/b", false}, {"**", "a/b", true}, {"**", "", true}, {"*.go", "a.go", true},
		{"**/*.go", "a.go", true}, {"**/*.go", "x/y/a.go", true}, {"**/*.go", "x/y/a.c", false}, {"x/**/z", "x/z", true},
		{"x/**/z", "x/y/z", true}, {"x/**/z", "y/z", false}, {"**/**/a", "a", true}, {"[ab]/?", "b/c", true}, {"a/**", "a", true}, {"a", "a/b", false},
	} {
		split := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == '/' }) }
		if got := match(split(tt.pattern), split(tt.path)); got != tt.want {
			t.Errorf("%s of %s: %v", tt.pattern, tt.path, got)
		}
	}
}
