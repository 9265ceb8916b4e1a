package jsoncheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// URL names the schema to the compiler: references within it are resolved against
// it, and stand so in the compiler's errors.
const URL = "job:///schema"

// Compile compiles a schema. The error is, or wraps, the compiler's own.
func Compile(text json.RawMessage) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(URL, document); err != nil {
		return nil, err
	}
	return c.Compile(URL)
}

// noLoader refuses references that leave the schema: it must mean the same
// wherever it is used, and to check a value must touch no file and no network.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not read", url)
}

// Mistake is one thing that is wrong with a value.
type Mistake struct {
	At  []string // the keys and indices that lead to it, from the outside in
	Why string   // e.g. "value must be one of 'num'"
}

// ErrNotJSON: the value is none.
var ErrNotJSON = errors.New("not JSON")

// Check returns what is wrong with a value by the schema, the deepest causes in
// order; none if it satisfies it. The error is about the schema, or wraps
// ErrNotJSON.
func Check(text json.RawMessage, value []byte) ([]Mistake, error) {
	compiled, err := Compile(text)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return CheckCompiled(compiled, value)
}

// CheckCompiled is Check by a schema that Compile returned.
func CheckCompiled(s *jsonschema.Schema, value []byte) ([]Mistake, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotJSON, err)
	}
	err = s.Validate(v)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	return Mistakes(invalid), nil
}

// Mistakes returns the deepest causes of a refusal, in order.
func Mistakes(e *jsonschema.ValidationError) (all []Mistake) {
	for _, c := range e.Causes {
		all = append(all, Mistakes(c)...)
	}
	if len(e.Causes) > 0 {
		return all
	}
	return []Mistake{{e.InstanceLocation, e.ErrorKind.LocalizedString(message.NewPrinter(language.English))}}
}
