package commands

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/agentsched/agentsched/job"
)

const (
	// MaxBytes bounds a script that can be read: the parser recurses, so the stack must
	// hold the deepest nesting that fits, and takes quadratic time for some of it.
	MaxBytes = 64 << 10
	// maxParts bounds what is told of a script.
	maxParts = 16 << 10
)

// Part is something in a script that has to be allowed, or that somebody may want to
// know of.
type Part struct {
	Kind Kind
	Line uint   // 1, 2, …; 0: of the whole script
	Text string // as the script writes it, cut

	Words []Word // of a Call, its name first
	// Path of a Write is absolute and clean; "" if it is only known when the script runs.
	Path  string
	Where Where // of a Write

	// Reason completes "the part …" to a refusal of the part in a script that is held to
	// plain sh; "" if it is harmless there or, for a Call, needs no pattern.
	Reason string
}

// Kind says what a part of a script is.
type Kind int

// The kinds.
const (
	Call       Kind = iota // a simple command
	Write                  // a redirection that writes a file
	Setting                // a variable is set
	Definition             // a function is defined
	Nested                 // what a command prints becomes a part of the script: $(…)
	Foreign                // something that shells read in different ways, or that may run what cannot be seen
	Unread                 // the script as a whole cannot be read
)

// Where says where a file lies that is written, as far as the script says it: not what
// a variable holds, nor what a symbolic link is to.
type Where int

// The places.
const (
	Inside  Where = iota // in the workspace, or not known
	Outside              // of the workspace
	Left                 // not known, since the script leaves the workspace by cd
)

// Read returns the parts of a script that begins in the folder dir, an absolute path, as
// a POSIX shell reads it and then as bash does. A part that both read is there twice.
func Read(script, dir string) []Part {
	if len(script) > MaxBytes {
		return []Part{unread("the script has %d bytes, at most %d can be checked", len(script), MaxBytes)}
	}
	if i := strings.IndexByte(script, '\r'); i >= 0 {
		return []Part{unread("line %d ends in a carriage return, which a shell takes for a part of the command", 1+strings.Count(script[:i], "\n"))}
	}
	var parts []Part
	for _, dialect := range []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash} {
		file, err := syntax.NewParser(syntax.Variant(dialect), syntax.KeepComments(true)).Parse(strings.NewReader(script), "")
		if err != nil {
			part := unreadable(err, dialect)
			if dialect == syntax.LangPOSIX { // bash may still read it
				part.Kind = Foreign
			}
			parts = append(parts, part)
			continue
		}
		r := reader{script: script, dir: dir, functions: topFunctions(file)}
		r.moves, r.leaves = r.changes(file)
		syntax.Walk(file, r.visit)
		parts = append(parts, r.parts...)
		if r.full {
			return append(parts, unread("the script has more than %d parts, which are too many to be checked", maxParts))
		}
	}
	return parts
}

func unread(format string, args ...any) Part {
	return Part{Kind: Unread, Reason: fmt.Sprintf(format, args...)}
}

func unreadable(err error, dialect syntax.LangVariant) Part {
	text := err.Error()
	var parse syntax.ParseError
	var lang syntax.LangError
	switch {
	case errors.As(err, &parse):
		text = fmt.Sprintf("line %d: %s", parse.Pos.Line(), parse.Text)
	case errors.As(err, &lang):
		text = fmt.Sprintf("line %d: %s", lang.Pos.Line(), strings.TrimLeft(text, "0123456789: "))
	}
	return unread("the script cannot be read as %s, so its commands cannot be checked: %s", dialect, text)
}

// topFunctions returns where each function begins that is defined by a
// statement of its own at the top of the script: after it, the name cannot
// mean a program, as it could if the definition were in a branch or a subshell.
func topFunctions(file *syntax.File) map[string]uint {
	functions := map[string]uint{}
	for _, s := range file.Stmts {
		f, ok := s.Cmd.(*syntax.FuncDecl)
		if !ok || f.Name == nil || !identifier(f.Name.Value) || s.Background || s.Negated || len(s.Redirs) > 0 {
			continue
		}
		if _, again := functions[f.Name.Value]; !again {
			functions[f.Name.Value] = f.Pos().Offset()
		}
	}
	return functions
}

// reader walks one reading of a script and collects its parts.
type reader struct {
	script    string
	dir       string
	functions map[string]uint // name to the offset of its definition
	moves     bool            // the script has a cd
	leaves    bool            // one that leads out of the workspace
	parts     []Part
	full      bool // there are more parts
}

// visit is called for each node by syntax.Walk and tells it whether to go on
// below the node.
func (r *reader) visit(node syntax.Node) bool {
	switch n := node.(type) {
	case *syntax.Comment:
		// A shell ends the comment here; the parser takes the next line for a
		// part of it.
		line, _, _ := strings.Cut(r.script[min(int(n.Pos().Offset()), len(r.script)):], "\n")
		if strings.HasSuffix(line, `\`) {
			r.add(Foreign, n, "is a comment that ends in a backslash, which hides the next line")
		}
	case *syntax.CallExpr:
		r.call(n)
	case *syntax.Redirect:
		r.redirection(n)
	case *syntax.DeclClause:
		r.declaration(n)
	case *syntax.Assign:
		r.assignment(n)
	case *syntax.ForClause:
		if loop, ok := n.Loop.(*syntax.WordIter); !ok || n.Select {
			r.add(Foreign, n, notPOSIX)
		} else {
			r.set(loop, loop.Name.Value)
		}
	case *syntax.FuncDecl:
		switch {
		case n.Name == nil || n.RsrvWord:
			r.add(Foreign, n, notPOSIX)
		case specialBuiltin(n.Name.Value):
			r.add(Foreign, n, "gives a function the name of a builtin that comes before functions")
		default:
			r.add(Definition, n, "")
		}
	case *syntax.ParamExp:
		r.parameter(n)
	case *syntax.ArithmExp:
		r.arithmetic(n)
	case *syntax.CmdSubst:
		if n.Backquotes && strings.Contains(r.source(n), `\`) {
			r.add(Foreign, n, "has a backslash in backquotes, which is easily misread; write $(…)")
		} else {
			r.add(Nested, n, "")
		}
	case *syntax.ArithmCmd, *syntax.TestClause, *syntax.LetClause, *syntax.CoprocClause, *syntax.TestDecl, *syntax.ProcSubst, *syntax.ExtGlob:
		r.add(Foreign, n, notPOSIX)
	}
	return !r.full
}

const (
	notPOSIX      = "is not plain sh, so what it runs cannot be checked"
	guardedReason = "sets a variable that decides which programs are run"
)

// call reads a simple command.
func (r *reader) call(n *syntax.CallExpr) {
	if len(n.Args) == 0 {
		return // only assignments, which are visited by themselves
	}
	words := make([]Word, len(n.Args))
	for i, w := range n.Args {
		words[i] = readWord(w)
	}
	if p := r.add(Call, n, r.called(n, words)); p != nil {
		p.Words = words
	}
}

// called returns "" for a command that needs no pattern, else why it is refused
// without one.
func (r *reader) called(n *syntax.CallExpr, words []Word) string {
	if words[0].Dynamic {
		return "is not allowed: the name of the command is only known when it runs"
	}
	name := words[0].Text
	if defined, ok := r.functions[name]; ok {
		if n.Pos().Offset() < defined {
			return "calls a function before its definition, where the name may be a program; define it first"
		}
		return ""
	}
	return r.builtin(name, words[1:])
}

func (r *reader) assignment(n *syntax.Assign) {
	switch {
	case n.Index != nil:
		r.add(Foreign, n, "assigns to an element of an array, which only some shells know")
	case n.Name != nil:
		r.set(n, n.Name.Value)
	}
}

func (r *reader) set(n syntax.Node, name string) {
	reason := ""
	if guarded(name) {
		reason = guardedReason
	}
	r.add(Setting, n, reason)
}

// declaration reads export, readonly and local, which bash reads as
// constructs; in the other reading they are simple commands.
func (r *reader) declaration(n *syntax.DeclClause) {
	switch n.Variant.Value {
	case "export", "readonly", "local":
	default:
		r.add(Foreign, n, notPOSIX)
		return
	}
	for _, a := range n.Args {
		if a.Name == nil && !(a.Value != nil && readWord(a.Value).is("-p")) {
			r.add(Foreign, n, "does not name its variables plainly")
			return
		}
	}
}

// parameter reads ${…}: the forms of POSIX cannot run anything, some of
// bash's (${!x}, ${x@P}, ${x:$y}) can.
func (r *reader) parameter(n *syntax.ParamExp) {
	if n.Excl || n.Index != nil || n.Slice != nil || n.Repl != nil || n.Names != 0 || n.Param == nil {
		r.add(Foreign, n, notPOSIX)
		return
	}
	if n.Exp == nil {
		return
	}
	// In double quotes and here-documents a shell takes these single quotes for
	// text, elsewhere for quotes; the parser always for quotes.
	if n.Exp.Word != nil {
		misread := false
		syntax.Walk(n.Exp.Word, func(node syntax.Node) bool {
			switch x := node.(type) {
			case *syntax.SglQuoted:
				misread = misread || strings.ContainsAny(x.Value, "$`{}\"\\")
			case *syntax.ParamExp: // visited by itself
				return false
			}
			return !misread
		})
		if misread {
			r.add(Foreign, n, "has quotes in an expansion that shells read in different ways")
			return
		}
	}
	switch n.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
		syntax.ErrorUnset, syntax.ErrorUnsetOrNull,
		syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix:
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		r.set(n, n.Param.Value)
	default:
		r.add(Foreign, n, notPOSIX)
	}
}

// arithmetic reads $((…)). Bash evaluates the value of a variable in it as an
// expression again, where a[$(…)] runs a command; so only numbers are allowed,
// and parameters that can be nothing else.
func (r *reader) arithmetic(n *syntax.ArithmExp) {
	number := true
	syntax.Walk(n.X, func(node syntax.Node) bool {
		switch x := node.(type) {
		case *syntax.Lit:
			number = number && strings.Trim(x.Value, "0123456789") == ""
		case *syntax.ParamExp:
			special := x.Param != nil && x.Exp == nil && x.Index == nil && (x.Length || strings.Contains("#?$!", x.Param.Value))
			number = number && special
			return false
		case *syntax.CmdSubst:
			number = false
		case *syntax.ArithmExp: // visited by itself
			return false
		}
		return number
	})
	if !number {
		r.add(Foreign, n, "does arithmetic with a variable, in which some shells run commands")
	}
}

// maxText is how much of the script a part shows, in bytes.
const maxText = 120

// add appends a part and returns it; nil if there are too many.
func (r *reader) add(kind Kind, n syntax.Node, reason string) *Part {
	if len(r.parts) == maxParts {
		r.full = true
		return nil
	}
	text := r.source(n)
	if len(text) > 4*maxText { // so that deep nesting does not take quadratic time
		text = text[:2*maxText] + text[len(text)-2*maxText:]
	}
	text, _ = job.Cut(strings.ToValidUTF8(text, "\uFFFD"), maxText)
	r.parts = append(r.parts, Part{Kind: kind, Line: n.Pos().Line(), Text: text, Reason: reason})
	return &r.parts[len(r.parts)-1]
}

// source returns what the script has at n.
func (r *reader) source(n syntax.Node) string {
	from := min(int(n.Pos().Offset()), len(r.script))
	to := max(from, min(int(n.End().Offset()), len(r.script)))
	return r.script[from:to]
}
