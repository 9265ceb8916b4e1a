package trigger

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

func TestBookKeeps(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	path := docs.Where(statedir.TriggersFile)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	b, aside, err := openBook(t.Context(), docs, at)
	if err != nil || aside != "" {
		t.Fatal(aside, err)
	}
	if err := b.update("a", "s", func(r *record) { r.Last, r.Due = at, []time.Time{at} }); err != nil {
		t.Fatal(err)
	}
	b, _, err = openBook(t.Context(), docs, at)
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
	if b, _, err = openBook(t.Context(), docs, at); err != nil || len(b.records) != 0 {
		t.Errorf("%v, %v: want nothing left", b.records, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || !slices.Equal(left, []string{path, path + ".lock"}) {
		t.Errorf("files %q, %v; want the book and its lock", left, err)
	}
}

func TestBookFaults(t *testing.T) {
	now := time.Unix(7, 0)
	for _, text := range []string{"", "{", "[]", `{"version":0}`} {
		docs := statedir.Files(t.TempDir())
		path := docs.Where(statedir.TriggersFile)
		write(t, path, text, 0o600)
		b, aside, err := openBook(t.Context(), docs, now)
		if err != nil || len(b.records) != 0 || aside == "" {
			t.Fatalf("%q: %v, %q, %v", text, b, aside, err)
		}
		if got, err := os.ReadFile(aside); err != nil || string(got) != text {
			t.Errorf("%q is set aside as %q, %v", text, got, err)
		}
		if _, again, err := openBook(t.Context(), docs, now); err != nil || again != "" {
			t.Errorf("%q: opened again it is set aside as %q, %v", text, again, err)
		}
	}
	docs := statedir.Files(t.TempDir())
	path := docs.Where(statedir.TriggersFile)
	write(t, path, `{"version":2}`, 0o600)
	if _, _, err := openBook(t.Context(), docs, now); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("newer: %v", err)
	}
	// A folder that is gone: the change holds in memory, and the error is said.
	b, _, err := openBook(t.Context(), statedir.Files(filepath.Join(t.TempDir(), "no")), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.update("a", "s", func(r *record) { r.Fired = 1 }); err == nil || b.get("a", "s").Fired != 1 {
		t.Errorf("%v, %+v", err, b.get("a", "s"))
	}
}

// TestBookOfASuccessor: what another process has written since then is not replaced.
func TestBookOfASuccessor(t *testing.T) {
	docs := statedir.Files(t.TempDir())
	var books [2]*book
	for i := range books {
		var err error
		if books[i], _, err = openBook(t.Context(), docs, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := books[i].update("a", "s", func(r *record) { r.Fired++ }); err != nil {
			t.Fatal(err)
		}
	}
	if err := books[0].update("a", "s", func(r *record) { r.Fired = 100 }); !errors.Is(err, statedir.ErrChanged) {
		t.Errorf("the one before wrote: %v", err)
	}
	b, _, err := openBook(t.Context(), docs, time.Now())
	if err != nil || b.get("a", "s").Fired != 2 {
		t.Errorf("it fired %d times, %v; want 2", b.get("a", "s").Fired, err)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
