package workspace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

var all = []job.Isolation{job.Worktree, job.Copy, job.Direct}

// nasty are file names that have broken programs before.
var nasty = []string{
	"with space", "new\nline", "tab\there", `quote"d`, `back\slash`, "-rf", "--", ":(top)x", "#x", "!x", "*", "[a]", "ünï/cødé", "日本語",
	"\xff\xfe invalid", "a => b", "{a,b}", " lead", "trail ", "dir with space/sub\nfolder/f", "rename from x", ".gitkeep", "é", "/dev/null"[1:],
}

// TestCollect does to each kind of workspace all that an agent may do, applies
// the patch to a second copy of the start and compares the two folders.
func TestCollect(t *testing.T) {
	for _, i := range all {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			long := strings.Repeat("a line of text\n", 50)
			h := newHouse(t, map[string]string{
				"keep": "k", "edit": long, "gone": "g", "dir/gone": "g", "old name": long + "x", "script": "#!/bin/sh\n",
				"becomes-dir": "f", "becomes-file/x": "d", "becomes-link": "l", "bin": "\x00\x01\x02", ".gitignore": "*.log\n", "crlf": "a\r\nb\r\n", "nonl": "a",
			})
			h.write(h.repo, map[string]string{"keep": "uncommitted by the user", "user.txt": "untracked by the user"})
			original := filepath.Join(filepath.Dir(h.repo), "original")
			if err := (&copier{m: h.m, ctx: t.Context(), from: h.repo}).dir(h.repo, original); err != nil {
				t.Fatal(err)
			}
			ws := h.prepare(job.NewID(), h.spec(i), false)
			work := ws.Root
			h.write(work, map[string]string{"committed": "c"})
			h.commit(work, "the agent's own")
			h.write(work, map[string]string{"edit": "first\n" + long, "staged": "s", "out.log": "ignored", "bin": "\x00\x01\x03\xff", "empty": "", "crlf": "a\r\nc\r\n", "nonl": "b"})
			h.git(work, "mv", "old name", "new name")
			h.git(work, "add", "staged")
			for _, p := range []string{"gone", "dir", "becomes-dir", "becomes-file", "becomes-link"} {
				os.RemoveAll(filepath.Join(work, p))
			}
			h.write(work, map[string]string{"becomes-dir/x": "other", "becomes-file": "another"})
			os.Symlink("keep", filepath.Join(work, "becomes-link"))
			os.Symlink("nowhere", filepath.Join(work, "dangling"))
			os.Chmod(filepath.Join(work, "script"), 0o755)
			for _, n := range nasty {
				h.write(work, map[string]string{"nasty/" + n: n})
			}
			index := h.read(h.git(work, "rev-parse", "--path-format=absolute", "--git-path", "index"))
			c := h.collect(ws)
			if got := h.read(h.git(work, "rev-parse", "--path-format=absolute", "--git-path", "index")); got != index {
				t.Error("collecting changed the index")
			}
			for _, want := range []string{"added committed", "added staged", "added empty", "modified edit", "deleted gone", "deleted dir/gone", "renamed new name", "modified script", "modified becomes-link", "added becomes-dir/x", "modified bin"} {
				if !strings.Contains(", "+changed(c)+", ", ", "+want+", ") {
					t.Errorf("%q is missing in %s", want, changed(c))
				}
			}
			if strings.Contains(changed(c), "out.log") || strings.Contains(changed(c), "user.txt") {
				t.Errorf("not the job's work: %s", changed(c))
			}
			if !strings.Contains(c.DiffStat, "files changed") || c.Bytes != int64(len(h.read(c.Patch))) {
				t.Errorf("diff stat %q, %d bytes", c.DiffStat, c.Bytes)
			}
			var b bytes.Buffer
			if _, err := h.m.Diff(t.Context(), ws, &b); err != nil || b.String() != h.read(c.Patch) {
				t.Errorf("Diff differs from the collected patch: %v", err)
			}
			if _, err := h.m.Apply(t.Context(), job.Patch{Path: c.Patch}, original); err != nil {
				t.Fatal(err)
			}
			os.Remove(filepath.Join(work, "out.log"))
			if i == job.Worktree { // which starts from the commit, without the user's changes
				h.write(work, map[string]string{"keep": "uncommitted by the user", "user.txt": "untracked by the user"})
			}
			if got, want := state(t, original, false), state(t, work, false); got != want {
				t.Errorf("applied:\n%s\nwant the workspace:\n%s", got, want)
			}
		})
	}
}

func TestCollectNothing(t *testing.T) {
	for _, i := range append(all, job.NoWorkspace) {
		h := newHouse(t, map[string]string{"a": "1"})
		c := h.collect(h.prepare(job.NewID(), h.spec(i), false))
		if c.Patch != "" || len(c.Files) != 0 || c.DiffStat != "" {
			t.Errorf("%s: %+v", i, c)
		}
		if _, err := os.Stat(filepath.Join(h.out, PatchName)); !os.IsNotExist(err) {
			t.Errorf("%s: an empty patch was written", i)
		}
	}
}

func TestCollectWithoutRepository(t *testing.T) {
	for _, i := range []job.Isolation{job.Copy, job.Direct, job.NoWorkspace} {
		h := newHouse(t, nil)
		h.write(h.repo, map[string]string{"a": "1\n", "b": "2\n"})
		ws := h.prepare(job.NewID(), h.spec(i), false)
		h.write(ws.Dir, map[string]string{"a": "one\n", "c": "3\n"})
		want := "added c, modified a"
		if i == job.NoWorkspace {
			want = "added a, added c"
		}
		c := h.collect(ws)
		if got := changed(c); got != want {
			t.Errorf("%s: %s, want %s", i, got, want)
		}
		if i == job.Copy {
			h.apply(c.Patch)
			if h.read(h.repo, "a") != "one\n" || h.read(h.repo, "c") != "3\n" {
				t.Error("the patch was not brought back")
			}
			if a := h.apply(c.Patch); !a.Already {
				t.Errorf("second time: %+v", a)
			}
		}
		if _, err := os.Stat(filepath.Join(h.repo, ".git")); err == nil {
			t.Errorf("%s: a .git folder was made", i)
		}
	}
}

func TestCollectNestedRepositories(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"clone/x": "x", "clone/deep/y": "y", "bare/z": "z"})
	h.git(filepath.Join(ws.Root, "clone/deep"), "init", "-q")
	h.git(filepath.Join(ws.Root, "clone"), "init", "-q")
	h.git(filepath.Join(ws.Root, "bare"), "init", "-q") // without a commit
	h.git(filepath.Join(ws.Root, "clone/deep"), "add", "-A")
	h.git(filepath.Join(ws.Root, "clone/deep"), "commit", "-q", "-m", "deep")
	c := h.collect(ws)
	if want := "added bare/z, added clone/deep/y, added clone/x"; changed(c) != want {
		t.Errorf("got %s, want %s", changed(c), want)
	}
	if len(c.Notes) != 3 {
		t.Errorf("notes %q", c.Notes)
	}
	h.apply(c.Patch)
	if h.read(h.repo, "clone/deep/y") != "y" {
		t.Error("nested files were not brought back")
	}
}

// TestCollectTrustsNothing lets the agent plant every way we know to make git
// run a program.
func TestCollectTrustsNothing(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy} {
		h := newHouse(t, map[string]string{"a": "1\n", "sub/b": "2\n"})
		ws := h.prepare(job.NewID(), h.spec(i), false)
		trap := filepath.Join(filepath.Dir(h.repo), "trap")
		sprung := trap + ".sprung"
		if err := os.WriteFile(trap, []byte("#!/bin/sh\ntouch "+sprung+"\ncat\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		h.write(ws.Root, map[string]string{".gitattributes": "* diff=evil filter=evil\n", "a": "changed\n", "nested/n": "n"})
		h.git(filepath.Join(ws.Root, "nested"), "init", "-q")
		h.git(filepath.Join(ws.Root, "nested"), "commit", "-q", "--allow-empty", "-m", "n")
		for _, dir := range []string{ws.Root, filepath.Join(ws.Root, "nested")} {
			for _, key := range []string{"diff.evil.command", "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "diff.external", "core.fsmonitor", "core.pager"} {
				h.git(dir, "config", key, trap)
			}
			hooks := h.git(dir, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
			os.MkdirAll(hooks, 0o755)
			for _, hook := range []string{"post-checkout", "pre-commit", "post-index-change", "reference-transaction"} {
				os.Symlink(trap, filepath.Join(hooks, hook))
			}
		}
		os.Remove(sprung) // our own `git config` may have run one
		if got := changed(h.collect(ws)); !strings.Contains(got, "modified a") || !strings.Contains(got, "added nested/n") {
			t.Errorf("%s: %s", i, got)
		}
		if _, err := os.Stat(sprung); err == nil {
			t.Errorf("%s: a program of the agent was run", i)
		}
	}
}

func TestCollectHistoryRewritten(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.git(ws.Root, "checkout", "-q", "--orphan", "new")
	h.write(ws.Root, map[string]string{"a": "2"})
	h.commit(ws.Root, "all new")
	h.git(ws.Root, "branch", "-D", ws.Branch)
	h.git(ws.Root, "update-index", "--skip-worktree", "a")
	h.write(ws.Root, map[string]string{"a": "3"})
	if c := h.collect(ws); changed(c) != "modified a" || !strings.Contains(h.read(c.Patch), "+3") {
		t.Errorf("got %s", changed(c))
	}
	os.RemoveAll(ws.Root)
	if _, err := h.m.Collect(t.Context(), ws, h.out); err == nil || !strings.Contains(err.Error(), "folder is gone") {
		t.Errorf("got %v", err)
	}
}

func TestCollectUntakableFile(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), false)
	// git never takes this name, for any user; permissions do not stop root.
	h.write(ws.Root, map[string]string{"x/.GIT/config": "c", "good": "g"})
	c := h.collect(ws)
	if changed(c) != "added good" || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], ".GIT/config") {
		t.Errorf("%s, notes %q", changed(c), c.Notes)
	}
	unsaved := (*UnsavedError)(nil)
	if err := h.m.Remove(t.Context(), id, job.Workspace{}, RemoveOptions{}); !errors.As(err, &unsaved) {
		t.Errorf("removed what the patch lacks: %v", err)
	}
}

func TestSubmodules(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	lib := newHouse(t, map[string]string{"l": "1"})
	h.git(h.repo, "submodule", "add", "-q", lib.repo, "lib")
	h.commit(h.repo, "with a library")
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), false)
	if len(ws.Notes) != 1 || !strings.Contains(ws.Notes[0], "lib is not checked out") {
		t.Errorf("notes %q", ws.Notes)
	}
	h.git(ws.Root, "submodule", "update", "-q", "--init")
	if c := h.collect(ws); changed(c) != "" || len(c.Notes) != 0 {
		t.Errorf("only checked out, but %s, notes %q", changed(c), c.Notes)
	}
	h.write(ws.Root, map[string]string{"lib/l": "2", "a": "2"})
	// A program that the agent names in the submodule's configuration.
	sprung := filepath.Join(filepath.Dir(h.repo), "sprung")
	module := filepath.Join(ws.Root, "lib")
	h.git(module, "config", "filter.evil.clean", "touch "+sprung+"; cat")
	h.write(h.git(module, "rev-parse", "--path-format=absolute", "--git-dir"), map[string]string{"info/attributes": "* filter=evil\n"})
	c := h.collect(ws)
	if _, err := os.Stat(sprung); err == nil {
		t.Error("a program of the agent was run")
	}
	if changed(c) != "modified a" || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "submodule lib was changed") {
		t.Errorf("%s, notes %q", changed(c), c.Notes)
	}
	h.apply(c.Patch)
	if err := h.m.Remove(t.Context(), id, job.Workspace{}, RemoveOptions{}); err == nil {
		t.Error("removed the only copy of a submodule's changes")
	}
	// The submodule's own folder as the job's.
	sub := h.prepare(job.NewID(), job.Workspace{Path: h.repo + "/lib", Isolation: job.Worktree}, false)
	h.write(sub.Root, map[string]string{"l": "3"})
	c = h.collect(sub)
	if _, err := h.m.Apply(t.Context(), job.Patch{Path: c.Patch}, h.repo+"/lib"); err != nil || h.read(h.repo, "lib/l") != "3" {
		t.Errorf("apply in a submodule: %v", err)
	}
	os.RemoveAll(filepath.Join(ws.Root, "lib"))
	if c := h.collect(ws); changed(c) != "deleted lib, modified a" {
		t.Errorf("got %s", changed(c))
	}
}

func TestDirectInSubfolder(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "sub/b": "2", ".gitignore": "*.log\nbuild/\n", "build.txt": ""})
	h.write(h.repo, map[string]string{"build/x": "1", "sub/mine": "m"})
	objects := h.git(h.repo, "count-objects")
	for _, c := range []struct{ dir, want string }{
		{"sub", "added new, modified b"}, {"build", "added b, added new"}, // an ignored folder is compared by itself
	} {
		ws := h.prepare(job.NewID(), job.Workspace{Path: filepath.Join(h.repo, c.dir), Isolation: job.Direct}, false)
		h.write(h.repo, map[string]string{"a": "by somebody else", c.dir + "/b": "changed " + c.dir, c.dir + "/new": "n"})
		got := h.collect(ws)
		if changed(got) != c.want {
			t.Errorf("%s: %s, want %s", c.dir, changed(got), c.want)
		}
		if a, err := h.m.Apply(t.Context(), job.Patch{Path: got.Patch}, filepath.Join(h.repo, c.dir)); err != nil || !a.Already {
			t.Errorf("%s: %+v, %v", c.dir, a, err)
		}
	}
	if got := h.git(h.repo, "count-objects"); got != objects {
		t.Errorf("objects left in the repository: %s, before %s", got, objects)
	}
}

// The state directory, and what lies in it, is no folder to work in, by whatever
// name: an agent there would have the queue. A folder above it is.
func TestStateDirectoryIsNoWorkspace(t *testing.T) {
	h := newHouse(t, nil)
	state := t.TempDir()
	work := filepath.Join(state, "w", "there")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.MkdirAll(work, 0o700), os.Symlink(state, link)); err != nil {
		t.Fatal(err)
	}
	h.m = New(Config{Root: filepath.Join(state, "w"), Locks: filepath.Join(state, "l"), Exclude: []string{state}})
	for _, isolation := range []job.Isolation{job.Copy, job.Direct} {
		for _, path := range []string{state, work, link, state + "/w/../"} {
			w := job.Workspace{Path: path, Isolation: isolation}
			checked := h.m.Check(t.Context(), w)
			_, prepared := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "j", Spec: w})
			for _, err := range []error{checked, prepared} {
				if err == nil || !strings.Contains(err.Error(), "workspace "+path+" lies in the scheduler's own folder "+state) {
					t.Errorf("%s %s: %v", isolation, path, err)
				}
			}
		}
		if err := h.m.Check(t.Context(), job.Workspace{Path: filepath.Dir(state), Isolation: isolation}); err != nil {
			t.Errorf("%s, the folder above: %v", isolation, err)
		}
	}
}

func TestStateDirectoryInsideTheFolder(t *testing.T) {
	for _, i := range all {
		h := newHouse(t, map[string]string{"a": "1"})
		state := filepath.Join(h.repo, "my [state]")
		h.m = New(Config{Root: filepath.Join(state, "w"), Locks: filepath.Join(state, "l"), Exclude: []string{state}})
		h.write(state, map[string]string{"db": "secret"})
		ws := h.prepare(job.NewID(), h.spec(i), false)
		h.write(ws.Root, map[string]string{"a": "2"})
		h.write(state, map[string]string{"db": "changed"})
		if got := changed(h.collect(ws)); got != "modified a" {
			t.Errorf("%s: %s", i, got)
		}
		if i == job.Copy {
			if _, err := os.Stat(filepath.Join(ws.Root, "my [state]")); err == nil {
				t.Error("the state directory was copied into itself")
			}
			if len(ws.Env) != 1 {
				t.Errorf("git in %s could find the repository around it", ws.Dir)
			}
		}
	}
}

// TestFilters has a repository that keeps its files in another form, as git-lfs
// and git-crypt do, by a filter of the user's own configuration, or by one of the
// repository's that the host trusts.
func TestFilters(t *testing.T) {
	t.Run("global", func(t *testing.T) {
		t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(t.TempDir(), "gitconfig"))
		testFilters(t, "--global", false)
	})
	t.Run("trusted", func(t *testing.T) { testFilters(t, "--local", true) })
}

func testFilters(t *testing.T, where string, trust bool) {
	for _, i := range all {
		h := newHouse(t, map[string]string{"plain": "x", ".gitattributes": "*.up filter=up\ncrlf eol=crlf\n", "crlf": "a\r\n"})
		h.m.trustFilters = trust
		h.git(h.repo, "config", where, "filter.up.clean", "tr a-z A-Z")
		h.git(h.repo, "config", where, "filter.up.smudge", "tr A-Z a-z")
		h.git(h.repo, "config", where, "filter.up.required", "true")
		h.write(h.repo, map[string]string{"f.up": "one\n"})
		h.commit(h.repo, "filtered")
		if h.git(h.repo, "show", "HEAD:f.up") != "ONE" {
			t.Fatal("the filter does not work")
		}
		ws := h.prepare(job.NewID(), h.spec(i), false)
		if got := h.read(ws.Root, "f.up"); got != "one\n" {
			t.Errorf("%s: checked out as %q", i, got)
		}
		h.write(ws.Root, map[string]string{"f.up": "one\ntwo\n", "crlf": "a\r\nb\r\n"})
		c := h.collect(ws)
		if changed(c) != "modified crlf, modified f.up" || !strings.Contains(h.read(c.Patch), "+TWO\n") {
			t.Errorf("%s: %s\n%s", i, changed(c), h.read(c.Patch))
		}
		if i == job.Direct {
			continue
		}
		h.apply(c.Patch)
		if got := h.read(h.repo, "f.up") + h.read(h.repo, "crlf"); got != "one\ntwo\na\r\nb\r\n" {
			t.Errorf("%s: applied %q", i, got)
		}
	}
}

func TestSparseCheckout(t *testing.T) {
	h := newHouse(t, map[string]string{"in/a": "1", "out/b": "2", "top": "3"})
	h.git(h.repo, "sparse-checkout", "set", "--cone", "in")
	for _, i := range all {
		ws := h.prepare(job.NewID(), h.spec(i), false)
		if _, err := os.Stat(filepath.Join(ws.Root, "out")); err == nil {
			t.Errorf("%s: checked out what the user does not want", i)
		}
		if got := changed(h.collect(ws)); got != "" {
			t.Errorf("%s: untouched, but %s", i, got)
		}
		h.write(ws.Root, map[string]string{"in/a": "changed", "out/new": "n", "out/b": "changed"})
		if got := changed(h.collect(ws)); got != "added out/new, modified in/a, modified out/b" {
			t.Errorf("%s: %s", i, got)
		}
	}
}

func TestSHA256AndSplitIndex(t *testing.T) {
	h := newHouse(t, nil)
	h.write(h.repo, map[string]string{"a": "1", "b": "2"})
	h.git(h.repo, "init", "-q", "--object-format=sha256")
	h.git(h.repo, "config", "core.splitIndex", "true")
	h.commit(h.repo, "first")
	for _, i := range all {
		ws := h.prepare(job.NewID(), h.spec(i), false)
		h.write(ws.Root, map[string]string{"a": "by " + string(i)})
		c := h.collect(ws)
		if changed(c) != "modified a" {
			t.Errorf("%s: %s", i, changed(c))
		}
		if i == job.Copy {
			h.apply(c.Patch)
		}
	}
}

func TestDirectTooLargeToCompare(t *testing.T) {
	h := newHouse(t, nil)
	f, err := os.Create(filepath.Join(h.repo, "disk image"))
	if err != nil {
		t.Fatal(err)
	}
	f.Truncate(MaxSnapshotBytes + 1) // a hole, takes no space
	f.Close()
	ws := h.prepare(job.NewID(), h.spec(job.Direct), false)
	c := h.collect(ws)
	if ws.Start != "" || len(ws.Notes) != 1 || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "not recorded") {
		t.Errorf("%+v, %+v", ws, c)
	}
}

// TestCopyIndexKeepsItsTime: git takes a file for unchanged if its size and
// time are those in the index and the index is younger than the file.
func TestCopyIndexKeepsItsTime(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	from, to := filepath.Join(h.repo, ".git/index"), filepath.Join(t.TempDir(), "index")
	when := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	if err := os.Chtimes(from, when, when); err != nil {
		t.Fatal(err)
	}
	if err := copyIndex(from, to); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(to); err != nil || !info.ModTime().Equal(when) {
		t.Errorf("%v, %v", info.ModTime(), err)
	}
}
