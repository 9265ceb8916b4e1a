package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/builtin"
)

// Bounds of one expression; see also maxSteps. With them, and the memory that
// package expr allows, it ends soon whatever it says.
const (
	maxExpression = 8 << 10 // bytes
	maxNodes      = 1000    // of its syntax tree
	maxTicks      = 200_000 // elements that its predicates are asked about
	maxValue      = 1 << 20 // bytes of a text that it makes
)

// allowed are the functions of package expr that an expression may call: those
// whose value depends on nothing but their arguments and is not much larger.
func allowed() []string {
	return []string{
		"all", "none", "any", "one", "filter", "map", "find", "findIndex", "findLast", "findLastIndex", "count", "sum", "groupBy",
		"sortBy", "reduce", "len", "type", "abs", "ceil", "floor", "round", "int", "float", "string", "trim", "trimPrefix",
		"trimSuffix", "upper", "lower", "split", "splitAfter", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix", "max", "min",
		"mean", "median", "fromJSON", "first", "last", "get", "take", "keys", "values", "toPairs", "fromPairs", "reverse", "uniq",
		"concat", "flatten", "sort",
	}
}

// status is what the functions success, failure and cancelled say.
type status struct{ success, failure, cancelled bool }

// statusFunctions are the functions that ask how the needs have ended.
func statusFunctions() []string { return []string{"success", "failure", "always", "cancelled"} }

// functions are the options that give an expression its functions.
func functions(s status) []expr.Option {
	opts := []expr.Option{expr.MaxNodes(maxNodes), expr.Optimize(false), expr.DisableAllBuiltins()}
	for _, name := range allowed() {
		if _, ok := builtin.Index[name]; ok {
			opts = append(opts, expr.EnableBuiltin(name))
		} else {
			panic("no such function: " + name) // of another version of package expr
		}
	}
	says := func(name string, value bool) expr.Option {
		return expr.Function(name, func(...any) (any, error) { return value, nil }, new(func() bool))
	}
	return append(opts,
		says("success", s.success), says("failure", s.failure), says("cancelled", s.cancelled), says("always", true),
		expr.Function("toJSON", func(args ...any) (any, error) { return toJSON(args[0]) }, new(func(any) string)),
		expr.Function("join", join, new(func([]any, string) string), new(func([]string, string) string), new(func([]any) string), new(func([]string) string)),
	)
}

var errTooLarge = fmt.Errorf("makes a text of more than %d bytes", maxValue)

// toJSON writes a value as JSON, keys in order, two blanks a level.
func toJSON(value any) (string, error) {
	switch left, err := measure(value, maxValue, 2, 0); {
	case err != nil:
		return "", err
	case left < 0:
		return "", errTooLarge
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// measure returns what is left of a budget of bytes after a value is written as
// JSON, with that many blanks a level; below 0 if it is spent. Values may hold one
// another many times over.
func measure(value any, left, indent, depth int) (int, error) {
	if depth > maxDepth {
		return left, errDepth
	}
	var err error
	switch v := value.(type) {
	case string:
		left -= len(v)
	case []int: // of a range
		left -= len(v) * (2 + indent*(depth+1))
	case []string:
		for i := 0; i < len(v) && left >= 0; i++ {
			left -= 2 + indent*(depth+1) + len(v[i])
		}
	case []any:
		for i := 0; i < len(v) && left >= 0 && err == nil; i++ {
			left, err = measure(v[i], left-1, indent, depth+1)
		}
	case map[string]any:
		for k, e := range v {
			if left, err = measure(e, left-len(k), indent, depth+1); left < 0 || err != nil {
				break
			}
		}
	}
	return left - 1 - indent*depth, err
}

// join is strings.Join over the texts of any values.
func join(args ...any) (any, error) {
	separator := ""
	if len(args) > 1 {
		s, ok := args[1].(string)
		if !ok {
			return nil, fmt.Errorf("join: the separator is %s, want a text", kindOf(args[1]))
		}
		separator = s
	}
	var words []string
	size := 0
	list, ok := args[0].([]any)
	if texts, isTexts := args[0].([]string); isTexts {
		for _, t := range texts {
			list = append(list, t)
		}
	} else if !ok {
		return nil, fmt.Errorf("join: found %s, want a list", kindOf(args[0]))
	}
	for _, e := range list {
		word, err := textOf(e)
		if err != nil {
			return nil, err
		}
		if size += len(word) + len(separator); size > maxValue {
			return nil, errTooLarge
		}
		words = append(words, word)
	}
	return strings.Join(words, separator), nil
}

// textOf writes a value into a text: a text as it is, nothing as nothing, what
// has parts as JSON.
func textOf(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	return toJSON(value)
}

// kindOf names what a value is in JSON's words.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case []any, []string:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}
