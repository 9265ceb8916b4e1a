package sandbox

import (
	"path/filepath"
	"strings"
)

// folds says which folder stands in a report for a path that would be refused.
type folds struct {
	broad map[string]bool // folders of which only what lies in them is named
}

// maxBelow is how many names below a broad folder a path in a report has.
const maxBelow = 2

// newFolds makes those of a policy: all that holds something named is broad, so that no grant covers more than what was
// looked for and nothing that is hidden.
func newFolds(named map[string]rights, broad []string) folds {
	f := folds{broad: map[string]bool{"/": true}}
	for _, dir := range broad {
		f.broad[dir] = true
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			f.broad[real] = true
		}
	}
	for path := range named {
		for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
			f.broad[dir] = true
		}
	}
	return f
}

func (f folds) isBroad(dir string) bool {
	return f.broad[dir] || strings.Count(dir, "/") == 1
}

// fold returns what would have to be granted for a real path: a folder, or a file that lies in a broad one. broad says
// that it is such a folder itself.
func (f folds) fold(path string, isFolder bool) (grant string, broad bool) {
	dir := path
	if !isFolder {
		dir = filepath.Dir(path)
	}
	if f.isBroad(dir) {
		return path, isFolder
	}
	climbed := []string{dir} // up to what lies in a broad folder
	for !f.isBroad(filepath.Dir(dir)) {
		dir = filepath.Dir(dir)
		climbed = append(climbed, dir)
	}
	return climbed[max(0, len(climbed)-maxBelow)], false
}
