package scriptmodel

import "encoding/json"

// instance makes a value that has the shape of a JSON Schema. It follows types, properties, items, enum and const, which is what
// answer schemas use; bounds and patterns are not honoured.
func instance(schema json.RawMessage, text string) any {
	var s struct {
		Type       any                        `json:"type"`
		Const      any                        `json:"const"`
		Enum       []any                      `json:"enum"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return text
	}
	if s.Const != nil {
		return s.Const
	}
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	switch kind := firstType(s.Type); {
	case kind == "object" || kind == "" && s.Properties != nil:
		o := object{}
		for name, sub := range s.Properties {
			o[name] = instance(sub, text)
		}
		return o
	case kind == "array" && s.Items != nil:
		return []any{instance(s.Items, text)}
	case kind == "array":
		return []any{}
	case kind == "integer" || kind == "number":
		return 1
	case kind == "boolean":
		return true
	case kind == "null":
		return nil
	}
	return text
}

// firstType reads "type", which may be one name or a list of them.
func firstType(t any) string {
	if list, ok := t.([]any); ok && len(list) > 0 {
		t = list[0]
	}
	name, _ := t.(string)
	return name
}
