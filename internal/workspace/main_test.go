package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// dieVariable makes the test binary a child that kills itself with SIGKILL
// right after the start of its n-th git command: "n prepare|fresh|remove|collect
// root path id isolation out".
const dieVariable = "WORKSPACE_TEST_DIE"

// killEvery is how many git commands lie between two at which children are killed; a soak
// kills at each.
func killEvery() int {
	if testrun.Soaking() {
		return 1
	}
	return 3 // odd: what the tests do by turns they do both ways
}

func TestMain(m *testing.M) {
	if s := os.Getenv(dieVariable); s != "" {
		os.Exit(dieAt(strings.Split(s, "|")))
	}
	home, err := os.MkdirTemp("", "workspace-test-")
	if err != nil {
		panic(err)
	}
	for k, v := range map[string]string{
		"HOME": home, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
		// Whatever a caller has set must not matter.
		"GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_WORK_TREE": "/nonexistent",
	} {
		os.Setenv(k, v)
	}
	code := m.Run()
	os.RemoveAll(home)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func dieAt(args []string) int {
	n, _ := strconv.Atoi(args[0])
	root, path, id := args[2], args[3], job.ID(args[4])
	m := New(Config{Root: root, Locks: root + "-locks", Log: zerolog.Nop(), Run: func(_ context.Context, cmd *exec.Cmd) error {
		if n--; n > 0 {
			return cmd.Run()
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}})
	var err error
	spec := job.Workspace{Path: path, Isolation: job.Isolation(args[5])}
	switch args[1] {
	case "remove":
		err = m.Remove(context.Background(), id, spec, RemoveOptions{Force: true})
	case "collect":
		var ws *Workspace
		if ws, err = m.Open(context.Background(), id, spec); err == nil {
			_, err = m.Collect(context.Background(), ws, args[6])
		}
	default:
		_, err = m.Prepare(context.Background(), Request{Job: id, Name: "job", Spec: spec, Fresh: args[1] == "fresh"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// house is a user's repository and a manager beside it.
type house struct {
	t    testing.TB
	m    *Manager
	root string
	repo string
	out  string // where patches go
}

func newHouse(t *testing.T, files map[string]string) *house {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, root: filepath.Join(dir, "state"), repo: filepath.Join(dir, "repo"), out: filepath.Join(dir, "out")}
	h.m = New(Config{Root: h.root, Locks: h.root + "-locks", Log: zerolog.New(zerolog.NewTestWriter(t))})
	// Read-only folders are the test's doing and must not stop TempDir's cleanup.
	t.Cleanup(func() { removeAll(dir) })
	if err := os.MkdirAll(h.repo, 0o755); err != nil {
		t.Fatal(err)
	}
	h.write(h.repo, files)
	if files != nil {
		h.git(h.repo, "init", "-q", "-b", "main")
		h.commit(h.repo, "first")
	}
	return h
}

func (h *house) git(dir string, args ...string) string {
	h.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir, cmd.Env = dir, gitEnv(os.Environ())
	// As a user's own git: nothing is forbidden.
	cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=0", "GIT_NO_LAZY_FETCH=0", "GIT_ALLOW_PROTOCOL=file:ext:ssh")
	b, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %v in %s: %v\n%s", args, dir, err, b)
	}
	return strings.TrimSuffix(string(b), "\n")
}

func (h *house) commit(dir, message string) string {
	h.t.Helper()
	h.git(dir, "add", "-A")
	h.git(dir, "commit", "-q", "--allow-empty", "-m", message)
	return h.git(dir, "rev-parse", "HEAD")
}

func (h *house) write(dir string, files map[string]string) {
	h.t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *house) read(path ...string) string {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

func (h *house) spec(i job.Isolation) job.Workspace {
	if i == job.NoWorkspace {
		return job.Workspace{Isolation: i}
	}
	return job.Workspace{Path: h.repo, Isolation: i}
}

func (h *house) prepare(id job.ID, spec job.Workspace, fresh bool) *Workspace {
	h.t.Helper()
	ws, err := h.m.Prepare(h.t.Context(), Request{Job: id, Name: "job", Spec: spec, Fresh: fresh})
	if err != nil {
		h.t.Fatal(err)
	}
	return ws
}

func (h *house) collect(ws *Workspace) Changes {
	h.t.Helper()
	c, err := h.m.Collect(h.t.Context(), ws, h.out)
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *house) apply(patch string) Applied {
	h.t.Helper()
	a, err := h.m.Apply(h.t.Context(), job.Patch{Path: patch}, h.repo)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

// changed lists changes as "modified a.txt", sorted.
func changed(c Changes) string {
	var lines []string
	for _, f := range c.Files {
		lines = append(lines, f.Change+" "+f.Path)
	}
	sort.Strings(lines)
	return strings.Join(lines, ", ")
}

// state describes everything below dir: names, modes, contents, link targets.
// With git it looks into .git as well.
func state(t *testing.T, dir string, git bool) string {
	t.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !git && d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%q %v", rel, info.Mode())
		switch {
		case info.Mode().IsRegular():
			c, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", c)
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %q", to)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
