package fields

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Tagged is a type whose fields have these tags unless they say otherwise,
// e.g. the pattern of a name. The method is called on the zero value.
type Tagged interface {
	FieldTag() reflect.StructTag
}

// Custom is a type with a form of its own in a file, which no tag describes: it
// is decoded and checked by itself (strictyaml.NodeDecoder).
type Custom interface {
	// JSONSchema returns the form as a JSON object.
	JSONSchema() string
}

// Ruled is a struct with rules between its fields.
type Ruled interface {
	// JSONSchemaRules returns what the rules add to the schema, as a JSON object.
	JSONSchemaRules() string
}

// Defaulter is a struct whose fields have defaults where a file does not give
// them. It is called on the zero value.
type Defaulter interface {
	SetDefaults()
}

// Field is one field of a struct, or of a struct that stands inline in it.
type Field struct {
	Name     string // in a file
	Index    []int  // for reflect.Value.FieldByIndex
	Type     reflect.Type
	Owner    reflect.Type // the struct that declares it
	GoName   string
	Tag      reflect.StructTag // its own, then those of its type
	Optional bool              // zero means not given
}

// Reserved reports whether the field is refused.
func (f *Field) Reserved() bool { return f.Tag.Get("strict") == "reserved" }

var known sync.Map // reflect.Type to []Field

// Of returns the fields of a struct that a file can give, in the order of their
// declaration. Of two with one name the less deeply nested one counts, as in
// encoding/json.
func Of(t reflect.Type) []Field {
	if list, ok := known.Load(t); ok {
		return list.([]Field)
	}
	list, at := []Field{}, map[string]int{}
	add := func(f Field) {
		i, twice := at[f.Name]
		switch {
		case !twice:
			at[f.Name] = len(list)
			list = append(list, f)
		case len(f.Index) < len(list[i].Index):
			list[i] = f
		}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline := nameOf(f)
		switch {
		case inline:
			for _, inner := range Of(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				add(inner)
			}
		case name != "":
			options := f.Tag.Get("json") + f.Tag.Get("yaml")
			optional := strings.Contains(options, ",omit") || f.Type.Kind() == reflect.Pointer
			add(Field{name, []int{i}, f.Type, t, f.Name, tagOf(f.Type, f.Tag), optional})
		}
	}
	known.Store(t, list)
	return list
}

// nameOf returns by which name a file gives f, or that its fields stand in its place.
func nameOf(f reflect.StructField) (name string, inline bool) {
	tag, found := f.Tag.Lookup("yaml")
	if !found {
		tag = f.Tag.Get("json")
	}
	name, options, _ := strings.Cut(tag, ",")
	if name == "-" {
		return "", false
	}
	return name, options == "inline" || name == "" && f.Anonymous
}

// forms are tags that fields of several packages have in common, by the name
// that their tag form gives.
var forms = map[string]reflect.StructTag{
	"word":     `match:"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$" is:"a name" want:"1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @"`,
	"variable": `match:"^[A-Za-z_][A-Za-z0-9_]*$" secret:"true" want:"the name of a variable such as HTTPS_PROXY, not a value; values are taken from the scheduler's environment"`,
}

// tagOf returns a tag followed by those of its form and of the type.
func tagOf(t reflect.Type, tag reflect.StructTag) reflect.StructTag {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && !isTagged(t) {
		t = t.Elem()
	}
	if isTagged(t) {
		tag += " " + reflect.Zero(t).Interface().(Tagged).FieldTag()
	}
	if form := tag.Get("form"); form != "" {
		tag += " " + forms[form]
	}
	return tag
}

func isTagged(t reflect.Type) bool { return t.Implements(reflect.TypeFor[Tagged]()) }

// Words returns the enumeration of a type.
func Words[T Tagged]() []string {
	var zero T
	return strings.Fields(zero.FieldTag().Get("words"))
}

// Enum returns the tag of a type that has these words.
func Enum[T ~string](words ...T) reflect.StructTag {
	return reflect.StructTag(fmt.Sprintf("words:%q", join(words, " ")))
}

func join[T ~string](words []T, between string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, between)
}

// Join returns the path of an entry of a mapping. A name that would not read
// well in a path stands in brackets and quotes, e.g. prices["gpt-5.1"].
func Join(path, name string) string {
	if strings.ContainsAny(name, ".[]\" \t\n") || name == "" {
		return fmt.Sprintf("%s[%q]", path, Clip(name))
	}
	if path == "" {
		return Clip(name)
	}
	return path + "." + Clip(name)
}

// maxQuoted is how many characters of a value a message quotes.
const maxQuoted = 60

// Clip shortens what a message quotes.
func Clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	if r := []rune(s); len(r) > maxQuoted {
		return string(r[:maxQuoted]) + "…"
	}
	return s
}
