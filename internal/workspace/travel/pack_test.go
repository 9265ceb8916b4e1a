package travel

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/workspace"
)

// noise is a text that cannot be compressed to less than half.
func noise(n int) string {
	b := make([]byte, n/2)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// TestPackRunsNothing: neither hooks nor programs that the repository's configuration names
// run, here or on the node, and nothing in .git changes.
func TestPackRunsNothing(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a.txt": "one\n", "b.txt": "b\n", ".gitattributes": "*.txt filter=evil diff=evil merge=evil\n"})
	ran := filepath.Join(h.dir, "ran")
	program := filepath.Join(h.dir, "evil")
	h.write(h.dir, map[string]string{"evil": "#!/bin/sh\necho \"$0 $*\" >>'" + ran + "'\ncat\n"})
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"pre-commit", "post-checkout", "post-index-change", "reference-transaction", "post-commit", "fsmonitor-watchman", "pre-auto-gc"} {
		if err := os.MkdirAll(filepath.Join(h.repo, ".git", "hooks"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(h.repo, ".git", "hooks", hook)); err != nil {
			t.Fatal(err)
		}
	}
	h.write(h.repo, map[string]string{"a.txt": "two\n", "new.txt": "new\n"})
	config := ""
	for _, kv := range [][2]string{
		{"core.fsmonitor", program}, {"core.hooksPath", filepath.Join(h.repo, ".git", "hooks")}, {"core.pager", program}, {"core.editor", program},
		{"core.sshCommand", program}, {"core.askPass", program}, {"gpg.program", program}, {"commit.gpgSign", "true"}, {"diff.external", program},
		{"diff.evil.command", program}, {"diff.evil.textconv", program}, {"merge.evil.driver", program}, {"filter.evil.clean", program}, {"filter.evil.smudge", program},
		{"filter.evil.required", "true"}, {"alias.bundle", "!" + program}, {"alias.rev-list", "!" + program}, {"credential.helper", "!" + program}, {"uploadpack.packObjectsHook", program},
	} {
		section, key, _ := strings.Cut(kv[0], ".")
		if sub, rest, ok := strings.Cut(key, "."); ok {
			section, key = section+" \""+sub+"\"", rest
		}
		config += fmt.Sprintf("[%s]\n\t%s = %q\n", section, key, kv[1])
	}
	f, err := os.OpenFile(filepath.Join(h.repo, ".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(config)
	f.Close()
	before := everything(t, h.repo)
	_, _, c := h.travel(h.repo, "there")
	if after := everything(t, h.repo); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
	if b, err := os.ReadFile(ran); err == nil {
		t.Errorf("programs ran:\n%s", b)
	}
	if b, err := os.ReadFile(filepath.Join(c.Top, "a.txt")); err != nil || string(b) != "two\n" {
		t.Errorf("a.txt is %q, %v", b, err)
	}
}

// TestThin: what the node has does not travel again.
func TestThin(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"large": noise(1 << 20), "a.txt": "one\n"})
	m, first := h.send(h.repo)
	if first.Size < 500<<10 || len(first.Prerequisites) > 0 || first.Commit != first.Base {
		t.Errorf("the first parcel is %+v", first.Parcel)
	}
	h.write(h.repo, map[string]string{"a.txt": "two\n"})
	_, second := h.send(h.repo)
	if second.Size == 0 || second.Size > 2000 || len(second.Prerequisites) != 1 || second.Prerequisites[0] != first.Base {
		t.Errorf("the second parcel is %+v", second.Parcel)
	}
	// The same state is the same commit, and needs no bundle.
	_, third := h.send(h.repo)
	if third.Size != 0 || third.Commit != second.Commit {
		t.Errorf("the third parcel is %+v", third.Parcel)
	}
	h.commit("second")
	h.write(h.repo, map[string]string{"b.txt": "new\n"})
	_, fourth, c := h.travel(h.repo, "there")
	h.same(c)
	if fourth.Size > 3000 || m.Key() != fourth.Identity.Key("ann") {
		t.Errorf("the fourth parcel is %+v", fourth.Parcel)
	}
	// A receiver may have what nobody here knows.
	if p := h.pack(h.repo, strings.Repeat("0123456789", 4)); p.Size < 500<<10 {
		t.Errorf("the parcel has %d bytes for a receiver that has nothing of it", p.Size)
	}
	if _, err := h.packer.Pack(t.Context(), h.repo, []string{"--all"}); err == nil || !strings.Contains(err.Error(), `"--all"`) {
		t.Errorf("a commit called --all: %v", err)
	}
}

func TestRepositories(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(h *hosts) (folder string)
	}{
		{"without a commit", func(h *hosts) string {
			h.git(h.repo, "init", "-q")
			h.write(h.repo, map[string]string{"a": "new\n", "b": "staged\n"})
			h.git(h.repo, "add", "b")
			return h.repo
		}},
		{"without a file", func(h *hosts) string { h.git(h.repo, "init", "-q"); return h.repo }},
		{"sha256", func(h *hosts) string {
			h.git(h.repo, "init", "-q", "--object-format=sha256")
			h.write(h.repo, map[string]string{"a": "1\n"})
			h.commit("first")
			h.write(h.repo, map[string]string{"a": "2\n"})
			return h.repo
		}},
		{"detached", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n"})
			h.git(h.repo, "checkout", "-q", "--detach")
			h.write(h.repo, map[string]string{"a": "2\n"})
			return h.repo
		}},
		{"shallow", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n"})
			h.write(h.repo, map[string]string{"a": "2\n"})
			h.commit("second")
			h.write(h.repo, map[string]string{"a": "3\n"})
			h.commit("third")
			from := h.repo
			h.repo = filepath.Join(h.dir, "clone")
			h.git(h.dir, "clone", "-q", "--depth=2", "file://"+from, h.repo)
			h.write(h.repo, map[string]string{"b": "new\n"})
			return h.repo
		}},
		{"with alternates", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n"})
			from := h.repo
			h.repo = filepath.Join(h.dir, "clone")
			h.git(h.dir, "clone", "-q", "--shared", from, h.repo)
			h.write(h.repo, map[string]string{"b": "new\n"})
			return h.repo
		}},
		{"linked worktree", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n"})
			from := h.repo
			h.repo = filepath.Join(h.dir, "linked")
			h.git(from, "worktree", "add", "-q", h.repo)
			h.write(h.repo, map[string]string{"a": "2\n", "b": "new\n"})
			h.git(h.repo, "add", "b")
			return h.repo
		}},
		{"split index", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n", ".gitignore": "*.log\n"})
			h.git(h.repo, "update-index", "--split-index")
			h.write(h.repo, map[string]string{"a.log": "forced\n"})
			h.git(h.repo, "add", "-f", "a.log")
			return h.repo
		}},
		{"with hidden changes", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n", "b": "1\n"})
			h.git(h.repo, "update-index", "--assume-unchanged", "a")
			h.git(h.repo, "update-index", "--skip-worktree", "b")
			h.write(h.repo, map[string]string{"a": "2\n", "b": "2\n"})
			return h.repo
		}},
		{"in the middle of a merge", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n", "gone": "1\n"})
			h.git(h.repo, "checkout", "-q", "-b", "other")
			h.write(h.repo, map[string]string{"a": "2\n", "gone": "2\n"})
			h.commit("other")
			h.git(h.repo, "checkout", "-q", "main")
			h.write(h.repo, map[string]string{"a": "3\n"})
			h.git(h.repo, "rm", "-q", "gone")
			h.commit("ours")
			if _, err := h.tryGit(h.repo, "", "merge", "other"); err == nil {
				h.t.Fatal("there is no conflict")
			}
			return h.repo
		}},
		{"with ends of lines", func(h *hosts) string {
			h.begin(map[string]string{"a": "1\n", "b.bat": "x\n", ".gitattributes": "*.bat text eol=crlf\n"})
			h.git(h.repo, "config", "core.autocrlf", "true")
			if err := errors.Join(os.Remove(filepath.Join(h.repo, "a")), os.Remove(filepath.Join(h.repo, "b.bat")), os.Remove(filepath.Join(h.repo, ".gitattributes"))); err != nil {
				h.t.Fatal(err)
			}
			h.git(h.repo, "checkout", "-q", ".")
			h.write(h.repo, map[string]string{"c.bat": "new\r\n", "d": "new\r\n"})
			return h.repo
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHosts(t)
			folder := c.make(h)
			before := everything(t, h.repo)
			_, p, out := h.travel(folder, "there")
			if after := everything(t, h.repo); after != before {
				t.Errorf("the submitter's folder was\n%s\nand is\n%s", before, after)
			}
			h.same(out)
			if c.name == "with hidden changes" || c.name == "in the middle of a merge" {
				return // what git says of them is not what is in the files
			}
			h.sameStatus(out)
			if p.Base != "" {
				if want, have := h.git(h.repo, "log", "--format=%H"), h.git(out.Top, "log", "--format=%H"); want != have {
					t.Errorf("history of the submitter's folder\n%s\nof the node's\n%s", want, have)
				}
			}
		})
	}
}

func TestSubfolder(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n", "web/site/b": "1\n"})
	h.write(h.repo, map[string]string{"a": "2\n", "web/site/c": "new\n"})
	_, p, c := h.travel(filepath.Join(h.repo, "web", "site"), "there")
	h.same(c)
	if p.Sub != "web/site" || c.Dir != filepath.Join(c.Top, "web", "site") {
		t.Errorf("the folder is %q, a job begins in %s", p.Sub, c.Dir)
	}
}

func TestWarnings(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	lib := filepath.Join(h.dir, "lib")
	h.git(h.dir, "clone", "-q", h.repo, lib)
	h.git(h.repo, "submodule", "--quiet", "add", lib, "sub/lib")
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0123456789abcdef", 4) + "\nsize 123456\n"
	h.write(h.repo, map[string]string{"video.mp4": pointer, "like.txt": strings.Replace(pointer, "git-lfs", "git-lsf", 1)})
	h.commit("second")
	nested := filepath.Join(h.repo, "nested")
	h.git(h.dir, "clone", "-q", lib, nested)
	_, p, c := h.travel(h.repo, "there")
	text := strings.Join(p.Warnings, "\n")
	for _, want := range []string{`submodule "sub/lib"`, `"video.mp4" is a pointer of Git LFS`, "nested is a git repository of its own"} {
		if !strings.Contains(text, want) {
			t.Errorf("the warnings are\n%s\nwant %q", text, want)
		}
	}
	if len(p.Warnings) != 3 {
		t.Errorf("the warnings are\n%s", text)
	}
	if entries, err := os.ReadDir(filepath.Join(c.Top, "sub", "lib")); err != nil || len(entries) > 0 {
		t.Errorf("the submodule has %v, %v", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(c.Top, "nested", "a")); err != nil || string(b) != "1\n" {
		t.Errorf("nested/a is %q, %v", b, err)
	}
}

func TestRefusedFolders(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	h.git(h.dir, "clone", "-q", "--bare", h.repo, "bare.git")
	plain := filepath.Join(h.dir, "plain")
	broken := filepath.Join(h.dir, "broken")
	h.git(h.dir, "clone", "-q", h.repo, broken)
	h.write(broken, map[string]string{".git/HEAD": strings.Repeat("0123456789", 4) + "\n"})
	elsewhere := filepath.Join(h.dir, "elsewhere")
	h.git(h.dir, "clone", "-q", h.repo, elsewhere)
	h.git(elsewhere, "config", "core.worktree", h.repo)
	partial := filepath.Join(h.dir, "partial")
	h.git(h.repo, "config", "uploadpack.allowFilter", "true")
	h.write(h.repo, map[string]string{"a": "2\n"})
	h.commit("second")
	h.git(h.dir, "clone", "-q", "--filter=blob:none", "file://"+h.repo, partial)
	others := filepath.Join(h.dir, "others")
	h.git(h.dir, "clone", "-q", h.repo, others)
	if err := os.Mkdir(plain, 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		plain: "is not a git repository; run `git init`", filepath.Join(h.dir, "missing"): "does not exist", filepath.Join(h.dir, "bare.git"): "is a bare repository",
		broken: "0123456789", elsewhere: "core.worktree", filepath.Join(h.repo, ".git"): "lies inside the .git folder", "repo": "is not an absolute path", partial: "is a partial clone and lacks objects",
	}
	if os.Geteuid() == 0 {
		for _, path := range []string{others, filepath.Join(others, ".git")} {
			if err := os.Lchown(path, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}
		cases[others] = "safe.directory"
	}
	for folder, want := range cases {
		_, err := h.packer.Pack(t.Context(), folder, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), folder) {
			t.Errorf("pack %s: %v, want %q", folder, err, want)
		}
	}
	if left, _ := os.ReadDir(h.packer.Temp); len(left) > 0 {
		t.Errorf("%d folders are left", len(left))
	}
}

// TestPartialClone: what the receiver has need not be here.
func TestPartialClone(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n", "b": "1\n"})
	h.write(h.repo, map[string]string{"a": "2\n"})
	h.commit("second")
	h.git(h.repo, "config", "uploadpack.allowFilter", "true")
	h.send(h.repo)
	partial := filepath.Join(h.dir, "partial")
	h.git(h.dir, "clone", "-q", "--filter=blob:none", "file://"+h.repo, partial)
	h.repo = partial
	h.write(h.repo, map[string]string{"a": "3\n"})
	_, _, c := h.travel(h.repo, "there")
	h.same(c)
}

func TestOldGit(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	h.write(h.dir, map[string]string{"bin/git": "#!/bin/sh\necho git version 2.20.1\n"})
	if err := os.Chmod(filepath.Join(h.dir, "bin", "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(h.dir, "bin"))
	if _, err := h.packer.Pack(t.Context(), h.repo, nil); err == nil || !strings.Contains(err.Error(), "git version 2.20.1 is too old; install git "+workspace.MinGit) {
		t.Errorf("pack with an old git: %v", err)
	}
	t.Setenv("PATH", filepath.Join(h.dir, "nothing"))
	if _, err := h.packer.Pack(t.Context(), h.repo, nil); err == nil || !strings.Contains(err.Error(), "git is not installed") {
		t.Errorf("pack without git: %v", err)
	}
}

func TestPackBounds(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"committed": noise(100 << 10), "small": "1\n"})
	for _, c := range []struct {
		limits Limits
		files  map[string]string
		want   string
	}{
		{Limits{Bundle: 10 << 10}, nil, `bytes in its bundle or more, at most 10240 can travel; the largest files are "committed" with 102400 bytes`},
		{Limits{Bundle: 10 << 10}, map[string]string{"huge": strings.Repeat("a", 20<<10)}, `20480 bytes in files that are not committed or more, at most 10240 can travel; the largest files are "huge" with 20480 bytes; add what need not travel to .gitignore`},
		{Limits{Files: 3}, map[string]string{"b": "1\n", "huge": ""}, `has 4 files or more, at most 3 can travel; the largest files are "committed"`},
		{Limits{Files: 1}, map[string]string{"c": "1\n"}, `files that are not committed or more, at most 1`},
		{Limits{Tree: 50 << 10}, nil, `bytes in its files or more, at most 51200`},
	} {
		h.write(h.repo, c.files)
		h.packer.Limits = c.limits
		_, err := h.packer.Pack(t.Context(), h.repo, nil)
		if limit := (*LimitError)(nil); !errors.As(err, &limit) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), h.repo+" has") {
			t.Errorf("%+v: %v\nwant %s", c.limits, err, c.want)
		}
	}
}

// TestPackFiles: only the user can read what travels, and nothing of it stays.
func TestPackFiles(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	p := h.pack(h.repo)
	b, err := os.ReadFile(p.Path)
	if err != nil || int64(len(b)) != p.Size || !bytes.HasPrefix(b, []byte("# v2 git bundle\n")) {
		t.Errorf("the bundle is %d bytes, %v; announced were %d", len(b), err, p.Size)
	}
	if info, err := os.Stat(p.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(h.packer.Temp); len(left) > 0 {
		t.Errorf("%d folders are left", len(left))
	}
}

// TestOwnFolder: the scheduler's state never travels.
func TestOwnFolder(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	h.write(h.repo, map[string]string{"state/queue.db": "secret\n", "b": "new\n"})
	h.packer.Workspaces = workspace.New(workspace.Config{Root: filepath.Join(h.repo, "state", "workspaces"), Locks: filepath.Join(h.repo, "state", "locks"), Exclude: []string{filepath.Join(h.repo, "state")}, Log: zerolog.Nop()})
	_, _, c := h.travel(h.repo, "there")
	if _, err := os.Lstat(filepath.Join(c.Top, "state")); err == nil {
		t.Error("the state directory travelled")
	}
	if _, err := os.Lstat(filepath.Join(c.Top, "b")); err != nil {
		t.Error(err)
	}
}
