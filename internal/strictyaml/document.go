package strictyaml

import (
	"fmt"
	"strings"
)

// Position is a place in a file; both count from 1.
type Position struct {
	Line, Column int
}

// Doc is a parsed file together with the mistakes found in it so far.
type Doc struct {
	file   string
	root   *Node
	index  map[string]*Node // by path
	errs   []*Error
	blamed map[string]bool // paths with a mistake: nothing more is said about what they hold
	partly map[string]bool // what holds a blamed path: nothing more is said about it as a whole
	full   bool            // the file was found too large
}

// At returns where the value at path begins, e.g. "jobs[2].limits.timeout";
// if the file does not have it, where the nearest thing around it does.
func (d *Doc) At(path string) Position {
	for {
		if n, there := d.index[path]; there {
			return n.pos
		}
		path = parent(path)
	}
}

// Has reports whether the file gives a value at path.
func (d *Doc) Has(path string) bool {
	_, there := d.index[path]
	return there && path != ""
}

// Failf records a mistake in the value at path, unless one was recorded
// there, around it or within it before.
func (d *Doc) Failf(path, format string, args ...any) {
	d.fail(d.At(path), path, format, args...)
}

// Blamed reports whether a mistake was recorded at path or around it.
func (d *Doc) Blamed(path string) bool {
	for {
		if d.blamed[path] {
			return true
		}
		if path == "" {
			return false
		}
		path = parent(path)
	}
}

// Faulty reports whether a mistake was recorded at path or within it.
func (d *Doc) Faulty(path string) bool { return d.blamed[path] || d.partly[path] }

// Err returns all mistakes recorded so far, in order of position, as Errors;
// nil if there are none.
func (d *Doc) Err() error {
	if len(d.errs) == 0 {
		return nil
	}
	return sorted(d.errs)
}

// Root returns the file's value.
func (d *Doc) Root() *Node { return d.root }

func (d *Doc) fail(at Position, path, format string, args ...any) {
	if d.Blamed(path) || d.partly[path] {
		return
	}
	d.blame(path)
	d.errs = append(d.errs, d.errorAt(at, path, fmt.Sprintf(format, args...)))
}

func (d *Doc) blame(path string) {
	d.blamed[path] = true
	for path != "" {
		path = parent(path)
		d.partly[path] = true
	}
}

func (d *Doc) tooLarge(at Position) {
	if d.full {
		return
	}
	d.full = true
	d.errs = append(d.errs, d.errorAt(at, "", "the file holds too many values, or too many within each other; split it, or use fewer aliases"))
}

func (d *Doc) errorAt(at Position, path, message string) *Error {
	return &Error{File: d.file, Line: at.Line, Column: at.Column, Path: path, Message: message}
}

// parent cuts the last step off a path. A quoted step may take several cuts,
// whose results are no path of the file and thus harmless.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
