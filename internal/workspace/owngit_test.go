package workspace

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestOwnGit: in its worktree an agent has all that git offers, and nothing of it
// reaches the user's repository before its work is collected.
func TestOwnGit(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "1\n"})
	h.git(h.repo, "tag", "-a", "-m", "t", "v1")
	h.write(h.repo, map[string]string{"b": "2\n"})
	main := h.commit(h.repo, "second")
	h.git(h.repo, "branch", "side", "v1")
	h.git(h.repo, "update-ref", "refs/remotes/origin/main", "main")
	h.git(h.repo, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
	h.git(h.repo, "pack-refs", "--all")
	h.git(h.repo, "config", "user.name", "Ann of this project")
	h.git(h.repo, "config", "user.email", "ann@example.com")
	before := h.git(h.repo, "for-each-ref")
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	if got := h.git(h.repo, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("the user's worktrees: %s", got)
	}
	if got := h.git(ws.Root, "for-each-ref", "--format=%(refname) %(objectname)"); got != strings.Join([]string{
		"refs/heads/" + ws.Branch + " " + main, "refs/heads/main " + main, "refs/heads/side " + h.git(h.repo, "rev-parse", "side"),
		"refs/remotes/origin/HEAD " + main, "refs/remotes/origin/main " + main, "refs/tags/v1 " + h.git(h.repo, "rev-parse", "v1"),
	}, "\n") {
		t.Errorf("the agent's refs:\n%s", got)
	}
	if got := h.git(ws.Root, "status", "--porcelain", "--branch"); got != "## "+ws.Branch {
		t.Errorf("status %q", got)
	}
	if got := h.git(ws.Root, "log", "--format=%s", "origin/HEAD", "--not", "v1"); got != "second" {
		t.Errorf("log %q", got)
	}
	if got := h.git(ws.Root, "config", "--file", ".git/config", "user.name"); got != "Ann of this project" {
		t.Errorf("user.name is %q", got)
	}
	repository := state(t, filepath.Join(h.repo, ".git"), true)

	h.write(ws.Root, map[string]string{"a": "2\n"})
	h.commit(ws.Root, "mine")
	h.git(ws.Root, "merge", "-q", "side")
	h.git(ws.Root, "branch", "-f", "main", "HEAD")
	h.git(ws.Root, "tag", "-d", "v1")
	h.git(ws.Root, "config", "core.hooksPath", "evil")
	h.git(ws.Root, "config", "core.hooksPath", "/dev/null")
	h.write(ws.Root, map[string]string{".git/hooks/pre-commit": "#!/bin/sh\n"})
	h.git(ws.Root, "rebase", "-q", "HEAD~1")
	h.write(ws.Root, map[string]string{"a": "3\n"})
	h.git(ws.Root, "stash")
	h.git(ws.Root, "stash", "drop")
	h.git(ws.Root, "gc", "-q")
	h.git(ws.Root, "fsck", "--strict")
	if got := state(t, filepath.Join(h.repo, ".git"), true); got != repository {
		t.Errorf("the user's repository has changed:\n%s\nwas\n%s", got, repository)
	}

	c := h.collect(ws)
	if len(c.Notes) > 0 || c.Commit == nil || c.Commit.ID != h.git(ws.Root, "rev-parse", "HEAD") || c.Commit.ID != h.git(h.repo, "rev-parse", ws.Branch) {
		t.Errorf("commit %+v, notes %q", c.Commit, c.Notes)
	}
	h.git(h.repo, "fsck", "--strict")
	if err := h.m.Remove(t.Context(), ws.Job, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := h.git(h.repo, "for-each-ref"); got != before {
		t.Errorf("refs are left:\n%s", got)
	}
}

// TestOwnGitInherits has repositories of special kinds.
func TestOwnGitInherits(t *testing.T) {
	t.Run("remotes", func(t *testing.T) {
		h := newHouse(t, map[string]string{"a": "1"})
		h.git(h.repo, "remote", "add", "origin", "https://ann:s3cret@git.example.com/octo/site.git?token=s3cret")
		h.git(h.repo, "remote", "add", "evil", "ext::sh -c touch% /tmp/x")
		h.git(h.repo, "config", "branch.main.remote", "origin")
		h.git(h.repo, "config", "branch.main.merge", "refs/heads/main")
		h.git(h.repo, "config", "http.extraHeader", "Authorization: s3cret")
		h.git(h.repo, "config", "credential.helper", "store")
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		if got := h.git(ws.Root, "remote", "get-url", "origin"); got != "https://git.example.com/octo/site.git" {
			t.Errorf("origin is %s", got)
		}
		config := h.read(ws.Root, ".git/config")
		for _, secret := range []string{"s3cret", "ext::", "helper"} {
			if strings.Contains(config, secret) {
				t.Errorf("the agent's configuration has %s:\n%s", secret, config)
			}
		}
		if got := h.git(ws.Root, "config", "branch.main.remote"); got != "origin" {
			t.Errorf("branch.main.remote is %q", got)
		}
	})
	t.Run("sha256", func(t *testing.T) {
		h := newHouse(t, nil)
		h.git(h.repo, "init", "-q", "-b", "main", "--object-format=sha256")
		h.write(h.repo, map[string]string{"a": "1"})
		h.commit(h.repo, "first")
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		h.write(ws.Root, map[string]string{"a": "2"})
		mine := h.commit(ws.Root, "mine")
		if c := h.collect(ws); c.Commit == nil || c.Commit.ID != mine || len(mine) != 64 {
			t.Errorf("%+v, notes %q, want the commit %s", c.Commit, c.Notes, mine)
		}
	})
	t.Run("shallow", func(t *testing.T) {
		from := newHouse(t, map[string]string{"a": "1"})
		from.commit(from.repo, "second")
		from.commit(from.repo, "third")
		h := newHouse(t, nil)
		h.git(h.repo, "clone", "-q", "--depth=2", "file://"+from.repo, ".")
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		if got := h.git(ws.Root, "log", "--format=%s"); got != "third\nsecond" {
			t.Errorf("log %q", got)
		}
		h.write(ws.Root, map[string]string{"a": "2"})
		mine := h.commit(ws.Root, "mine")
		h.write(ws.Root, map[string]string{"a": "3"})
		if c := h.collect(ws); c.Commit == nil || c.Commit.Before != mine || len(c.Notes) > 0 || h.git(h.repo, "rev-parse", ws.Branch+"^") != mine {
			t.Errorf("%+v, notes %q", c.Commit, c.Notes)
		}
	})
	t.Run("partial", func(t *testing.T) {
		from := newHouse(t, map[string]string{"a": "1"})
		from.write(from.repo, map[string]string{"a": "2"})
		from.commit(from.repo, "second")
		from.git(from.repo, "config", "uploadpack.allowFilter", "true")
		from.git(from.repo, "config", "uploadpack.allowAnySHA1InWant", "true")
		h := newHouse(t, nil)
		h.git(h.repo, "clone", "-q", "--filter=blob:none", "file://"+from.repo, ".")
		before := state(t, filepath.Join(h.repo, ".git", "objects"), true)
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		if got := h.git(ws.Root, "show", "HEAD~1:a"); got != "1" { // fetched by the agent's own git
			t.Errorf("the first a is %q", got)
		}
		if state(t, filepath.Join(h.repo, ".git", "objects"), true) != before {
			t.Error("it was fetched into the user's repository")
		}
		h.write(ws.Root, map[string]string{"a": "3"})
		mine := h.commit(ws.Root, "mine")
		if c := h.collect(ws); c.Commit == nil || c.Commit.ID != mine || len(c.Notes) > 0 {
			t.Errorf("%+v, notes %q", c.Commit, c.Notes)
		}
	})
	t.Run("sparse", func(t *testing.T) {
		h := newHouse(t, map[string]string{"in/a": "1", "out/b": "1"})
		h.git(h.repo, "sparse-checkout", "set", "--cone", "in")
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		if _, err := os.Stat(filepath.Join(ws.Root, "out")); err == nil {
			t.Error("the worktree is not sparse")
		}
		if got := h.git(ws.Root, "status", "--porcelain"); got != "" {
			t.Errorf("status %q", got)
		}
	})
	t.Run("many refs", func(t *testing.T) {
		h := newHouse(t, map[string]string{"a": "1"})
		var b strings.Builder
		for i := range maxRefs + 10 {
			fmt.Fprintf(&b, "%s refs/tags/t%06d\n", "COMMIT", i)
		}
		h.write(h.repo, map[string]string{".git/packed-refs": "# pack-refs with: sorted \n" + strings.ReplaceAll(b.String(), "COMMIT", h.git(h.repo, "rev-parse", "main"))})
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		if n := strings.Count(h.git(ws.Root, "for-each-ref", "--format=x"), "x"); n != maxRefs && n != maxRefs+1 {
			t.Errorf("%d refs", n)
		}
		h.git(ws.Root, "rev-parse", "main")
	})
}

// TestBorrowedObjectsStay: the user rewrites the history below a job, and git removes
// what nothing refers to any more.
func TestBorrowedObjectsStay(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	base := h.commit(h.repo, "soon gone")
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), false)
	h.git(h.repo, "checkout", "-q", "--orphan", "other")
	h.commit(h.repo, "another root")
	h.git(h.repo, "branch", "-q", "-D", "main")
	gc := func() {
		t.Helper()
		h.git(h.repo, "reflog", "expire", "--expire=all", "--all")
		h.git(h.repo, "gc", "-q", "--prune=now")
	}
	gc()
	h.git(ws.Root, "fsck", "--strict")
	h.write(ws.Root, map[string]string{"a": "2"})
	h.commit(ws.Root, "mine")
	if c := h.collect(ws); c.Commit == nil || len(c.Notes) > 0 {
		t.Errorf("%+v, notes %q", c.Commit, c.Notes)
	}
	if again := h.prepare(id, h.spec(job.Worktree), true); again.Start != base {
		t.Errorf("made anew from %s, want %s", again.Start, base)
	}
	if err := h.m.Remove(t.Context(), id, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	gc()
	if _, err := (git{m: h.m, dir: h.repo}).out(t.Context(), "cat-file", "-e", base); err == nil {
		t.Error("the ref that keeps the base is left")
	}
}

// TestHostileObjects has agents that want something else than their work on the
// branch.
func TestHostileObjects(t *testing.T) {
	for name, do := range map[string]func(h *house, ws *Workspace){
		"borrowed from elsewhere": func(h *house, ws *Workspace) {
			secret := newHouse(t, map[string]string{"secret": "of another repository"})
			h.write(ws.Root, map[string]string{".git/objects/info/alternates": h.read(ws.Root, ".git/objects/info/alternates") + secret.repo + "/.git/objects\n"})
			tree := secret.git(secret.repo, "rev-parse", "HEAD^{tree}")
			h.git(ws.Root, "update-ref", "HEAD", h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "steal", tree))
		},
		"a link to another store": func(h *house, ws *Workspace) {
			secret := newHouse(t, map[string]string{"secret": "of another repository"})
			h.git(ws.Root, "commit", "-q", "--allow-empty", "-m", "mine")
			if err := os.Rename(filepath.Join(ws.Root, ".git/objects"), filepath.Join(h.out, "moved")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(secret.repo+"/.git/objects", filepath.Join(ws.Root, ".git/objects")); err != nil {
				t.Fatal(err)
			}
		},
		"a lie about a name": func(h *house, ws *Workspace) {
			mine := h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "mine", "HEAD^{tree}")
			other := h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "other", "HEAD^{tree}")
			from, to := filepath.Join(ws.Root, ".git/objects", mine[:2], mine[2:]), filepath.Join(ws.Root, ".git/objects", other[:2], other[2:])
			h.git(ws.Root, "update-ref", "HEAD", other)
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		},
		"a tree with .git": func(h *house, ws *Workspace) {
			inner := h.git(ws.Root, "rev-parse", "HEAD^{tree}")
			h.write(h.out, map[string]string{"tree": "40000 .git\x00" + string(unhex(t, inner))})
			tree := h.git(ws.Root, "hash-object", "--literally", "-t", "tree", "-w", filepath.Join(h.out, "tree"))
			h.git(ws.Root, "update-ref", "HEAD", h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "mine", tree))
		},
		"a broken object": func(h *house, ws *Workspace) {
			mine := h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "mine", "HEAD^{tree}")
			h.git(ws.Root, "update-ref", "HEAD", mine)
			path := filepath.Join(ws.Root, ".git/objects", mine[:2], mine[2:])
			os.Remove(path)
			h.write(ws.Root, map[string]string{".git/objects/" + mine[:2] + "/" + mine[2:]: "x"})
		},
		"a broken pack": func(h *house, ws *Workspace) {
			h.git(ws.Root, "commit", "-q", "--allow-empty", "-m", "mine")
			h.write(ws.Root, map[string]string{".git/objects/pack/pack-" + strings.Repeat("a", 40) + ".pack": "PACK"})
		},
		"an object of any size": func(h *house, ws *Workspace) {
			id := h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "mine", "HEAD^{tree}")
			h.git(ws.Root, "update-ref", "HEAD", id)
			var b bytes.Buffer
			z := zlib.NewWriter(&b)
			fmt.Fprintf(z, "commit %d\x00tree", 1<<36)
			z.Close()
			path := ".git/objects/" + id[:2] + "/" + id[2:]
			os.Remove(filepath.Join(ws.Root, path))
			h.write(ws.Root, map[string]string{path: b.String()})
		},
		"a pack without end": func(h *house, ws *Workspace) {
			h.git(ws.Root, "commit", "-q", "--allow-empty", "-m", "mine")
			pack := ".git/objects/pack/pack-" + strings.Repeat("a", 40) + ".pack"
			h.write(ws.Root, map[string]string{pack: "PACK"})
			if err := os.Truncate(filepath.Join(ws.Root, pack), 1<<40); err != nil {
				t.Fatal(err)
			}
		},
		"too many files": func(h *house, ws *Workspace) {
			h.git(ws.Root, "commit", "-q", "--allow-empty", "-m", "mine")
			for i := range maxImportFiles / 1000 {
				dir := filepath.Join(ws.Root, ".git/objects", fmt.Sprintf("%02x", i))
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				for j := range 1000 {
					if err := os.Symlink("x", filepath.Join(dir, fmt.Sprintf("%038x", j))); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
		"a missing object": func(h *house, ws *Workspace) {
			h.git(ws.Root, "update-ref", "HEAD", h.git(ws.Root, "commit-tree", "-p", "HEAD", "-m", "mine", "HEAD^{tree}"))
			h.write(ws.Root, map[string]string{".git/HEAD": strings.Repeat("a", 40) + "\n"})
		},
		"another history": func(h *house, ws *Workspace) {
			h.git(ws.Root, "update-ref", "HEAD", h.git(ws.Root, "commit-tree", "-m", "no parent", "HEAD^{tree}"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1"})
			os.MkdirAll(h.out, 0o755)
			ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
			start := h.git(h.repo, "rev-parse", "main")
			do(h, ws)
			h.write(ws.Root, map[string]string{"a": "2"})
			c := h.collect(ws)
			if c.Commit == nil || h.git(h.repo, "log", "-1", "--format=%P", ws.Branch) != start || h.git(h.repo, "rev-parse", ws.Branch+"^{tree}") != h.patched(start, c.Patch) {
				t.Errorf("%+v", c)
			}
			if notes := strings.Join(c.Notes, "\n"); !strings.Contains(notes, "lacks the agent's own commits") {
				t.Errorf("notes %q", notes)
			}
			h.git(h.repo, "fsck", "--strict")
			if strings.Contains(state(t, filepath.Join(h.repo, ".git"), true), "another repository") {
				t.Error("the other repository's file is in the user's")
			}
		})
	}
}

func unhex(t *testing.T, id string) []byte {
	t.Helper()
	b := make([]byte, len(id)/2)
	if _, err := fmt.Sscanf(id, "%x", &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestImportPacks: commits that the agent's git has packed come along, too.
func TestImportPacks(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	for i := range 60 {
		h.write(ws.Root, map[string]string{fmt.Sprintf("d/%d", i): fmt.Sprint(i)})
		if i%20 == 0 {
			h.commit(ws.Root, fmt.Sprint("commit ", i))
			h.git(ws.Root, "repack", "-q", "-d", "-l")
		}
	}
	tip := h.commit(ws.Root, "last")
	c := h.collect(ws)
	if c.Commit == nil || c.Commit.ID != tip || len(c.Notes) > 0 {
		t.Errorf("%+v, notes %q", c.Commit, c.Notes)
	}
	h.git(h.repo, "fsck", "--strict")
	if entries, _ := filepath.Glob(filepath.Join(h.m.home(ws.Job), "import")); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}

// TestBranchCheckedOut: the user looks at the branch of a job that goes on.
func TestBranchCheckedOut(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"a": "2"})
	first := h.collect(ws).Commit
	h.git(h.repo, "checkout", "-q", ws.Branch)
	h.write(ws.Root, map[string]string{"a": "3"})
	c := h.collect(ws)
	if c.Commit != nil || c.Patch == "" || !strings.Contains(strings.Join(c.Notes, "\n"), "checked out in "+h.repo) {
		t.Errorf("%+v", c)
	}
	if h.git(h.repo, "rev-parse", "HEAD") != first.ID || h.git(h.repo, "status", "--porcelain") != "" {
		t.Error("the user's folder was changed")
	}
	h.git(h.repo, "checkout", "-q", "main")
	if c := h.collect(ws); c.Commit == nil || h.git(h.repo, "rev-parse", ws.Branch+"^") != first.ID {
		t.Errorf("then: %+v", c)
	}
}

func TestRemoteURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://github.com/octo/site.git":         "https://github.com/octo/site.git",
		"https://token@github.com/octo/site":       "https://github.com/octo/site",
		"https://ann:pass@host:8443/x?private=1#f": "https://host:8443/x",
		"ssh://git:pass@host:22/x.git":             "ssh://git@host:22/x.git",
		"git@github.com:octo/site.git":             "git@github.com:octo/site.git",
		"/srv/git/x.git":                           "/srv/git/x.git",
		"file:///srv/git/x.git":                    "file:///srv/git/x.git",
		"../x.git":                                 "",
		"ext::sh -c evil":                          "",
		"ext::https://x/y":                         "",
		"fd::17/foo":                               "",
		"javascript://x":                           "",
		"https://%zz/":                             "",
		"git@github.com::octo":                     "",
		"-oProxyCommand=evil:x":                    "",
	} {
		if got, ok := remoteURL(in); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", in, got, ok)
		}
	}
}

// linked turns a worktree into one of an earlier version: linked to the user's
// repository.
func (h *house) linked(ws *Workspace) *record {
	h.t.Helper()
	rec, err := h.m.readRecord(ws.Job)
	if err != nil {
		h.t.Fatal(err)
	}
	tree := h.m.tree(rec)
	if err := os.Rename(tree, tree+".x"); err != nil {
		h.t.Fatal(err)
	}
	h.git(h.repo, "worktree", "add", "-q", "--no-checkout", "-B", rec.Branch, tree, rec.StartCommit)
	rec.Admin = filepath.Join(rec.Repo.Common, "worktrees", rec.Folder)
	if err := os.Rename(filepath.Join(tree+".x", ".git", "index"), filepath.Join(rec.Admin, "index")); err != nil {
		h.t.Fatal(err)
	}
	link := h.read(tree, ".git")
	if err := os.RemoveAll(filepath.Join(tree+".x", ".git")); err != nil {
		h.t.Fatal(err)
	}
	if err := os.RemoveAll(tree); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(tree+".x", tree); err != nil {
		h.t.Fatal(err)
	}
	h.write(tree, map[string]string{".git": link})
	h.git(h.repo, "update-ref", "-d", keepRef(rec))
	rec.Refs = ""
	if err := h.m.writeRecord(rec); err != nil {
		h.t.Fatal(err)
	}
	return rec
}

// linkedWork makes ws a linked worktree with work in it, which an earlier version
// may have collected: then it has replaced the index and moved the branch. It returns
// the commit that the agent made.
func (h *house) linkedWork(ws *Workspace, collected bool) (own string) {
	h.t.Helper()
	rec := h.linked(ws)
	h.write(ws.Root, map[string]string{"mine": "m\n"})
	own = h.commit(ws.Root, "the agent's")
	h.write(ws.Root, map[string]string{"a": "2\n", "new": "n\n"})
	h.git(ws.Root, "add", "a")
	if !collected {
		return own
	}
	if err := copyIndex(filepath.Join(rec.Admin, "index"), h.m.agentIndex(rec)); err != nil {
		h.t.Fatal(err)
	}
	id := h.commit(ws.Root, "agentsched's")
	rec.Committed = &committed{ID: id, Tree: h.git(h.repo, "rev-parse", id+"^{tree}"), Old: own, Index: true}
	if err := h.m.writeRecord(rec); err != nil {
		h.t.Fatal(err)
	}
	return own
}

// TestLinkedWorktreeAfterKill kills a process at each git command by which it gives a
// linked worktree a git directory of its own.
func TestLinkedWorktreeAfterKill(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n"})
	killed := 0
	for n := 1; ; n += killEvery() {
		ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
		own := h.linkedWork(ws, true)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), dieVariable+"="+strings.Join([]string{strconv.Itoa(n), "prepare", h.root, h.repo, string(ws.Job), string(job.Worktree)}, "|"))
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
			t.Fatalf("child %d: %v\n%s", n, err, out)
		}
		h.prepare(ws.Job, h.spec(job.Worktree), false)
		if got := h.git(ws.Root, "status", "--porcelain"); got != "M  a\n?? new" || h.git(ws.Root, "rev-parse", ws.Branch) != own {
			t.Errorf("killed at git command %d: the agent finds\n%s", n, got)
		}
		if c := h.collect(ws); c.Commit == nil || c.Commit.Before != own || len(c.Notes) > 0 {
			t.Errorf("killed at git command %d: %+v, notes %q", n, c.Commit, c.Notes)
		}
		if err == nil {
			break
		}
		killed++
	}
	if killed < 5/killEvery() {
		t.Errorf("killed %d times, want several", killed)
	}
	if got := h.git(h.repo, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("still linked: %s", got)
	}
}

// TestLinkedWorktree: what an earlier version has left is resumed, collected and
// removed.
func TestLinkedWorktree(t *testing.T) {
	for _, c := range []struct {
		name      string
		collected bool // by the earlier version, which replaced the index and moved the branch
		do        func(h *house, ws *Workspace)
		branch    int // commits on it in the end, beside the first; -1: there is none
	}{
		{"collected", false, func(h *house, ws *Workspace) { h.collect(ws) }, 2},
		{"resumed and collected", false, func(h *house, ws *Workspace) {
			h.prepare(ws.Job, h.spec(job.Worktree), false)
			h.collect(ws)
		}, 2},
		{"collected again", true, func(h *house, ws *Workspace) { h.collect(ws) }, 2},
		{"resumed after it was collected", true, func(h *house, ws *Workspace) {
			h.prepare(ws.Job, h.spec(job.Worktree), false)
			if got := h.git(ws.Root, "status", "--porcelain"); got != "M  a\n?? new" {
				h.t.Errorf("the agent finds\n%s", got)
			}
			h.write(ws.Root, map[string]string{"more": "m"})
			h.collect(ws)
		}, 3},
		{"made anew", true, func(h *house, ws *Workspace) {
			h.prepare(ws.Job, h.spec(job.Worktree), true)
			if got := h.read(ws.Root, "a"); got != "1\n" {
				h.t.Errorf("a is %q", got)
			}
		}, -1},
		{"only removed", true, func(*house, *Workspace) {}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1\n"})
			ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
			own := h.linkedWork(ws, c.collected)
			before := h.git(h.repo, "rev-parse", "main")
			c.do(h, ws)
			if got := h.git(h.repo, "for-each-ref", "--format=%(refname)", "refs/heads/agentsched"); (got == "") != (c.branch < 0) {
				t.Errorf("branches %q", got)
			}
			if c.branch > 0 {
				log := strings.Split(h.git(h.repo, "log", "--format=%H", "main.."+ws.Branch), "\n")
				if len(log) != c.branch || !slices.Contains(log, own) {
					t.Errorf("the branch has %q, want %d with %s", log, c.branch, own)
				}
			}
			if c.name != "only removed" {
				if got := h.git(h.repo, "worktree", "list"); strings.Contains(got, "\n") {
					t.Errorf("still linked: %s", got)
				}
				h.git(ws.Root, "fsck", "--strict")
				if !isDir(filepath.Join(ws.Root, ".git")) {
					t.Error("it has no git directory of its own")
				}
			}
			if err := h.m.Remove(t.Context(), ws.Job, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
			if got := h.git(h.repo, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" || h.git(h.repo, "rev-parse", "main") != before {
				t.Errorf("refs are left: %s", got)
			}
			if got := h.git(h.repo, "worktree", "list", "--porcelain"); strings.Count(got, "worktree ") != 1 {
				t.Errorf("worktrees are left: %s", got)
			}
		})
	}
}

// TestCloneOfWorktree: a program in the worktree clones it, as tests and submodules do.
func TestCloneOfWorktree(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.git(ws.Root, "clone", "-q", ".", filepath.Join(t.TempDir(), "clone"))
}
