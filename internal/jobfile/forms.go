package jobfile

// The JSON schemas of the types that decode themselves, for editors.

const (
	textForm     = `{"type": "string", "minLength": 1}`
	nameForm     = `{"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}`
	durationForm = `{"pattern": "^\\+?(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"}`
	anyForm      = `{"type": "array"}, {"type": "boolean"}, {"type": "number"}, {"type": "object"}, {"type": "string"}`
)

// JSONSchema implements fields.Custom.
func (choice) JSONSchema() string { return `{"type": "string", "pattern": "^[^:]+(:.+)?$"}` }

// JSONSchema implements fields.Custom.
func (instructions) JSONSchema() string {
	return `{"oneOf": [` + textForm + `, {"type": "object", "additionalProperties": false, "required": ["file"], "properties": {"file": ` + textForm + `}}]}`
}

// JSONSchema implements fields.Custom.
func (output) JSONSchema() string {
	return `{"oneOf": [{"type": "string", "const": "text"}, {"type": "object"}]}`
}

// JSONSchema implements fields.Custom.
func (schema) JSONSchema() string { return `{"type": "object"}` }

// JSONSchema implements fields.Custom.
func (timeOrDuration) JSONSchema() string {
	return `{"type": "string", "anyOf": [{"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T"}, ` + durationForm + `], "examples": ["2030-01-31T18:00:00Z", "2h"]}`
}

// JSONSchema implements fields.Custom.
func (ids) JSONSchema() string {
	return `{"oneOf": [` + nameForm + `, {"type": "array", "minItems": 1, "uniqueItems": true, "items": ` + nameForm + `}]}`
}

// JSONSchema implements fields.Custom.
func (items) JSONSchema() string {
	return `{"oneOf": [` + textForm + `, {"type": "array", "minItems": 1}]}`
}

// JSONSchema implements fields.Custom.
func (input) JSONSchema() string {
	return `{"oneOf": [{"type": "array"}, {"type": "object"}, ` + textForm + `]}`
}

// JSONSchema implements fields.Custom.
func (payload) JSONSchema() string { return `{"oneOf": [` + anyForm + `]}` }
