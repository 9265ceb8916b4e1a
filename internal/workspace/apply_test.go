package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("line " + strings.Repeat("x", i) + "\n")
	}
	return b.String()
}

// TestApply changes the same files as a job and as the user, in a worktree or in a copy; in a soak in both.
func TestApply(t *testing.T) {
	text := lines(40)
	top, bottom := "agent\n"+text, text+"user\n"
	start := map[string]string{"f": text, "g": text, "sub/h": "h\n", "mode": "#!/bin/sh\n", "del": "d\n"}
	type files map[string]string
	for n, c := range []struct {
		name     string
		user     files // "" removes
		commit   bool
		agent    files
		rename   [2]string
		want     files // after applying
		conflict []string
	}{
		{name: "untouched", agent: files{"f": top, "new/n": "n"}, want: files{"f": top, "new/n": "n"}},
		{name: "other file uncommitted", user: files{"g": "mine"}, agent: files{"f": top}, want: files{"f": top, "g": "mine"}},
		{name: "other part uncommitted", user: files{"f": bottom}, agent: files{"f": top}, want: files{"f": "agent\n" + bottom}},
		{name: "other part committed", user: files{"f": bottom, "x": "x"}, commit: true, agent: files{"f": top}, want: files{"f": "agent\n" + bottom}},
		{name: "same change", user: files{"f": top}, agent: files{"f": top, "g": top}, want: files{"f": top, "g": top}},
		{name: "renamed and edited", user: files{"f": bottom}, agent: files{}, rename: [2]string{"f", "moved"}, want: files{"f": "", "moved": bottom}},
		{name: "deletes", agent: files{"del": "", "sub/h": ""}, want: files{"del": "", "sub": ""}},
		{name: "same lines", user: files{"f": "user\n" + text}, agent: files{"f": top, "new": "n", "g": "g"}, conflict: []string{"f"}},
		{name: "untracked in the way", user: files{"new": "mine"}, agent: files{"new": "n", "f": top}, conflict: []string{"new"}},
		{name: "untracked but equal", user: files{"new": "n"}, agent: files{"new": "n", "f": top}, want: files{"new": "n", "f": top}},
		{name: "user removed it", user: files{"f": ""}, agent: files{"f": top, "g": top}, conflict: []string{"f"}},
		{name: "job removed what the user edited", user: files{"del": "edited\n"}, agent: files{"del": "", "f": top}, conflict: []string{"del"}},
		{name: "folder in the way", user: files{"new/mine": "m"}, agent: files{"new": "n", "f": top}, conflict: []string{"new"}},
		{name: "file in the way of a folder", user: files{"new": "m"}, agent: files{"new/n": "n", "a": "a", "f": top}, conflict: []string{"new/n"}},
		{name: "file becomes a folder", agent: files{"del": "", "del/x": "x"}, want: files{"del/x": "x"}},
		{name: "folder becomes a file", agent: files{"sub/h": "", "sub": "x"}, want: files{"sub": "x"}},
		{name: "folder becomes a file but holds more", user: files{"sub/mine": "m"}, agent: files{"sub/h": "", "sub": "x", "f": top}, conflict: []string{"sub"}},
	} {
		isolations := []job.Isolation{job.Worktree, job.Copy}
		if !testrun.Soaking() {
			isolations = isolations[n%2:][:1]
		}
		for _, i := range isolations {
			t.Run(c.name+" "+string(i), func(t *testing.T) {
				t.Parallel()
				h := newHouse(t, start)
				ws := h.prepare(job.NewID(), h.spec(i), false)
				change := func(dir string, f files) {
					for name, content := range f {
						if content == "" {
							os.Remove(filepath.Join(dir, name))
							os.Remove(filepath.Dir(filepath.Join(dir, name))) // if empty
						}
					}
					for name, content := range f {
						if content != "" {
							h.write(dir, files{name: content})
						}
					}
				}
				change(ws.Root, c.agent)
				if c.rename[0] != "" {
					os.Rename(filepath.Join(ws.Root, c.rename[0]), filepath.Join(ws.Root, c.rename[1]))
				}
				patch := h.collect(ws).Patch
				change(h.repo, c.user)
				if c.commit {
					h.commit(h.repo, "the user's")
				}
				before, index := state(t, h.repo, false), h.read(h.repo, ".git/index")
				a, err := h.m.Apply(t.Context(), job.Patch{Path: patch}, h.repo)
				if h.read(h.repo, ".git/index") != index {
					t.Error("the index was touched")
				}
				left, _ := filepath.Glob(filepath.Join(h.root, ".apply-*"))
				if len(left) > 0 {
					t.Errorf("scratch folders left: %q", left)
				}
				if c.conflict != nil {
					conflict := (*ConflictError)(nil)
					if !errors.As(err, &conflict) || !slices.Equal(conflict.Files, c.conflict) {
						t.Errorf("got %v, want a conflict in %q", err, c.conflict)
					}
					if got := state(t, h.repo, false); got != before {
						t.Errorf("a conflict changed\n%s\nto\n%s", before, got)
					}
					return
				}
				if err != nil || a.Already || len(a.Files) == 0 {
					t.Fatalf("%+v, %v", a, err)
				}
				for name, want := range c.want {
					got, err := os.ReadFile(filepath.Join(h.repo, name))
					if want == "" && !os.IsNotExist(err) || want != "" && string(got) != want {
						t.Errorf("%s is %q (%v), want %q", name, got, err, want)
					}
				}
				again := state(t, h.repo, false)
				if a, err := h.m.Apply(t.Context(), job.Patch{Path: patch}, h.repo); err != nil || !a.Already {
					t.Errorf("second time: %+v, %v", a, err)
				}
				if state(t, h.repo, false) != again {
					t.Error("the second time changed something")
				}
			})
		}
	}
}

func TestApplySubfolderAndModes(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy} {
		h := newHouse(t, map[string]string{"a": "1\n", "sub/b": "2\n", "sub/run": "x\n"})
		os.Chmod(filepath.Join(h.repo, "sub/b"), 0o600)
		spec := job.Workspace{Path: h.repo + "/sub", Isolation: i}
		ws := h.prepare(job.NewID(), spec, false)
		h.write(ws.Dir, map[string]string{"b": "two\n"})
		os.Chmod(filepath.Join(ws.Dir, "run"), 0o755)
		if _, err := h.m.Apply(t.Context(), job.Patch{Path: h.collect(ws).Patch}, spec.Path); err != nil {
			t.Fatal(err)
		}
		if got := h.read(h.repo, "sub/b"); got != "two\n" {
			t.Errorf("%s: %q", i, got)
		}
		b, _ := os.Stat(filepath.Join(h.repo, "sub/b"))
		run, _ := os.Stat(filepath.Join(h.repo, "sub/run"))
		if b.Mode().Perm() != 0o600 || run.Mode().Perm()&0o100 == 0 {
			t.Errorf("%s: modes %v %v", i, b.Mode(), run.Mode())
		}
	}
}

func TestApplySweepsScratchOfTheDead(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"a": "2"})
	dead, living := filepath.Join(h.root, ".apply-1"), filepath.Join(h.root, ".apply-2")
	h.write(dead, map[string]string{"x": "x"})
	h.write(living, map[string]string{"x": "x"})
	lock, err := lockFolder(living)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	h.apply(h.collect(ws).Patch)
	if isDir(dead) || !isDir(living) {
		t.Errorf("dead there: %v, living there: %v", isDir(dead), isDir(living))
	}
}

func TestApplyRefuses(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n"})
	outside := filepath.Join(filepath.Dir(h.repo), "outside")
	h.write(outside, map[string]string{"f": "f\n"})
	os.Symlink(outside, filepath.Join(h.repo, "link"))
	patch := func(name string) string {
		p := filepath.Join(t.TempDir(), "p")
		h.write(filepath.Dir(p), map[string]string{"p": "diff --git a/" + name + " b/" + name + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + name + "\n@@ -0,0 +1 @@\n+evil\n"})
		return p
	}
	before := state(t, filepath.Dir(h.repo), false)
	for _, name := range []string{"../outside/g", "link/g", "link/f", ".git/hooks/x", "a/../../g"} {
		if _, err := h.m.Apply(t.Context(), job.Patch{Path: patch(name)}, h.repo); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	os.RemoveAll(h.root)
	os.RemoveAll(h.root + "-locks")
	if got := state(t, filepath.Dir(h.repo), false); got != before {
		t.Errorf("something changed:\n%s\nwas\n%s", got, before)
	}
	lock, err := h.m.Lock(t.Context(), h.spec(job.Direct))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	busy := (*BusyError)(nil)
	if _, err := h.m.Apply(t.Context(), job.Patch{Path: patch("ok")}, h.repo); !errors.As(err, &busy) {
		t.Errorf("applied under a working job: %v", err)
	}
}

// TestApplyRollsBack makes the second file fail after the first was written.
func TestApplyRollsBack(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b/c": "2\n"})
	stage, backup := t.TempDir()+"/", t.TempDir()
	h.write(stage, map[string]string{"a": "changed\n", "new/dir/n": "n"})
	before := state(t, h.repo, false)
	tr := &transaction{root: h.repo, stage: stage, backup: backup}
	for _, c := range []change{{name: "b/c", remove: true}, {name: "a"}, {name: "new/dir/n"}} {
		if err := tr.do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.do(t.Context(), change{name: "not staged"}); err == nil {
		t.Fatal("a file that does not exist was written")
	}
	if state(t, h.repo, false) == before {
		t.Fatal("nothing was changed, so there is nothing to roll back")
	}
	if err := tr.rollback(); err != nil {
		t.Fatal(err)
	}
	if got := state(t, h.repo, false); got != before {
		t.Errorf("rolled back to\n%s\nwant\n%s", got, before)
	}
}

// TestApplyCompletes finds half of the patch applied, as a process leaves it
// that was killed among its writes.
func TestApplyCompletes(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "2\n", "gone": "g\n"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	os.Remove(filepath.Join(ws.Root, "gone"))
	h.write(ws.Root, map[string]string{"a": "one\n", "b": "two\n", "new": "n\n"})
	patch := h.collect(ws).Patch
	os.Remove(filepath.Join(h.repo, "gone"))
	h.write(h.repo, map[string]string{"a": "one\n"})
	h.apply(patch)
	if got, want := state(t, h.repo, false), state(t, ws.Root, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestChangedPatch: what is applied, or handed to another job, is the patch that
// was collected, or nothing.
func TestChangedPatch(t *testing.T) {
	h := newHouse(t, map[string]string{"f": "1\n"})
	p := h.made("a", job.Worktree, nil, func(dir string) { h.write(dir, map[string]string{"f": "2\n"}) })
	text := h.read(p.Path)
	evil := filepath.Join(t.TempDir(), "evil")
	h.write(filepath.Dir(evil), map[string]string{"evil": text})
	sum := sha256.Sum256([]byte(strings.Replace(text, "+2", "+3", 1)))
	for name, c := range map[string]struct {
		change func() error
		want   []string
	}{
		"edited":   {func() error { return os.WriteFile(p.Path, []byte(strings.Replace(text, "+2", "+3", 1)), 0o600) }, []string{p.Path, hex.EncodeToString(sum[:]), p.SHA256}},
		"longer":   {func() error { return os.WriteFile(p.Path, []byte(text+text), 0o600) }, []string{p.Path, "more than", p.SHA256}},
		"a sparse": {func() error { return os.Truncate(p.Path, 1<<40) }, []string{p.Path, "more than", p.SHA256}},
		"a link":   {func() error { return errors.Join(os.Remove(p.Path), os.Symlink(evil, p.Path)) }, []string{p.Path, "a symbolic link"}},
		"a pipe":   {func() error { return errors.Join(os.Remove(p.Path), unix.Mkfifo(p.Path, 0o600)) }, []string{p.Path, "a regular file"}},
	} {
		if err := errors.Join(os.RemoveAll(p.Path), os.WriteFile(p.Path, []byte(text), 0o600), c.change()); err != nil {
			t.Fatal(err)
		}
		_, applied := h.m.Apply(t.Context(), p, h.repo)
		_, stacked := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "b", Spec: h.spec(job.Copy), Fresh: true, Patches: []job.Patch{p}})
		for what, err := range map[string]error{"apply": applied, "stack": stacked} {
			changed := (*statedir.ChangedError)(nil)
			if !errors.As(err, &changed) {
				t.Errorf("%s %s: %v", what, name, err)
				continue
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s %s: %q is not in %v", what, name, w, err)
				}
			}
		}
	}
	if got := h.read(h.repo, "f"); got != "1\n" {
		t.Errorf("f is %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(h.root, ".apply-*")); len(left) > 0 {
		t.Errorf("scratch folders left: %q", left)
	}
	if err := errors.Join(os.Remove(p.Path), os.WriteFile(p.Path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.Apply(t.Context(), p, h.repo); err != nil || h.read(h.repo, "f") != "2\n" {
		t.Errorf("the patch itself: %v", err)
	}
}
