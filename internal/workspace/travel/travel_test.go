package travel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

func TestTravel(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{
		"a.txt": "one\n", "gone.txt": "x\n", "staged-gone.txt": "x\n", "run.sh": "echo\n", "bin": "a\x00b", "dir/file": "1\n",
		".gitignore": "*.log\nbuild/\n", "to-link": "was a file\n", "to-folder": "was a file\n", "forced.log": "",
	})
	h.write(h.repo, map[string]string{
		"a.txt": "two\n", "new.txt": "new\n", "staged.txt": "staged\n", "more.log": "ignored\n", "build/out": "ignored\n", "deep/er/ünï ö\n.txt": "odd\n", "bin": "a\x00c", "wanted.log": "forced\n",
	})
	h.git(h.repo, "add", "staged.txt", "a.txt")
	h.git(h.repo, "add", "-f", "wanted.log")
	h.write(h.repo, map[string]string{"a.txt": "three\n"})
	h.git(h.repo, "rm", "-q", "staged-gone.txt")
	h.git(h.repo, "mv", "dir/file", "dir/moved")
	for _, err := range []error{
		os.Remove(filepath.Join(h.repo, "gone.txt")), os.Chmod(filepath.Join(h.repo, "run.sh"), 0o755),
		os.Remove(filepath.Join(h.repo, "to-link")), os.Symlink("/etc/passwd", filepath.Join(h.repo, "to-link")),
		os.Symlink("nowhere", filepath.Join(h.repo, "dangling")), os.Remove(filepath.Join(h.repo, "to-folder")),
		os.Mkdir(filepath.Join(h.repo, "to-folder"), 0o755), os.WriteFile(filepath.Join(h.repo, "to-folder", "f"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, p, c := h.travel(h.repo, "there")
	h.same(c)
	h.sameStatus(c)
	if what := h.status(c.Top)["wanted.log"]; what != "new" {
		t.Errorf("wanted.log is %q, want new", what)
	}
	if head := h.git(c.Top, "rev-parse", "HEAD"); head != p.Base || head != h.git(h.repo, "rev-parse", "HEAD") {
		t.Errorf("HEAD is %s, want %s", head, p.Base)
	}
	for _, name := range []string{"more.log", "build"} {
		if _, err := os.Lstat(filepath.Join(c.Top, name)); err == nil {
			t.Errorf("%s travelled, which is ignored", name)
		}
	}
	if len(p.Warnings) > 0 {
		t.Errorf("warnings %q", p.Warnings)
	}
}

// TestTravelAny: whatever a folder holds, the node's is the same.
func TestTravelAny(t *testing.T) {
	base := t.TempDir()
	n := 0
	names := []string{"a", "b.txt", "dir/a", "dir/sub/b", "ü/x y", "build/o", "c.log", "-dash", "quote\"d", "tab\there"}
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			rt.Fatal(err)
		}
		h := hostsIn(rt, t.Context(), dir)
		h.git(h.repo, "init", "-q", "-b", "main")
		change := func() {
			name := rapid.SampledFrom(names).Draw(rt, "name")
			path := filepath.Join(h.repo, name)
			switch what := rapid.SampledFrom([]string{"write", "write", "binary", "remove", "chmod", "link", "stage", "unstage", "force", "ignore"}).Draw(rt, "what"); what {
			case "write", "binary", "link":
				if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
					return // a file or a link is in the way
				}
				_ = os.RemoveAll(path)
				if what == "link" {
					_ = os.Symlink(rapid.SampledFrom([]string{"a", "../..", "/etc/passwd", "dir"}).Draw(rt, "to"), path)
					return
				}
				content := rapid.StringMatching(`([a-c ]{0,5}\n){0,4}`).Draw(rt, "text")
				if what == "binary" {
					content += "\x00\xff\r\n"
				}
				_ = os.WriteFile(path, []byte(content), 0o644) // into a folder behind a link it may fail
			case "remove":
				_ = os.RemoveAll(path)
			case "chmod":
				if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
					_ = os.Chmod(path, 0o755)
				}
			case "stage":
				_, _ = h.tryGit(h.repo, "", "add", "-A")
			case "unstage":
				_, _ = h.tryGit(h.repo, "", "rm", "-q", "-r", "--cached", "--", name)
			case "force":
				_, _ = h.tryGit(h.repo, "", "add", "-f", "--", name)
			case "ignore":
				_ = os.WriteFile(filepath.Join(h.repo, ".gitignore"), []byte("*.log\nbuild/\n"), 0o644)
			}
		}
		var has *Mirror
		for i := range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 8).Draw(rt, "changes") {
				change()
			}
			if rapid.Bool().Draw(rt, "commit") {
				h.git(h.repo, "commit", "-q", "--allow-empty", "-m", "more")
			}
			for range rapid.IntRange(0, 8).Draw(rt, "changes") {
				change()
			}
			before := everything(rt, h.repo)
			m, _, c := h.travel(h.repo, fmt.Sprint("there", i))
			if after := everything(rt, h.repo); after != before {
				rt.Fatalf("the submitter's folder was\n%s\nand is\n%s", before, after)
			}
			has = m
			h.same(c)
			h.sameStatus(c)
		}
		h.git(has.dir, "fsck", "--strict", "--connectivity-only")
	})
}
