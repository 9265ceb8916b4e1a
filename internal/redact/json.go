package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON returns a value in JSON with the strings in it redacted, the names of fields
// too. A secret is found however a string is escaped. Numbers keep their digits. The
// error is that of a value that JSON cannot hold.
func (r *Redactor) JSON(value any) (json.RawMessage, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("redact a value of type %T: %w", value, err)
	}
	if r == nil || bytes.IndexByte(text, '\\') < 0 && !r.suspects(asString(text)) {
		return text, nil // without an escape each string stands in the text as it is
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("redact a value of type %T: %w", value, err)
	}
	return json.Marshal(r.within(v))
}

func (r *Redactor) within(v any) any {
	switch v := v.(type) {
	case string:
		return r.String(v)
	case []any:
		for i := range v {
			v[i] = r.within(v[i])
		}
	case map[string]any:
		for name, field := range v {
			if clean := r.String(name); clean != name {
				delete(v, name)
				name = clean
			}
			v[name] = r.within(field)
		}
	}
	return v
}
