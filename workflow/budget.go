package workflow

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"regexp/syntax"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm/runtime"
)

// Bounds of what the expressions of one job, of one part or of one turn do
// together. A step is a node of the syntax tree that is evaluated for an element,
// an element that a function or an operator looks at, or 32 bytes of a text; what
// makes lists or objects costs a few more, so that the steps bound memory too.
const (
	maxSteps = 2_000_000
	maxTime  = 30 * time.Second
	maxDepth = 1000 // of lists and objects in one another
)

var (
	errSteps = fmt.Errorf("takes more than %d steps; have it look at less, or let a job of type TOOL compute it", maxSteps)
	errTime  = fmt.Errorf("takes longer than %s; have it look at less, or let a job of type TOOL compute it", maxTime)
	errDepth = fmt.Errorf("makes lists or objects more than %d deep", maxDepth)
)

// budget is what expressions may still do. The steps are the bound: they give the
// same answer on every host and after every restart. The deadline is for a host
// that is so slow that others would wait. Whoever evaluates is stopped
// where it stands; nothing goes on in the background.
type budget struct {
	steps    int
	deadline time.Time
	patterns map[string]pattern
}

// pattern is a regular expression, and the number of its instructions.
type pattern struct {
	re    *regexp.Regexp
	insts int
}

func newBudget() *budget {
	return &budget{steps: maxSteps, deadline: time.Now().Add(maxTime), patterns: map[string]pattern{}}
}

// more returns a budget of its own for a further part of the same job, within
// the same time.
func (b *budget) more() *budget {
	return &budget{steps: maxSteps, deadline: b.deadline, patterns: map[string]pattern{}}
}

// spend takes n steps.
func (b *budget) spend(n int) error {
	if b.steps -= n; b.steps < 0 {
		b.steps = 0
		return errSteps
	}
	if time.Now().After(b.deadline) {
		return errTime
	}
	return nil
}

// How much of an argument a function or an operator looks at, and what it makes.
const (
	ofScalar = iota // nothing below it, but a text is read
	ofList          // its elements
	ofTree          // all that is below it
	ofLists         // its elements, each of which becomes a list of its own
	ofPieces        // a text of which each byte may become an element
	ofJSON          // a text of which each few bytes may become one
)

// looks says that of the functions that ask no predicate. All others look at
// everything.
func looks(function string) int {
	switch function {
	case "len", "type", "abs", "ceil", "floor", "round", "int", "float", "first", "last", "get", "trim", "trimPrefix", "trimSuffix",
		"upper", "lower", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix":
		return ofScalar
	case "take", "reverse", "keys", "values", "concat":
		return ofList
	case "toPairs", "fromPairs":
		return ofLists
	case "split", "splitAfter":
		return ofPieces
	case "fromJSON":
		return ofJSON
	}
	return ofTree
}

// charge takes what it costs to look at a value.
func (b *budget) charge(value any, how int) error {
	cost := 1
	if text, ok := value.(string); ok {
		switch cost += len(text) / 32; how {
		case ofPieces:
			cost += len(text)
		case ofJSON:
			cost += len(text) / 2
		}
		return b.spend(cost)
	}
	switch how {
	case ofList, ofLists:
		if v := reflect.ValueOf(value); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
			if cost += 2 * v.Len(); how == ofLists {
				cost += 4 * v.Len()
			}
		}
	case ofTree:
		left, err := visit(reflect.ValueOf(value), b.steps, maxDepth)
		if err != nil {
			return err
		}
		cost += 2 * (b.steps - left)
	}
	return b.spend(cost)
}

// visit returns what is left of a number of steps after a look at each value
// below v. Values may hold one another many times over, and count each time.
func visit(v reflect.Value, left, depth int) (int, error) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if left--; left < 0 {
		return left, errSteps
	}
	if depth == 0 {
		return left, errDepth
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		left -= v.Len() / 32
	case reflect.Slice:
		for i := 0; i < v.Len() && err == nil; i++ {
			left, err = visit(v.Index(i), left, depth-1)
		}
	case reflect.Map:
		for each := v.MapRange(); err == nil && each.Next(); {
			if left, err = visit(each.Value(), left, depth-1); err == nil {
				left, err = visit(each.Key(), left, depth-1)
			}
		}
	}
	return left, err
}

// Names that only the patched syntax tree calls.
const (
	tickFunction  = "tick__"
	addFunction   = "add__"
	lookFunction  = "look__"
	uniqFunction  = "uniq__"
	matchFunction = "match__"
)

// internalFunctions are these names.
func internalFunctions() []string {
	return []string{tickFunction, addFunction, lookFunction, uniqFunction, matchFunction}
}

// functions are the options that give an expression these functions.
func (b *budget) functions() []expr.Option {
	ticks := 0
	return []expr.Option{
		expr.Function(tickFunction, func(args ...any) (any, error) {
			if ticks++; ticks > maxTicks {
				return nil, fmt.Errorf("looks at more than %d elements", maxTicks)
			}
			return true, b.spend(args[0].(int))
		}, new(func(int) bool)),
		expr.Function(lookFunction, func(args ...any) (any, error) { return args[0], b.charge(args[0], args[1].(int)) }, new(func(any, int) any)),
		expr.Function(addFunction, b.add, new(func(any, any) any)),
		expr.Function(uniqFunction, func(args ...any) (any, error) { return b.uniq(args[0]) }, new(func(any) any)),
		expr.Function(matchFunction, func(args ...any) (any, error) { return b.match(args[0], args[1]) }, new(func(any, any) bool)),
	}
}

// add is the operator +.
func (b *budget) add(args ...any) (sum any, err error) {
	x, xText := args[0].(string)
	y, yText := args[1].(string)
	if xText && yText {
		if len(x)+len(y) > maxValue {
			return nil, errTooLarge
		}
		return x + y, b.spend(1 + (len(x)+len(y))/32)
	}
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("cannot add " + kindOf(args[0]) + " and " + kindOf(args[1]))
		}
	}()
	return runtime.Add(args[0], args[1]), nil
}

// uniq returns the elements of a list, each once. Package expr compares each with
// every other.
func (b *budget) uniq(list any) (any, error) {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Slice {
		return nil, errors.New("uniq: found " + kindOf(list) + ", want a list")
	}
	all := []any{}
	seen := map[any][]any{}
	for i := range v.Len() {
		e := v.Index(i).Interface()
		if err := b.charge(e, ofTree); err != nil {
			return nil, err
		}
		key := keyOf(e)
		known := false
		for _, other := range seen[key] {
			if err := b.charge(e, ofTree); err != nil {
				return nil, err
			}
			if known = runtime.Equal(e, other); known {
				break
			}
		}
		if !known {
			seen[key] = append(seen[key], e)
			all = append(all, e)
		}
	}
	return all, nil
}

// keyOf returns what equal values have in common, and few others.
func keyOf(value any) any {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid, reflect.Bool, reflect.String:
		return value
	case reflect.Int:
		return float64(v.Int())
	case reflect.Float64:
		if math.IsNaN(v.Float()) {
			return nil
		}
		return v.Float()
	}
	text, err := encode(value)
	if err != nil {
		return nil
	}
	return "JSON " + string(text)
}

// match is the operator matches. A match takes as long as the text and the
// regular expression are in one another.
func (b *budget) match(text, re any) (bool, error) {
	if text == nil || re == nil {
		return false, nil
	}
	t, isText := text.(string)
	r, isPattern := re.(string)
	if !isText || !isPattern {
		return false, errors.New("cannot match " + kindOf(text) + " with " + kindOf(re))
	}
	p, err := b.compile(r)
	if err != nil {
		return false, err
	}
	if err := b.spend(1 + (len(t)+1)*p.insts/32); err != nil {
		return false, err
	}
	return p.re.MatchString(t), nil
}

func (b *budget) compile(text string) (p pattern, err error) {
	if p, known := b.patterns[text]; known {
		return p, nil
	}
	if err := b.spend(len(text)); err != nil {
		return p, err
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return p, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return p, err
	}
	if p.re, err = regexp.Compile(text); err != nil {
		return p, err
	}
	p.insts = len(prog.Inst)
	b.patterns[text] = p
	return p, b.spend(p.insts)
}

// boundVisitor makes an expression safe to evaluate: each predicate, function and
// operator whose work depends on values pays for it first, and what is not there
// is nil all the way down.
type boundVisitor struct{}

// Visit implements ast.Visitor; it meets what is below a node before the node.
func (boundVisitor) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.MemberNode:
		if !n.Method {
			n.Optional = true
			ast.Patch(node, &ast.ChainNode{Node: n})
		}
	case *ast.PredicateNode:
		size := &sizeVisitor{}
		ast.Walk(&n.Node, size)
		n.Node = &ast.SequenceNode{Nodes: []ast.Node{call(tickFunction, &ast.IntegerNode{Value: size.steps}), n.Node}}
	case *ast.BuiltinNode:
		boundFunction(node, n)
	case *ast.CallNode:
		if name, ok := n.Callee.(*ast.IdentifierNode); ok && (name.Value == "toJSON" || name.Value == "join") {
			for i := range n.Arguments {
				n.Arguments[i] = look(n.Arguments[i], ofTree)
			}
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "+":
			ast.Patch(node, call(addFunction, n.Left, n.Right))
		case "matches":
			ast.Patch(node, call(matchFunction, n.Left, n.Right))
		case "==", "!=", "<", ">", "<=", ">=", "contains", "startsWith", "endsWith":
			n.Left, n.Right = look(n.Left, ofTree), look(n.Right, ofTree)
		case "in":
			n.Right = look(n.Right, ofTree)
		}
	}
}

// boundFunction has a function pay that asks no predicate for each element.
func boundFunction(node *ast.Node, n *ast.BuiltinNode) {
	for i := range n.Arguments {
		if _, asks := n.Arguments[i].(*ast.PredicateNode); asks {
			return
		}
	}
	for i := range n.Arguments {
		n.Arguments[i] = look(n.Arguments[i], looks(n.Name))
	}
	if n.Name == "uniq" && len(n.Arguments) == 1 {
		ast.Patch(node, call(uniqFunction, n.Arguments[0]))
	}
}

// look has a value paid for before it is looked at; a literal is cheap.
func look(value ast.Node, how int) ast.Node {
	switch value.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		return value
	}
	return call(lookFunction, value, &ast.IntegerNode{Value: how})
}

func call(function string, args ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: function}, Arguments: args}
}

// sizeVisitor counts the steps that it takes to evaluate what it visits once.
type sizeVisitor struct{ steps int }

// Visit implements ast.Visitor.
func (v *sizeVisitor) Visit(node *ast.Node) {
	switch (*node).(type) {
	case *ast.MapNode:
		v.steps += 16
	case *ast.ArrayNode:
		v.steps += 4
	default:
		v.steps++
	}
}
