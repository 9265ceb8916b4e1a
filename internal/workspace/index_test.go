package workspace

import (
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzIndex reads indexes: those that git has written to their end, with the names
// that git reads in them, and any other without a panic.
func FuzzIndex(f *testing.F) {
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			h := &house{t: f, repo: f.TempDir()}
			h.git(h.repo, "init", "-q", "--object-format="+format)
			h.git(h.repo, "config", "index.version", version)
			for i := range 12 {
				h.write(h.repo, map[string]string{fmt.Sprintf("d%d/a name of %s", i%3, strings.Repeat("x", i)): "x"})
			}
			h.git(h.repo, "add", "-A")
			h.write(h.repo, map[string]string{"later": "x"})
			h.git(h.repo, "add", "-N", "later") // with extended flags, of version 3
			b, err := os.ReadFile(filepath.Join(h.repo, ".git", "index"))
			if err != nil {
				f.Fatal(err)
			}
			if version != fmt.Sprint(b[7]) && version != "2" {
				f.Errorf("git wrote version %d instead of %s", b[7], version)
			}
			var names []string
			size := map[string]int{"sha1": sha1.Size, "sha256": sha256.Size}[format]
			if !eachEntry(b, size, func(e *indexEntry) { names = append(names, string(e.name)) }) {
				f.Errorf("an index of version %s with %s was not read", version, format)
			}
			if want := strings.Split(h.git(h.repo, "ls-files"), "\n"); !slices.Equal(names, want) {
				f.Errorf("version %s, %s: read %q, want %q", version, format, names, want)
			}
			f.Add(b, size)
		}
	}
	f.Fuzz(func(_ *testing.T, b []byte, size int) {
		if size == sha1.Size || size == sha256.Size {
			eachEntry(b, size, func(*indexEntry) {})
		}
	})
}
