package travel

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/internal/workspace"
)

func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "travel-test-")
	if err != nil {
		panic(err)
	}
	for k, v := range map[string]string{
		"HOME": home, "GIT_CONFIG_GLOBAL": filepath.Join(home, "gitconfig"), "GIT_CONFIG_NOSYSTEM": "1",
		// Whatever a caller has set must not matter.
		"GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_WORK_TREE": "/nonexistent",
	} {
		os.Setenv(k, v)
	}
	os.Unsetenv("XDG_CONFIG_HOME")
	// A check of what travels starts some forty programs; -rapid.checks overrides this.
	checks := "5" // a sample
	if testrun.Soaking() {
		checks = "100"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(home)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// hosts are a submitter's host, with a repository, and a node.
type hosts struct {
	t      fataler
	ctx    context.Context
	dir    string
	repo   string
	packer *Packer
	node   *Mirrors
}

func newHosts(t testing.TB) *hosts {
	t.Helper()
	return hostsIn(t, t.Context(), t.TempDir())
}

func hostsIn(t fataler, ctx context.Context, dir string) *hosts {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := &hosts{t: t, ctx: ctx, dir: dir, repo: filepath.Join(dir, "repo")}
	state := filepath.Join(dir, "state")
	h.packer = &Packer{Workspaces: workspace.New(workspace.Config{Root: state, Locks: filepath.Join(dir, "locks"), Log: zerolog.Nop()}), Temp: filepath.Join(dir, "temp")}
	h.node = &Mirrors{Workspaces: workspace.New(workspace.Config{Root: filepath.Join(dir, "node"), Locks: filepath.Join(dir, "node-locks"), Log: zerolog.Nop()}), Dir: filepath.Join(dir, "mirrors")}
	if err := os.Mkdir(h.repo, 0o755); err != nil {
		t.Fatal(err)
	}
	return h
}

// git runs git as the user of a folder: nothing is forbidden.
func (h *hosts) git(dir string, args ...string) string {
	h.t.Helper()
	out, err := h.tryGit(dir, "", args...)
	if err != nil {
		h.t.Fatalf("git %v in %s: %v\n%s", args, dir, err, out)
	}
	return out
}

func (h *hosts) tryGit(dir, stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIT_") || strings.HasPrefix(kv, "GIT_CONFIG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	b, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(b), "\n"), err
}

// raw is input with standard output alone, as it is.
func (h *hosts) raw(dir, stdin string, args ...string) string {
	h.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, strings.NewReader(stdin), []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	b, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("git %v in %s: %v", args, dir, err)
	}
	return string(b)
}

func (h *hosts) input(dir, stdin string, args ...string) string {
	h.t.Helper()
	out, err := h.tryGit(dir, stdin, args...)
	if err != nil {
		h.t.Fatalf("git %v in %s: %v\n%s", args, dir, err, out)
	}
	return out
}

func (h *hosts) write(dir string, files map[string]string) {
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

// begin makes the repository with one commit.
func (h *hosts) begin(files map[string]string) {
	h.t.Helper()
	h.git(h.repo, "init", "-q", "-b", "main")
	h.write(h.repo, files)
	h.commit("first")
}

func (h *hosts) commit(message string) string {
	h.t.Helper()
	h.git(h.repo, "add", "-A")
	h.git(h.repo, "commit", "-q", "--allow-empty", "-m", message)
	return h.git(h.repo, "rev-parse", "HEAD")
}

func (h *hosts) pack(folder string, has ...string) *Packed {
	h.t.Helper()
	p, err := h.packer.Pack(h.ctx, folder, has)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *hosts) mirror(id Identity) *Mirror {
	h.t.Helper()
	m, err := h.node.Open(h.ctx, "ann", id)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

func (m *Mirror) takePacked(ctx context.Context, p *Packed) error {
	if p.Path == "" {
		return m.Take(ctx, p.Parcel, nil)
	}
	f, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return m.Take(ctx, p.Parcel, f)
}

// send packs the folder for what the node has, and takes it there.
func (h *hosts) send(folder string) (*Mirror, *Packed) {
	h.t.Helper()
	id, err := h.packer.Identify(h.ctx, folder)
	if err != nil {
		h.t.Fatal(err)
	}
	m := h.mirror(id)
	has, err := m.Has(h.ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	p := h.pack(folder, has...)
	if err := m.takePacked(h.ctx, p); err != nil {
		h.t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		h.t.Fatal(err)
	}
	return m, p
}

// travel sends the folder and checks it out as name.
func (h *hosts) travel(folder, name string) (*Mirror, *Packed, *Checkout) {
	h.t.Helper()
	m, p := h.send(folder)
	c, err := m.Checkout(h.ctx, p.Start, filepath.Join(h.dir, name))
	if err != nil {
		h.t.Fatal(err)
	}
	return m, p, c
}

// listing describes the files that git of the folder does not ignore: names, modes,
// contents and where links lead.
func (h *hosts) listing(dir string) string {
	h.t.Helper()
	var b strings.Builder
	names := strings.Split(h.git(dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"), "\x00")
	slices.Sort(names)
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		if name == "" || err != nil || info.IsDir() {
			continue
		}
		b.WriteString(describe(dir, name))
	}
	return b.String()
}

func describe(dir, name string) string {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Sprintf("%q %v\n", name, err)
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(path)
		return fmt.Sprintf("%q -> %q\n", name, to)
	}
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%q %v %q %v\n", name, info.Mode()&0o100 != 0, content, err)
}

// status says which files differ from HEAD or are new. Whether they are staged does
// not travel.
func (h *hosts) status(dir string) map[string]string {
	h.t.Helper()
	files := map[string]string{}
	add := func(what, name string) {
		if files[name] != "" { // gone from the index and new beside it
			what = "restaged"
		}
		files[name] = what
	}
	for line := range strings.SplitSeq(h.git(dir, "status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all"), "\x00") {
		f := strings.SplitN(line, " ", 9)
		switch {
		case strings.HasPrefix(line, "? "):
			add("new", line[2:])
		case len(f) == 9 && f[3] == "000000" && f[5] != "000000": // not in HEAD
			add("new", f[8])
		case len(f) == 9 && f[3] != "000000" && f[5] == "000000":
			add("gone", f[8])
		case len(f) == 9 && f[5] != "000000":
			add("changed "+f[3]+" "+f[5], f[8])
		}
	}
	return files
}

// sameStatus compares what git says of the submitter's folder and of a checkout. What
// the submitter has taken out of the index alone is a change, or none, in the checkout.
func (h *hosts) sameStatus(c *Checkout) {
	h.t.Helper()
	want, have := h.status(h.repo), h.status(c.Top)
	for name, what := range want {
		if what == "restaged" {
			delete(want, name)
			delete(have, name)
		}
	}
	if !maps.Equal(want, have) {
		h.t.Fatalf("status of the submitter's folder\n%q\nof the node's\n%q", want, have)
	}
}

// everything describes all files below a folder.
func everything(t fataler, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		b.WriteString(describe(dir, rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (h *hosts) same(c *Checkout) {
	h.t.Helper()
	if want, have := h.listing(h.repo), h.listing(c.Top); want != have {
		h.t.Fatalf("the submitter's files\n%s\nthe node's\n%s", want, have)
	}
}
