package trigger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBookKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	b, aside, err := openBook(path, at)
	if err != nil || aside != "" {
		t.Fatal(aside, err)
	}
	if err := b.update("a", "s", func(r *record) { r.Last, r.Due = at, []time.Time{at} }); err != nil {
		t.Fatal(err)
	}
	b, _, err = openBook(path, at)
	if err != nil {
		t.Fatal(err)
	}
	if r := b.get("a", "s"); !r.Last.Equal(at) || len(r.Due) != 1 {
		t.Errorf("got %+v", r)
	}
	if r := b.get("a", "other source"); !r.Last.IsZero() || len(r.Due) != 0 {
		t.Errorf("another source got %+v", r)
	}
	if err := b.keep(nil); err != nil {
		t.Fatal(err)
	}
	if b, _, err = openBook(path, at); err != nil || len(b.records) != 0 {
		t.Errorf("%v, %v: want nothing left", b.records, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("files %q, %v; want the book alone", left, err)
	}
}

func TestBookFaults(t *testing.T) {
	now := time.Unix(7, 0)
	for _, text := range []string{"", "{", "[]", `{"version":0}`} {
		path := filepath.Join(t.TempDir(), "b")
		write(t, path, text, 0o600)
		b, aside, err := openBook(path, now)
		if err != nil || len(b.records) != 0 || aside == "" {
			t.Fatalf("%q: %v, %q, %v", text, b, aside, err)
		}
		if got, err := os.ReadFile(aside); err != nil || string(got) != text {
			t.Errorf("%q is set aside as %q, %v", text, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "b")
	write(t, path, `{"version":2}`, 0o600)
	if _, _, err := openBook(path, now); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("newer: %v", err)
	}
	// A folder that is gone: the change holds in memory, and the error is said.
	b, _, err := openBook(filepath.Join(t.TempDir(), "no", "b"), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.update("a", "s", func(r *record) { r.Fired = 1 }); err == nil || b.get("a", "s").Fired != 1 {
		t.Errorf("%v, %+v", err, b.get("a", "s"))
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
