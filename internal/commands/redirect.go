package commands

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirection reads what writes a file: >, >>, >|, <> and bash's others.
func (r *reader) redirection(n *syntax.Redirect) {
	switch n.Op {
	case syntax.RdrIn, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	}
	target := readWord(n.Word)
	if n.Op == syntax.DplOut && !target.Dynamic && (target.Text == "-" || target.Text != "" && strings.Trim(target.Text, "0123456789") == "") {
		return // another descriptor
	}
	if !target.Dynamic && harmless(target.Text) {
		return
	}
	p := r.add(Write, n, "")
	if p == nil {
		return
	}
	named := !target.Dynamic && target.Text != ""
	switch {
	case r.outside(n.Word):
		p.Where = Outside
	case r.leaves && !(named && filepath.IsAbs(target.Text)):
		p.Where = Left
	}
	switch {
	case !named || strings.HasPrefix(target.Text, "!"): // zsh reads >! x as > x
	case filepath.IsAbs(target.Text):
		p.Path = filepath.Clean(target.Text)
	case !r.moves:
		p.Path = filepath.Join(r.dir, target.Text)
	}
}

// harmless reports whether writing to a file changes nothing.
func harmless(path string) bool {
	return slices.Contains([]string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"}, path)
}

// outside reports whether a word names a path outside of the workspace, as far as
// that can be told.
func (r *reader) outside(w *syntax.Word) bool {
	path := readWord(w)
	if path.Dynamic && path.Text == "" {
		return fromHome(w)
	}
	name := path.Text
	if path.Dynamic { // the folder before what is expanded
		name = name[:strings.LastIndexByte(name, '/')+1]
		if name == "" {
			return false
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.dir, name)
	}
	rel, err := filepath.Rel(r.dir, name)
	return err != nil || rel == ".." || strings.HasPrefix(rel, "../")
}

// fromHome reports whether a word begins with ~ or $HOME.
func fromHome(w *syntax.Word) bool {
	if len(w.Parts) == 0 {
		return false
	}
	first := w.Parts[0]
	if quoted, ok := first.(*syntax.DblQuoted); ok && len(quoted.Parts) > 0 {
		first = quoted.Parts[0]
	}
	switch p := first.(type) {
	case *syntax.Lit:
		return strings.HasPrefix(p.Value, "~") && w.Parts[0] == first
	case *syntax.ParamExp:
		return p.Param != nil && p.Param.Value == "HOME"
	}
	return false
}

// changes reports whether some command of the script changes the folder, wherever it
// stands, and whether one leads out of the workspace: a relative path may then mean
// anything.
func (r *reader) changes(file *syntax.File) (moves, leaves bool) {
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return !leaves
		}
		switch name := readWord(call.Args[0]); {
		case name.is("popd"):
			moves = true
			return !leaves
		case !name.is("cd") && !name.is("chdir") && !name.is("pushd"):
			return !leaves
		}
		moves = true
		args := slices.DeleteFunc(slices.Clone(call.Args[1:]), func(w *syntax.Word) bool {
			word := readWord(w)
			return !word.Dynamic && len(word.Text) > 1 && word.Text[0] == '-'
		})
		leaves = leaves || len(args) == 0 || r.outside(args[len(args)-1]) || readWord(args[len(args)-1]).is("-")
		return !leaves
	})
	return moves, leaves
}
