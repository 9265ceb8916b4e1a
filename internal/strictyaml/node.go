package strictyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
)

// Path returns where in the document n stands, e.g. "jobs[0].output".
func (n *Node) Path() string { return n.path }

// Failf records a mistake in n.
func (n *Node) Failf(format string, args ...any) {
	n.doc.fail(n.pos, n.path, format, args...)
}

// Nearest follows steps, names of entries and indices of items, from n as far
// as they lead and returns the value that it reaches.
func (n *Node) Nearest(steps []string) *Node {
	for len(steps) > 0 {
		i := -1
		switch n.kind {
		case mapping:
			i = slices.IndexFunc(n.keys, func(k key) bool { return k.name == steps[0] })
		case list:
			if at, err := strconv.Atoi(steps[0]); err == nil && at < len(n.children) {
				i = at
			}
		}
		if i < 0 {
			break
		}
		n, steps = n.children[i], steps[1:]
	}
	return n
}

// IsMapping reports whether n is a mapping.
func (n *Node) IsMapping() bool { return n.kind == mapping }

// IsList reports whether n is a list.
func (n *Node) IsList() bool { return n.kind == list }

// IsNull reports whether n has no value.
func (n *Node) IsNull() bool { return n.kind == null }

// IsText reports whether n is a text, an empty one too.
func (n *Node) IsText() bool { return n.kind == text }

// IsBlank reports whether n is a text of nothing but white space.
func (n *Node) IsBlank() bool { return n.kind == text && strings.TrimSpace(n.source) == "" }

// HasEntry reports whether n is a mapping with an entry of that name.
func (n *Node) HasEntry(name string) bool {
	return n.kind == mapping && slices.ContainsFunc(n.keys, func(k key) bool { return k.name == name })
}

// Text returns the text that n is. If n is something else, or an empty text,
// it records that and returns false.
func (n *Node) Text() (string, bool) {
	switch n.kind {
	case text:
		if n.source == "" {
			n.Failf("is empty; give a value or leave it out")
			return "", false
		}
		return n.source, true
	case integer, float, boolean:
		n.Failf("found %s, want text; write %s with quotes around it", n.Found(), strconv.Quote(fields.Clip(n.source)))
	case null:
		n.Failf("has no value; give one or leave it out")
	case mapping, list:
		n.Failf("found %s, want text", n.Found())
	}
	return "", false
}

// Found names what n is, for messages: `the text "x"`, "the number 3", "a list".
func (n *Node) Found() string {
	switch n.kind {
	case null:
		return "no value"
	case boolean:
		return n.source
	case integer, float:
		return "the number " + fields.Clip(n.source)
	case text:
		return fmt.Sprintf("the text %q", fields.Clip(n.source))
	case mapping:
		return "a mapping"
	default:
		return "a list"
	}
}

// JSON returns n as JSON, the entries of mappings in the order of the file,
// since models answer in the order in which a schema names the properties. It
// records a number that JSON cannot say and writes null in its place.
func (n *Node) JSON() json.RawMessage {
	var b bytes.Buffer
	n.writeJSON(&b)
	return b.Bytes()
}

func (n *Node) writeJSON(b *bytes.Buffer) {
	switch n.kind {
	case boolean:
		b.WriteString(n.source)
	case integer, float:
		n.writeNumber(b)
	case text:
		writeString(b, n.source)
	case list:
		b.WriteByte('[')
		for i, child := range n.children {
			if i > 0 {
				b.WriteByte(',')
			}
			child.writeJSON(b)
		}
		b.WriteByte(']')
	case mapping:
		b.WriteByte('{')
		for i, child := range n.children {
			if i > 0 {
				b.WriteByte(',')
			}
			writeString(b, n.keys[i].name)
			b.WriteByte(':')
			child.writeJSON(b)
		}
		b.WriteByte('}')
	default:
		b.WriteString("null")
	}
}

func (n *Node) writeNumber(b *bytes.Buffer) {
	switch {
	case n.kind == integer && n.fits:
		b.WriteString(strconv.FormatInt(n.whole, 10))
	case n.kind == integer:
		b.WriteString(strconv.FormatUint(uint64(n.whole), 10))
	case n.number-n.number != 0:
		n.Failf("found %s, want a number that JSON can say", n.Found())
		b.WriteString("null")
	default:
		b.WriteString(strconv.FormatFloat(n.number, 'g', -1, 64))
	}
}

// writeString writes s as JSON without escaping <, > and &, which would only
// make a pattern hard to read.
func writeString(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // a string into a buffer cannot fail
	b.Truncate(b.Len() - 1) // the newline that Encode adds
}
