package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// largeFiles are changed files that a snapshot leaves out: to read them would take
// longer than it is worth, and they may be sparse.
type largeFiles struct {
	root  string // the folder that paths are told relative to
	files []job.FileChange
}

// withoutLarge returns the paths without those of files larger than
// job.MaxCollected, which it notes, and what to say of each of those. others are
// the paths that are new.
func (g git) withoutLarge(paths, others []string) (rest, missed []string) {
	if g.large == nil {
		return paths, nil
	}
	isNew := map[string]bool{}
	for _, p := range others {
		isNew[p] = true
	}
	rest = slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		path := filepath.Join(g.dir, p)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() <= job.MaxCollected {
			return false
		}
		change := job.FileChange{Path: p, Change: "modified", Bytes: info.Size()}
		if isNew[p] {
			change.Change = "added"
		}
		if rel, err := filepath.Rel(g.large.root, path); err == nil {
			change.Path = rel
		}
		g.large.files = append(g.large.files, change)
		missed = append(missed, fmt.Sprintf("%q: it has %d bytes, a patch takes files of at most %d", p, info.Size(), int64(job.MaxCollected)))
		return true
	})
	return rest, missed
}
