// Package schematest checks in tests that a JSON schema for editors and a
// reference page are what a Go type says that strictyaml decodes into, and that
// the schema accepts a file.
package schematest

import (
	"bytes"
	"os"
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
