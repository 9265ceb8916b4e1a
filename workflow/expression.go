package workflow

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker/nature"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
)

// scope is what an expression may name, and of which type each is.
type scope struct {
	vars  types.Map // "jobs" is a Map by the jobs' names
	needs []string
	known map[string]bool // every job of the batch
	self  string
	turn  bool // it is about a turn of a loop, which names no jobs
}

// check says why an expression cannot be right, and otherwise of which type its
// value is. want is Bool, Slice, or Invalid for anything.
func (s *scope) check(text string, want reflect.Kind) (nature.Nature, error) {
	if len(text) > maxExpression {
		return nature.Nature{}, fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxExpression)
	}
	names := &nameVisitor{}
	fields := &fieldVisitor{}
	opts := append(functions(status{}), expr.Env(s.vars), expr.Patch(names), expr.Patch(fields))
	program, err := expr.Compile(encodeNames(text, func(n string) bool { return s.known[n] }), opts...)
	if wrong := names.wrong(s); wrong != nil {
		return nature.Nature{}, wrong.in(text)
	}
	if fields.err != nil {
		return nature.Nature{}, fields.err.in(text)
	}
	if err != nil {
		return nature.Nature{}, readable(err)
	}
	n := *program.Node().Nature()
	if got := n.Kind; want != reflect.Invalid && got != want && !n.IsUnknown(nil) {
		return n, fmt.Errorf("gives %s, want %s", natureText(n), map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Slice: "a list"}[want])
	}
	return n, nil
}

// environment is what an expression is evaluated in.
type environment struct {
	vars   map[string]any // "jobs" is a map[string]any by the jobs' names
	status status
	batch  *Batch
	budget *budget // of all expressions of the job
}

// eval evaluates an expression. What is not there is nil, and so is what would
// be below it: a skipped job's output.ok.
func (e *environment) eval(text string) (any, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxExpression)
	}
	jobs, _ := e.vars["jobs"].(map[string]any)
	known := func(name string) bool { _, ok := jobs[name]; return ok }
	if err := e.budget.spend(200 + 2*len(text)); err != nil { // to compile it is work, too
		return nil, err
	}
	opts := append(functions(e.status), e.budget.functions()...)
	opts = append(opts, expr.Patch(&nameVisitor{}), expr.Patch(boundVisitor{}))
	program, err := expr.Compile(encodeNames(text, known), opts...)
	if err != nil {
		return nil, readable(err)
	}
	value, err := expr.Run(program, e.vars)
	if err != nil {
		return nil, readable(err)
	}
	return value, nil
}

// asksStatus reports whether an expression calls one of the status functions.
func asksStatus(text string) bool {
	v := &callVisitor{}
	_, err := expr.Compile(encodeNames(text, func(string) bool { return false }), append(functions(status{}), expr.Patch(v))...)
	return err == nil && v.status
}

// located is a mistake at a place of an expression.
type located struct {
	from    int // runes before it
	message string
}

// in returns the mistake as an error that says where in text it is.
func (l *located) in(text string) error {
	line, column := 1, 1
	for i, r := range []rune(text) {
		if i == l.from {
			break
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
	}
	return at(line, column, l.message)
}

func at(line, column int, message string) error {
	if line > 1 {
		return fmt.Errorf("line %d, column %d: %s", line, column, message)
	}
	return fmt.Errorf("column %d: %s", column, message)
}

// readable makes a line of an error of package expr.
func readable(err error) error {
	var f *file.Error
	if !errors.As(err, &f) {
		return errors.New(decodeNames(err.Error()))
	}
	message := strings.ReplaceAll(decodeNames(f.Message), "memory budget exceeded", fmt.Sprintf("makes more than %d elements (memory budget exceeded)", conf.DefaultMemoryBudget))
	if f.Prev != nil && !strings.Contains(message, f.Prev.Error()) {
		message = f.Prev.Error()
	}
	return at(max(f.Line, 1), f.Column+1, strings.NewReplacer("map[string]interface {}", "object", "[]interface {}", "list", "interface {}", "value").Replace(message))
}

// nameVisitor reads the names of jobs back, and collects them.
type nameVisitor struct {
	jobs     []located // whom `jobs.NAME` names; message is the name
	bare     []located // every other use of `jobs`
	internal []located
}

// Visit implements ast.Visitor; it meets what is below a node before the node.
func (v *nameVisitor) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		switch n.Value {
		case "jobs":
			v.bare = append(v.bare, located{from: n.Location().From})
		case "$env":
			v.internal = append(v.internal, located{n.Location().From, "unknown name " + n.Value})
		}
		if slices.Contains(internalFunctions(), n.Value) {
			v.internal = append(v.internal, located{n.Location().From, "unknown name " + n.Value})
		}
	case *ast.MemberNode:
		root, ok := n.Node.(*ast.IdentifierNode)
		name, text := n.Property.(*ast.StringNode)
		if !ok || !text || root.Value != "jobs" {
			return
		}
		name.Value = decodeNames(name.Value)
		v.bare = slices.DeleteFunc(v.bare, func(l located) bool { return l.from == root.Location().From })
		v.jobs = append(v.jobs, located{root.Location().From, name.Value})
	}
}

// wrong returns the first use of a name that is not allowed.
func (v *nameVisitor) wrong(s *scope) *located {
	if len(v.internal) > 0 {
		return &v.internal[0]
	}
	for _, l := range v.jobs {
		name := l.message
		if s.turn {
			return &located{l.from, fmt.Sprintf("jobs.%s has no place here, want a condition on output, the turn's answer", name)}
		}
		switch {
		case slices.Contains(s.needs, name):
		case name == s.self:
			return &located{l.from, fmt.Sprintf("jobs.%s is this job itself, which has not run yet", name)}
		case s.known[name]:
			return &located{l.from, fmt.Sprintf("%s is not among the job's needs; add it: needs: [%s]", name, strings.Join(append(slices.Clone(s.needs), name), ", "))}
		default:
			return &located{l.from, fmt.Sprintf("there is no job %s%s", name, didYouMean(name, s.needs))}
		}
	}
	if len(v.bare) > 0 {
		return &located{v.bare[0].from, "jobs stands alone, want the name of a job behind it: jobs.NAME, or jobs[\"NAME\"]"}
	}
	return nil
}

// fieldVisitor finds the first property that an object cannot have. The types
// are known when it comes.
type fieldVisitor struct{ err *located }

// Visit implements ast.Visitor.
func (v *fieldVisitor) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.MemberNode)
	if !ok || v.err != nil {
		return
	}
	base, name := n.Node.Nature(), ""
	if p, ok := n.Property.(*ast.StringNode); ok {
		name = p.Value
	}
	if name == "" || base.Kind != reflect.Map || base.TypeData == nil || !base.Strict {
		return
	}
	if _, ok := base.Fields[name]; ok {
		return
	}
	var there []string
	for f := range base.Fields {
		there = append(there, f)
	}
	slices.Sort(there)
	message := fmt.Sprintf("%s is not there%s", name, didYouMean(name, there))
	if len(there) > 0 {
		message += " There are " + strings.Join(there, ", ")
	}
	v.err = &located{n.Property.Location().From, strings.Replace(message, "there There", "there. There", 1)}
}

// callVisitor looks for calls of the status functions.
type callVisitor struct{ status bool }

// Visit implements ast.Visitor.
func (v *callVisitor) Visit(node *ast.Node) {
	if call, ok := (*node).(*ast.CallNode); ok {
		if name, ok := call.Callee.(*ast.IdentifierNode); ok && slices.Contains(statusFunctions(), name.Value) {
			v.status = true
		}
	}
}

// natureText names a type in JSON's words.
func natureText(n nature.Nature) string {
	switch {
	case n.Nil:
		return "nothing"
	case n.Kind == reflect.String:
		return "a text"
	case n.Kind == reflect.Bool:
		return "true or false"
	case n.Kind == reflect.Slice:
		return "a list"
	case n.Kind == reflect.Map:
		return "an object"
	case n.IsNumber():
		return "a number"
	}
	return n.String()
}
