package trigger

import (
	"os"
	"path/filepath"
	"strings"
)

// target is one path of a Watch, as it is at the moment.
type target struct {
	path    string   // as it is given, absolute
	base    string   // the folder that is watched
	deep    bool     // and everything below it
	pattern []string // which the names below base must match
}

// newTarget looks at what a path of a Watch stands for.
func newTarget(path string, recursive bool) target {
	path = filepath.Clean(path)
	names := strings.Split(filepath.ToSlash(path), "/")
	for i, name := range names {
		if hasMeta(name) {
			base := strings.Join(names[:i], "/")
			if base == "" {
				base = "/"
			}
			rest := names[i:]
			if recursive && rest[len(rest)-1] != "**" {
				rest = append(rest[:len(rest):len(rest)], "**")
			}
			return target{path: path, base: base, deep: len(rest) > 1 || rest[0] == "**", pattern: rest}
		}
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if recursive {
			return target{path: path, base: path, deep: true, pattern: []string{"**"}}
		}
		return target{path: path, base: path, pattern: []string{"*"}}
	}
	return target{path: path, base: filepath.Dir(path), pattern: []string{filepath.Base(path)}}
}

// below returns the names of path below the target's folder; nil if it is not
// below it.
func (t target) below(path string) []string {
	rest, err := filepath.Rel(t.base, path)
	if err != nil || rest == "." || rest == ".." || strings.HasPrefix(rest, "../") {
		return nil
	}
	return strings.Split(filepath.ToSlash(rest), "/")
}

// wants reports whether a change of path counts.
func (t target) wants(path string, ignore []string) bool {
	names := t.below(path)
	return names != nil && match(t.pattern, names) && !ignored(ignore, names)
}

// enters reports whether a folder must be watched.
func (t target) enters(dir string, ignore []string) bool {
	if dir == t.base {
		return true
	}
	names := t.below(dir)
	return t.deep && names != nil && !ignored(ignore, names)
}
