// Package statedirtest holds the suite that all statedir.Documents must pass: those in
// files, and those in a database that several hosts share.
package statedirtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/statedir"
)

// Documents tests what open opens in an empty folder. Opened again on the same folder,
// also while the first is in use, it has the same documents.
func Documents(t *testing.T, open func(t *testing.T, dir string) statedir.Documents) {
	t.Run("None", func(t *testing.T) {
		docs := open(t, t.TempDir())
		if text, version, err := docs.Read(t.Context(), "a"); text != nil || version != "" || err != nil {
			t.Errorf("read %q of the version %q, %v; want none", text, version, err)
		}
		if version, err := docs.Version(t.Context(), "a"); version != "" || err != nil {
			t.Errorf("version %q, %v; want none", version, err)
		}
		if _, err := docs.Write(t.Context(), "a", []byte("x"), "7"); !errors.Is(err, statedir.ErrChanged) {
			t.Errorf("a version that was never there is replaced: %v", err)
		}
	})
	t.Run("Kept", func(t *testing.T) {
		dir := t.TempDir()
		docs := open(t, dir)
		for _, text := range []string{"", "first, and longer\n", "second\x00\xff", strings.Repeat("0123456789abcdef", 1<<14)} {
			name := fmt.Sprintf("of-%d-bytes.json", len(text))
			version := create(t, docs, name, text)
			for _, d := range []statedir.Documents{docs, open(t, dir)} {
				got, same, err := d.Read(t.Context(), name)
				if err != nil || got == nil || string(got) != text || same != version {
					t.Errorf("%s: read %d bytes of the version %q, %v; want %d of %q", name, len(got), same, err, len(text), version)
				}
				if same, err := d.Version(t.Context(), name); err != nil || same != version {
					t.Errorf("%s: version %q, %v; want %q", name, same, err, version)
				}
			}
		}
		if text, version, err := docs.Read(t.Context(), "another"); text != nil || version != "" || err != nil {
			t.Errorf("read %q of the version %q, %v of a document that nobody wrote", text, version, err)
		}
	})
	t.Run("Replaced", func(t *testing.T) {
		docs := open(t, t.TempDir())
		seen := map[string]int{create(t, docs, "a", "0"): 0}
		for i := 1; i <= 64; i++ {
			_, version, err := docs.Read(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprint(i % 2) // of one length, and the one before the last again
			next, err := docs.Write(t.Context(), "a", []byte(text), version)
			if err != nil {
				t.Fatal(err)
			}
			if before, known := seen[next]; known {
				t.Fatalf("write %d has the version %q, as write %d had", i, next, before)
			}
			seen[next] = i
			if got, same, err := docs.Read(t.Context(), "a"); string(got) != text || same != next || err != nil {
				t.Fatalf("after write %d: %q of the version %q, %v; want %q of %q", i, got, same, err, text, next)
			}
		}
	})
	t.Run("LostRace", func(t *testing.T) {
		dir := t.TempDir()
		mine, theirs := open(t, dir), open(t, dir)
		old := create(t, mine, "a", "old")
		if _, err := mine.Write(t.Context(), "a", []byte("x"), ""); !errors.Is(err, statedir.ErrChanged) {
			t.Errorf("one that is there was made again: %v", err)
		}
		now, err := theirs.Write(t.Context(), "a", []byte("theirs"), old)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{old, "", "7"} {
			if _, err := mine.Write(t.Context(), "a", []byte("mine"), version); !errors.Is(err, statedir.ErrChanged) || !strings.Contains(err.Error(), mine.Where("a")) {
				t.Errorf("the version %q was replaced: %v; want ErrChanged of %s", version, err, mine.Where("a"))
			}
		}
		if text, version, err := mine.Read(t.Context(), "a"); string(text) != "theirs" || version != now || err != nil {
			t.Errorf("it is %q of the version %q, %v; want theirs of %q", text, version, err, now)
		}
	})
	t.Run("ChangeTogether", func(t *testing.T) {
		dir := t.TempDir()
		const writers, each = 8, 8
		var wg sync.WaitGroup
		for w := range writers {
			docs := open(t, dir)
			wg.Go(func() {
				for i := range each {
					err := statedir.Change(t.Context(), docs, "a", func(old []byte) ([]byte, error) {
						return fmt.Appendf(old, "%d.%d\n", w, i), nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		text, _, err := open(t, dir).Read(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		next := map[int]int{} // by writer
		for line := range strings.Lines(string(text)) {
			var w, i int
			if _, err := fmt.Sscanf(line, "%d.%d\n", &w, &i); err != nil || i != next[w] {
				t.Errorf("line %q, %v; want that of %d.%d", line, err, w, next[w])
			}
			next[w]++
		}
		for w := range writers {
			if next[w] != each {
				t.Errorf("%d changes of writer %d are left of %d", next[w], w, each)
			}
		}
	})
	t.Run("ChangeRefused", func(t *testing.T) {
		docs, refusal := open(t, t.TempDir()), errors.New("not so")
		version := create(t, docs, "a", "old")
		err := statedir.Change(t.Context(), docs, "a", func(old []byte) ([]byte, error) {
			if string(old) != "old" {
				t.Errorf("it was %q", old)
			}
			return []byte("new"), refusal
		})
		if now, readErr := docs.Version(t.Context(), "a"); !errors.Is(err, refusal) || now != version || readErr != nil {
			t.Errorf("refused: %v, and the version is %q, %v; want %q still", err, now, readErr, version)
		}
	})
	t.Run("Cancelled", func(t *testing.T) {
		docs, why := open(t, t.TempDir()), errors.New("nobody waits for it")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		_, err := docs.Write(ctx, "a", []byte("x"), "")
		if version, readErr := docs.Version(t.Context(), "a"); err == nil || version != "" || readErr != nil {
			t.Errorf("written after the end: %v, version %q, %v", err, version, readErr)
		}
	})
}

func create(t *testing.T, docs statedir.Documents, name, text string) (version string) {
	t.Helper()
	version, err := docs.Write(t.Context(), name, []byte(text), "")
	if err != nil || version == "" {
		t.Fatalf("%s: made with the version %q, %v", name, version, err)
	}
	return version
}
