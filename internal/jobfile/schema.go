package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/agentsched/agentsched/internal/strictyaml"
)

// schemaURL names a job's output schema to the compiler; references within
// the schema are resolved against it and nothing is ever loaded from it.
const schemaURL = "job:///output"

// checkSchema returns the JSON schema raw, the JSON of n, or records why it is
// none and returns nil.
func checkSchema(n *strictyaml.Node, raw json.RawMessage) *jsonschema.Schema {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		n.Failf("is not a JSON schema: %v", err)
		return nil
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, value); err != nil {
		n.Failf("is not a JSON schema: %v", err)
		return nil
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		failSchema(n, err)
		return nil
	}
	return compiled
}

// failSchema records the compiler's refusal where its cause stands.
func failSchema(n *strictyaml.Node, err error) {
	var mismatch *jsonschema.SchemaValidationError
	if errors.As(err, &mismatch) {
		err = mismatch.Err // it does not unwrap by itself
	}
	var invalid *jsonschema.ValidationError
	var remote *jsonschema.LoadURLError
	var nowhere *jsonschema.JSONPointerNotFoundError
	var noAnchor *jsonschema.AnchorNotFoundError
	var regex *jsonschema.InvalidRegexError
	switch {
	case errors.As(err, &invalid):
		at, why := first(invalid)
		n.Nearest(at).Failf("is not a JSON schema: %s", why)
	case errors.As(err, &remote):
		n.Failf("refers to %s: a schema must be whole in the job file; use $defs", remote.URL)
	case errors.As(err, &nowhere):
		n.Failf("refers to %s, which is not in the schema", fragment(nowhere.URL))
	case errors.As(err, &noAnchor):
		n.Failf("refers to the anchor %s, which is not in the schema", fragment(noAnchor.Reference))
	case errors.As(err, &regex):
		n.Failf("has the pattern %q, which is not a regular expression of RE2: %v", regex.Regex, regex.Err)
	default:
		n.Failf("is not a JSON schema: %v", err)
	}
}

// first returns the first cause of a refusal: where it stands, and what it is.
func first(invalid *jsonschema.ValidationError) (at []string, why string) {
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	return invalid.InstanceLocation, invalid.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

// fragment cuts our own name for the schema off a reference.
func fragment(url string) string {
	return strings.TrimPrefix(url, schemaURL)
}

// noLoader refuses references that leave the schema: a job must mean the same
// wherever and whenever it runs, and reading a job file must touch no network.
type noLoader struct{}

// Load refuses url.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document", url)
}
