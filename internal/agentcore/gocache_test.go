package agentcore

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeGoCache: what is asked for is taken from the user's cache, and nothing else of it; what is built is not added to it.
func TestServeGoCache(t *testing.T) {
	user, seed := t.TempDir(), t.TempDir()
	id := func(name string) []byte { sum := sha256.Sum256([]byte(name)); return sum[:] }
	add := func(action, text string) {
		t.Helper()
		if _, err := goCache(user).put(id(action), goCacheEntry{id(text), int64(len(text)), time.Unix(1, 0)}, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	add("fmt", "the archive of fmt")
	add("private", "the archive of a private package")
	add("cut", "whole")
	touch(t, goCache(user).file(id("whole"), "-d"), "cut")
	add("linked", "a program")
	if err := os.Remove(goCache(user).file(id("a program"), "-d")); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(goCache(user).file(id("a program"), "-d"), "program"), "")
	before := treeOf(t, user)

	var in, out bytes.Buffer
	ask := func(n int, command, action string) {
		fmt.Fprintf(&in, `{"ID":%d,"Command":%q,"ActionID":%q}`+"\n", n, command, base64.StdEncoding.EncodeToString(id(action)))
	}
	ask(1, "get", "fmt")
	ask(2, "get", "cut")
	ask(3, "get", "linked")
	ask(4, "get", "built")
	text := "what was built"
	fmt.Fprintf(&in, `{"ID":5,"Command":"put","ActionID":%q,"OutputID":%q,"BodySize":%d}`+"\n\n%q\n",
		base64.StdEncoding.EncodeToString(id("built")), base64.StdEncoding.EncodeToString(id(text)), len(text), base64.StdEncoding.EncodeToString([]byte(text)))
	ask(6, "get", "built")
	fmt.Fprintln(&in, `{"ID":7,"Command":"close"}`)
	if err := ServeGoCache(&in, &out, user, seed); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(&out)
	for n, want := range []string{"", "the archive of fmt", "miss", "miss", "miss", text, text, ""} {
		var a goCacheAnswer
		if err := answers.Decode(&a); err != nil || a.ID != int64(n) || a.Err != "" {
			t.Fatalf("answer %d: %+v, %v", n, a, err)
		}
		got := ""
		switch {
		case a.Miss:
			got = "miss"
		case a.DiskPath != "":
			data, err := os.ReadFile(a.DiskPath)
			if err != nil || !strings.HasPrefix(a.DiskPath, seed) {
				t.Errorf("answer %d: %s, %v", n, a.DiskPath, err)
			}
			got = string(data)
		}
		if got != want {
			t.Errorf("answer %d holds %q, want %q", n, got, want)
		}
	}
	if got := treeOf(t, user); got != before {
		t.Errorf("the user's cache became\n%s\nfrom\n%s", got, before)
	}
	if got := treeOf(t, seed); strings.Count(got, "-d ") != 2 || strings.Contains(got, "private") {
		t.Errorf("the seed has\n%s", got)
	}
}

// TestCopyCache: a copy shares nothing with the seed, and takes no other's place.
func TestCopyCache(t *testing.T) {
	dir := t.TempDir()
	seed, to := filepath.Join(dir, ".go", "seed"), filepath.Join(dir, "tenant", "go-build")
	touch(t, filepath.Join(seed, "ab", "ab-d"), "built")
	touch(t, filepath.Join(seed, "made"), "")
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := copyCache(seed, dir, to); err != nil {
		t.Fatal(err)
	}
	if got := treeOf(t, to); got != "ab/ab-d built\n" {
		t.Errorf("the copy has %q", got)
	}
	if err := os.WriteFile(filepath.Join(to, "ab", "ab-d"), []byte("poisoned"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyCache(seed, dir, to); err != nil {
		t.Fatal(err)
	}
	if got := treeOf(t, to) + treeOf(t, seed); got != "ab/ab-d poisoned\nab/ab-d built\nmade \n" {
		t.Errorf("afterwards there is %q", got)
	}
	elsewhere := t.TempDir()
	planted := filepath.Join(dir, "tenant", "planted")
	if err := os.Symlink(elsewhere, planted); err != nil {
		t.Fatal(err)
	}
	if err := copyCache(seed, dir, planted); err == nil {
		t.Error("a link was taken for a cache")
	}
	if got := treeOf(t, elsewhere); got != "" {
		t.Errorf("the link led to %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// treeOf lists the files below a folder with what they hold.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %s\n", rel, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestHoldsGo: only who has Go to build waits for a cache of it.
func TestHoldsGo(t *testing.T) {
	for file, want := range map[string]bool{"go.mod": true, "go.work": true, "tools/go.mod": true, "main.go": false, "a/b/go.mod": false} {
		dir := filepath.Join(t.TempDir(), "[odd]*")
		if err := place(filepath.Join(dir, file), strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
		if got := holdsGo(dir); got != want {
			t.Errorf("with %s it is %v", file, got)
		}
	}
	if holdsGo(filepath.Join(t.TempDir(), "none")) {
		t.Error("a folder that is not there has Go")
	}
}
