package statedir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/statedir/statedirtest"
)

func TestFiles(t *testing.T) {
	statedirtest.Documents(t, func(_ *testing.T, dir string) statedir.Documents { return statedir.Files(dir) })
}

// TestFilesAsTheyLie: a document is a file of its name that its owner alone may read,
// with a lock beside it.
func TestFilesAsTheyLie(t *testing.T) {
	dir := t.TempDir()
	docs := statedir.Files(dir)
	if _, err := docs.Write(t.Context(), "a.json", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", e.Name(), info.Mode(), err)
		}
	}
	if want := []string{"a.json", "a.json.lock"}; !slices.Equal(names, want) {
		t.Errorf("in the folder are %q, want %q", names, want)
	}
	if docs.Where("a.json") != filepath.Join(dir, "a.json") {
		t.Errorf("it lies in %s", docs.Where("a.json"))
	}
}

// TestFilesThatAreNotRight: a file that is open to others, or none, is not read, unless
// it is no secret; one that is too large neither, and is not written.
func TestFilesThatAreNotRight(t *testing.T) {
	dir := t.TempDir()
	docs := statedir.Files(dir, "open")
	for _, name := range []string{"secret", "open"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, statedir.MaxDocument+1)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"secret": "is open to other users (mode 0640); run: chmod 600 ", "folder": "is no regular file", "large": "is larger than 16 MiB"} {
		if text, version, err := docs.Read(t.Context(), name); text != nil || version != "" || err == nil || !strings.Contains(err.Error(), docs.Where(name)+" "+want) {
			t.Errorf("%s: read %d bytes of the version %q, %v; want an error with %q", name, len(text), version, err, want)
		}
	}
	if text, version, err := docs.Read(t.Context(), "open"); string(text) != "x" || version == "" || err != nil {
		t.Errorf("open: read %q of the version %q, %v", text, version, err)
	}
	_, err := docs.Write(t.Context(), "more", make([]byte, statedir.MaxDocument+1), "")
	if version, _ := docs.Version(t.Context(), "more"); err == nil || version != "" {
		t.Errorf("more than can be read was written: %v", err)
	}
}

// TestVersionsOfAStandingClock: a version is new also if the file system's clock stands,
// or was set back.
func TestVersionsOfAStandingClock(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	if _, err := docs.Write(t.Context(), "a", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
	ahead := time.Now().Add(time.Hour)
	if err := os.Chtimes(docs.Where("a"), ahead, ahead); err != nil {
		t.Fatal(err)
	}
	for last := ahead; ; {
		version, err := docs.Version(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := docs.Write(t.Context(), "a", []byte("y"), version); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(docs.Where("a"))
		if err != nil || !info.ModTime().After(last) {
			t.Fatalf("after a write at %v it is of %v, %v", last, info.ModTime(), err)
		}
		if last = info.ModTime(); last.Sub(ahead) > 2 {
			return
		}
	}
}

// TestSoleWriter: who has read or written a document last may replace it, and nobody else.
func TestSoleWriter(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	first, second := statedir.NewSoleWriter(docs, "a"), statedir.NewSoleWriter(docs, "a")
	if text, err := first.Read(t.Context()); text != nil || err != nil {
		t.Errorf("read %q, %v of none", text, err)
	}
	for _, text := range []string{"1", "2"} {
		if err := first.Write(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(docs.Where("a"), 0o400); err != nil { // which leaves the text as it is
		t.Fatal(err)
	}
	if err := first.Write(t.Context(), []byte("3")); err != nil {
		t.Errorf("after chmod: %v", err)
	}
	if err := second.Write(t.Context(), []byte("x")); !errors.Is(err, statedir.ErrChanged) {
		t.Errorf("one that was not read was replaced: %v", err)
	}
	if text, err := second.Read(t.Context()); string(text) != "3" || err != nil {
		t.Fatalf("read %q, %v", text, err)
	}
	if err := second.Write(t.Context(), []byte("4")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := first.Write(t.Context(), []byte("5")); !errors.Is(err, statedir.ErrChanged) || !strings.Contains(err.Error(), "somebody else has written it") {
			t.Errorf("what the second wrote was replaced: %v", err)
		}
	}
	if err := os.Remove(docs.Where("a")); err != nil {
		t.Fatal(err)
	}
	if err := second.Write(t.Context(), []byte("6")); err != nil {
		t.Errorf("one that was removed: %v", err)
	}
}

// unsure are documents whose next write fails: after it was done, or before.
type unsure struct {
	statedir.Documents
	fails, does bool
}

var errLost = errors.New("the connection is lost")

func (u *unsure) Write(ctx context.Context, name string, text []byte, version string) (string, error) {
	if !u.fails {
		return u.Documents.Write(ctx, name, text, version)
	}
	if u.does {
		if _, err := u.Documents.Write(ctx, name, text, version); err != nil {
			return "", err
		}
	}
	return "", errLost
}

// TestSoleWriterThatIsNotSure: a write that failed may have succeeded; the next one
// replaces it in either case.
func TestSoleWriterThatIsNotSure(t *testing.T) {
	for _, does := range [][]bool{{true}, {false}, {true, false}, {false, true}, {false, false, true}} {
		docs := &unsure{Documents: statedir.Files(t.TempDir())}
		w := statedir.NewSoleWriter(docs, "a")
		if err := w.Write(t.Context(), []byte("0")); err != nil {
			t.Fatal(err)
		}
		for i, done := range does {
			docs.fails, docs.does = true, done
			if err := w.Write(t.Context(), []byte{'a' + byte(i)}); !errors.Is(err, errLost) {
				t.Fatalf("%v: %v", does, err)
			}
		}
		docs.fails = false
		for _, text := range []string{"x", "y"} {
			if err := w.Write(t.Context(), []byte(text)); err != nil {
				t.Errorf("%v: then %q: %v", does, text, err)
			}
		}
		docs.fails, docs.does = true, false
		if err := w.Write(t.Context(), []byte("mine")); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		docs.fails = false
		if err := statedir.Change(t.Context(), docs, "a", func([]byte) ([]byte, error) { return []byte("theirs"), nil }); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), []byte("mine")); !errors.Is(err, statedir.ErrChanged) {
			t.Errorf("%v: what somebody else wrote meanwhile was replaced: %v", does, err)
		}
	}
}
