package trigger

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
)

// hasMeta reports whether a name is a pattern.
func hasMeta(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// checkPattern refuses what match would not understand.
func checkPattern(pattern string) error {
	for _, name := range strings.Split(filepath.ToSlash(pattern), "/") {
		if _, err := path.Match(name, ""); err != nil {
			return errors.New("is no pattern: a [ has no ], or a \\ has nothing after it")
		}
		if strings.Contains(name, "**") && name != "**" {
			return errors.New("** stands for whole folders, want it between slashes such as src/**/*.go")
		}
	}
	return nil
}

// match reports whether the names of a path match those of a pattern, in which
// "**" stands for any number of names, also none.
func match(pattern, names []string) bool {
	for len(pattern) > 0 && pattern[0] != "**" {
		if len(names) == 0 {
			return false
		}
		if ok, _ := path.Match(pattern[0], names[0]); !ok {
			return false
		}
		pattern, names = pattern[1:], names[1:]
	}
	if len(pattern) == 0 {
		return len(names) == 0
	}
	for len(pattern) > 1 && pattern[1] == "**" { // the same as one
		pattern = pattern[1:]
	}
	for skip := 0; skip <= len(names); skip++ {
		if match(pattern[1:], names[skip:]) {
			return true
		}
	}
	return false
}

// ignored reports whether a path below a folder, or a folder on its way, is to
// be ignored.
func ignored(patterns []string, names []string) bool {
	for _, pattern := range patterns {
		want := strings.Split(strings.Trim(pattern, "/"), "/")
		if len(want) == 1 {
			want = []string{"**", want[0]}
		}
		for n := 1; n <= len(names); n++ {
			if match(want, names[:n]) {
				return true
			}
		}
	}
	return false
}
