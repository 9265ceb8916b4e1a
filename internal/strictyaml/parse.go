package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file. The parser's time grows with the square of the depth, so
// that a short file could otherwise keep it busy for minutes.
const (
	MaxBytes  = 4 << 20  // bytes of a file
	maxFlow   = 50       // brackets and braces within each other
	maxColumn = 200      // where a block's key or dash may stand: bounds its depth
	maxNodes  = 200_000  // values of a file, with each alias written out
	maxDepth  = 100      // values within each other, with each alias written out
	maxPaths  = 64 << 20 // bytes of the paths of all values
)

// Parse reads a file's bytes. The error is of type Errors: the file is not
// YAML, or empty, or more than one document. Mistakes that leave the rest of
// the file readable, such as a duplicate key, are kept and reported by Err.
func Parse(file string, data []byte) (*Doc, error) {
	d := &Doc{file: file, index: map[string]*Node{}, blamed: map[string]bool{}, partly: map[string]bool{}}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if err := d.checkText(data); err != nil {
		return nil, Errors{err}
	}
	bodies, err := d.parse(data)
	if err != nil {
		return nil, Errors{err}
	}
	switch {
	case len(bodies) == 0:
		e := d.errorAt(Position{1, 1}, "", "the file is empty: there is nothing in it but white space and comments")
		e.cause = ErrEmpty
		return nil, Errors{e}
	case len(bodies) > 1:
		return nil, Errors{d.errorAt(start(bodies[1]), "", "a second document begins here; put one document into a file and remove the line ---")}
	}
	b := builder{doc: d, anchors: map[string]ast.Node{}}
	d.root = b.build(bodies[0], "", 0)
	return d, nil
}

// checkText refuses bytes that are no text before the parser makes a riddle of them.
func (d *Doc) checkText(data []byte) *Error {
	if len(data) > MaxBytes {
		return d.errorAt(Position{1, 1}, "", fmt.Sprintf("the file has %d bytes, at most %d are allowed; keep long texts in files of their own", len(data), MaxBytes))
	}
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return d.errorAt(Position{1, 1}, "", "the file is text in UTF-16; save it as UTF-8")
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return d.errorAt(Position{line, column}, "", fmt.Sprintf("byte 0x%02x is not text in UTF-8; is this a YAML file?", data[i]))
		case r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f:
			return d.errorAt(Position{line, column}, "", fmt.Sprintf("control character 0x%02x stands here; is this a YAML file?", data[i]))
		case r == '\n':
			line, column = line+1, 0
		}
		column++
		i += size
	}
	return nil
}

// parse returns the documents of the file that are not empty.
func (d *Doc) parse(data []byte) (bodies []ast.Node, mistake *Error) {
	// The parser has been seen to panic on malformed input; a panic on a
	// user's file must not end a scheduler with running jobs.
	defer func() {
		if r := recover(); r != nil {
			bodies, mistake = nil, d.errorAt(Position{1, 1}, "", "the file cannot be read as YAML: check its brackets, quotes and indentation")
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if err := d.checkDepth(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, d.syntaxError(err, data)
	}
	for _, one := range file.Docs {
		switch body := one.Body.(type) {
		case nil:
		case *ast.DirectiveNode:
			return nil, d.errorAt(start(body), "", "directives are not supported; remove this line")
		default:
			bodies = append(bodies, body)
		}
	}
	return bodies, nil
}

func (d *Doc) checkDepth(tokens token.Tokens) *Error {
	flow := 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType:
			if flow <= 0 && t.Position.Column > maxColumn {
				return d.errorAt(position(t), "", "this is indented too deep")
			}
		case token.MappingValueType:
			if flow <= 0 && t.Position.IndentNum > maxColumn {
				return d.errorAt(position(t), "", "this is indented too deep")
			}
		}
		if flow > maxFlow {
			return d.errorAt(position(t), "", fmt.Sprintf("more than %d brackets are open here", maxFlow))
		}
	}
	return nil
}

// syntaxError says in a user's words what the parser found.
func (d *Doc) syntaxError(err error, data []byte) *Error {
	var syntax *yaml.SyntaxError
	if !errors.As(err, &syntax) || syntax.Token == nil {
		return d.errorAt(Position{1, 1}, "", "the file cannot be read as YAML: "+err.Error())
	}
	at := position(syntax.Token)
	if strings.Contains(syntax.Message, "tab") {
		at.Column = tabColumn(data, at)
	}
	return d.errorAt(at, "", explain(syntax.Message))
}

// tabColumn returns where the first tab of a line's indentation stands, since
// the parser points at what follows it.
func tabColumn(data []byte, at Position) int {
	lines := bytes.SplitN(data, []byte("\n"), at.Line+1)
	if at.Line > len(lines) {
		return at.Column
	}
	line := lines[at.Line-1]
	indent := len(line) - len(bytes.TrimLeft(line, " \t"))
	if i := bytes.IndexByte(line[:indent], '\t'); i >= 0 {
		return i + 1
	}
	return at.Column
}

func position(t *token.Token) Position {
	if t == nil || t.Position == nil || t.Position.Line < 1 || t.Position.Column < 1 {
		return Position{1, 1}
	}
	return Position{t.Position.Line, t.Position.Column}
}
