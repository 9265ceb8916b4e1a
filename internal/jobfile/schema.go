package jobfile

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentsched/agentsched/internal/jsoncheck"
	"github.com/agentsched/agentsched/internal/strictyaml"
)

// checkSchema returns the JSON schema raw, the JSON of n, or records why it is
// none and returns nil.
func checkSchema(n *strictyaml.Node, raw json.RawMessage) *jsonschema.Schema {
	compiled, err := jsoncheck.Compile(raw)
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
		first := jsoncheck.Mistakes(invalid)[0]
		n.Nearest(first.At).Failf("is not a JSON schema: %s", first.Why)
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

// fragment cuts our own name for the schema off a reference.
func fragment(url string) string {
	return strings.TrimPrefix(url, jsoncheck.URL)
}
