package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Clash is a file in which a patch does not fit what was there.
type Clash struct {
	Path string   `json:"path"` // relative to Workspace.Root
	Job  job.Name `json:"job"`  // whose patch it is
	// With are the jobs whose patches changed the file before; none: it is the
	// start itself that the patch does not fit.
	With []job.Name `json:"with,omitempty"`
	// Marked says that the file holds both versions between conflict marks. One
	// that is not, e.g. a binary file or one that the other side deleted, is as
	// it was without the patch, or as it is with it.
	Marked bool `json:"marked,omitempty"`
}

// PatchesError says that the patches of a Request do not fit together, or do
// not fit the start.
type PatchesError struct {
	Clashes []Clash
	Detail  string // what git said, where it could not merge at all
}

// maxNamed is how many files a message names.
const maxNamed = 20

func (e *PatchesError) Error() string {
	text := DescribeClashes(e.Clashes)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// DescribeClashes says in one line which jobs' changes meet in which files.
func DescribeClashes(clashes []Clash) string {
	var groups []string // one for each pair of jobs, in the order of the patches
	files := map[string][]string{}
	for _, c := range clashes {
		g := fmt.Sprintf("the patch of job %s conflicts with %s in", c.Job, others(c.With))
		if files[g] == nil {
			groups = append(groups, g)
		}
		files[g] = append(files[g], c.Path)
	}
	var parts []string
	named := 0
	for _, g := range groups {
		if room := maxNamed - named; room > 0 {
			names := files[g][:min(len(files[g]), room)]
			parts = append(parts, g+" "+strings.Join(names, ", "))
			named += len(names)
		}
	}
	text := strings.Join(parts, "; ")
	if more := len(clashes) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// others names what a patch was applied on.
func others(with []job.Name) string {
	switch len(with) {
	case 0:
		return "the files that it is applied to"
	case 1:
		return "that of job " + string(with[0])
	}
	words := make([]string, len(with))
	for i, w := range with {
		words[i] = string(w)
	}
	return "those of jobs " + strings.Join(words, ", ")
}

// Unresolved returns the clashes of ws whose files still hold conflict marks.
func (m *Manager) Unresolved(ws *Workspace) ([]Clash, error) {
	if len(ws.Clashes) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(ws.Root)
	if err != nil {
		return nil, fmt.Errorf("look for conflict marks: %w", err)
	}
	defer root.Close()
	var left []Clash
	for _, c := range ws.Clashes {
		if !c.Marked || slices.ContainsFunc(left, func(l Clash) bool { return l.Path == c.Path }) {
			continue
		}
		marked, err := isMarked(root, c.Path)
		if err != nil {
			return nil, fmt.Errorf("look for conflict marks: %w", err)
		}
		if marked {
			left = append(left, c)
		}
	}
	return left, nil
}

// isMarked reports whether a file holds a conflict mark of git. What is no
// regular file, or lies outside of the root by now, holds none.
func isMarked(root *os.Root, path string) (bool, error) {
	info, err := root.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	f, err := root.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := bufio.NewReaderSize(f, 64<<10)
	for begins := true; ; {
		piece, more, err := b.ReadLine()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if begins && (isMark(piece, "<<<<<<<") || isMark(piece, ">>>>>>>")) {
			return true, nil
		}
		begins = !more
	}
}

func isMark(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\r')
}
