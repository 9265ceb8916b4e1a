package strictyaml

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
)

// NodeDecoder is a type with a form of its own in the file, e.g. "a text or a
// mapping". DecodeNode records what is wrong with n (Node.Failf) itself.
type NodeDecoder interface {
	DecodeNode(n *Node)
}

// Decode fills v, a pointer, from the file: structs by their tags `yaml` or,
// where there is none, `json`; maps with text keys; slices; pointers; texts,
// numbers, booleans; NodeDecoders and encoding.TextUnmarshalers. What the file
// does not give stays as it was in v, so that v can hold defaults; an entry of
// a map is replaced as a whole. Mistakes are recorded, see Err.
func (d *Doc) Decode(v any) { d.root.Decode(v) }

// Decode fills v, a pointer, from n as Doc.Decode does from the file.
func (n *Node) Decode(v any) { n.into(reflect.ValueOf(v).Elem(), "") }

// into fills v, of which tag says in which short forms a file may write it.
func (n *Node) into(v reflect.Value, tag reflect.StructTag) {
	if n.kind == broken {
		return
	}
	if own, ok := v.Addr().Interface().(NodeDecoder); ok {
		own.DecodeNode(n)
		return
	}
	if v.Kind() == reflect.Pointer {
		fresh := reflect.New(v.Type().Elem())
		n.into(fresh.Elem(), tag)
		v.Set(fresh)
		return
	}
	if n.kind == null {
		n.Failf("has no value; give one or leave it out")
		return
	}
	if own, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		n.intoText(own)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		n.intoStruct(v, tag.Get("short"))
	case reflect.Map:
		n.intoMap(v)
	case reflect.Slice:
		n.intoSlice(v, tag)
	case reflect.String:
		if s, ok := n.Text(); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if n.kind != boolean {
			n.Failf("found %s, want true or false", n.Found())
			return
		}
		v.SetBool(n.source == "true")
	case reflect.Int, reflect.Int64:
		n.intoInt(v)
	case reflect.Float64:
		n.intoFloat(v)
	default:
		// A type that no field of ours has: the programmer's mistake, not the user's.
		panic(fmt.Sprintf("strictyaml: cannot decode into %s", v.Type()))
	}
}

// intoStruct reads a mapping or, where short names a field, that field's value.
func (n *Node) intoStruct(v reflect.Value, short string) {
	if own, ok := v.Addr().Interface().(fields.Defaulter); ok && v.IsZero() {
		own.SetDefaults()
	}
	known := map[string]*fields.Field{}
	all := fields.Of(v.Type())
	for i := range all {
		known[all[i].Name] = &all[i]
	}
	if f := known[short]; f != nil && n.kind == list && f.Type.Kind() == reflect.String {
		n.Failf("found a list, want text for %s, or a mapping with the fields %s", short, strings.Join(names(v.Type()), ", "))
		return
	} else if f != nil && n.kind != mapping {
		n.into(v.FieldByIndex(f.Index), f.Tag)
		return
	}
	if n.kind != mapping {
		n.Failf("found %s, want a mapping with the fields %s", n.Found(), strings.Join(names(v.Type()), ", "))
		return
	}
	for i, k := range n.keys {
		f, ok := known[k.name]
		switch {
		case !ok:
			n.unknown(k, names(v.Type()))
		case f.Reserved():
			n.children[i].Failf("is not supported yet; remove it")
		default:
			n.children[i].into(v.FieldByIndex(f.Index), f.Tag)
		}
	}
}

// unknown reports a field that does not exist. If it looks like a slip of
// another's name, that one counts as given, so that the user does not read
// that it is missing as well.
func (n *Node) unknown(k key, known []string) {
	path := fields.Join(n.path, k.name)
	near := fields.Nearest(k.name, known)
	if near == "" {
		n.doc.fail(k.pos, path, "unknown field; known here: %s", strings.Join(known, ", "))
		return
	}
	n.doc.fail(k.pos, path, "unknown field; did you mean %s?", near)
	if !n.doc.Has(fields.Join(n.path, near)) {
		n.doc.blame(fields.Join(n.path, near))
	}
}

// names returns the fields of a struct in the order of their declaration, but
// for the reserved ones, which are never recommended.
func names(t reflect.Type) []string {
	var list []string
	for _, f := range fields.Of(t) {
		if !f.Reserved() {
			list = append(list, f.Name)
		}
	}
	return list
}

func (n *Node) intoMap(v reflect.Value) {
	if n.kind != mapping {
		n.Failf("found %s, want a mapping (name: value)", n.Found())
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for i, k := range n.keys {
		value := reflect.New(v.Type().Elem()).Elem()
		n.children[i].into(value, "")
		v.SetMapIndex(reflect.ValueOf(k.name).Convert(v.Type().Key()), value)
	}
}

// intoSlice keeps a place for each item that is wrong, so that the indices of
// the slice are those of the file.
func (n *Node) intoSlice(v reflect.Value, tag reflect.StructTag) {
	if tag.Get("single") != "" && n.kind != list && n.kind != mapping {
		items := reflect.MakeSlice(v.Type(), 1, 1)
		n.into(items.Index(0), "")
		v.Set(items)
		return
	}
	if n.kind != list {
		example := ""
		if n.kind == text && !strings.ContainsAny(n.source, " \n,[]{}") {
			example = fmt.Sprintf(" such as [%s]", fields.Clip(n.source))
		}
		n.Failf("found %s, want a list%s", n.Found(), example)
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.children), len(n.children))
	for i, child := range n.children {
		child.into(items.Index(i), tag)
	}
	v.Set(items)
}

func (n *Node) intoInt(v reflect.Value) {
	switch {
	case n.kind != integer && n.kind != float, n.number != math.Trunc(n.number) || n.number-n.number != 0:
		n.Failf("found %s, want a whole number", n.Found())
	case !n.fits || v.OverflowInt(n.whole):
		n.Failf("found the number %s, want a whole number in the range of 64 bits", n.source)
	default:
		v.SetInt(n.whole)
	}
}

func (n *Node) intoFloat(v reflect.Value) {
	if n.kind != integer && n.kind != float || n.number-n.number != 0 { // infinite or not a number
		n.Failf("found %s, want a number", n.Found())
		return
	}
	v.SetFloat(n.number)
}

// intoText fills a type that reads texts, e.g. a duration. A bare number gets
// the type's own refusal, which says how to write it.
func (n *Node) intoText(v encoding.TextUnmarshaler) {
	switch n.kind {
	case text, integer, float:
		if err := v.UnmarshalText([]byte(n.source)); err != nil {
			n.Failf("%v", err)
			return
		}
		if n.kind != text {
			n.Text() // refuses it
		}
	default:
		n.Text()
	}
}
