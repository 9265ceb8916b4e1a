package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// workspaceOf makes a workspace beside a file that is none of its, and returns its path.
func workspaceOf(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "ws")
	for _, d := range []string{"ws/.git/hooks", "ws/sub/deep", "ws/nested/.git", "ws/bare/objects", "ws/tree", "out"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"ws/.git/HEAD": "ref", "ws/.git/config": "[core]", "ws/nested/.git/config": "[core]", "ws/bare/HEAD": "ref",
		"ws/tree/HEAD": "ref", "ws/tree/commondir": "../..", "ws/a.txt": "a", "ws/sub/run.sh": "run", "out/secret": "secret",
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "sub/run.sh"), 0o750); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"ws/out": "../out", "ws/outfile": "../out/secret", "ws/gitlink": ".git", "ws/config": ".git/config", "ws/sublink": "sub", "ws/alink": "a.txt",
	} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(base, "out/secret"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(filepath.Join(dir, "big"))
	if err == nil {
		err = errors.Join(big.Truncate(MaxFile+1), big.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReadFile(t *testing.T) {
	dir := workspaceOf(t)
	for path, want := range map[string]string{
		"a.txt": "a", "./sub/../a.txt": "a", "sublink/run.sh": "run", "alink": "a", filepath.Join(dir, "sub/run.sh"): "run",
	} {
		if got, err := readFile(dir, path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for path, says := range map[string]string{
		"missing": "no such file", "../out/secret": "not in the workspace", "/etc/passwd": "not in the workspace", "": "not in the workspace",
		filepath.Join(dir, "../out/secret"): "not in the workspace", "out/secret": "escapes", "outfile": "escapes",
		"pipe": "not a regular file", "sub": "not a regular file", "/dev/zero": "not in the workspace", "big": "more than", "a\x00b": "invalid",
	} {
		if got, err := readFile(dir, path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %d bytes, error %v, want %q in it", path, len(got), err, says)
		}
	}
	// A workspace that is reached by a link is known by both of its names.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{link, dir} {
		if got, err := readFile(link, filepath.Join(base, "a.txt")); err != nil || string(got) != "a" {
			t.Errorf("by %s: %q, %v", base, got, err)
		}
	}
}

func TestWriteFile(t *testing.T) {
	dir := workspaceOf(t)
	for path, created := range map[string]bool{"new.txt": true, "made/by/us.txt": true, filepath.Join(dir, "a.txt"): false, "sub/run.sh": false, "hard": false, ".gitignore": true} {
		got, err := writeFile(dir, path, []byte("new"))
		if err != nil || got != created {
			t.Errorf("%s: created %v, %v", path, got, err)
		}
		if data, err := readFile(dir, path); err != nil || string(data) != "new" {
			t.Errorf("%s is %q then, %v", path, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "sub/run.sh")); err != nil || info.Mode() != 0o750 {
		t.Errorf("the permissions became %v, %v", info.Mode(), err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "../out/secret")); err != nil || string(data) != "secret" {
		t.Errorf("a hard link led out: %q, %v", data, err)
	}
}

func TestWriteFileRefuses(t *testing.T) {
	dir := workspaceOf(t)
	before := tree(t, filepath.Dir(dir))
	const git, link, outside = "belongs to git", "is a link", "not in the workspace"
	for path, says := range map[string]string{
		".git/config": git, ".git/hooks/pre-commit": git, ".git/new/x": git, ".git": git, filepath.Join(dir, ".git/config"): git, "sub/../.git/config": git,
		".GIT/config": git, ".g\u200cit/config": git, ".git./config": git, "git~1/config": git, ".git::$INDEX_ALLOCATION/config": git,
		"new/.git/config": git, "nested/.git/config": git, "bare/hooks/x": git, "bare/config": git, "tree/config": git,
		"gitlink/config": link, "gitlink/hooks/x": link, "config": link, "sublink/run.sh": link, "alink": link, "out/secret": link, "outfile": link,
		"../out/secret": outside, "/etc/x": outside, "": outside, filepath.Join(dir, "../out/secret"): outside,
		"pipe": "not a regular file", "sub": "not a regular file", ".": "not a regular file", "a.txt/b": "not a directory", "a\x00b": "invalid",
	} {
		if _, err := writeFile(dir, path, []byte("evil")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q in it", path, err, says)
		}
	}
	if _, err := writeFile(dir, "a.txt", make([]byte, MaxFile+1)); err == nil {
		t.Error("a file of any size is written")
	}
	if after := tree(t, filepath.Dir(dir)); after != before {
		t.Errorf("refused writes left\n%s\nwant\n%s", after, before)
	}
}

// TestWriteFileInARace has the folder that is written to replaced by a link to .git all
// the time, as a run may do.
func TestWriteFileInARace(t *testing.T) {
	dir := workspaceOf(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(at("sub"), at("aside")) // fails where the writer has made a folder meanwhile
			_ = os.Symlink(".git", at("sub"))
			_ = os.Remove(at("sub"))
			_ = os.Rename(at("aside"), at("sub"))
		}
	}()
	written := 0
	for range 2000 {
		if _, err := writeFile(dir, "sub/config", []byte("evil")); err == nil {
			written++
		}
	}
	close(stop)
	<-stopped
	if data, err := os.ReadFile(at(".git/config")); err != nil || string(data) != "[core]" {
		t.Errorf("git's configuration became %q, %v, in %d writes", data, err, written)
	}
}

// tree returns the names and sizes of all below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			all.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
		} else {
			all.WriteString(path + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
