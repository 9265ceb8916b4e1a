package ask

import (
	"path"
	"strings"
)

// maxPath bounds a path that is compared, in bytes, as the system does.
const maxPath = 4 << 10

// resolve returns what a program's path is, absolute and clean; "" if that cannot be
// told.
func resolve(dir, name string) string {
	switch {
	case name == "" || len(name) > maxPath || strings.ContainsRune(name, 0) || name[0] == '~':
		return ""
	case path.IsAbs(name):
		return path.Clean(name)
	case dir == "":
		return ""
	}
	return path.Join(dir, name)
}

// within reports whether an absolute, clean path is dir or lies below it.
func within(dir, name string) bool {
	if dir == "" || name == "" {
		return false
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

func withinAny(dirs []string, name string) bool {
	for _, dir := range dirs {
		if within(dir, name) {
			return true
		}
	}
	return false
}

// inGit reports whether a path or a pattern has a part .git, however it is written:
// there are file systems on which .GIT is the same.
func inGit(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return false
}

// matchPath reports whether a pattern of a rule covers an absolute, clean path. A
// relative pattern is one of paths within dir.
func matchPath(pattern, dir, name string) bool {
	if !path.IsAbs(pattern) {
		if !within(dir, name) {
			return false
		}
		name = strings.TrimPrefix(name, strings.TrimSuffix(dir, "/"))
	}
	return matchParts(split(pattern), split(name))
}

func split(name string) []string {
	if name = strings.Trim(name, "/"); name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// matchParts compares part by part, where ** stands for any number of parts, in time
// proportional to the product of the numbers.
func matchParts(pattern, name []string) bool {
	// can[i] reports whether the pattern up to now matches the first i parts.
	can := make([]bool, len(name)+1)
	can[0] = true
	for _, want := range pattern {
		if want == "**" {
			for i := range name {
				can[i+1] = can[i+1] || can[i]
			}
			continue
		}
		for i := len(name); i > 0; i-- {
			ok := false
			if can[i-1] {
				ok, _ = path.Match(want, name[i-1])
			}
			can[i] = ok
		}
		can[0] = false
	}
	return can[len(name)]
}
