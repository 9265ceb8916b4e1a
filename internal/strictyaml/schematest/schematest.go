// Package schematest checks in tests that a JSON schema for editors and a Go
// type that strictyaml decodes into know the same fields, of the same types,
// and that the schema accepts or refuses a file.
package schematest

import (
	"bytes"
	"encoding"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentsched/agentsched/internal/strictyaml"
)

// Schema is a JSON schema read from a file.
type Schema struct {
	root     map[string]any
	compiled *jsonschema.Schema
}

// Load reads and compiles the schema at path.
func Load(t *testing.T, path string) *Schema {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("file:///schema", value); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("file:///schema")
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return &Schema{value.(map[string]any), compiled}
}

// Validate returns why the schema refuses the YAML in data, or nil. A file
// that is no YAML, or has a key twice, never comes before a schema: parsed is
// false then.
func (s *Schema) Validate(data []byte) (parsed bool, err error) {
	doc, err := strictyaml.Parse("file", data)
	if err != nil || doc.Err() != nil {
		return false, nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc.Root().JSON()))
	if err != nil {
		return false, err
	}
	return true, s.compiled.Validate(value)
}

// Types says which JSON types the values of a Go type with a form of its own
// have, e.g. {"string"} for a moment and {"string", "object"} for instructions.
type Types map[reflect.Type][]string

// Compare fails the test for each field of the type of v, a struct, that the
// schema lacks or has with another type, and for each that only the schema
// has. enums are the words allowed at a path such as "jobs[].type"; a path
// without them may have no enum in the schema. It returns the paths compared.
func (s *Schema) Compare(t *testing.T, v any, own Types, enums map[string][]string) []string {
	t.Helper()
	c := comparison{t: t, schema: s, own: own, enums: maps.Clone(enums)}
	c.value("", s.root, reflect.TypeOf(v))
	for path := range c.enums {
		t.Errorf("%s: enum in the table, but no such field", path)
	}
	return c.paths
}

type comparison struct {
	t      *testing.T
	schema *Schema
	own    Types
	enums  map[string][]string
	paths  []string
}

// resolve follows a local reference; what stands beside it is kept.
func (c *comparison) resolve(s map[string]any) map[string]any {
	ref, ok := s["$ref"].(string)
	if !ok {
		return s
	}
	at := any(c.schema.root)
	for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[step]
	}
	merged := maps.Clone(at.(map[string]any))
	maps.Copy(merged, s)
	return merged
}

func (c *comparison) value(path string, s map[string]any, typ reflect.Type) {
	c.t.Helper()
	s = c.resolve(s)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if path != "" {
		c.paths = append(c.paths, path)
	}
	if got, want := typesOf(s), c.typesFor(typ); !slices.Equal(got, want) {
		c.t.Errorf("%s: type %v in the schema, %v in the decoder", path, got, want)
		return
	}
	c.enum(path, s)
	if _, ok := c.own[typ]; ok {
		return
	}
	switch typ.Kind() {
	case reflect.Struct:
		if !reflect.PointerTo(typ).Implements(textType) {
			c.fields(path, s, typ)
		}
	case reflect.Slice:
		c.value(path+"[]", s["items"].(map[string]any), typ.Elem())
	case reflect.Map:
		each, ok := s["additionalProperties"].(map[string]any)
		if !ok {
			c.t.Errorf("%s: no additionalProperties in the schema for the entries of a map", path)
			return
		}
		c.value(path+".*", each, typ.Elem())
	}
}

func (c *comparison) fields(path string, s map[string]any, typ reflect.Type) {
	c.t.Helper()
	if s["additionalProperties"] != false {
		c.t.Errorf("%s: additionalProperties is not false in the schema", path)
	}
	properties, _ := s["properties"].(map[string]any)
	seen := map[string]bool{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name := strictyaml.FieldName(f)
		if name == "" {
			continue
		}
		seen[name] = true
		full := strings.TrimPrefix(path+"."+name, ".")
		p, ok := properties[name].(map[string]any)
		if !ok {
			c.t.Errorf("%s: in the decoder, not in the schema", full)
			continue
		}
		if text, _ := p["description"].(string); text == "" {
			c.t.Errorf("%s: no description in the schema", full)
		}
		c.value(full, p, f.Type)
	}
	for name := range properties {
		if !seen[name] {
			c.t.Errorf("%s.%s: in the schema, not in the decoder", path, name)
		}
	}
}

func (c *comparison) enum(path string, s map[string]any) {
	c.t.Helper()
	var got []string
	if list, ok := s["enum"].([]any); ok {
		for _, word := range list {
			got = append(got, fmt.Sprint(word))
		}
	}
	want := slices.Clone(c.enums[path])
	delete(c.enums, path)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: enum %v in the schema, %v in the decoder", path, got, want)
	}
}

// typesOf returns the JSON types that a schema allows, sorted.
func typesOf(s map[string]any) []string {
	if one, ok := s["type"].(string); ok {
		return []string{one}
	}
	var list []string
	alternatives, _ := s["oneOf"].([]any)
	for _, one := range alternatives {
		list = append(list, typesOf(one.(map[string]any))...)
	}
	slices.Sort(list)
	return list
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

func (c *comparison) typesFor(typ reflect.Type) []string {
	if list, ok := c.own[typ]; ok {
		return list
	}
	if reflect.PointerTo(typ).Implements(textType) {
		return []string{"string"}
	}
	switch typ.Kind() {
	case reflect.Struct, reflect.Map:
		return []string{"object"}
	case reflect.Slice:
		return []string{"array"}
	case reflect.String:
		return []string{"string"}
	case reflect.Bool:
		return []string{"boolean"}
	case reflect.Int, reflect.Int64:
		return []string{"integer"}
	case reflect.Float64:
		return []string{"number"}
	}
	return []string{typ.String()}
}
