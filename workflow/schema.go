package workflow

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/expr-lang/expr/checker/nature"
	"github.com/expr-lang/expr/types"
)

// maxSchemaDepth bounds how deep a schema is read: it may refer to itself.
const maxSchemaDepth = 16

// schemaType returns the type of the values that a JSON schema allows, as far as
// an expression needs it; what the schema leaves open may be anything. Of an
// object whose properties are listed only those can be named, unless
// additionalProperties or another keyword says that there are more.
func schemaType(raw json.RawMessage) types.Type {
	var root any
	if json.Unmarshal(raw, &root) != nil {
		return types.Any
	}
	return (&schema{root}).of(root, 0)
}

// schema is the document in which references point.
type schema struct{ root any }

func (s *schema) of(value any, depth int) types.Type {
	m, ok := value.(map[string]any)
	if !ok || depth > maxSchemaDepth {
		return types.Any
	}
	if ref, ok := m["$ref"].(string); ok {
		return s.of(s.resolve(ref), depth+1)
	}
	switch typeWord(m) {
	case "object":
		return s.object(m, depth)
	case "array":
		if items, ok := m["items"].(map[string]any); ok && m["prefixItems"] == nil {
			return types.Array(s.of(items, depth+1))
		}
		return types.Array(types.Any)
	case "string":
		return types.String
	case "integer":
		return types.Int
	case "number":
		return types.Float64
	case "boolean":
		return types.Bool
	}
	return types.Any
}

func (s *schema) object(m map[string]any, depth int) types.Type {
	fields := types.Map{}
	properties, _ := m["properties"].(map[string]any)
	for name, p := range properties {
		fields[name] = s.of(p, depth+1)
	}
	closed := false
	switch more := m["additionalProperties"].(type) {
	case nil:
		closed = len(properties) > 0
	case bool:
		closed = !more
	case map[string]any:
		fields[types.Extra] = s.of(more, depth+1)
		return fields
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas", "$dynamicRef"} {
		if m[keyword] != nil {
			closed = false
		}
	}
	if !closed {
		fields[types.Extra] = types.Any
	}
	return fields
}

// typeWord returns the one type that a schema allows beside null, or "".
func typeWord(m map[string]any) string {
	switch t := m["type"].(type) {
	case string:
		return t
	case []any:
		word := ""
		for _, e := range t {
			switch {
			case e == "null":
			case word != "":
				return ""
			default:
				word, _ = e.(string)
			}
		}
		return word
	}
	if m["properties"] != nil {
		return "object"
	}
	values, _ := m["enum"].([]any)
	if c, ok := m["const"]; ok {
		values = []any{c}
	}
	word := ""
	for _, v := range values {
		w := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number"}[reflect.ValueOf(v).Kind()]
		if w == "" || word != "" && w != word {
			return ""
		}
		word = w
	}
	return word
}

// resolve returns what a reference within the document points to, or nil.
func (s *schema) resolve(ref string) any {
	path, local := strings.CutPrefix(ref, "#")
	if !local {
		return nil
	}
	value := s.root
	for _, step := range strings.Split(path, "/") {
		if step == "" {
			continue
		}
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return value
}

// literalType returns the type that all values of a list have.
func literalType(list []any) types.Type {
	words := map[string]any{}
	for _, v := range list {
		words[typeWord(map[string]any{"const": v})] = true
	}
	if len(words) == 1 {
		for word := range words {
			return (&schema{}).of(map[string]any{"type": word}, 0)
		}
	}
	return types.Any
}

// found is a type that the checker has found.
type found struct{ n nature.Nature }

// Nature implements types.Type.
func (f found) Nature() nature.Nature { return f.n }

// Equal implements types.Type.
func (f found) Equal(t types.Type) bool { return f.n.Type == t.Nature().Type }

// String implements types.Type.
func (f found) String() string { return f.n.String() }
