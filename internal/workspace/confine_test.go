package workspace

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// confiner runs confined commands in a file system that has nothing but what they
// are granted.
type confiner struct {
	t    *testing.T
	bin  string
	ran  []string // the names of confined commands
	free []string // and those of all others, with the folder that they work in
}

// newConfiner gives h one. Without bubblewrap the test is skipped, but where CI says
// that it must be there.
func newConfiner(t *testing.T, h *house) *confiner {
	t.Helper()
	bin, err := exec.LookPath("bwrap")
	if err == nil {
		err = exec.Command(bin, "--ro-bind", "/", "/", "true").Run()
	}
	if err != nil {
		if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_BWRAP") != "" {
			t.Fatalf("bubblewrap is needed: %v", err)
		}
		t.Skipf("no bubblewrap: %v", err)
	}
	c := &confiner{t: t, bin: bin}
	h.m.confined = c.run
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error {
		c.free = append(c.free, commandOf(cmd)+" in "+cmd.Dir)
		return cmd.Run()
	}
	return c
}

// commandOf returns the name of the git command that cmd is.
func commandOf(cmd *exec.Cmd) string {
	args := cmd.Args[1+len(quiet):]
	for args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

func (c *confiner) run(_ context.Context, cmd *exec.Cmd, read, write []string) error {
	c.ran = append(c.ran, commandOf(cmd))
	args := []string{c.bin, "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"}
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64", "/etc"} {
		args = append(args, "--ro-bind-try", dir, dir)
	}
	for _, p := range read {
		args = append(args, "--ro-bind-try", p, p)
	}
	for _, p := range write {
		args = append(args, "--bind", p, p)
	}
	args = append(args, "--chdir", cmd.Dir, "--", cmd.Path)
	cmd.Path, cmd.Args = c.bin, append(args, cmd.Args[1:]...)
	return cmd.Run()
}

// TestConfined does all that is done with a job, with nothing granted but what the
// commands say that they need: no result is another one, and none of the commands on
// what an agent wrote runs as the user.
func TestConfined(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.Direct, job.NoWorkspace} {
		t.Run(string(i), func(t *testing.T) {
			h := newHouse(t, map[string]string{"a": "1\n", "b": strings.Repeat("line\n", 50)})
			global := filepath.Join(t.TempDir(), "gitconfig")
			t.Setenv("GIT_CONFIG_GLOBAL", global)
			h.write(filepath.Dir(global), map[string]string{"gitconfig": "[include]\n\tpath = more\n", "more": "[core]\n\texcludesFile = " + filepath.Dir(global) + "/ignore\n", "ignore": "*.junk\n"})
			c := newConfiner(t, h)
			ws := h.prepare(job.NewID(), h.spec(i), false)
			if len(c.ran) > 0 && i != job.NoWorkspace {
				t.Errorf("confined before an agent was there: %q", c.ran)
			}
			h.write(ws.Root, map[string]string{"a": "2\n", "new": "n\n", "x.junk": "x"})
			if i == job.Worktree {
				h.commit(ws.Root, "mine")
				h.git(ws.Root, "repack", "-q", "-d", "-l")
				h.write(ws.Root, map[string]string{"new": "more\n"})
			}
			c.ran, c.free = nil, nil
			got := h.collect(ws)
			want := "added new, modified a"
			if i == job.NoWorkspace {
				want = "added a, added new"
			}
			if changed(got) != want || len(got.Notes) > 0 || (got.Commit != nil) != (i == job.Worktree) {
				t.Errorf("%s, commit %+v, notes %q", changed(got), got.Commit, got.Notes)
			}
			for _, command := range []string{"diff-files", "ls-files", "update-index", "write-tree", "diff-tree"} {
				if !slices.Contains(c.ran, command) && i != job.NoWorkspace {
					t.Errorf("%s was not confined: %q", command, c.ran)
				}
			}
			if i == job.Worktree && (!slices.Contains(c.ran, "pack-objects") || !slices.Contains(c.ran, "index-pack") || !slices.Contains(c.ran, "unpack-objects")) {
				t.Errorf("the agent's objects were not confined: %q", c.ran)
			}
			for _, command := range c.free {
				if strings.HasSuffix(command, " in "+ws.Root) && i != job.Direct {
					t.Errorf("run as the user in the workspace: %s", command)
				}
			}
			if i == job.Worktree || i == job.Copy {
				c.ran = nil
				next, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "next", Spec: h.spec(i), Patches: []job.Patch{{Job: "job", Path: got.Patch}}})
				if err != nil {
					t.Fatal(err)
				}
				if h.read(next.Root, "a") != "2\n" || !slices.Contains(c.ran, "apply") || !slices.Contains(c.ran, "merge-recursive") {
					t.Errorf("a is %q, confined %q", h.read(next.Root, "a"), c.ran)
				}
				if got := changed(h.collect(next)); got != "" {
					t.Errorf("nothing was done, but %s", got)
				}
				c.ran = nil
				h.write(h.repo, map[string]string{"b": "mine\n" + strings.Repeat("line\n", 50)})
				h.apply(got.Patch)
				if h.read(h.repo, "a") != "2\n" || !slices.Contains(c.ran, "apply") {
					t.Errorf("applied: a is %q, confined %q", h.read(h.repo, "a"), c.ran)
				}
			}
			if err := h.m.Remove(t.Context(), ws.Job, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestGrants: git in a run works with what is granted, and nothing else of the user's
// is there.
func TestGrants(t *testing.T) {
	far := newHouse(t, map[string]string{"far": "1"})
	h := newHouse(t, nil)
	h.git(h.repo, "clone", "-q", "--shared", far.repo, ".") // its objects are borrowed, too
	h.write(h.repo, map[string]string{"a": "1", "sub/b": "1"})
	h.commit(h.repo, "second")
	c := newConfiner(t, h)
	objects, farObjects := filepath.Join(h.repo, ".git", "objects"), filepath.Join(far.repo, ".git", "objects")
	for _, k := range []struct {
		name string
		spec job.Workspace
		read []string
		log  string // what git log finds
	}{
		{"worktree", h.spec(job.Worktree), []string{objects, farObjects}, "second\nfirst"},
		{"worktree of a subfolder", job.Workspace{Path: h.repo + "/sub", Isolation: job.Worktree}, []string{objects, farObjects}, "second\nfirst"},
		{"copy", h.spec(job.Copy), []string{farObjects}, "second\nfirst"},
		{"direct", h.spec(job.Direct), []string{farObjects}, "second\nfirst"},
		{"direct in a subfolder", job.Workspace{Path: h.repo + "/sub", Isolation: job.Direct}, []string{filepath.Join(h.repo, ".git"), farObjects}, ""},
		{"none", h.spec(job.NoWorkspace), nil, ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			ws := h.prepare(job.NewID(), k.spec, false)
			read, write := ws.Grants()
			if !slices.Equal(read, k.read) || len(write) != 1 || !inside(ws.Dir, write[0]) || write[0] != ws.Root {
				t.Errorf("read %q, want %q; write %q", read, k.read, write)
			}
			if k.log == "" {
				return
			}
			for _, args := range [][]string{{"log", "--format=%s"}, {"status", "--porcelain"}, {"commit", "-q", "--allow-empty", "-m", "mine"}} {
				cmd := exec.Command("git", append(append(slices.Clone(quiet), args...), "")[:len(quiet)+len(args)]...)
				cmd.Dir = ws.Dir
				cmd.Env = append(gitEnv(os.Environ()), append(identity, "HOME=/nonexistent")...)
				var out strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := c.run(t.Context(), cmd, read, write); err != nil {
					t.Errorf("git %v: %v\n%s", args, err, &out)
				}
				if got := strings.TrimSpace(out.String()); args[0] == "log" && got != k.log || args[0] == "status" && got != "" {
					t.Errorf("git %v: %q", args, got)
				}
			}
		})
	}
}
