package strictyaml

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/agentsched/agentsched/internal/fields"
)

// kind is what sort of value a node is.
type kind int

const (
	null kind = iota
	boolean
	integer
	float
	text
	mapping
	list
	broken // a mistake was recorded here; the decoder passes over it
)

// Node is one value of the file, with aliases and merges written out.
type Node struct {
	doc  *Doc
	path string
	pos  Position
	kind kind

	source   string  // a scalar: its text, unquoted
	number   float64 // integer and float
	whole    int64   // integer, and float without a fraction
	fits     bool    // whole holds the number exactly
	keys     []key   // mapping: one per child
	children []*Node // mapping and list
}

type key struct {
	name string
	pos  Position
}

// builder turns the parser's tree into Nodes.
type builder struct {
	doc     *Doc
	anchors map[string]ast.Node
	nodes   int
	path    int // bytes of all paths
}

// used counts a node and reports whether the file stays within its bounds.
// They matter because a few aliases of aliases can stand for millions of values.
func (b *builder) used(path string, depth int) bool {
	b.nodes++
	b.path += len(path)
	return b.nodes <= maxNodes && b.path <= maxPaths && depth <= maxDepth
}

func (b *builder) build(from ast.Node, path string, depth int) *Node {
	n := &Node{doc: b.doc, path: path, pos: start(from)}
	if _, again := b.doc.index[path]; !again {
		b.doc.index[path] = n
	}
	if !b.used(path, depth) {
		b.doc.tooLarge(n.pos)
		n.kind = broken
		return n
	}
	switch from := from.(type) {
	case *ast.NullNode:
		n.kind = null
	case *ast.BoolNode:
		n.kind, n.source = boolean, strconv.FormatBool(from.Value)
	case *ast.IntegerNode:
		n.setInteger(from)
	case *ast.FloatNode:
		n.setFloat(from.Value, from.Token)
	case *ast.InfinityNode:
		n.setFloat(from.Value, from.Token)
	case *ast.NanNode:
		n.setFloat(math.NaN(), from.Token)
	case *ast.StringNode:
		n.setString(from)
	case *ast.LiteralNode:
		n.kind, n.source = text, from.Value.Value
	case *ast.MappingNode:
		b.fill(n, from.Values, depth)
	case *ast.MappingValueNode:
		b.fill(n, []*ast.MappingValueNode{from}, depth)
	case *ast.SequenceNode:
		n.kind = list
		for i, value := range from.Values {
			n.children = append(n.children, b.build(value, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case *ast.AnchorNode:
		built := b.build(from.Value, path, depth+1)
		b.anchors[from.Name.GetToken().Value] = from.Value // only now: it cannot contain itself
		return built
	case *ast.AliasNode:
		value := b.resolve(from, n)
		if value == nil {
			n.kind = broken
			return n
		}
		built := b.build(value, path, depth+1)
		built.pos = n.pos // where the alias stands is where the user must look
		b.doc.index[path] = built
		return built
	case *ast.TagNode:
		b.doc.fail(n.pos, path, "tags such as %s are not supported; remove it", fields.Clip(from.GetToken().Value))
		n.kind = broken
	default:
		b.doc.fail(n.pos, path, "this part of YAML is not supported here; write a plain value, a list or a mapping")
		n.kind = broken
	}
	return n
}

// resolve returns the value that an alias stands for, or nil after it said
// that there is none. Anchors must stand above their aliases.
func (b *builder) resolve(alias *ast.AliasNode, at *Node) ast.Node {
	name := alias.Value.GetToken().Value
	value, known := b.anchors[name]
	if !known {
		b.doc.fail(at.pos, at.path, "anchor &%s is not defined above; put quotes around a text that begins with *", fields.Clip(name))
		return nil
	}
	return value
}

// fill adds the entries of a mapping. The keys that a merge (<<) brings yield
// to those that are written out.
func (b *builder) fill(n *Node, values []*ast.MappingValueNode, depth int) {
	n.kind = mapping
	seen := map[string]Position{}
	var merges []ast.Node
	for _, value := range values {
		if _, merge := value.Key.(*ast.MergeKeyNode); merge {
			merges = append(merges, value.Value)
			continue
		}
		at := start(value.Key)
		name, plain := keyName(value.Key)
		if !plain {
			b.doc.fail(at, n.path, "a name is expected here, as in \"name: value\"")
			continue
		}
		if first, twice := seen[name]; twice {
			b.doc.fail(at, fields.Join(n.path, name), "is given twice, first in line %d; remove one", first.Line)
			continue
		}
		seen[name] = at
		b.add(n, key{name, at}, value.Value, depth)
	}
	for _, from := range merges {
		b.merge(n, seen, from, depth)
	}
}

// add builds one entry of a mapping. A value that is left out has no position
// of its own, and a block begins below its key: there the key's stands in.
func (b *builder) add(n *Node, k key, value ast.Node, depth int) {
	child := b.build(value, fields.Join(n.path, k.name), depth+1)
	if child.kind == null || child.pos.Line > k.pos.Line && (child.kind == mapping || child.kind == list) {
		child.pos = k.pos
	}
	n.keys = append(n.keys, k)
	n.children = append(n.children, child)
}

// merge adds the entries of a mapping, an alias of one or a list of these.
func (b *builder) merge(n *Node, seen map[string]Position, from ast.Node, depth int) {
	if !b.used(n.path, depth) {
		b.doc.tooLarge(start(from))
		return
	}
	switch from := from.(type) {
	case *ast.AliasNode:
		at := &Node{path: fields.Join(n.path, "<<"), pos: start(from)}
		if value := b.resolve(from, at); value != nil {
			b.merge(n, seen, value, depth+1)
		}
	case *ast.MappingNode:
		for _, value := range from.Values {
			if _, nested := value.Key.(*ast.MergeKeyNode); nested {
				b.merge(n, seen, value.Value, depth+1)
				continue
			}
			name, plain := keyName(value.Key)
			if _, overridden := seen[name]; overridden || !plain {
				continue
			}
			at := start(value.Key)
			seen[name] = at
			b.add(n, key{name, at}, value.Value, depth)
		}
	case *ast.SequenceNode:
		for _, value := range from.Values {
			b.merge(n, seen, value, depth+1)
		}
	default:
		b.doc.fail(start(from), fields.Join(n.path, "<<"), "only a mapping can be merged, as in \"<<: *name\"")
	}
}

// setString also takes the numbers that the parser passes as texts: those with
// an exponent and no point, such as 1e6, and those beyond 64 bits.
func (n *Node) setString(from *ast.StringNode) {
	if from.Token.Type == token.StringType && strings.Trim(from.Value, "+-.0123456789eE") == "" {
		if v, err := strconv.ParseFloat(from.Value, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			n.setFloat(v, from.Token)
			return
		}
	}
	n.kind, n.source = text, from.Value
}

func (n *Node) setInteger(from *ast.IntegerNode) {
	n.kind, n.source = integer, from.Token.Value
	switch v := from.Value.(type) {
	case int64:
		n.number, n.whole, n.fits = float64(v), v, true
	case uint64:
		n.number, n.whole, n.fits = float64(v), int64(v), v <= math.MaxInt64
	}
}

func (n *Node) setFloat(v float64, from *token.Token) {
	n.kind, n.source, n.number = float, from.Value, v
	const exact = 1 << 53 // beyond it neighbouring whole numbers look the same
	if v == math.Trunc(v) && math.Abs(v) <= exact {
		n.whole, n.fits = int64(v), true
	}
}

func keyName(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// start returns where a value begins. The parser places a mapping at its
// first colon; a user looks for its first name.
func start(n ast.Node) Position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return start(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return start(n.Key)
	}
	return position(n.GetToken())
}
