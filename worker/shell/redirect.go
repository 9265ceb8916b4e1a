package shell

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// writing says which files a script may write by redirections.
type writing struct {
	allowed bool   // by the capability edit; else none
	dir     string // the workspace, where the script begins
}

// redirection checks what writes a file: >, >>, >|, <> and bash's others. Whether
// a target lies in the workspace is told as far as the script says it: not that
// of "$x", nor what a symbolic link is to.
func (c *checker) redirection(n *syntax.Redirect) {
	switch n.Op {
	case syntax.RdrIn, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	}
	target := readWord(n.Word)
	if n.Op == syntax.DplOut && !target.dynamic && (target.text == "-" || target.text != "" && strings.Trim(target.text, "0123456789") == "") {
		return // another descriptor
	}
	if !target.dynamic && harmless(target.text) {
		return
	}
	switch {
	case !c.writing.allowed:
		c.refuse(n, "writes a file, which needs the capability edit")
	case c.outside(n.Word):
		c.refuse(n, "writes a file outside of the workspace")
	case c.left && (target.dynamic || !filepath.IsAbs(target.text)):
		c.refuse(n, "writes a file after the script has left the workspace by cd")
	}
}

// harmless reports whether writing to a file changes nothing.
func harmless(path string) bool {
	return slices.Contains([]string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"}, path)
}

// outside reports whether a word names a path outside of the workspace, as far as
// that can be told.
func (c *checker) outside(w *syntax.Word) bool {
	path := readWord(w)
	if path.dynamic && path.text == "" {
		return fromHome(w)
	}
	name := path.text
	if path.dynamic { // the folder before what is expanded
		name = name[:strings.LastIndexByte(name, '/')+1]
		if name == "" {
			return false
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(c.writing.dir, name)
	}
	rel, err := filepath.Rel(c.writing.dir, name)
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

// leaves reports whether some cd of the script leads out of the workspace, wherever
// it stands: a relative path may then mean anything.
func (c *checker) leaves(file *syntax.File) (left bool) {
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || left {
			return !left
		}
		if name := readWord(call.Args[0]); !name.is("cd") && !name.is("chdir") && !name.is("pushd") {
			return true
		}
		args := slices.DeleteFunc(slices.Clone(call.Args[1:]), func(w *syntax.Word) bool {
			word := readWord(w)
			return !word.dynamic && len(word.text) > 1 && word.text[0] == '-'
		})
		left = len(args) == 0 || c.outside(args[len(args)-1]) || readWord(args[len(args)-1]).is("-")
		return true
	})
	return left
}
