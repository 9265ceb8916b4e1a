package app_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

func TestMain(m *testing.M) {
	if _, err := testrun.Keep(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// module is another module that uses this one: a folder with a go.mod, and an
// environment in which nothing of the user's is found.
type module struct {
	t   *testing.T
	dir string
	env []string
}

// newModule makes a module of the files, which needs what this one needs.
func newModule(t *testing.T, files map[string]string) *module {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	_, needs, _ := strings.Cut(string(gomod), "\n")
	const ours = "github.com/agentsched/agentsched"
	files["go.mod"] = "module example.com/myscheduler\n" + needs + "\nrequire " + ours + " v0.0.0\n\nreplace " + ours + " => " + root + "\n"
	files["go.sum"] = string(sums)
	m := &module{t: t, dir: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(m.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	m.env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "GOPROXY=off", "GOWORK=off")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // they stay where they are while HOME moves
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		m.env = append(m.env, name+"="+strings.TrimSpace(string(value)))
	}
	m.env = append(m.env, "HOME="+home, "XDG_STATE_HOME="+home+"/state", "XDG_CONFIG_HOME="+home+"/config", "XDG_CACHE_HOME="+home+"/cache")
	return m
}

// run runs a command in the module's folder and returns what it printed.
func (m *module) run(line string) (string, error) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = m.dir, m.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// block is a block of code in a page.
var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestPage builds the program of docs/embedding.md as a module of its own and runs what
// the page runs: a job with the program's own worker, in the order of its own policy.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	console := ""
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		first, _, _ := strings.Cut(b[2], "\n")
		name := strings.TrimLeft(first, "/# ")
		switch {
		case b[1] == "console":
			console = b[2]
		case b[1] == "go", b[1] == "yaml":
			files[name] = b[2]
		}
	}
	if n := strings.Count(files["main.go"], "\n"); n > 20 {
		t.Errorf("main.go has %d lines, the page says 20", n)
	}
	m := newModule(t, files)
	for _, step := range strings.Split(console, "$ ")[1:] {
		line, shown, _ := strings.Cut(step, "\n")
		out, err := m.run(line)
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		rest := out
		for want := range strings.Lines(shown) {
			_, after, found := strings.Cut(rest, strings.TrimSpace(want))
			if !found {
				t.Fatalf("%s printed no further %q:\n%s", line, strings.TrimSpace(want), out)
			}
			rest = after
		}
	}
	if out, err := m.run("go vet ./... && go test ./..."); err != nil {
		t.Errorf("the page's test: %v\n%s", err, out)
	}
}

// extra is a program whose adapters say what they are: a further shell, a further
// worker that streams, and one that npm installs.
const extra = `package main

import (
	"github.com/agentsched/agentsched/app"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/exec"
	"github.com/agentsched/agentsched/worker/shell"
)

type packaged struct{ shell.Adapter }

func (packaged) Package() worker.Package {
	return worker.Package{Name: "my-agent", Version: "1.2.3", Program: "my-agent", Bytes: 1e6}
}

func main() {
	app.Main(
		app.WithAdapter("script", shell.Adapter{}), app.WithAdapter("talker", exec.Adapter{}), app.WithAdapter("npm", packaged{}),
	)
}
`

const streaming = `
jobs: [{id: a, worker: script, instructions: "echo 1"}]
pipelines:
  - id: p
    stages: [{id: s, job: a, streams: true}]
`

// TestAdapterSaysWhatItIs: the adapter of another module is known for what it is where
// the program's own ones are, without a word about it anywhere else.
func TestAdapterSaysWhatItIs(t *testing.T) {
	m := newModule(t, map[string]string{"main.go": extra, "streams.yaml": streaming,
		"jobs.yaml": "jobs: [{id: a, worker: script, instructions: 'echo $AGENTSCHED_FEEDBACK done'}]\n",
		"exec.yaml": "workers: {mine: {adapter: talker}}\n",
	})
	if out, err := m.run("go build -o extra ."); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, c := range []struct {
		name, line string
		fails      bool
		want       string
	}{
		{"runs in the core that is the same program", "./extra run --plain jobs.yaml", false, "done"},
		{"replaces nothing", "./extra doctor", false, "worker codex"},
		{"can be installed", "./extra install-workers unknown", true, "claude codex npm opencode"},
		{"needs a command", "./extra --config exec.yaml config check", true, "the adapter talker needs the program to run"},
		{"cannot be named without one", "./extra run --worker talker x", true, "one of claude, codex, npm, opencode, script, shell"},
		{"streams", "./extra run streams.yaml", true, "needs a worker of the adapter exec or talker"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := m.run(c.line)
			if (err != nil) != c.fails || !strings.Contains(out, c.want) {
				t.Errorf("%s: %v\n%s\nwant %q", c.line, err, out, c.want)
			}
		})
	}
}
