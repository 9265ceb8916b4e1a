package shell

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/agentsched/agentsched/job"
)

// maxChecked bounds a script whose commands are checked, in bytes: the parser
// recurses, so the stack must hold the deepest nesting that fits, and takes
// quadratic time for some of it.
const maxChecked = 64 << 10

// refusal says which part of a script is not allowed.
type refusal struct {
	line   uint   // 1, 2, …; 0 the whole script
	what   string // the command as the script writes it
	reason string
}

func (r *refusal) Error() string {
	if r.line == 0 {
		return r.reason
	}
	return fmt.Sprintf("line %d: %q %s", r.line, r.what, r.reason)
}

// checkScript returns the first thing in script that the patterns do not
// allow, or nil. Every simple command is looked at, wherever it stands: in
// lists, pipes, subshells, substitutions, functions and here-documents.
//
// Allowed without a pattern are: the shell's own constructs; calls of a
// function that is certain to be defined by then (its body is looked at too);
// the builtins that run no other program (see builtin); redirections, as far as
// the job may write (see writing); and assignments, except of variables that
// decide which program a name means or what else is run (see guarded).
//
// Refused without one are all that run a command the check cannot see: a name
// that is only known at run time, eval, source and ., exec, command, env,
// xargs, trap, alias, sh -c; and whatever dash and bash do not read alike,
// since either may be /bin/sh. A pattern "*" allows everything.
func checkScript(script string, patterns []pattern, w writing) *refusal {
	for _, p := range patterns {
		if p.everything() {
			return nil
		}
	}
	if len(script) > maxChecked {
		return &refusal{reason: fmt.Sprintf("the script has %d bytes, at most %d can be checked against allow_commands", len(script), maxChecked)}
	}
	if i := strings.IndexByte(script, '\r'); i >= 0 {
		return &refusal{reason: fmt.Sprintf("line %d ends in a carriage return, which a shell takes for a part of the command", 1+strings.Count(script[:i], "\n"))}
	}
	for _, dialect := range []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash} {
		file, err := syntax.NewParser(syntax.Variant(dialect), syntax.KeepComments(true)).Parse(strings.NewReader(script), "")
		if err != nil {
			return unreadable(err, dialect)
		}
		c := checker{script: script, patterns: patterns, functions: topFunctions(file), writing: w}
		c.left = c.leaves(file)
		syntax.Walk(file, c.visit)
		if c.refused != nil {
			return c.refused
		}
	}
	return nil
}

func unreadable(err error, dialect syntax.LangVariant) *refusal {
	text := err.Error()
	var parse syntax.ParseError
	var lang syntax.LangError
	switch {
	case errors.As(err, &parse):
		text = fmt.Sprintf("line %d: %s", parse.Pos.Line(), parse.Text)
	case errors.As(err, &lang):
		text = fmt.Sprintf("line %d: %s", lang.Pos.Line(), strings.TrimLeft(text, "0123456789: "))
	}
	return &refusal{reason: fmt.Sprintf("the script cannot be read as %s, so its commands cannot be checked: %s", dialect, text)}
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

// checker walks one reading of a script until it finds something to refuse.
type checker struct {
	script    string
	patterns  []pattern
	functions map[string]uint // name to the offset of its definition
	writing   writing
	left      bool // the script leaves the workspace by cd
	refused   *refusal
}

// visit is called for each node by syntax.Walk and tells it whether to go on
// below the node.
func (c *checker) visit(node syntax.Node) bool {
	if c.refused != nil {
		return false
	}
	switch n := node.(type) {
	case *syntax.Comment:
		// A shell ends the comment here; the parser takes the next line for a
		// part of it.
		line, _, _ := strings.Cut(c.script[min(int(n.Pos().Offset()), len(c.script)):], "\n")
		if strings.HasSuffix(line, `\`) {
			c.refuse(n, "is a comment that ends in a backslash, which hides the next line")
		}
	case *syntax.CallExpr:
		c.call(n)
	case *syntax.Redirect:
		c.redirection(n)
	case *syntax.DeclClause:
		c.declaration(n)
	case *syntax.Assign:
		if n.Index != nil {
			c.refuse(n, "assigns to an element of an array, which only some shells know")
		} else if n.Name != nil && guarded(n.Name.Value) {
			c.refuse(n, guardedReason)
		}
	case *syntax.ForClause:
		if loop, ok := n.Loop.(*syntax.WordIter); !ok || n.Select {
			c.refuse(n, notPOSIX)
		} else if guarded(loop.Name.Value) {
			c.refuse(loop, guardedReason)
		}
	case *syntax.FuncDecl:
		if n.Name == nil || n.RsrvWord {
			c.refuse(n, notPOSIX)
		} else if specialBuiltin(n.Name.Value) {
			c.refuse(n, "gives a function the name of a builtin that comes before functions")
		}
	case *syntax.ParamExp:
		c.parameter(n)
	case *syntax.ArithmExp:
		c.arithmetic(n)
	case *syntax.CmdSubst:
		if n.Backquotes && strings.Contains(c.source(n), `\`) {
			c.refuse(n, "has a backslash in backquotes, which is easily misread; write $(…)")
		}
	case *syntax.ArithmCmd, *syntax.TestClause, *syntax.LetClause, *syntax.CoprocClause, *syntax.TestDecl, *syntax.ProcSubst, *syntax.ExtGlob:
		c.refuse(n, notPOSIX)
	}
	return c.refused == nil
}

const (
	notPOSIX      = "is not plain sh, so what it runs cannot be checked"
	guardedReason = "sets a variable that decides which programs are run"
)

// call checks a simple command.
func (c *checker) call(n *syntax.CallExpr) {
	if len(n.Args) == 0 {
		return // only assignments, which are visited by themselves
	}
	words := make([]word, len(n.Args))
	for i, w := range n.Args {
		words[i] = readWord(w)
	}
	for _, p := range c.patterns {
		if p.matches(words) {
			return
		}
	}
	if words[0].dynamic {
		c.refuse(n, "is not allowed: the name of the command is only known when it runs")
		return
	}
	name := words[0].text
	if defined, ok := c.functions[name]; ok {
		if n.Pos().Offset() < defined {
			c.refuse(n, "calls a function before its definition, where the name may be a program; define it first")
		}
		return
	}
	if reason := c.builtin(name, words[1:]); reason != "" {
		c.refuse(n, reason)
	}
}

// declaration checks export, readonly and local, which bash reads as
// constructs; in the other reading they are simple commands.
func (c *checker) declaration(n *syntax.DeclClause) {
	switch n.Variant.Value {
	case "export", "readonly", "local":
	default:
		c.refuse(n, notPOSIX)
		return
	}
	for _, a := range n.Args {
		if a.Name == nil && !(a.Value != nil && readWord(a.Value).is("-p")) {
			c.refuse(n, "does not name its variables plainly")
		}
	}
}

// parameter checks ${…}: the forms of POSIX cannot run anything, some of
// bash's (${!x}, ${x@P}, ${x:$y}) can.
func (c *checker) parameter(n *syntax.ParamExp) {
	if n.Excl || n.Index != nil || n.Slice != nil || n.Repl != nil || n.Names != 0 || n.Param == nil {
		c.refuse(n, notPOSIX)
		return
	}
	if n.Exp == nil {
		return
	}
	// In double quotes and here-documents a shell takes these single quotes for
	// text, elsewhere for quotes; the parser always for quotes.
	if n.Exp.Word != nil {
		syntax.Walk(n.Exp.Word, func(node syntax.Node) bool {
			if q, ok := node.(*syntax.SglQuoted); ok && strings.ContainsAny(q.Value, "$`{}\"\\") {
				c.refuse(n, "has quotes in an expansion that shells read in different ways")
			}
			return c.refused == nil
		})
	}
	switch n.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
		syntax.ErrorUnset, syntax.ErrorUnsetOrNull,
		syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix:
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if guarded(n.Param.Value) {
			c.refuse(n, guardedReason)
		}
	default:
		c.refuse(n, notPOSIX)
	}
}

// arithmetic checks $((…)). Bash evaluates the value of a variable in it as an
// expression again, where a[$(…)] runs a command; so only numbers are allowed,
// and parameters that can be nothing else.
func (c *checker) arithmetic(n *syntax.ArithmExp) {
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
		}
		return number
	})
	if !number {
		c.refuse(n, "does arithmetic with a variable, in which some shells run commands")
	}
}

// maxQuoted is how much of a command a refusal shows, in bytes.
const maxQuoted = 120

func (c *checker) refuse(n syntax.Node, reason string) {
	if c.refused != nil {
		return
	}
	what, _ := job.Cut(strings.ToValidUTF8(c.source(n), "\uFFFD"), maxQuoted)
	c.refused = &refusal{line: n.Pos().Line(), what: what, reason: reason}
}

// source returns what the script has at n.
func (c *checker) source(n syntax.Node) string {
	from := min(int(n.Pos().Offset()), len(c.script))
	to := max(from, min(int(n.End().Offset()), len(c.script)))
	return c.script[from:to]
}
