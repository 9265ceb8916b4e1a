package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// TestClash lets two jobs change the same files in ways that do not fit, and a
// third begin with both.
func TestClash(t *testing.T) {
	lines := strings.Repeat("a line\n", 20)
	edit := func(name, text string) func(*house, string) {
		return func(h *house, dir string) { h.write(dir, map[string]string{name: text}) }
	}
	remove := func(name string) func(*house, string) {
		return func(_ *house, dir string) { os.Remove(filepath.Join(dir, name)) }
	}
	move := func(to string) func(*house, string) {
		return func(_ *house, dir string) { os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, to)) }
	}
	for name, test := range map[string]struct {
		a, b func(*house, string)
		want string // the clashes
	}{
		"content":          {edit("f", lines+"of a\n"), edit("f", lines+"of b\n"), "f marked"},
		"windows":          {edit("w", "1\r\nof a\r\n"), edit("w", "1\r\nof b\r\n"), "w marked"},
		"both new":         {edit("n", "of a\n"), edit("n", "of b\n"), "n marked"},
		"binary":           {edit("bin", "\x00a"), edit("bin", "\x00b"), "bin"},
		"deleted, changed": {remove("f"), edit("f", lines+"of b\n"), "f"},
		"changed, deleted": {edit("f", lines+"of a\n"), remove("f"), "f"},
		"renamed twice":    {move("g"), move("h"), "f, g, h"},
		"renamed, deleted": {move("g"), remove("f"), "g"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"f": lines, "w": "1\r\n2\r\n", "bin": "\x00", "keep": "k"})
			a := h.made("a", job.Worktree, nil, func(dir string) { test.a(h, dir) })
			b := h.made("b", job.Worktree, nil, func(dir string) { test.b(h, dir) })
			for _, i := range layered {
				req := Request{Job: job.NewID(), Name: "c", Spec: h.spec(i), Fresh: true, Patches: []job.Patch{a, b}}
				_, err := h.m.Prepare(t.Context(), req)
				var clash *PatchesError
				if !errors.As(err, &clash) || !strings.Contains(err.Error(), "the patch of job b conflicts with that of job a in "+clash.Clashes[0].Path) {
					t.Fatalf("%s: got %v", i, err)
				}
				req.OnConflict = job.ResolveConflict
				ws, err := h.m.Prepare(t.Context(), req)
				if err != nil {
					t.Fatalf("%s: %v", i, err)
				}
				var got []string
				for _, c := range ws.Clashes {
					line := c.Path
					if c.Marked {
						line += " marked"
					}
					got = append(got, line)
					if c.Job != "b" {
						t.Errorf("clash %+v", c)
					}
				}
				if strings.Join(got, ", ") != test.want {
					t.Errorf("%s: clashes %v, want %s", i, got, test.want)
				}
				if c := h.collect(ws); len(c.Files) > 0 {
					t.Errorf("%s: nothing was done, and the patch holds %s", i, changed(c))
				}
				if h.read(ws.Dir, "keep") != "k" {
					t.Error("another file changed")
				}
			}
		})
	}
}

// TestUnresolved looks for marks before and after they are resolved, also by
// an attempt that found the workspace as it was.
func TestUnresolved(t *testing.T) {
	h := newHouse(t, map[string]string{"f": "1\n", "g": "1\n", "d/h": "1\n"})
	all := func(text string) func(string) {
		return func(dir string) { h.write(dir, map[string]string{"f": text, "g": text, "d/h": text}) }
	}
	patches := []job.Patch{h.made("a", job.Worktree, nil, all("of a\n")), h.made("b", job.Worktree, nil, all("of b\n"))}
	req := Request{Job: job.NewID(), Name: "c", Spec: h.spec(job.Worktree), Fresh: true, Patches: patches, OnConflict: job.ResolveConflict}
	ws, err := h.m.Prepare(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.read(ws.Dir, "f"); got != "<<<<<<< job a\nof a\n=======\nof b\n>>>>>>> job b\n" {
		t.Errorf("the file holds\n%s", got)
	}
	left := func(want string) {
		t.Helper()
		clashes, err := h.m.Unresolved(ws)
		var got []string
		for _, c := range clashes {
			got = append(got, c.Path)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("unresolved: %v, %v, want %s", got, err, want)
		}
	}
	left("d/h f g")
	h.write(ws.Dir, map[string]string{"f": "of a\nof b\n =======\n <<<<<<<\n", "g": "x\n>>>>>>>"})
	left("d/h g")
	req.Fresh = false
	if ws, err = h.m.Prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	left("d/h g")
	os.Remove(filepath.Join(ws.Dir, "g"))
	os.RemoveAll(filepath.Join(ws.Dir, "d"))
	outside := t.TempDir()
	h.write(outside, map[string]string{"h": "<<<<<<<\n"})
	os.Symlink(outside, filepath.Join(ws.Dir, "d"))
	left("")
}

// TestDescribeClashes bounds how many files a message names.
func TestDescribeClashes(t *testing.T) {
	var all []Clash
	for i := range 25 {
		all = append(all, Clash{Path: fmt.Sprint("f", i), Job: "b", With: []job.Name{"a"}})
	}
	all = append(all, Clash{Path: "x", Job: "c", With: []job.Name{"a", "b"}}, Clash{Path: "y", Job: "c"})
	text := DescribeClashes(all)
	want := "the patch of job b conflicts with that of job a in f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19 and 7 more"
	if text != want {
		t.Errorf("got %s", text)
	}
	want = "the patch of job b conflicts with that of job a in f24; the patch of job c conflicts with those of jobs a, b in x; the patch of job c conflicts with the files that it is applied to in y"
	if text := DescribeClashes(all[24:]); text != want {
		t.Errorf("got %s", text)
	}
}

// TestStackIsAMerge has two jobs change a repository at random: what a third
// begins with is what `git merge` makes of two branches with the same changes,
// or both find a conflict.
func TestStackIsAMerge(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"a": "1\n2\n3\n4\n5\n", "b": "1\n2\n3\n4\n5\n", "c": "1\n"})
	edit := rapid.Custom(func(r *rapid.T) [3]string {
		return [3]string{
			rapid.SampledFrom([]string{"write", "write", "write", "delete", "move"}).Draw(r, "what"),
			rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "file"),
			strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}), 1, 6).Draw(r, "lines"), "\n") + "\n",
		}
	})
	clean, clashed := 0, 0
	pairs, few := 8, 1
	if testrun.Soaking() {
		pairs, few = 16, 3
	}
	for n := range pairs {
		oracle := filepath.Join(filepath.Dir(h.repo), fmt.Sprint("oracle", n))
		h.git(h.repo, "worktree", "add", "-q", "--detach", oracle)
		var patches []job.Patch
		for k, side := range []job.Name{"x", "y"} {
			edits := rapid.SliceOfN(edit, 1, 3).Example(2*n + k)
			work := func(dir string) {
				for _, e := range edits {
					switch e[0] {
					case "write":
						h.write(dir, map[string]string{e[1]: e[2]})
					case "delete":
						os.Remove(filepath.Join(dir, e[1]))
					case "move":
						os.Rename(filepath.Join(dir, e[1]), filepath.Join(dir, "moved by "+string(side)))
					}
				}
			}
			base, on := "main", []job.Patch(nil)
			if side == "y" && n%3 == 0 { // one that goes on where the other ended
				base, on = fmt.Sprintf("x%d", n), patches
			}
			patches = append(patches, h.made(side, job.Worktree, on, work))
			h.git(oracle, "checkout", "-q", "-B", fmt.Sprintf("%s%d", side, n), base)
			work(oracle)
			h.commit(oracle, string(side))
		}
		h.git(oracle, "checkout", "-q", fmt.Sprintf("x%d", n))
		merge := exec.Command("git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "merge.directoryRenames=false", "merge", "-q", "--no-edit", fmt.Sprintf("y%d", n))
		merge.Dir, merge.Env = oracle, gitEnv(os.Environ())
		said, failed := merge.CombinedOutput()
		ws, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "z", Spec: h.spec(job.Worktree), Fresh: true, Patches: patches})
		var clash *PatchesError
		switch {
		case err != nil && !errors.As(err, &clash):
			t.Fatal(err)
		case (failed != nil) != (err != nil):
			t.Fatalf("git merge: %v, %s; we: %v; the patches\n%s\n%s", failed, said, err, h.read(patches[0].Path), h.read(patches[1].Path))
		case err != nil:
			clashed++
		case state(t, ws.Dir, false) != state(t, oracle, false):
			t.Fatalf("begins with\n%s\nwant\n%s", state(t, ws.Dir, false), state(t, oracle, false))
		default:
			clean++
		}
	}
	if clean < few || clashed < few {
		t.Errorf("%d clean and %d clashed: the edits prove little", clean, clashed)
	}
}
