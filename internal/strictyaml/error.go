package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrEmpty is wrapped by the error for a file that holds no document.
var ErrEmpty = errors.New("file is empty")

// maxPrinted bounds how many mistakes Errors prints; a file of another kind
// can have thousands.
const maxPrinted = 25

// Error is one mistake at one place of a file.
type Error struct {
	File    string // as the user named it
	Line    int    // from 1
	Column  int    // from 1, in characters
	Path    string // e.g. "jobs[2].limits.timeout"; "" for the file as a whole
	Message string // what is there and what would be right

	cause error
}

// Error returns "file:line:col: path: message".
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Path, e.Message)
}

// Unwrap returns the sentinel behind the mistake, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// Errors are the mistakes of one or several files, never empty, in order of
// position within each file.
type Errors []*Error

// Error prints one mistake a line.
func (e Errors) Error() string {
	var b strings.Builder
	for i, one := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == maxPrinted && len(e) > maxPrinted+1 {
			fmt.Fprintf(&b, "and %d more mistakes", len(e)-i)
			break
		}
		b.WriteString(one.Error())
	}
	return b.String()
}

// Unwrap lets errors.As and errors.Is find each mistake.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, one := range e {
		list[i] = one
	}
	return list
}

// Join returns the mistakes in errs, which may hold nils, as one error; nil if
// there are none. An error that is no mistake in a file keeps its place in
// the returned error as errors.Join has it.
func Join(errs ...error) error {
	var all Errors
	var others []error
	for _, err := range errs {
		var list Errors
		var one *Error
		switch {
		case err == nil:
		case errors.As(err, &list):
			all = append(all, list...)
		case errors.As(err, &one):
			all = append(all, one)
		default:
			others = append(others, err)
		}
	}
	if len(others) > 0 {
		if len(all) > 0 {
			others = append(others, all)
		}
		return errors.Join(others...)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// sorted orders the mistakes of one file by position.
func sorted(errs []*Error) Errors {
	list := slices.Clone(errs)
	slices.SortStableFunc(list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return list
}
