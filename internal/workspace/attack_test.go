package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// canaries are programs that a hostile repository names. Each writes its name
// into a log when it is run.
type canaries struct {
	t   *testing.T
	dir string
}

func newCanaries(t *testing.T) *canaries { return &canaries{t, t.TempDir()} }

func (c *canaries) program(name, then string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\necho %s >> %s\n%s\n", name, filepath.Join(c.dir, "log"), then)), 0o755); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// ran returns who has run since the last call.
func (c *canaries) ran() []string {
	log := filepath.Join(c.dir, "log")
	b, _ := os.ReadFile(log)
	os.Remove(log)
	names := strings.Fields(string(b))
	slices.Sort(names)
	return slices.Compact(names)
}

// plant makes the repository name a program wherever git lets it.
func (c *canaries) plant(h *house, top string) {
	for key, program := range map[string]string{
		"core.fsmonitor":             c.program("fsmonitor", "exit 1"),
		"core.sshCommand":            c.program("ssh", "exit 1"),
		"core.pager":                 c.program("pager", "cat"),
		"core.editor":                c.program("editor", "exit 0"),
		"core.askPass":               c.program("askpass", "exit 1"),
		"core.gitProxy":              c.program("proxy", "exit 1"),
		"gpg.program":                c.program("gpg", "exit 1"),
		"commit.gpgSign":             "true",
		"credential.helper":          c.program("credential", "exit 1"),
		"filter.evil.clean":          c.program("clean", "cat"),
		"filter.evil.smudge":         c.program("smudge", "cat"),
		"filter.long.process":        c.program("process", "exit 1"),
		"diff.external":              c.program("diff-external", "exit 0"),
		"diff.evil.command":          c.program("diff-command", "exit 0"),
		"diff.evil.textconv":         c.program("textconv", "cat"),
		"merge.evil.driver":          c.program("merge", "exit 0"),
		"merge.default":              "evil",
		"core.alternateRefsCommand":  c.program("alternate-refs", "exit 0"),
		"alias.rev-parse":            "!" + c.program("alias", "exit 1"),
		"uploadpack.packObjectsHook": c.program("pack-objects", "exit 1"),
	} {
		h.git(top, "config", key, program)
	}
	common := h.git(top, "rev-parse", "--path-format=absolute", "--git-common-dir")
	h.write(common, map[string]string{
		// By an include, only where a worktree of ours is.
		"more":            "[filter \"included\"]\n\tclean = " + c.program("included", "cat") + "\n\tsmudge = " + c.program("included", "cat") + "\n",
		"info/attributes": "*.txt filter=evil diff=evil merge=evil\n*.long filter=long\n*.inc filter=included\n",
	})
	h.git(top, "config", "includeIf.onbranch:agentsched/**.path", filepath.Join(common, "more"))
	for _, hooks := range []string{filepath.Join(common, "hooks"), filepath.Join(common, "evil")} {
		for _, hook := range []string{"post-checkout", "pre-commit", "post-commit", "post-index-change", "reference-transaction", "applypatch-msg", "post-applypatch", "post-merge", "pre-auto-gc"} {
			h.write(hooks, map[string]string{hook: ""})
			os.Remove(filepath.Join(hooks, hook))
			if err := os.Symlink(c.program(filepath.Base(hooks)+"-"+hook, "exit 0"), filepath.Join(hooks, hook)); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	h.git(top, "config", "core.hooksPath", filepath.Join(common, "evil"))
	c.ran() // our own `git config` may have run one
}

// TestHostileRepository has a repository whose configuration, hooks and
// attributes name programs, before the job begins or since the agent was there:
// none of them runs, whatever is done with the job.
func TestHostileRepository(t *testing.T) {
	files := map[string]string{"a.txt": "1\n2\n3\n4\n5\n", "b.long": "1\n", "c.inc": "1\n", "sub/d.txt": "1\n"}
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.Direct} {
		for _, when := range []string{"before", "by the agent"} {
			t.Run(string(i)+" "+when, func(t *testing.T) {
				t.Parallel()
				h, c := newHouse(t, files), newCanaries(t)
				if when == "before" {
					c.plant(h, h.repo)
				}
				if err := h.m.Check(t.Context(), h.spec(i)); err != nil {
					t.Fatal(err)
				}
				id := job.NewID()
				ws := h.prepare(id, h.spec(i), false)
				if when != "before" {
					c.plant(h, ws.Root)
				}
				h.write(ws.Root, map[string]string{"a.txt": "1\n2\n3\n4\n5\n6\n", "b.long": "2\n", "c.inc": "2\n", "new.txt": "n\n"})
				changes := h.collect(ws)
				if got := changed(changes); !strings.Contains(got, "modified a.txt, modified b.long, modified c.inc") {
					t.Errorf("changed %s", got)
				}
				if _, err := h.m.Diff(t.Context(), ws, new(strings.Builder)); err != nil {
					t.Error(err)
				}
				if i != job.Direct {
					// Its patch is built upon, and merged with what the user did meanwhile.
					h.write(h.repo, map[string]string{"a.txt": "0\n1\n2\n3\n4\n5\n"})
					next := job.NewID()
					if _, err := h.m.Prepare(t.Context(), Request{Job: next, Name: "next", Spec: h.spec(i), Patches: []job.Patch{{Job: "job", Path: changes.Patch}}}); err != nil && i == job.Worktree {
						t.Error(err)
					}
					if err := h.m.Remove(t.Context(), next, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
						t.Error(err)
					}
					h.apply(changes.Patch)
				}
				h.prepare(id, h.spec(i), false)
				h.prepare(id, h.spec(i), true)
				if err := h.m.Remove(t.Context(), id, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
					t.Error(err)
				}
				if ran := c.ran(); len(ran) > 0 {
					t.Errorf("these ran: %s", ran)
				}
				// The trap is one: the user's own git does run them.
				status := exec.Command("git", "status")
				status.Dir, status.Env = h.repo, gitEnv(os.Environ())
				_ = status.Run() // fails when a filter does
				if ran := c.ran(); len(ran) == 0 && (i == job.Direct || when == "before") {
					t.Error("the user's own git runs none of the programs, so that the test shows nothing")
				}
			})
		}
	}
}

// fetchers are the ways in which a repository can have a program run where an
// object is missing.
func fetchers(c *canaries) map[string][]string {
	return map[string][]string{
		"ssh":        {"remote.origin.url", "ssh://nowhere.invalid/x", "core.sshCommand", c.program("ssh", "exit 1")},
		"ext":        {"remote.origin.url", "ext::" + c.program("ext", "exit 1"), "protocol.ext.allow", "always"},
		"uploadpack": {"remote.origin.url", c.dir, "remote.origin.uploadpack", c.program("uploadpack", "exit 1")},
		"vcs":        {"remote.origin.url", c.program("vcs", "exit 1"), "remote.origin.vcs", "ext", "protocol.ext.allow", "always"},
	}
}

// TestMissingObjectsFetchNothing has a partial clone whose remote is a program.
func TestMissingObjectsFetchNothing(t *testing.T) {
	for _, way := range []string{"ssh", "ext", "uploadpack", "vcs"} {
		for _, object := range []string{"HEAD:a", "HEAD^{tree}", "HEAD:sub"} {
			t.Run(way+" "+object, func(t *testing.T) {
				t.Parallel()
				h, c := newHouse(t, map[string]string{"a": "1", "sub/b": "2"}), newCanaries(t)
				id := h.git(h.repo, "rev-parse", object)
				keys := append(fetchers(c)[way], "extensions.partialClone", "origin", "remote.origin.promisor", "true", "core.repositoryFormatVersion", "1")
				for i := 0; i < len(keys); i += 2 {
					h.git(h.repo, "config", keys[i], keys[i+1])
				}
				if err := os.Remove(filepath.Join(h.repo, ".git/objects", id[:2], id[2:])); err != nil {
					t.Fatal(err)
				}
				for _, spec := range []job.Workspace{h.spec(job.Worktree), {Path: h.repo + "/sub", Isolation: job.Worktree}} {
					_, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: spec})
					if err == nil || !strings.Contains(err.Error(), "is a partial clone") || !strings.Contains(err.Error(), "git -C "+h.repo+" fetch --refetch --no-filter origin") {
						t.Errorf("%s: got %v", spec.Path, err)
					}
				}
				if ran := c.ran(); len(ran) > 0 {
					t.Errorf("these ran: %s", ran)
				}
			})
		}
	}
}

// TestPartialClone does what the error says.
func TestPartialClone(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "sub/b": "2"})
	h.git(h.repo, "config", "uploadpack.allowFilter", "true")
	clone := filepath.Join(filepath.Dir(h.repo), "clone")
	h.git(filepath.Dir(h.repo), "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+h.repo, clone)
	spec := job.Workspace{Path: clone, Isolation: job.Worktree}
	_, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: spec})
	_, command, ok := strings.Cut(fmt.Sprint(err), "run `git -C "+clone+" ")
	if !ok {
		t.Fatalf("got %v", err)
	}
	command, _, _ = strings.Cut(command, "`")
	h.git(clone, strings.Fields(command)...)
	ws := h.prepare(job.NewID(), spec, false)
	if got := h.read(ws.Root, "a"); got != "1" {
		t.Errorf("checked out %q", got)
	}
}

// TestSubmoduleOfTheAgent has an agent that puts a repository of its own in the
// place of a submodule, with a commit that must be fetched.
func TestSubmoduleOfTheAgent(t *testing.T) {
	h, lib, c := newHouse(t, map[string]string{"a": "1"}), newHouse(t, map[string]string{"l": "1"}), newCanaries(t)
	h.git(h.repo, "submodule", "add", "-q", lib.repo, "lib")
	h.commit(h.repo, "with a library")
	for way, keys := range fetchers(c) {
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		h.git(ws.Root, "init", "-q", "lib")
		for i := 0; i < len(keys); i += 2 {
			h.git(ws.Root+"/lib", "config", keys[i], keys[i+1])
		}
		h.write(ws.Root, map[string]string{
			"lib/x.txt":     "evil",
			"lib/.git/HEAD": h.git(h.repo+"/lib", "rev-parse", "HEAD"),
		})
		for _, kv := range [][2]string{{"extensions.partialClone", "origin"}, {"remote.origin.promisor", "true"}, {"core.repositoryFormatVersion", "1"}} {
			h.git(h.repo, "config", "-f", ws.Root+"/lib/.git/config", kv[0], kv[1])
		}
		c.ran()
		if changes := h.collect(ws); len(changes.Notes) == 0 || !strings.Contains(strings.Join(changes.Notes, "\n"), "submodule lib was changed") {
			t.Errorf("%s: notes %q", way, changes.Notes)
		}
		if ran := c.ran(); len(ran) > 0 {
			t.Errorf("%s: these ran: %s", way, ran)
		}
	}
}

// TestFilterOfTheRepository has files that go through a filter which only the
// repository defines: one that is required is an error, any other a note.
func TestFilterOfTheRepository(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.Direct} {
		h, c := newHouse(t, map[string]string{"a.x": "1", ".gitattributes": "*.x filter=crypt\n*.y filter=none\n"}), newCanaries(t)
		h.git(h.repo, "config", "filter.crypt.smudge", c.program("smudge", "cat"))
		h.git(h.repo, "config", "filter.crypt.clean", c.program("clean", "cat"))
		ws := h.prepare(job.NewID(), h.spec(i), false)
		if len(ws.Notes) != 1 || !strings.Contains(ws.Notes[0], `the filter "crypt" of "a.x" is defined by the repository's own configuration (`+h.repo) {
			t.Errorf("%s: notes %q", i, ws.Notes)
		}
		h.write(ws.Root, map[string]string{"a.x": "2"})
		patch := h.collect(ws).Patch
		h.git(h.repo, "config", "filter.crypt.required", "true")
		c.ran()
		var filter *SetupError
		if _, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: h.spec(i)}); !errors.As(err, &filter) || !strings.Contains(err.Error(), "workspace.trust_filters") {
			t.Errorf("%s: got %v", i, err)
		}
		if _, err := h.m.Apply(t.Context(), job.Patch{Path: patch}, h.repo); !errors.As(err, &filter) {
			t.Errorf("%s: apply: %v", i, err)
		}
		if ran := c.ran(); len(ran) > 0 {
			t.Errorf("%s: these ran: %s", i, ran)
		}
	}
}

// TestSettingsOfTheRepository has a job that changes what git does in the user's
// repository.
func TestSettingsOfTheRepository(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "sub/b": "1"})
	for _, c := range []struct {
		spec  job.Workspace
		files string
	}{
		{h.spec(job.Direct), "added .git/hooks/pre-commit, added .git/info/attributes, modified .git/config"},
		{job.Workspace{Path: h.repo + "/sub", Isolation: job.Direct}, "added .git/hooks/pre-commit, added .git/info/attributes, modified .git/config"},
		{h.spec(job.Worktree), ""},
	} {
		ws := h.prepare(job.NewID(), c.spec, false)
		if got := h.collect(ws); len(got.Files) > 0 || len(got.Notes) > 0 {
			t.Errorf("%s: nothing was changed, but %v, notes %q", c.spec.Isolation, got.Files, got.Notes)
		}
		h.git(h.repo, "config", "filter.e.clean", "program")
		h.git(h.repo, "config", "branch.main.remote", "origin")
		h.write(h.repo, map[string]string{".git/info/attributes": "* filter=e\n", ".git/hooks/pre-commit": "#!/bin/sh\n"})
		got := h.collect(ws)
		if changed(got) != c.files || got.Patch != "" {
			t.Errorf("%s: %s, patch %q", c.spec.Isolation, changed(got), got.Patch)
		}
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "filter.e.clean, .git/hooks/pre-commit, .git/info/attributes") {
			t.Errorf("%s: notes %q", c.spec.Isolation, got.Notes)
		}
		h.git(h.repo, "config", "--remove-section", "filter.e")
		h.git(h.repo, "config", "--remove-section", "branch.main")
		os.Remove(h.repo + "/.git/info/attributes")
		os.Remove(h.repo + "/.git/hooks/pre-commit")
	}
}

// TestWorkingTreeElsewhere has a repository that names another folder as its
// working tree, into which a patch would go.
func TestWorkingTreeElsewhere(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"a": "2"})
	patch := h.collect(ws).Patch
	victim := filepath.Join(filepath.Dir(h.repo), "victim")
	h.write(victim, map[string]string{"a": "1"})
	h.git(h.repo, "config", "core.worktree", victim)
	if _, err := h.m.Apply(t.Context(), job.Patch{Path: patch}, h.repo); err == nil || !strings.Contains(err.Error(), "core.worktree") {
		t.Errorf("got %v", err)
	}
	if got := h.read(victim, "a"); got != "1" {
		t.Errorf("the patch went to another folder: %q", got)
	}
}

// TestSubmoduleBehindALink has an agent that puts a link in the place of a
// submodule, or of a folder above it: what it leads to is not looked at.
func TestSubmoduleBehindALink(t *testing.T) {
	h, lib := newHouse(t, map[string]string{"a": "1"}), newHouse(t, map[string]string{"l": "1"})
	h.git(h.repo, "submodule", "add", "-q", lib.repo, "sub/lib")
	h.commit(h.repo, "with a library")
	victim := filepath.Join(filepath.Dir(h.repo), "victim")
	h.write(victim, map[string]string{"secret": "the secret", "lib/secret": "the secret"})
	secret := h.git(h.repo, "hash-object", victim+"/secret")
	if err := os.Truncate(victim+"/secret", job.MaxCollected+1); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"sub/lib", "sub"} {
		id := job.NewID()
		ws := h.prepare(id, h.spec(job.Worktree), false)
		path := filepath.Join(ws.Root, at)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, path); err != nil {
			t.Fatal(err)
		}
		changes := h.collect(ws)
		if got := changed(changes); strings.Contains(got, "secret") {
			t.Errorf("%s: changed %s", at, got)
		}
		if notes := strings.Join(changes.Notes, "\n"); !strings.Contains(notes, "submodule sub/lib was changed") {
			t.Errorf("%s: notes %q", at, notes)
		}
		object := filepath.Join(h.root, string(id), "base/objects", secret[:2], secret[2:])
		if _, err := os.Stat(object); err == nil {
			t.Errorf("%s: a file of another folder was read", at)
		}
	}
}

// TestFilesOfGitThatDoNotEnd has an agent that puts something else in the place of
// files of .git, in which its core would wait, or read until no memory is left.
func TestFilesOfGitThatDoNotEnd(t *testing.T) {
	for _, name := range []string{"info/exclude", "info/attributes", "index"} {
		h := newHouse(t, map[string]string{"a": "1"})
		path := filepath.Join(h.repo, ".git", name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, i := range []job.Isolation{job.Worktree, job.Direct, job.Copy} {
			_, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: h.spec(i)})
			if name == "index" && i == job.Direct {
				if err == nil || !strings.Contains(err.Error(), "/index is not a file of at most") {
					t.Errorf("%s: index: %v", i, err)
				}
			} else if err != nil && name != "index" {
				t.Errorf("%s: %s: %v", i, name, err)
			}
		}
	}

	h := newHouse(t, map[string]string{"a": "1"})
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"a": "2"})
	own := filepath.Join(ws.Root, ".git")
	ruin := map[string]func(path string) error{
		"a pipe":         func(path string) error { return unix.Mkfifo(path, 0o600) },
		"an endless one": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a device":       func(path string) error { return os.Symlink("/dev/zero", path) },
	}
	for what, make := range ruin {
		for _, name := range []string{"HEAD", "index", "config", "packed-refs", "refs/heads/" + ws.Branch, "refs/heads/more", "logs/refs/stash", "objects/info/alternates", "objects/ab/" + strings.Repeat("c", 38), "objects/pack/pack-" + strings.Repeat("d", 40) + ".pack"} {
			path := filepath.Join(own, name)
			os.Remove(path)
			os.MkdirAll(filepath.Dir(path), 0o755)
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(what, "an endless") && !strings.HasPrefix(name, "objects/") {
				if err := os.Truncate(path, 1<<40); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := h.collect(ws); changed(got) != "modified a" || got.Commit == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for what, make := range ruin {
		if err := os.RemoveAll(own); err != nil {
			t.Fatal(err)
		}
		if err := make(own); err != nil {
			t.Fatal(err)
		}
		h.collect(ws)
		h.prepare(id, h.spec(job.Worktree), false)
		if got := h.git(ws.Root, "rev-parse", "--abbrev-ref", "HEAD"); got != ws.Branch {
			t.Errorf("%s in the place of .git: HEAD is %s", what, got)
		}
	}
}

// TestConfigurationThatIncludesMuch has an agent whose small configuration is
// large for whoever reads it.
func TestConfigurationThatIncludesMuch(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Direct), false)
	h.write(h.repo, map[string]string{
		"a":         "2",
		".git/more": "[x]\n\ty = " + strings.Repeat("z", 1<<20) + "\n",
	})
	config := h.read(h.repo, ".git/config")
	h.write(h.repo, map[string]string{".git/config": config + "[include]\n" + strings.Repeat("\tpath = more\n", 1+maxConfig>>20)})
	got := h.collect(ws)
	if changed(got) != "modified .git/config, modified a" || !strings.Contains(strings.Join(got.Notes, "\n"), "cannot be read any more: read the configuration of "+h.repo+"/.git: it has more than") {
		t.Errorf("%s, notes %.300q", changed(got), got.Notes)
	}
	if _, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: h.spec(job.Worktree)}); err == nil || !strings.Contains(err.Error(), "it has more than") {
		t.Errorf("a job after it: %v", err)
	}
}

// TestHiddenFiles has files that the index of the user's repository marks as not to
// be looked at: what a job does to them is told all the same.
func TestHiddenFiles(t *testing.T) {
	for _, mark := range []string{"--assume-unchanged", "--skip-worktree"} {
		for _, i := range []job.Isolation{job.Direct, job.Copy} {
			h := newHouse(t, map[string]string{"a": "1", "b": "1", "sub/c": "1"})
			h.git(h.repo, "update-index", mark, "a", "b", "sub/c")
			h.write(h.repo, map[string]string{"b": "2"})
			ws := h.prepare(job.NewID(), h.spec(i), false)
			if got := changed(h.collect(ws)); got != "" {
				t.Errorf("%s, %s: changed %s before the job did anything", mark, i, got)
			}
			h.write(ws.Root, map[string]string{"a": "3", "sub/c": "33"})
			if got := changed(h.collect(ws)); got != "modified a, modified sub/c" {
				t.Errorf("%s, %s: changed %s", mark, i, got)
			}
			if got := h.git(h.repo, "ls-files", "-v", "a"); got == "H a" {
				t.Errorf("%s, %s: the user's own index has lost the mark", mark, i)
			}
		}
	}
}
