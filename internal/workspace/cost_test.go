package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// What an attempt costs is counted here, not timed: a disk or a machine in use is
// several times slower than another.

// counted returns a house with that many files, in a repository of that object
// format whose worktrees have indexes of that version, and a function that tells
// how many files git has read since it was last called, by way of a clean filter.
func counted(t *testing.T, files int, format, version string) (*house, func() int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "read")
	config := filepath.Join(t.TempDir(), "config")
	filter := fmt.Sprintf("[filter \"count\"]\n\tclean = \"echo >> '%s'; cat\"\n[index]\n\tversion = %s\n", log, version)
	if err := os.WriteFile(config, []byte(filter), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	all := map[string]string{".gitattributes": "f* filter=count\n"}
	for i := range files {
		all[fmt.Sprintf("d%d/f%d", i%10, i)] = fmt.Sprintf("%06d\n", i)
	}
	h := newHouse(t, nil)
	h.write(h.repo, all)
	h.git(h.repo, "init", "-q", "-b", "main", "--object-format="+format)
	h.commit(h.repo, "first")
	read := func() int {
		b, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := removeFile(log); err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
	read()
	return h, read
}

// TestUnchangedFilesAreNotRead: a file that was written in the second in which its
// index was, git by itself reads each time that it looks.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	for _, c := range []struct{ format, version string }{{"sha1", "2"}, {"sha1", "4"}, {"sha256", "2"}} {
		t.Run(c.format+", index version "+c.version, func(t *testing.T) {
			const files = 100
			h, read := counted(t, files, c.format, c.version)
			id := job.NewID()
			ws := h.prepare(id, h.spec(job.Worktree), true)
			h.write(ws.Root, map[string]string{"d1/f1": "000009\n"})
			c := h.collect(ws)
			if got := changed(c); got != "modified d1/f1" {
				t.Errorf("collected %q", got)
			}
			if n := read(); n < 1 || n > files/10 {
				t.Errorf("%d files were read, of %d of which one was changed", n, files)
			}
			if again := h.collect(ws); again.SHA256 != c.SHA256 {
				t.Error("another patch the second time")
			}
			h.prepare(id, h.spec(job.Worktree), true)
			if err := h.m.Remove(t.Context(), id, h.spec(job.Worktree), RemoveOptions{}); err != nil {
				t.Error(err)
			}
			if n := read(); n > files/10 {
				t.Errorf("%d files were read by another comparison, another attempt and the removal", n)
			}
		})
	}
}

// TestChangesOfTheFirstSecond: a file that is changed in the second in which it
// was made, in its place, keeps all that git's own look at an index compares.
func TestChangesOfTheFirstSecond(t *testing.T) {
	for _, version := range []string{"2", "4"} {
		t.Run("index version "+version, func(t *testing.T) {
			const files = 100
			all := map[string]string{}
			for i := range files {
				all[fmt.Sprintf("d%d/a file with a long name %d", i%10, i)] = "as it was"
			}
			h := newHouse(t, all)
			config := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(config, []byte("[index]\n\tversion = "+version+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GIT_CONFIG_GLOBAL", config)
			ws := h.prepare(job.NewID(), h.spec(job.Worktree), true)
			want := 0
			for name := range all {
				if want++; want > files/2 {
					break
				}
				path := filepath.Join(ws.Root, name)
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				f.WriteString("as it is.")
				f.Close()
				// As one who hides it would.
				if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(h.collect(ws).Files); got != files/2 {
				t.Errorf("%d files changed, want %d", got, files/2)
			}
		})
	}
}

// TestAttemptLooksTwice: every file is looked at once at the start and once at the
// end, each by one command for what changed and one for what is new.
func TestAttemptLooksTwice(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "d/b": "2"})
	all, looks := 0, map[string]int{}
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error {
		all++
		switch args := cmd.Args[1+len(quiet):]; {
		case args[0] == "ls-files" && slices.Contains(args, "--others") && slices.Contains(args, "--"):
		case args[0] == "ls-files" && slices.Contains(args, "--others"):
			looks["others"]++
		case args[0] == "diff-files", args[0] == "read-tree", args[0] == "update-index", args[0] == "write-tree":
			looks[args[0]]++
		}
		return cmd.Run()
	}
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), true)
	h.write(ws.Root, map[string]string{"new": "3"})
	if got := changed(h.collect(ws)); got != "added new" {
		t.Errorf("collected %q", got)
	}
	want := map[string]int{"read-tree": 1, "diff-files": 2, "others": 2, "update-index": 1, "write-tree": 2}
	if !maps.Equal(looks, want) {
		t.Errorf("git looked %v, want %v", looks, want)
	}
	const most = 32
	if all > most {
		t.Errorf("%d commands of git, want at most %d", all, most)
	}
}
